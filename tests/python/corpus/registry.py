"""The registry of corpus cases: programs as data, each with its example arguments and options.

A case never holds a function object, only a factory of fresh ones: jax caches traces by the
identity of the function, so a function that was traced once would not be traced again. Arguments
are described by `Spec`s and made on demand, because the same program is traced and evaluated on
different values, and because some of them must be made under the case's own context (x64, a mesh).
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import types
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

Function = Callable[..., Any]
Factory = Callable[[], Function]


@dataclasses.dataclass(frozen=True)
class Spec:
    """An argument to be made from a random generator."""

    make: Callable[[np.random.Generator], Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A program, its example arguments and what is needed to trace and evaluate it."""

    name: str
    function: Factory
    """Makes a fresh function object."""
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Keyword arguments of `make_jaxpr`."""
    context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    """What the program is made, traced and evaluated under."""
    x64: bool = False
    unevaluated: str | None = None
    """Why the jaxpr cannot be evaluated by itself, if it cannot."""
    tolerance: float = 1e-5
    """Of the evaluated jaxpr against the called function, which compiles other fusions."""

    @property
    def family(self) -> str:
        """The module that the case is in."""
        return self.function.__module__.rpartition(".")[2]

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Under the case's context, in which its arguments can be made."""
        with jax.enable_x64(self.x64), self.context():
            yield

    def arguments(self, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Fresh arguments, the same for the same seed."""
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), seed])

        def make(leaf: Any) -> Any:
            return leaf.make(rng) if isinstance(leaf, Spec) else leaf

        return jax.tree.map(make, (self.args, dict(self.kwargs)))

    def __str__(self) -> str:
        return f"{self.family}-{self.name}"


CASES: list[Case] = []


def case(*args: Any, name: str | None = None, **fields: Any) -> Callable[[Factory], Factory]:
    """Registers the decorated factory of fresh functions, to be called with `args`.

    `fields` are the other fields of the `Case`.
    """

    def register(function: Factory) -> Factory:
        CASES.append(Case(name or function.__name__, function, args, **fields))
        return function

    return register


def call(name: str, function: Function, *args: Any, **fields: Any) -> None:
    """Registers the program that is `function` itself, or nothing but a call of it.

    A plain function is traced as a fresh copy; of anything else a fresh caller is traced.
    """
    is_plain = isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__")

    def factory() -> Function:
        if not is_plain:
            return lambda *operands, **keywords: function(*operands, **keywords)
        code, defaults, closure = function.__code__, function.__defaults__, function.__closure__
        copy = types.FunctionType(code, function.__globals__, function.__name__, defaults, closure)
        copy.__kwdefaults__ = function.__kwdefaults__
        return copy

    factory.__module__ = inspect.currentframe().f_back.f_globals["__name__"]
    case(*args, name=name, **fields)(factory)


def given(make: Callable[[], Any]) -> Spec:
    """An argument that is always the same, made when it is needed."""
    return Spec(lambda rng: make())


def array(dtype: Any, *shape: int, low: Any = None, high: Any = None) -> Spec:
    """A jax array: normal or in [low, high) for numbers, anything for booleans."""
    # Not `jnp.asarray`, which would be compiled anew after every `jax.clear_caches()`.
    return Spec(lambda rng: jax.device_put(_values(rng, jnp.dtype(dtype), shape, low, high)))


def host(spec: Spec) -> Spec:
    """The same argument as a numpy array (or numpy scalar, where it has no dimensions)."""
    return Spec(lambda rng: np.asarray(spec.make(rng))[()])


def key(seed: int = 0, *shape: int, impl: str | None = None) -> Spec:
    """A typed random key, or an array of them."""

    def make(rng: np.random.Generator) -> Any:
        one = jax.random.key(seed + int(rng.integers(100)), impl=impl)
        return jax.random.split(one, shape) if shape else one

    return Spec(make)


def _values(
    rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...], low: Any, high: Any
) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(2, size=shape).astype(bool)
    if jnp.issubdtype(dtype, jnp.integer):
        signed = jnp.issubdtype(dtype, jnp.signedinteger)
        smallest = _info(dtype).min
        low = max(-4 if signed else 0, smallest) if low is None else low
        high = min(5, _info(dtype).max + 1) if high is None else high
        return np.asarray(rng.integers(low, high, size=shape)).astype(dtype)
    if low is not None:
        return np.asarray(rng.uniform(low, high, size=shape)).astype(dtype)
    values = np.asarray(rng.standard_normal(shape))
    if jnp.issubdtype(dtype, jnp.complexfloating):
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def _info(dtype: np.dtype) -> Any:
    return ml_dtypes.iinfo(dtype)


def _shorthand(dtype: Any) -> Callable[..., Spec]:
    def make(*shape: int, low: Any = None, high: Any = None) -> Spec:
        return array(dtype, *shape, low=low, high=high)

    return make


f16, f32, f64 = map(_shorthand, (jnp.float16, jnp.float32, jnp.float64))
bf16 = _shorthand(jnp.bfloat16)
c64, c128 = map(_shorthand, (jnp.complex64, jnp.complex128))
i8, i16, i32, i64 = map(_shorthand, (jnp.int8, jnp.int16, jnp.int32, jnp.int64))
u8, u16, u32, u64 = map(_shorthand, (jnp.uint8, jnp.uint16, jnp.uint32, jnp.uint64))
boolean = _shorthand(jnp.bool_)


def unit(*shape: int) -> Spec:
    """Floats well inside (0, 1): in the domain of every special function."""
    return array(jnp.float32, *shape, low=0.1, high=0.9)


def spd(n: int, dtype: Any = jnp.float32) -> Spec:
    """A well-conditioned symmetric (Hermitian) positive definite matrix."""

    def make(rng: np.random.Generator) -> Any:
        a = _values(rng, jnp.dtype(dtype), (n, n), None, None)
        return jax.device_put((a @ a.conj().T + n * np.eye(n)).astype(dtype))

    return Spec(make)
