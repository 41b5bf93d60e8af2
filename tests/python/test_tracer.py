"""What users and libraries see of a tracer and its trace, inside a trace, is what stock shows."""

import copy
import inspect
import operator
import re
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import api_util, core, source_info_util
from jax._src import linear_util as lu
from jax._src.interpreters import partial_eval as pe

import jaxide

VECTOR = np.arange(3, dtype=np.float32)
MATRIX = np.ones((2, 3), np.float32)
KEY = jax.random.key(0)


def scrub(text: str) -> str:
    """The text without object addresses."""
    return re.sub(r"0x[0-9a-f]+|id=\d+", "0x", text)


def describe(value: Any) -> Any:
    """A value found during a trace as something that still compares after it."""
    if isinstance(value, core.Tracer):
        return ("tracer", repr(value), str(value.aval), value.aval.weak_type)
    if isinstance(value, BaseException):
        return (type(value), scrub(str(value)), describe(value.__cause__))
    if isinstance(value, core.Literal):
        return ("literal", repr(value), value.aval)
    if isinstance(value, core.Var):
        return ("variable", value.aval)
    if isinstance(value, jax.Array | np.ndarray):
        return (type(value).__name__, value.dtype, np.asarray(value).tolist())
    if isinstance(value, tuple | list):
        return type(value), [describe(v) for v in value]
    if isinstance(value, Mapping):
        return {k: describe(v) for k, v in value.items()}
    if isinstance(value, type):
        return issubclass(value, core.Tracer) or issubclass(value, core.Trace) or value
    if value is None or isinstance(value, bool | int | float | complex | str):
        return value
    return scrub(repr(value))


def look(probe: Callable[..., Any], *args: Any) -> Any:
    """What `probe` gives or raises, as comparable data."""
    try:
        return describe(probe(*args))
    except Exception as error:
        return describe(error)


def seen_by(make_jaxpr: Callable, function: Callable, *args: Any) -> tuple[Any, str]:
    """What `function` reports to its `see` argument in a trace, and the traced program."""
    jax.clear_caches()
    reports = []

    def f(*xs):
        return function(lambda probe, *a: reports.append(look(probe, *a)), *xs)

    text = str(make_jaxpr(f)(*args))
    return reports, text


def assert_same_sight(function: Callable, *args: Any) -> list:
    """Compares what `function` sees and returns under stock and under jaxide."""
    # One call site, since error texts name lines of the caller.
    (expected, text), (actual, made) = (
        seen_by(make, function, *args) for make in (jax.make_jaxpr, jaxide.make_jaxpr)
    )
    assert expected, "nothing was looked at"
    assert actual == expected
    assert made == text
    return actual


# ---- types ------------------------------------------------------------------------------------


def test_types() -> None:
    def f(see, x):
        for y in (x, jnp.sin(x), x + 1.0, jax.vmap(jnp.sin)(x)):
            see(isinstance, y, jax.Array)
            see(isinstance, y, core.Tracer)
            see(isinstance, y, pe.DynamicJaxprTracer)
            see(isinstance, y._trace, core.Trace)
            see(isinstance, y._trace, pe.DynamicJaxprTrace)
            see(isinstance, y, np.ndarray)
            see(isinstance, y, float)
            see(lambda y=y: type(y).__name__)
            see(lambda y=y: type(y._trace).__name__)
            see(core.is_concrete, y)
            see(jnp.isscalar, y)
            see(core.valid_jaxtype, y)
        return y

    seen = assert_same_sight(f, VECTOR)
    assert seen[:5] == [True] * 5


@pytest.mark.parametrize("transform", [jax.grad, jax.vmap, jax.jit, jax.checkpoint, jax.jacfwd])
def test_types_under_transformations(transform: Callable) -> None:
    def f(see, x):
        def inner(y):
            z = jnp.sin(y)
            for t in (y, z):
                see(repr, t)
                see(lambda t=t: type(t).__name__)
                see(lambda t=t: type(t._trace).__name__)
                see(isinstance, t, jax.Array)
                see(isinstance, t, pe.DynamicJaxprTracer)
            return jnp.sum(z)

        return transform(inner)(x)

    assert_same_sight(f, VECTOR)


