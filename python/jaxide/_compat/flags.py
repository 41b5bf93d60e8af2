"""Operations on flags that jax executes while it traces, without XLA.

Under ``jax.ensure_compile_time_eval`` operations on arrays are not traced but executed. jax
compiles a program for each kind of them, which takes 5 to 20 ms. Libraries compute flags so:
diffrax asks twice whether a step is okay. Operations that make booleans of booleans or of
integers are the same numbers on every device. Of few elements on a CPU they are computed by numpy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxide import _core
from jaxide._compat import capabilities
from jaxide._compat.passes import is_plain_jit
from jaxide._compat.symbols import Mismatch, checked_function, optional_symbol, symbol

# Larger arrays are left to XLA.
MAX_ELEMENTS = 64

_DTYPES = frozenset(map(np.dtype, ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")))
_BOOLEAN = np.dtype(bool)

# How numpy computes what a primitive without params does.
_PLAIN = {
    "and": np.bitwise_and,
    "eq": np.equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "ne": np.not_equal,
    "not": np.invert,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_REDUCTIONS = {"reduce_and": np.logical_and, "reduce_or": np.logical_or}

# Settings under which an execution is more than its result, or is elsewhere: with their values at
# rest.
_SETTINGS = (
    "abstract_mesh_context_manager",
    "compute_on_context_manager",
    "debug_key_reuse",
    "default_device",
    "device_context",
    "disable_jit",
    "enable_checks",
    "explain_cache_misses",
    "jax_dump_ir_to",
    "log_compiles",
    "mesh_context_manager",
    "no_tracing",
    "transfer_guard_device_to_host",
    "transfer_guard_host_to_device",
    "xla_metadata_context_manager",
)
_AT_REST = (None, False, (), "")


class _Refused(Exception):
    """XLA is to do it."""


class Flags:
    """Computes operations on flags.

    Raises:
      Mismatch: something of jax is not as it was.
    """

    def __init__(self) -> None:
        settings = map(optional_symbol, (f"config:{name}" for name in _SETTINGS))
        self._settings = [setting for setting in settings if setting is not None]
        self._impl = symbol("dispatch:apply_primitive")
        self._jit = symbol("pjit:jit_p")
        self._jit_impl = self._jit.impl
        self._array = symbol("array:ArrayImpl")
        self._typed_array = symbol("literals:TypedNdArray")
        self._literal = symbol("core:Literal")
        self._put = checked_function(
            "interpreters.pxla:batched_device_put",
            "aval sharding xs devices committed enable_x64",
        )
        self._type_of = symbol("core:typeof")
        self._convert = symbol("lax.lax:convert_element_type_p")
        self._plain = {symbol(f"lax.lax:{name}_p"): made for name, made in _PLAIN.items()}
        self._reductions = {symbol(f"lax.lax:{name}_p"): made for name, made in _REDUCTIONS.items()}

    def computed(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """What executing a primitive returns; None where XLA is to do it.

        Args:
          primitive: of jax's own, or any other.
          args: no tracers.
          params: those of the primitive.
        """
        is_known = primitive is self._jit or primitive in self._plain
        is_known = is_known or primitive is self._convert or primitive in self._reductions
        if not is_known or not args or not self._is_at_rest():
            return None
        try:
            values = [self._value(arg) for arg in args]
            if primitive is self._jit:
                return self._run(values, params)
            made = self._evaluate(primitive, values, params)
            aval, _ = primitive.abstract_eval(*map(self._type_of, args), **params)
            return self._placed(made, aval)
        except _Refused:
            return None

    def _is_at_rest(self) -> bool:
        if _core.lowers_as_ever() is None:
            return False
        for setting in self._settings:
            value = setting.value
            if not any(value is rest for rest in _AT_REST) and not getattr(value, "empty", False):
                return False
        return bool(_default_device().platform == "cpu")

    def _value(self, arg: Any) -> np.ndarray[Any, Any]:
        """The elements of an operand."""
        if type(arg) is self._array:
            # Before anything waits for it, or says that it was deleted.
            if arg.dtype not in _DTYPES or arg.size > MAX_ELEMENTS or arg._committed:
                raise _Refused
            if arg.is_deleted() or arg.sharding != _placement() or not arg.is_ready():
                raise _Refused
        elif type(arg) is self._typed_array or type(arg) is np.ndarray:
            if arg.dtype is not _BOOLEAN or arg.size > MAX_ELEMENTS:
                raise _Refused
        elif type(arg) is not bool and type(arg) is not np.bool_:
            raise _Refused
        return np.asarray(arg)

    def _run(self, values: Sequence[np.ndarray[Any, Any]], params: dict[str, Any]) -> Any:
        """The results of a jit."""
        closed = params["jaxpr"]
        jaxpr = closed.jaxpr
        if self._jit.impl is not self._jit_impl or not is_plain_jit(params):
            raise _Refused
        if closed.consts or jaxpr.effects or len(jaxpr.eqns) > MAX_ELEMENTS:
            raise _Refused
        known = dict(zip(jaxpr.invars, values, strict=True))
        for eqn in jaxpr.eqns:
            if len(eqn.outvars) != 1:
                raise _Refused
            operands = [
                np.asarray(atom.val, atom.aval.dtype)
                if isinstance(atom, self._literal)
                else known[atom]
                for atom in eqn.invars
            ]
            made = self._evaluate(eqn.primitive, operands, eqn.params)
            known[eqn.outvars[0]] = made
        given = set(jaxpr.invars)
        if any(isinstance(out, self._literal) or out in given for out in jaxpr.outvars):
            raise _Refused  # jax gives such results otherwise
        return [self._placed(known[out], out.aval) for out in jaxpr.outvars]

    def _evaluate(
        self, primitive: Any, operands: Sequence[np.ndarray[Any, Any]], params: dict[str, Any]
    ) -> np.ndarray[Any, Any]:
        impl = primitive.impl
        if not isinstance(impl, functools.partial) or impl.func is not self._impl:
            raise _Refused
        if any(operand.dtype not in _DTYPES for operand in operands):
            raise _Refused
        if (plain := self._plain.get(primitive)) is not None:
            shapes = {operand.shape for operand in operands}
            if params or len(operands) != plain.nin or len(shapes) != 1:
                raise _Refused  # jax says what is wrong
            made = plain(*operands)
        elif (reduction := self._reductions.get(primitive)) is not None:
            operand, *more = operands
            axes = params.get("axes")
            if more or operand.dtype != _BOOLEAN or not _are_none(params, "axes"):
                raise _Refused
            if type(axes) is not tuple or not set(axes) <= set(range(operand.ndim)):
                raise _Refused
            if len(set(axes)) != len(axes) or not all(type(axis) is int for axis in axes):
                raise _Refused
            made = reduction.reduce(operand, axis=axes)
        elif primitive is self._convert:
            if len(operands) != 1 or params.keys() != {"new_dtype", "weak_type", "sharding"}:
                raise _Refused
            if params["new_dtype"] != _BOOLEAN or params["sharding"] is not None:
                raise _Refused
            made = operands[0] != 0
        else:
            raise _Refused
        if made.dtype != _BOOLEAN:
            raise _Refused
        return np.asarray(made)

    def _placed(self, value: np.ndarray[Any, Any], aval: Any) -> Any:
        """The array that an execution returns."""
        if aval.dtype != value.dtype or aval.shape != value.shape or not aval.sharding.mesh.empty:
            raise _Refused
        placement = _placement()
        return self._put(aval, placement, [value], list(placement.device_set), False)


def _are_none(params: dict[str, Any], *names: str) -> bool:
    """Whether all params but some say nothing."""
    return all(params[name] is None for name in params if name not in names)


def _default_device() -> Any:
    return jax.local_devices()[0]


@functools.cache
def _sharding(device: Any) -> Any:
    return jax.sharding.SingleDeviceSharding(device)


def _placement() -> Any:
    """Where results are that nobody has placed."""
    return _sharding(_default_device())


def flags() -> Callable[..., Any] | None:
    """See :meth:`Flags.computed`; None where that is left to jax."""
    if not capabilities.has("flags"):
        return None
    try:
        return Flags().computed
    except Mismatch:
        return None
