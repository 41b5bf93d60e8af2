"""What jax says while it traces, lowers and compiles: its events (``jax.monitoring``).

jax tells listeners how long each took, and the name of the function. A trace that jaxide starts, or
steps into, has the place of its function as well.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Protocol

import jax

from jaxide import _core
from jaxide._compat.symbols import optional_symbol

TRACE, LOWER, COMPILE, LOAD = KINDS = ("trace", "lower", "compile", "load")

_EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": TRACE,
    "/jax/core/compile/jaxpr_to_mlir_module_duration": LOWER,
    # That an entry of jax's compilation cache is read is part of it.
    "/jax/core/compile/backend_compile_duration": COMPILE,
    "/jax/compilation_cache/cache_retrieval_time_sec": LOAD,
}


class Hear(Protocol):
    """What is called with an event that is over, in the thread that it is of.

    Args:
      kind: one of ``KINDS``.
      name: the name of the function; empty where jax does not say it.
      place: the function's name and the place of its definition, where that is known.
      seconds: how long it took.
      is_recorded: whether jaxide recorded it, if it is a trace.
    """

    def __call__(
        self, kind: str, name: str, place: str | None, seconds: float, is_recorded: bool, /
    ) -> None: ...


class _Expected(threading.local):
    """The function that this thread traces next: its place, and how many traces there were."""

    place: str | None = None
    num_traces = 0


_EXPECTED = _Expected()
# Replaced as a whole: who goes through it is not disturbed.
_hearing: list[Hear] = []


def expect(place: str | None) -> None:
    """Called where this thread begins to trace a function, which is not within another trace."""
    if _hearing:
        _EXPECTED.place, _EXPECTED.num_traces = place, _core.num_traces()


def _heard(event: str, duration_secs: float, **said: str | int) -> None:
    kind = _EVENTS.get(event)
    if kind is None:
        return
    name, place, is_recorded = str(said.get("fun_name", "")), None, False
    if kind == TRACE:
        place, _EXPECTED.place = _EXPECTED.place, None
        is_active = _core.num_traces() != _EXPECTED.num_traces if place else _core.is_installed()
        is_recorded = is_active and not _core.is_jax_altered()
    elif name.startswith("jit(") and name.endswith(")"):
        name = name[4:-1]
    for hear in _hearing:
        hear(kind, name, place, duration_secs, is_recorded)


def known_devices() -> tuple[str, ...]:
    """The kinds of devices that jax computes on, with their number; none where it has not looked
    for them yet, as that may take long."""
    has_looked = optional_symbol("xla_bridge:backends_are_initialized")
    if has_looked is None or not has_looked():
        return ()
    kinds = Counter(device.device_kind for device in jax.devices())
    return tuple(f"{count} {kind}" for kind, count in kinds.items())


def listen(hear: Hear) -> None:
    """From now on ``hear`` is called with all events."""
    global _hearing
    if hear in _hearing:
        return
    if not _hearing:
        jax.monitoring.register_event_duration_secs_listener(_heard)
    _hearing = [*_hearing, hear]


def leave(hear: Hear) -> None:
    """``hear`` is called no more."""
    global _hearing
    if hear not in _hearing:
        return
    _hearing = [each for each in _hearing if each != hear]
    if not _hearing:
        try:
            jax.monitoring.unregister_event_duration_listener(_heard)
        except AssertionError:
            # Somebody has had jax forget all listeners.
            return
