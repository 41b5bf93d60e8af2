"""``make_jaxpr``, ``trace`` and ``from_jaxpr``."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, overload

import jax

from jaxide import _compat, _core
from jaxide._api.abstracted_axes import abstract_arguments
from jaxide._compat import trace_calls
from jaxide._native import interposed
from jaxide._program.program import Program, unknown_jax

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

_P = ParamSpec("_P")


def _traceable(fun: Callable[..., Any]) -> Callable[..., Any]:
    """``fun`` itself, or a wrapper where jax's caches cannot hold it."""
    try:
        hash(fun)
        weakref.ref(fun)
    except TypeError:
        # Here, since what is wrong with `fun` is the context of the error that this may raise.
        return partial(fun)
    return fun


def _static(
    static_argnums: int | Sequence[int], static_argnames: str | Iterable[str]
) -> dict[str, Any]:
    """Static arguments in the words of ``jax.jit``, which infers the names or the numbers where
    only the others are given."""
    if not static_argnames:
        return {"static_argnums": static_argnums}
    if isinstance(static_argnums, Sequence) and not static_argnums:
        return {"static_argnames": static_argnames}
    return {"static_argnums": static_argnums, "static_argnames": static_argnames}


def _tracer(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int],
    axis_env: Sequence[tuple[Hashable, int]] | None,
    static_argnames: str | Iterable[str],
    abstracted_axes: Any,
    return_shape: bool = False,
) -> Callable[..., Any]:
    """A function of example arguments that traces ``fun``, and returns jax's ``Traced`` or ours."""
    static = _static(static_argnums, static_argnames)
    all_dynamic = isinstance(static_argnums, tuple) and not static_argnums
    plain = all_dynamic and not (static_argnames or return_shape or abstracted_axes is not None)

    def traced(*args: Any, **kwargs: Any) -> Any:
        is_native = _compat.native()
        if is_native:
            interposed.interpose_new()
            is_native = not _core.is_jax_altered()
        if plain and is_native:
            with _core.Activation(), _compat.extend_axis_env(axis_env):
                is_direct = _compat.capabilities.has("direct traces")
                found = trace_calls.trace(fun, args, kwargs) if is_direct else None
                return found or jax.jit(fun, **static).trace(*args, **kwargs)
        jitted = jax.jit(fun, **static)
        if abstracted_axes is not None:
            args = abstract_arguments(fun, abstracted_axes, args, static_argnums, static_argnames)
        if not is_native:
            with _compat.extend_axis_env(axis_env):
                return jitted.trace(*args, **kwargs)
        with _core.Activation(), _compat.extend_axis_env(axis_env):
            return jitted.trace(*args, **kwargs)

    return traced


@overload
def make_jaxpr(
    fun: Callable[_P, Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Hashable, int]] | None = None,
    return_shape: Literal[False] = False,
    *,
    static_argnames: str | Iterable[str] = (),
    abstracted_axes: Any = None,
) -> Callable[_P, ClosedJaxpr]: ...


@overload
def make_jaxpr(
    fun: Callable[_P, Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Hashable, int]] | None = None,
    *,
    return_shape: Literal[True],
    static_argnames: str | Iterable[str] = (),
    abstracted_axes: Any = None,
) -> Callable[_P, tuple[ClosedJaxpr, Any]]: ...


@overload
def make_jaxpr(
    fun: Callable[_P, Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Hashable, int]] | None = None,
    return_shape: bool = False,
    *,
    static_argnames: str | Iterable[str] = (),
    abstracted_axes: Any = None,
) -> Callable[_P, Any]: ...