# ---- texts and attributes ---------------------------------------------------------------------


def staged(value: Any) -> core.Tracer:
    """The tracer of a constant in the current trace."""
    return core.trace_ctx.trace.to_jaxpr_tracer(value, source_info_util.current())


ORIGINS: dict[str, Callable] = {
    "input": lambda x: x,
    "result": lambda x: jnp.tanh(x) * 2,
    "forwarded": lambda x: jax.jit(lambda y: y)(x),
    "zeros": lambda x: jnp.zeros_like(x),
    "scalar": lambda x: jnp.sum(x),
    "weak": lambda x: jax.lax.full((3,), 1.0) * 2 + jnp.sum(x),
    "comparison": lambda x: x > 1,
    "constant": lambda x: staged(jnp.arange(3)),
    "literal": lambda x: staged(np.float32(2)),
}


PLAIN_ATTRIBUTES = [
    "aval",
    "shape",
    "dtype",
    "ndim",
    "size",
    "weak_type",
    "nbytes",
    "itemsize",
    "T",
    "mT",
    "real",
    "imag",
    "at",
    "val",
    "parent",
    "_line_info",
    "_debug_info",
    "_trace",
    "dimension_as_value",
    "is_fully_replicated",
    "sharding",
    "device",
    "committed",
    "vma",
    "mutable_qdd",
    "aval_mutable_qdd",
    "__array_priority__",
    "__jax_array__",
    "__hash__",
    "__dict__",
    "__slots__",
    "__doc__",
    "__module__",
    "__cuda_array_interface__",
    "__array_interface__",
    "no_such_attribute",
    "_private",
]


@pytest.mark.parametrize("origin", ORIGINS)
def test_attributes(origin: str) -> None:
    def f(see, x):
        y = ORIGINS[origin](x)
        see(repr, y)
        see(str, y)
        see(format, y)
        see(lambda: f"{y!s:>40}")
        see(lambda: y._pretty_print(verbose=True).format())
        see(y._short_repr)
        see(y._error_repr)
        see(y._contents)
        see(y._origin_msg)
        see(y.full_lower)
        see(y.to_concrete_value)
        see(y._is_traced_array)
        see(lambda: core.get_referent(y) is y)
        see(lambda: y.get_const())
        for name in PLAIN_ATTRIBUTES:
            if name not in ("parent", "_line_info", "_trace"):
                see(getattr, y, name)
            see(hasattr, y, name)
        return x

    assert_same_sight(f, VECTOR)


def test_directory() -> None:
    """`dir` of a tracer lists what stock's lists (jaxide may add private names of its own)."""
    names = {}

    def f(x):
        names[len(names)] = set(dir(jnp.sin(x)))
        return x

    for make in (jax.make_jaxpr, jaxide.make_jaxpr):
        jax.clear_caches()
        make(f)(1.0)
    stock, ours = names[0], names[1]
    assert stock <= ours
    assert all(name.startswith("_") for name in ours - stock)


def test_attributes_cannot_be_invented() -> None:
    def f(see, x):
        see(setattr, x, "label", 1)
        see(setattr, jnp.sin(x), "label", 1)
        see(setattr, x, "shape", (1,))
        see(delattr, x, "label")
        see(vars, x)
        return x

    assert_same_sight(f, VECTOR)


def test_slots_can_be_assigned() -> None:
    """Libraries replace `aval` and `_trace`, which are plain slots."""

    def f(see, x):
        y = jnp.sin(x)
        aval, trace = y.aval, y._trace
        y.aval = aval.update(weak_type=True)
        see(lambda: y.weak_type)
        see(repr, y)
        y.aval = aval
        y._trace = trace
        see(repr, y)
        return y + 1

    assert_same_sight(f, VECTOR)


def test_source_line() -> None:
    def f(see, x):
        y = jnp.sin(x)
        with jax.named_scope("scope"):
            z = y + 1
        for t in (x, y, z):
            see(lambda t=t: source_info_util.summarize(t._line_info))
            see(lambda t=t: str(t._line_info.name_stack))
            see(lambda t=t: type(t._line_info))
        return z

    assert_same_sight(f, VECTOR)


