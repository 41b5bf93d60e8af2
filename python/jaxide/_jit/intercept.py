"""What jits do where they are traced or executed: sharing executables, keeping the retrace log."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jaxide import _compat, _settings
from jaxide._compat import monitoring
from jaxide._jit import lowering_warnings
from jaxide._jit.deduplicate import deduplicate
from jaxide._jit.executables import EXECUTABLES
from jaxide._jit.retraces import RETRACE_LOG
from jaxide._jit.run_log import RUN_LOG


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


class _Thread(threading.local):
    """The contexts of :func:`sharing` that this thread is in, where jits are counted."""

    def __init__(self) -> None:
        self.entered: list[weakref.ref[sharing]] = []

    @property
    def counts(self) -> Counts | None:
        """What the innermost one counts."""
        for entered in reversed(self.entered):
            context = entered()
            if context is not None:
                return context.counts
        return None


_THREAD = _Thread()
# The contexts that somebody is in, and those of them that are for all threads. One that could not
# be left, since an exception came in between, goes when nobody refers to it.
_entered: weakref.WeakSet[sharing] = weakref.WeakSet()
_process: weakref.WeakSet[sharing] = weakref.WeakSet()


class sharing:
    """A context in which executables are shared: by the jits that this thread calls, where they are
    counted, by those of all threads otherwise."""

    def __init__(self, counts: Counts | None = None) -> None:
        self.counts = counts

    def __enter__(self) -> None:
        if self.counts is None:
            _process.add(self)
        else:
            _THREAD.entered.append(weakref.ref(self))
        _entered.add(self)
        _settle()

    def __exit__(self, *exc: object) -> None:
        _entered.discard(self)
        _process.discard(self)
        entered = _THREAD.entered
        entered[:] = [ref for ref in entered if ref() not in (None, self)]
        _settle()


# Whether jits are intercepted, as far as somebody has seen to it.
_settled: list[bool] = [False]


def _settle() -> None:
    """Has jits intercepted where somebody is in such a context. Others may enter or leave one
    meanwhile, and do the same: whoever was interrupted goes on towards what is wanted by then."""
    while True:
        is_wanted = bool(_entered) and _compat.shares_executables()
        if _settled != [is_wanted]:
            _settled[:] = []
            if is_wanted:
                _forget_with_jax()
                _compat.intercept_jits(_before_trace, _after_trace, _execute, _lowered)
            else:
                _compat.leave_jits()
            _settled[:] = [is_wanted]
        if (bool(_entered) and _compat.shares_executables()) == is_wanted:
            return


@functools.cache
def _forget_with_jax() -> None:
    _compat.clear_with_jax(
        lambda: EXECUTABLES.cache_clear(), lambda: len(EXECUTABLES), "jaxide executables"
    )


class _Begun(NamedTuple):
    """A jit that is being traced for a call."""

    call: tuple[Any, ...]
    counts: Counts | None
    begin: float


def _before_trace(
    fun: Any, jit: Any, mesh: Any, debug_info: Any, avals: Any, args: Any, kwargs: Any
) -> _Begun | None:
    """Called before jax traces a jit."""
    own = _THREAD.counts
    if (_process or own is not None) and _compat.jit_tracing().is_top_level():
        monitoring.expect(debug_info.func_src_info)
        return _Begun((fun, jit, args, kwargs), own, time.perf_counter())
    return None


def _after_trace(begun: _Begun | None, traced: Any) -> Any:
    """Called with what was traced, which it returns."""
    if begun is not None:
        seconds = time.perf_counter() - begun.begin
        if begun.counts is not None:
            begun.counts.traces += 1
            begun.counts.tracing += seconds
        RETRACE_LOG.traced(_compat.jit_tracing().call_of(traced, *begun.call), seconds)
    return traced


@contextlib.contextmanager
def _lowered(jaxpr: Any, resolve: Callable[[], Any]) -> Iterator[Any]:
    """A context with what is lowered in the place of ``jaxpr``."""
    if not _process and _THREAD.counts is None:
        yield jaxpr
        return
    instead, was_executed = EXECUTABLES.lowered(jaxpr, resolve)
    # What jax has lowered for an execution it does not lower again, and does not warn.
    silently = lowering_warnings.noting(silently=True) if was_executed else contextlib.nullcontext()
    with silently, RUN_LOG.working_for(lambda: _compat.program_place(jaxpr)):
        yield deduplicate(instead)


def _execute(args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Stands in for jax's ``_pjit_call_impl_python``."""
    own = _THREAD.counts
    if not _process and own is None:
        return _compat.execution().stock(*args, **params)
    captured = _settings.value("captured") if own is None else own.captured
    jaxpr = params["jaxpr"]
    with RUN_LOG.working_for(lambda: RETRACE_LOG.place_of(jaxpr)):
        result, outcome = EXECUTABLES.execute(args, params, captured)
    if own is not None:
        own.shared += outcome.known and not outcome.lowered
        own.compiled += outcome.lowered
        own.lowering += outcome.lowering
        own.compiling += outcome.compiling
    RUN_LOG.executed(RETRACE_LOG.place_of(jaxpr), outcome)
    RETRACE_LOG.executed(jaxpr, outcome)
    return result
