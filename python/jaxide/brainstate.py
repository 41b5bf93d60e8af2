"""``make_jaxpr`` for functions that read and write the states of brainstate."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from jaxide import _compat, _core

try:
    import brainstate as _brainstate
except ModuleNotFoundError as error:
    if error.name != "brainstate":  # it is there, but something that it needs is not
        raise
    raise ImportError(
        "jaxide.brainstate needs brainstate: pip install jaxide[brainstate]", name="brainstate"
    ) from error

__all__ = ["make_jaxpr"]


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    axis_env: Sequence[tuple[Hashable, int]] | None = None,
    return_shape: bool = False,
    return_only_write: bool = False,
) -> Callable[..., Any]:
    """Creates a function that returns the jaxpr of ``fun`` and the states that ``fun`` uses.

    A drop-in for ``brainstate.transform.make_jaxpr``: brainstate decides what is traced and which
    states are returned, jaxide records every trace that this starts.

    Args:
      fun: the function whose jaxpr is to be computed.
      static_argnums: positions of arguments that are Python values, as in :func:`jax.jit`.
      static_argnames: names of arguments that are Python values, as in :func:`jax.jit`.
      axis_env: pairs of an axis name and its size, for collectives.
      return_shape: also return the shapes and dtypes of the outputs, in the structure of the
        result.
      return_only_write: the jaxpr returns the values of the states that ``fun`` writes, not of
        those that it only reads.

    Returns:
      A function of example arguments that returns a ``ClosedJaxpr`` and a tuple of the ``State``
      objects whose values follow the arguments of the jaxpr, and then, where ``return_shape`` is
      true, the output shapes.
    """
    stock: Callable[..., Any] = _brainstate.transform.make_jaxpr(
        fun,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        axis_env=axis_env,
        return_shape=return_shape,
        return_only_write=return_only_write,
    )
    if not _compat.native():
        return stock

    def make_jaxpr_f(*args: Any, **kwargs: Any) -> Any:
        with _core.Activation():
            return stock(*args, **kwargs)

    functools.update_wrapper(make_jaxpr_f, stock)
    vars(make_jaxpr_f).update(vars(stock))  # `__wrapped__` is `fun` again, as brainstate has it
    return make_jaxpr_f