def test_value_and_parent() -> None:
    def f(see, x):
        y = jnp.sin(x)
        z = jax.lax.cond(y[0] > 0, lambda: y, lambda: x)
        for t in (x, y, z):
            see(lambda t=t: t.val)
            see(lambda t=t: t.val is t.val)
            see(lambda t=t: t.val.aval is t.aval or t.val.aval == t.aval)
            see(lambda t=t: t.parent is None)
        see(lambda: y.parent.primitive)
        see(lambda: [v is y.val for v in y.parent.outvars])
        see(lambda: [t.val is x.val for t in y.parent.in_tracers])
        see(lambda: [t.val is x.val for t in y.parent.invars])
        see(lambda: dict(y.parent.params))
        see(lambda: y.parent.effects)
        see(lambda: source_info_util.summarize(y.parent.source_info))
        see(lambda: type(y.parent).__name__)
        see(lambda: z.parent.primitive)
        see(lambda: [v.aval for v in z.parent.outvars])
        see(lambda: [v.aval for v in y._trace.frame.invars])
        see(lambda: y._trace.frame.invars[0] is x.val)
        return z

    assert_same_sight(f, VECTOR)


# ---- the trace and its frame ------------------------------------------------------------------


def test_frame() -> None:
    captured = jnp.arange(3.0)

    def f(see, x):
        y = jnp.sin(x) + captured
        captured_only = jnp.sum(captured * 2)
        jax.debug.print("{}", y)
        trace = y._trace
        see(lambda: trace is core.trace_ctx.trace)
        see(lambda: trace is x._trace)
        see(lambda: trace.requires_low)
        see(lambda: trace.parent_trace)
        see(repr, trace)
        see(lambda: hasattr(trace, "tag"))
        see(lambda: trace.is_valid())
        frame = trace.frame
        see(lambda: frame is trace.frame)
        see(lambda: type(frame).__name__)
        see(lambda: frame.debug_info.func_src_info)
        see(lambda: frame.debug_info.traced_for)
        see(lambda: frame.debug_info.arg_names)
        see(lambda: frame.auto_dce)
        see(lambda: frame.is_high)
        see(lambda: len(frame.invars))
        see(lambda: frame.invars[0] is x.val)
        see(lambda: len(frame.tracing_eqns))
        see(lambda: [e.primitive.name for e in frame.get_eqns()])
        see(lambda: [str(e.source_info.name_stack) for e in frame.get_eqns()])
        see(lambda: frame.get_eqns()[0].invars[0] is x.val)
        see(lambda: [type(e).__name__ for e in frame.get_eqns()])
        see(lambda: len(frame.constvar_to_val))
        see(lambda: [v is captured for v in frame.constvar_to_val.values()])
        see(lambda: frame.effects)
        see(lambda: frame.find_progenitors(y)[0])
        see(lambda: [e.primitive.name for e in frame.find_progenitors(captured_only)[1]])
        see(lambda: frame.find_progenitors(captured_only)[0])
        see(lambda: frame.newvar(x.aval))
        return y

    assert_same_sight(f, VECTOR)


def test_nested_traces() -> None:
    def f(see, x):
        outer = x._trace

        @jax.jit
        def inner(y):
            see(lambda: y._trace is outer)
            see(lambda: y._trace.parent_trace is outer)
            see(lambda: y._trace.frame.debug_info.traced_for)
            see(lambda: y._trace.frame.auto_dce)
            see(lambda: y._trace.frame.invars[0] is y.val)
            return y * x

        def body(carry, element):
            see(lambda: carry._trace.frame.debug_info.traced_for)
            see(lambda: carry._trace.frame.debug_info.arg_names)
            see(lambda: isinstance(carry._trace, pe.DynamicJaxprTrace))
            return carry + element, element

        see(lambda: core.trace_ctx.trace is outer)
        return jax.lax.scan(body, jnp.float32(0), inner(x))

    assert_same_sight(f, VECTOR)