@_compat.api_boundary
def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Hashable, int]] | None = None,
    return_shape: bool = False,
    *,
    static_argnames: str | Iterable[str] = (),
    abstracted_axes: Any = None,
) -> Callable[..., Any]:
    """Creates a function that returns the jaxpr of ``fun`` given example arguments.

    A drop-in for :func:`jax.make_jaxpr`: the same jaxpr, character for character, and the same
    errors.

    Example:
      >>> jaxide.make_jaxpr(lambda x: jnp.sin(x) * 2)(jnp.ones(3))
      { lambda ; a:f32[3]. let b:f32[3] = sin a; c:f32[3] = mul b 2.0:f32[] in (c,) }
      >>> jaxide.make_jaxpr(lambda x: x + 1, abstracted_axes=("n",))(jnp.ones(3))
      { lambda ; a:f32[n]. let b:f32[n] = add a 1.0:f32[] in (b,) }

    Args:
      fun: the function whose jaxpr is computed.
      static_argnums: positions of arguments that are Python values, as in :func:`jax.jit`.
      axis_env: pairs of an axis name and its size, for collectives.
      return_shape: also return the shapes and dtypes of the outputs, in the structure of the
        result.
      static_argnames: names of arguments that are Python values, as in :func:`jax.jit`.
      abstracted_axes: a pytree prefix of the positional arguments; each leaf names axes of the
        arrays below it, as a tuple of names (None for an axis that keeps its size) or a dict from
        axis to name. A named axis becomes a symbolic dimension.

    Returns:
      A function of example arguments (arrays, or objects with ``shape`` and ``dtype``). It returns
      a ``ClosedJaxpr`` of the installed jax. Where ``return_shape`` is true, it returns a pair of
      the jaxpr and the output shapes, a pytree of ``jax.ShapeDtypeStruct``.

    Raises:
      TypeError, ValueError: the errors of jax's own function; where ``abstracted_axes`` does not
        fit the arguments, an error that names the argument. Raised when the arguments are given.
    """
    fun = _traceable(fun)
    traced = _tracer(fun, static_argnums, axis_env, static_argnames, abstracted_axes, return_shape)

    @_compat.wraps(fun)
    @_compat.api_boundary
    def make_jaxpr_f(*args: Any, **kwargs: Any) -> Any:
        result = traced(*args, **kwargs)
        jaxpr = _compat.closed_jaxpr(result)
        return (jaxpr, result.out_info) if return_shape else jaxpr

    make_jaxpr_f.__module__ = "jax"
    if hasattr(fun, "__qualname__"):
        make_jaxpr_f.__qualname__ = f"make_jaxpr({fun.__qualname__})"
    if hasattr(fun, "__name__"):
        make_jaxpr_f.__name__ = f"make_jaxpr({fun.__name__})"
    return make_jaxpr_f


@_compat.api_boundary
def trace(
    fun: Callable[_P, Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Hashable, int]] | None = None,
    *,
    static_argnames: str | Iterable[str] = (),
    abstracted_axes: Any = None,
) -> Callable[_P, Program]:
    """Creates a function that traces ``fun`` on example arguments into a :class:`Program`.

    The program lives in Rust; the equations of its jaxpr become Python objects when somebody reads
    them.

    Example:
      >>> program = jaxide.trace(lambda x, y: jnp.sin(x) * y)(jnp.ones(3), jnp.ones(3))
      >>> program
      <jaxide.Program: 2 inputs, 2 equations>

    Args:
      fun: the function that is traced.
      static_argnums: as in :func:`make_jaxpr`.
      axis_env: as in :func:`make_jaxpr`.
      static_argnames: as in :func:`make_jaxpr`.
      abstracted_axes: as in :func:`make_jaxpr`.

    Returns:
      A function of example arguments that returns a :class:`Program`. The program takes the
      arguments that were not static, in the same structure.

    Raises:
      TypeError, ValueError: as :func:`make_jaxpr`.
    """
    function = _traceable(fun)
    traced = _tracer(function, static_argnums, axis_env, static_argnames, abstracted_axes)

    @_compat.wraps(function)
    @_compat.api_boundary
    def trace_f(*args: _P.args, **kwargs: _P.kwargs) -> Program:
        result = traced(*args, **kwargs)
        jaxpr = _compat.closed_jaxpr(result)
        return Program._of(jaxpr, result.in_tree, result.out_tree)

    return trace_f


def from_jaxpr(jaxpr: Any) -> Program:
    """Reads any jaxpr, whoever traced it, into a :class:`Program`.

    Example:
      >>> program = jaxide.from_jaxpr(jax.make_jaxpr(jnp.sin)(1.0))
      >>> program(0.0)
      [Array(0., dtype=float32, weak_type=True)]

    Args:
      jaxpr: a ``Jaxpr`` or ``ClosedJaxpr`` of the installed jax.

    Returns:
      A program that takes the inputs of the jaxpr one by one and returns a list.

    Raises:
      TypeError: the argument is not a jaxpr.
    """
    _check_jaxpr("from_jaxpr", jaxpr)
    return Program._of(jaxpr)


def structural_hash(jaxpr: Any) -> int:
    """The hash of any jaxpr's content, as :attr:`Program.structural_hash`.

    Example:
      >>> one = jax.make_jaxpr(lambda x: x + 1)(1.0)
      >>> other = jax.make_jaxpr(lambda y: y + 1)(2.0)
      >>> jaxide.structural_hash(one) == jaxide.structural_hash(other)
      True

    Args:
      jaxpr: a ``Jaxpr`` or ``ClosedJaxpr`` of the installed jax.

    Returns:
      128 bits as an ``int``: the same in every process and on every machine.

    Raises:
      TypeError: the argument is not a jaxpr.
      NotImplementedError: jaxide does not know the installed jax, or is switched off.
    """
    _check_jaxpr("structural_hash", jaxpr)
    if not _compat.reads_programs():
        raise unknown_jax()
    return _core.fingerprint_of(jaxpr, "structure")


def _check_jaxpr(name: str, jaxpr: Any) -> None:
    if not _compat.is_jaxpr(jaxpr):
        raise TypeError(
            f"jaxide.{name} expects a jaxpr, got an object of type "
            f"{type(jaxpr).__module__}.{type(jaxpr).__qualname__}"
        )
