"""What jits do where they are traced or executed: sharing executables, keeping the ledger."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from jaxide import _compat, _warnings
from jaxide._consing import cons
from jaxide._executables import CAPTURED, EXECUTABLES
from jaxide._ledger import LEDGER


@dataclasses.dataclass
class Counts:
    """What became of the calls of one jit for which jax had no executable.

    Attributes:
      traces: how often it was traced.
      shared: how often it ran an executable that an equal program had.
      compiled: how often something was compiled for it.
      tracing: seconds spent tracing.
      lowering: seconds spent lowering.
      compiling: seconds spent compiling; lowering as well, of programs that are left to stock jax.
      captured: how captured arrays are given to its executables.
    """

    traces: int = 0
    shared: int = 0
    compiled: int = 0
    tracing: float = 0.0
    lowering: float = 0.0
    compiling: float = 0.0
    captured: str = "auto"


def checked(captured: str) -> str:
    """How captured arrays are given to executables.

    Raises:
      ValueError: there is no such way.
    """
    if captured not in CAPTURED:
        raise ValueError(f"captured has to be one of {', '.join(CAPTURED)}, not {captured!r}")
    return captured


class _Thread(threading.local):
    """The contexts of :func:`sharing` that this thread is in, each with what it counts."""

    def __init__(self) -> None:
        self.counts: list[Counts] = []


_THREAD = _Thread()
_LOCK = threading.Lock()
# How many contexts there are of the whole process, and of any kind.
_process = 0
_active = 0
# How captured arrays are given to the executables of jits that nobody counts.
_captured = "auto"


def give_captured(captured: str) -> None:
    """Says so for the whole process."""
    global _captured
    _captured = checked(captured)


@contextlib.contextmanager
def sharing(counts: Counts | None = None) -> Iterator[None]:
    """A context in which executables are shared: by the jits that this thread calls, where they are
    counted, by those of all threads otherwise."""
    _change(1, counts)
    try:
        yield
    finally:
        _change(-1, counts)


def _change(by: int, counts: Counts | None) -> None:
    global _active, _process
    with _LOCK:
        if counts is None:
            _process += by
        elif by > 0:
            _THREAD.counts.append(counts)
        else:
            _THREAD.counts.pop()
        was_active, _active = _active > 0, _active + by
        if not was_active:
            _forget_with_jax()
            _compat.intercept_jits(_trace, _execute, _lowered)
        elif not _active:
            _compat.leave_jits()


@functools.cache
def _forget_with_jax() -> None:
    _compat.clear_with_jax(
        lambda: EXECUTABLES.cache_clear(), lambda: len(EXECUTABLES), "jaxide executables"
    )


def _trace(
    fun: Any, jit: Any, mesh: Any, debug_info: Any, avals: Any, args: Any, kwargs: Any
) -> Any:
    """Stands in for jax's ``_trace_for_jit``."""
    jax_ = _compat.jit_tracing()
    own = _THREAD.counts
    is_noted = (_process or own) and jax_.is_top_level()
    begin = time.perf_counter()
    traced = jax_.stock(fun, jit, mesh, debug_info, avals, args, kwargs)
    if is_noted:
        seconds = time.perf_counter() - begin
        if own:
            own[-1].traces += 1
            own[-1].tracing += seconds
        LEDGER.traced(jax_.call_of(traced, fun, jit, args, kwargs), seconds)
    return traced


@contextlib.contextmanager
def _lowered(jaxpr: Any, resolve: Callable[[], Any]) -> Iterator[Any]:
    """A context with what is lowered in the place of ``jaxpr``."""
    if not (_process or _THREAD.counts):
        yield jaxpr
        return
    instead, was_executed = EXECUTABLES.lowered(jaxpr, resolve)
    # What jax has lowered for an execution it does not lower again, and does not warn.
    with _warnings.noting(silently=True) if was_executed else contextlib.nullcontext():
        yield cons(instead)


def _execute(args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Stands in for jax's ``_pjit_call_impl_python``."""
    own = _THREAD.counts
    if not (_process or own):
        return _compat.execution().stock(*args, **params)
    captured = own[-1].captured if own else _captured
    result, outcome = EXECUTABLES.execute(args, params, captured)
    if own:
        own[-1].shared += outcome.known and not outcome.lowered
        own[-1].compiled += outcome.lowered
        own[-1].lowering += outcome.lowering
        own[-1].compiling += outcome.compiling
    LEDGER.executed(params["jaxpr"], outcome)
    return result