def test_linearize_uses_automatic_dead_code_elimination() -> None:
    def f(see, x):
        def loss(y):
            z = jnp.sin(y)
            see(lambda: type(z._trace).__name__)
            see(lambda: z._trace.tangent_trace.frame.auto_dce)
            see(lambda: isinstance(z._trace.tangent_trace, pe.DynamicJaxprTrace))
            see(lambda: [e.primitive.name for e in z._trace.tangent_trace.frame.get_eqns()])
            z = None
            see(lambda: y._trace.tangent_trace.frame.get_eqns())
            return jnp.cos(y)

        return jax.grad(loss)(x)

    assert_same_sight(f, np.float32(1))


def test_new_argument_by_hand() -> None:
    """brainstate turns states into arguments of the running trace this way."""

    def f(see, x):
        trace = core.trace_ctx.trace
        aval = core.ShapedArray((2,), np.dtype("float32"))
        arg = trace.new_arg(aval, source_info=source_info_util.current())
        see(repr, arg)
        see(lambda: type(arg) is type(x))
        see(lambda: arg.val is trace.frame.invars[-1])
        see(lambda: len(trace.frame.invars))
        return x * jnp.sin(arg)[0]

    assert_same_sight(f, VECTOR)


def test_new_constant_by_hand() -> None:
    def f(see, x):
        trace = core.trace_ctx.trace
        here = source_info_util.current()
        value = jnp.arange(4.0)
        const = trace.new_const(value, here)
        see(repr, const)
        see(lambda: trace.new_const(value, here) is const)
        see(lambda: trace.pure(value, here) is const)
        see(lambda: trace.lift(value, here) is const)
        see(lambda: trace.get_const(const) is value)
        see(lambda: const.full_lower() is value)
        see(lambda: trace.new_const(np.float32(2), here).val)
        see(lambda: trace.new_const(np.float32(2), here).full_lower())
        see(lambda: trace.to_jaxpr_tracer(x, here) is x)
        see(lambda: trace.to_jaxpr_tracer(value, here) is const)
        see(lambda: trace.new_const([1], here))
        see(lambda: trace.new_const(2.0, here))
        return const * x[0]

    assert_same_sight(f, VECTOR)


def test_emitting_equations_by_hand() -> None:
    def f(see, x):
        trace = core.trace_ctx.trace
        here = source_info_util.current()
        (y,) = trace.emit_eqn([x], [x.aval], jax.lax.neg_p, {}, core.no_effects, here)
        see(repr, y)
        see(lambda: y.parent.primitive)
        z = trace.default_process_primitive(jax.lax.max_p, [x, y], {})
        see(repr, z)
        eqn, (w,) = trace.make_eqn([z], [z.aval], jax.lax.abs_p, {}, core.no_effects, here)
        see(lambda: len(trace.frame.get_eqns()))
        trace.frame.add_eqn(eqn)
        see(lambda: len(trace.frame.get_eqns()))
        see(lambda: type(trace.var_to_tracer(x.val, here)).__name__)
        return w

    assert_same_sight(f, VECTOR)


def test_processing_primitives_by_hand() -> None:
    def f(see, x):
        trace = core.trace_ctx.trace
        y = trace.process_primitive(jax.lax.add_p, (x, x), {})
        see(repr, y)
        see(lambda: trace.process_primitive(jax.lax.add_p, (x, jnp.ones(4)), {}))
        see(lambda: trace.stage_value(np.float32(3)))
        see(lambda: trace.stage_value(x) is x)
        return jax.lax.add_p.bind(y, x)

    assert_same_sight(f, VECTOR)


