"""Source text of functions of jax whose work is done natively, to see that it is still that."""

from __future__ import annotations

import inspect
import itertools
import threading
import time
import types
from typing import Any

from jaxide._compat.symbols import symbol

# Functions within functions of jax, as they read where what they do is done natively.
CANONICAL_INPUT = "lambda x: x if isinstance(x, core.Tracer) else canonicalize_value(x)"
LINEAR_INPUT = """
def make_tracer(_lin_trace, p):
  t = tangent_trace.new_arg(typeof(p).to_tangent_aval(), source_info)
  if (not isinstance(t, Zero)
      and isinstance(typeof(t), core.ShapedArray)
      and dtype(t) == float0):
    t = p2tz(t)
  return LinearizeTracer(_lin_trace, p, t).full_lower()
"""
# From jax 0.12 on.
CHOSEN_LINEAR_INPUT = """
def make_tracer(_lin_trace, p, nz):
  t = tangent_trace.new_arg(typeof(p).to_tangent_aval(), source_info)
  if (not nz
      or (not isinstance(t, Zero)
          and isinstance(typeof(t), core.ShapedArray)
          and dtype(t) == float0)):
    t = p2tz(p)
  return LinearizeTracer(_lin_trace, p, t).full_lower()
tracers = primals_ft.map2(in_nzs, partial(make_tracer, lin_trace))
"""

ACCUMULATORS = """
maybe_accums = [check_accum(v.aval.to_ct_aval(), x) if isinstance(x, ad.GradAccum) else
                ad.RefAccum(v.aval.to_ct_aval(), x) if _is_ref(x) else
                ad.NullAccum(v.aval.to_ct_aval()) if isinstance(x, DontWant) else
                ad.ValAccum(v.aval.to_ct_aval())
                for v, x in zip(jaxpr.invars, maybe_ct_refs_flat)]
return Partial(partial(_vjp3_bwd, in_tree, out_tree, out_known, jaxpr,
                       out_primal_avals), residuals, maybe_accums)
"""

# From jax 0.11.2 on.
ACCUMULATORS_AND_LOGS = """
residuals = [args_res_[i.idx] if i.primal else opaque_res[i.idx] for i in spec]
arg_invars = jaxpr.invars[len(spec):]  # skip the residual invars
maybe_accums = [_vjp_accum(jaxpr, in_tree, explicit_refs, idx, v, x)
                for idx, (v, x) in enumerate(unsafe_zip(arg_invars, maybe_ct_refs_flat))]
return Partial(partial(_vjp3_bwd, in_tree, out_tree, out_zeros, jaxpr,
                       out_primal_avals, want_logs), residuals, structured_res,
               maybe_accums)
"""
VALUE_ACCUMULATOR = """
else:
  return ad.ValAccum(v.aval.to_ct_aval())
"""

# What the function that `make_jaxpr` returns does first.
MAKE_JAXPR = """
with core.extend_axis_env_nd(axis_env or []):
  traced = jit(fun, static_argnums=static_argnums).trace(*args, **kwargs)
"""

# What a `ShapeDtypeStruct` is compared by.
STRUCT_EQ = """
def __eq__(self, other):
  if not isinstance(other, ShapeDtypeStruct):
    return False
  else:
    return ((self.shape, self.dtype, self.sharding, self._dll,
             self.weak_type, self.manual_axis_type, self.is_ref) ==
            (other.shape, other.dtype, other.sharding, other._dll,
             other.weak_type, other.manual_axis_type, other.is_ref))
"""
STRUCT_HASH = """
def __hash__(self):
  return hash((self.shape, self.dtype, self.sharding, self._dll,
               self.weak_type, self.manual_axis_type, self.is_ref))
"""

# What is done about a function's signature where its rule is called.
RESOLVE_KWARGS = """
if isinstance(fun, partial):
  # functools.partial should have an opaque signature.
  fun = lambda *args, **kwargs: None
ba = inspect.signature(fun).bind(*args, **kwargs)
ba.apply_defaults()
if ba.kwargs:
  passed_kwargs = [k for k in ba.kwargs if k in kwargs]
"""


MAX_ATTEMPTS = 50


def source_text(function: Any) -> str:
    """The source of a function, however it is indented and broken into lines.

    Raises:
      OSError, TypeError: it has none.
    """
    function = inspect.unwrap(function)
    for attempt in itertools.count():
        try:
            return " ".join(inspect.getsource(function).split())
        except SystemError:
            # CPython 3.11 and 3.12 parse the file of a class: one thread at a time can do so.
            if attempt == MAX_ATTEMPTS:
                raise OSError(f"the source of {function} cannot be read") from None
            time.sleep(0.001 * attempt * (1 + threading.get_ident() // 4096 % 5))
    raise AssertionError("not reached")


def has_text(function: Any, text: str) -> bool:
    """Whether the source of a function has a piece of text, however it is indented."""
    try:
        source = source_text(function)
    except (OSError, TypeError):
        return False
    return " ".join(text.split()) in source


def inner_code(path: str, name: str, text: str) -> types.CodeType | None:
    """The code of the function that a function makes in which a name occurs; None where its text is
    another."""
    function = inspect.unwrap(symbol(path))
    codes = [
        code
        for code in function.__code__.co_consts
        if isinstance(code, types.CodeType) and name in code.co_names
    ]
    return codes[0] if len(codes) == 1 and has_text(function, text) else None