def manual_program() -> tuple[str, list, Any]:
    """A trace made without `make_jaxpr`, as libraries do."""

    def documented(x, y):
        return x + y

    here = source_info_util.new_source_info()
    debug = api_util.debug_info("manual", documented, (1.0, 2.0), {})
    trace = pe.DynamicJaxprTrace(debug)
    aval = core.ShapedArray((3,), np.dtype("float32"))
    x, y = (trace.new_arg(aval, source_info=here) for _ in range(2))
    captured = jnp.arange(3.0)
    with core.set_current_trace(trace):
        inner = jax.jit(lambda v: jnp.sin(v) * captured)
        z = jax.lax.cond(jnp.sum(x) > 0, lambda: inner(y), lambda: x)
    out = trace.to_jaxpr_tracer(z, here)
    result = trace.frame.to_jaxpr(trace, [out], debug.with_unknown_names(), here)
    trace.invalidate()
    jaxpr, consts = result if isinstance(result, tuple) else (result, result.consts)
    return str(jaxpr), describe(consts), len(trace.frame.tracing_eqns)


def test_manual_trace() -> None:
    """Stock's own trace class works with jaxide loaded, at top level and inside a jaxide trace."""
    jax.clear_caches()
    expected = manual_program()

    def inside(make: Callable) -> tuple[Any, str]:
        jax.clear_caches()
        made = []
        text = str(make(lambda x: made.append(manual_program()) or jnp.sin(x))(1.0))
        return made, text

    stock, ours = inside(jax.make_jaxpr), inside(jaxide.make_jaxpr)
    assert ours == stock
    jax.clear_caches()
    assert manual_program() == expected


def test_trace_to_jaxpr_dynamic_inside_a_trace() -> None:
    """Libraries call jax's lower-level tracing entry points."""

    def f(see, x):
        debug = api_util.debug_info("library", jnp.sin, (x,), {})
        wrapped = lu.wrap_init(lambda y: [jnp.sin(y) * x], debug_info=debug)
        result = pe.trace_to_jaxpr_dynamic(wrapped, [core.typeof(x)])
        see(lambda: str(result[0]))
        see(lambda: [c is x for c in result[2]])
        see(lambda: jax.eval_shape(lambda y: y * x, x))
        see(lambda: str(jax.make_jaxpr(lambda y: y * x)(x)))
        return x

    assert_same_sight(f, VECTOR)


# ---- protocols --------------------------------------------------------------------------------


def test_hashing_and_identity() -> None:
    def f(see, x):
        y = jnp.sin(x)
        see(hash, x)
        see(lambda: x == x)
        see(lambda: x is jnp.asarray(x))
        see(lambda: jnp.array(x, copy=False) is x)
        see(lambda: x in [y])
        see(lambda: id(x) == id(x))
        see(lambda: [x].index(x))
        see(lambda: x.astype(x.dtype) is x)
        see(lambda: jax.lax.stop_gradient(x) is x)
        return y

    assert_same_sight(f, VECTOR)


def test_weak_references() -> None:
    def f(see, x):
        y = jnp.sin(x)
        reference = weakref.ref(y)
        see(lambda: reference() is y)
        see(lambda: weakref.getweakrefcount(y))
        see(lambda: weakref.proxy(y).shape)
        died = []
        weakref.finalize(y, died.append, True)
        y = None
        see(lambda: reference() is None)
        see(lambda: list(died))
        return x

    assert_same_sight(f, VECTOR)


def test_results_are_freed_by_reference_counting() -> None:
    """A tracer that nobody holds dies at once: automatic dead code elimination relies on it."""

    def f(see, x):
        for make in (
            lambda: x + 1.0,
            lambda: jnp.sin(x) * 2,
            lambda: jnp.where(x > 0, x, 0),
            lambda: jax.jit(jnp.cos)(x),
            lambda: jax.lax.scan(lambda c, v: (c + v, v), jnp.float32(0), x)[1],
        ):
            reference = weakref.ref(make())
            see(lambda reference=reference: reference() is None)
        return x

    assert_same_sight(f, VECTOR)


def test_copies() -> None:
    def f(see, x):
        y = jnp.sin(x)
        for copied in (copy.copy, copy.deepcopy, lambda t: copy.deepcopy([t, {"a": t}])):
            for t in (x, y):
                see(copied, t)
        see(lambda: y.copy() is y)
        see(lambda: y.copy())
        see(lambda: jnp.copy(y))
        see(lambda: y.__copy__() is y)
        see(lambda: y.__reduce__())
        see(lambda: y.__reduce_ex__(4))
        see(lambda: y.__getstate__())
        see(lambda: y.__sizeof__() > 0)
        return y

    assert_same_sight(f, VECTOR)


BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "divmod"]
BINARY += ["and", "or", "xor", "lshift", "rshift", "lt", "le", "gt", "ge", "eq", "ne"]
OTHERS: dict[str, Any] = {
    "python_int": 2,
    "python_float": 2.5,
    "python_bool": True,
    "python_complex": 2j,
    "np_float32": np.float32(2),
    "np_float64": np.float64(2),
    "np_int8": np.int8(2),
    "np_bool": np.bool_(True),
    "np_array": np.arange(3, dtype=np.int16),
    "np_matrix_array": np.ones((2, 3)),
    "jax_array": jnp.arange(3),
    "jax_weak_scalar": jnp.asarray(2.0),
    "list": [1, 2, 3],
    "tuple": (1, 2, 3),
    "string": "text",
    "none": None,
    "object": object,
    "key": KEY,
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("operand", [np.float32(1.5), np.arange(3), VECTOR > 1], ids=str)
def test_binary_operators(other: str, operand: Any) -> None:
    """On either side, with Python's and numpy's rules for reflected operands."""
    value = OTHERS[other]

    def f(see, x):
        for name in BINARY:
            apply = getattr(operator, name, None) or getattr(operator, f"{name}_", divmod)
            see(apply, x, value)
            see(apply, value, x)
            see(lambda name=name: getattr(x, f"__{name}__")(value))
            see(lambda name=name: getattr(x, f"__r{name}__")(value))
        return x

    assert_same_sight(f, operand)


@pytest.mark.parametrize("operand", [np.float32(1.5), 2, True, 1j, MATRIX, KEY], ids=str)
def test_unary_operators_and_methods(operand: Any) -> None:
    def f(see, x):
        for name in ("neg", "pos", "abs", "invert", "round", "trunc", "floor", "ceil"):
            see(lambda name=name: getattr(x, f"__{name}__")())
        for name in ("bool", "int", "float", "complex", "index", "hash", "len", "iter", "next"):
            see(lambda name=name: getattr(x, f"__{name}__")())
        for name in ("sum", "mean", "flatten", "ravel", "conj", "argmax", "cumsum", "item", "any"):
            see(lambda name=name: getattr(x, name)())
        see(lambda: round(x, 2))
        see(lambda: x.astype(jnp.bfloat16))
        see(lambda: x.reshape(-1, 1))
        see(lambda: x[None])
        see(lambda: x[..., :1])
        see(lambda: list(x))
        see(lambda: list(reversed(x)))
        see(lambda: x.at[0].add(1))
        see(lambda: x.view(jnp.int8))
        return x

    assert_same_sight(f, operand)


def test_augmented_assignment_makes_a_new_tracer() -> None:
    def f(see, x):
        y = x
        y += 1
        see(lambda: y is x)
        y *= np.float32(2)
        y @= jnp.ones((3, 3))
        y **= 2
        see(repr, y)
        return y

    assert_same_sight(f, VECTOR)


def test_subclass_with_reflected_operator_wins() -> None:
    class Quantity:
        __array_priority__ = 2000

        def __init__(self, value):
            self.value = value

        def __radd__(self, other):
            return ("radd", other)

        def __rmul__(self, other):
            return ("rmul", other)

        def __eq__(self, other):
            return "eq"

        __hash__ = None

    def f(see, x):
        see(lambda: x + Quantity(1))
        see(lambda: x * Quantity(1))
        see(lambda: x - Quantity(1))
        see(lambda: x == Quantity(1))
        see(lambda: x.__array_priority__)
        return x

    assert_same_sight(f, VECTOR)


def test_jax_array_protocol_operands() -> None:
    class Wrapper:
        def __init__(self, value):
            self.value = value

        def __jax_array__(self):
            return self.value

    def f(see, x):
        see(lambda: x + Wrapper(x))
        see(lambda: Wrapper(x) + x)
        see(lambda: jnp.sin(Wrapper(x)))
        see(lambda: jnp.asarray(Wrapper(jnp.ones(3))) * x)
        see(lambda: x @ Wrapper(x))
        return x

    assert_same_sight(f, VECTOR)


def test_iteration() -> None:
    def f(see, x):
        see(len, x)
        rows = list(x)
        see(lambda: rows)
        first, second = x
        see(lambda: (first, second))
        see(lambda: [row.sum() for row in reversed(x)])
        see(lambda: dict(enumerate(x)))
        see(lambda: max(len(row) for row in x))
        see(lambda: list(zip(x, x, strict=True)))
        return jnp.stack(rows)

    assert_same_sight(f, MATRIX)


def test_numpy_sees_a_tracer_as_stock() -> None:
    def f(see, x):
        see(np.shape, x)
        see(np.ndim, x)
        see(np.size, x)
        see(np.result_type, x)
        see(np.asarray, x)
        see(np.add, x, x)
        see(np.add, VECTOR, x)
        see(np.sum, x)
        see(np.isscalar, x)
        see(np.iterable, x)
        see(lambda: VECTOR + x)
        see(lambda: np.float32(2) * x)
        see(lambda: VECTOR @ x)
        see(lambda: np.multiply(np.float32(2), x))
        see(lambda: VECTOR.__add__(x))
        see(lambda: VECTOR[x.astype(int)])
        see(lambda: np.broadcast_shapes(x.shape, (2, 3)))
        return x

    assert_same_sight(f, VECTOR)


def test_tree_functions() -> None:
    def f(see, x):
        see(lambda: jax.tree.leaves([x, None, {"a": x}]))
        see(lambda: jax.tree.structure(x))
        see(lambda: jax.tree.map(jnp.shape, {"a": x}))
        see(lambda: jax.eval_shape(jnp.sin, x))
        see(jax.typeof, x)
        see(jnp.result_type, x, 1)
        see(jax.dtypes.result_type, x)
        see(lambda: jax.ShapeDtypeStruct.__name__)
        see(lambda: inspect.isgenerator(x))
        see(callable, x)
        return x

    assert_same_sight(f, VECTOR)


def test_extended_types() -> None:
    def f(see, key):
        see(repr, key)
        see(lambda: key.dtype)
        see(lambda: key.shape)
        see(lambda: key.itemsize)
        see(lambda: jax.random.split(key)[0])
        see(lambda: jax.random.key_data(key))
        see(lambda: jax.random.key_impl(key))
        see(lambda: key._impl)
        see(lambda: key._base_array)
        see(lambda: key.unwrap())
        see(lambda: isinstance(key, jax.Array))
        see(lambda: key + 1)
        see(lambda: key == key)
        see(lambda: key[None])
        return key

    assert_same_sight(f, KEY)


def test_references() -> None:
    def f(see, x):
        ref = jax.new_ref(x)
        see(repr, ref)
        see(lambda: type(ref).__name__)
        see(lambda: ref.aval)
        see(lambda: ref.shape)
        see(lambda: ref.dtype)
        see(isinstance, ref, core.Tracer)
        see(isinstance, ref, jax.Array)
        ref[0] = 5.0
        ref[1:] += 1
        see(lambda: ref[...])
        see(lambda: len(ref))
        see(lambda: ref.at[0])
        see(lambda: jnp.sin(ref))
        return jax.freeze(ref)

    assert_same_sight(f, VECTOR)


def test_symbolic_shapes() -> None:
    (n,) = jax.export.symbolic_shape("n")

    def f(see, x):
        see(repr, x)
        see(lambda: x.shape)
        see(lambda: x.size)
        see(lambda: len(x))
        see(lambda: x.shape[0] + 1)
        see(lambda: jnp.asarray(x.shape[0]))
        see(lambda: x * x.shape[0])
        see(lambda: bool(x.shape[0] > 5))
        see(lambda: x.reshape(-1, 1))
        return x

    assert_same_sight(f, jax.ShapeDtypeStruct((n,), jnp.float32))
