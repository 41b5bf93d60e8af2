"""Why jits were traced again: the retrace log behind ``retraces`` and ``explain``.

Every outermost trace of a jit that jaxide sees is noted by where it was called from and which
function it was of: what it cost, what was different from the trace before, and whether the program
that came of it was one that is known. Notes hold texts and counts, no arrays and no functions.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from jaxide import _compat, _core
from jaxide._jit.executables import Outcome
from jaxide._jit.explanation import Change, Explanation, Retrace, Retraces
from jaxide._jit.hoist_constants import hoist_constants
from jaxide._native.bounded import trim
from jaxide._reports.diff import Diff

# Call sites, those that were traced last; and of each the programs a new one is compared with.
MAX_SITES = 1024
MAX_PROGRAMS = 4
# How many differences from the nearest of them are told.
MAX_DIFFERENCES = 8
# Of the value of a static argument or a setting.
MAX_TEXT = 200
# Says what is traced again when it happens.
LOG = logging.getLogger("jaxide.retraces")


class _Signature(NamedTuple):
    """What decided whether a jit had to be traced."""

    function: Callable[[], Any]
    jit: Any
    # The structure of the arguments: a hash, since a tree may hold anything, and how many leaves.
    tree: tuple[int, int]
    avals: Mapping[str, Any]
    static: Mapping[str, str]
    settings: Mapping[str, Any]
    context: Any


class _Site:
    """The notes of one place in the user's code and one function."""

    def __init__(self, where: str, function: str):
        self.where, self.function = where, function
        self.count = 0
        self.tracing = self.lowering = self.compiling = 0.0
        self.same = self.shared = 0
        self.reasons: Counter[str] = Counter()
        self.signature: _Signature | None = None
        self.programs: deque[weakref.ref[Any]] = deque(maxlen=MAX_PROGRAMS)
        self.explanation: Explanation | None = None


class RetraceLog:
    """The notes of all call sites."""

    def __init__(self) -> None:
        # The same thread may take it again: a signal handler or a finalizer may run a jit. So
        # what is done with it holds whatever comes in between.
        self._lock = threading.RLock()
        self._sites: dict[Any, _Site] = {}
        # Traced, but not executed yet, by the address of the jaxpr.
        self._traced: dict[int, tuple[weakref.ref[Any], _Site]] = {}

    def clear(self) -> None:
        """Forgets all."""
        with self._lock:
            self._sites.clear()
            self._traced.clear()

    def traced(self, call: _compat.JitCall, seconds: float) -> None:
        """Notes that a jit was traced."""
        where, jaxpr = _compat.call_site(), call.jaxpr
        signature = _signature(call)
        with self._lock:
            key = where, call.place
            site = self._sites.pop(key, None)
            if site is None:
                site = _Site(where, call.place)
                # What was different from the last trace from elsewhere.
                same = (own for (_, place), own in reversed(self._sites.items()) if place == key[1])
                site.signature = next((own.signature for own in same), None)
            self._sites[key] = site
            trim(self._sites, MAX_SITES)
            changes = _changes(site.signature, signature)
            is_again = site.signature is not None
            site.count += 1
            site.tracing += seconds
            site.reasons.update({change.kind: 1 for change in changes})
            site.signature = signature
            site.explanation = Explanation(where, site.function, changes, (), None, None)
            count = site.count
            place_of, traced = id(jaxpr), self._traced
            traced[place_of] = weakref.ref(jaxpr, lambda _: traced.pop(place_of, None)), site
        # Handlers are the user's, and may trace.
        if is_again and LOG.isEnabledFor(logging.INFO) and not _compat.is_place_of_jax(call.place):
            said = "; ".join(map(str, changes)) or "nothing that jaxide knows of"
            LOG.info("%s, called at %s, trace %d: %s", call.place, where, count, said)

    def place_of(self, jaxpr: Any) -> str | None:
        """Which function a program is of that was traced, and not executed yet."""
        found = self._traced.get(id(jaxpr))
        return found[1].function if found is not None and found[0]() is jaxpr else None

    def executed(self, jaxpr: Any, outcome: Outcome) -> None:
        """Notes what became of a program that was to be executed."""
        found = self._traced.get(id(jaxpr))
        if found is None or found[0]() is not jaxpr:
            return
        site = found[1]
        with self._lock:
            site.lowering += outcome.lowering
            site.compiling += outcome.compiling
            # A second execution is of other shardings, and no other program.
            is_first = self._traced.pop(id(jaxpr), None) is not None
            earlier = [program for ref in site.programs if (program := ref()) is not None]
        if not is_first:
            return
        places: tuple[Any, ...] = ()
        if earlier and not outcome.known and outcome.program is not None:
            _, graph = hoist_constants(jaxpr)
            nearest = _nearest(reversed(earlier), graph)
            places = nearest.differences[:MAX_DIFFERENCES]
        with self._lock:
            site.same += outcome.known
            site.shared += outcome.known and not outcome.lowered
            if outcome.program is not None:
                site.programs.append(weakref.ref(outcome.program))
            if site.explanation is not None:
                site.explanation = dataclasses.replace(
                    site.explanation,
                    differences=places,
                    known=outcome.known,
                    reason=outcome.reason,
                    compiled=outcome.lowered,
                )

    def retraces(self) -> Retraces:
        """The notes, those that cost most first."""
        with self._lock:
            rows = [
                Retrace(
                    site.where,
                    site.function,
                    site.count,
                    site.tracing,
                    site.lowering,
                    site.compiling,
                    dict(site.reasons),
                    site.same,
                    site.shared,
                )
                # A finalizer may run a jit meanwhile.
                for site in self._sites.copy().values()
            ]
        return Retraces(sorted(rows, key=lambda row: -row.seconds))

    def explain(self, place: str | None = None) -> Explanation | None:
        """Why the last trace was made, of the function at ``place`` where that is given."""
        with self._lock:
            for (_, own), site in reversed(self._sites.copy().items()):
                if place is None or own == place:
                    return site.explanation
        return None


def _nearest(earlier: Iterable[Any], graph: _core.Graph) -> Diff:
    """Where a program differs from the nearest of those that are known; of equally near ones the
    first."""
    nearest: Diff | None = None
    for program in earlier:
        # Of earlier programs there is no more than comparing them needs.
        diff = Diff._of(program.graph, graph, of="execution", limit=MAX_DIFFERENCES, names=False)
        if nearest is None or diff.count < nearest.count:
            nearest = diff
        if nearest.count == 1:
            # None is nearer: this program is new.
            break
    assert nearest is not None
    return nearest


def _signature(call: _compat.JitCall) -> _Signature:
    fun: Any = call.fun
    function: Callable[[], Any]
    try:
        function = weakref.ref(fun)
    except TypeError:
        function = lambda: None
    return _Signature(
        function,
        call.jit,
        (hash(call.tree), call.tree.num_leaves),
        dict(zip(call.arg_names, call.avals, strict=False)),
        {name: _text(value) for name, value in call.static.items()},
        call.settings,
        call.context,
    )


def _text(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:  # the user's
        text = f"a {type(value).__qualname__} ({error!r})"
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."


def _changes(old: _Signature | None, new: _Signature) -> tuple[Change, ...]:
    """What was different from the trace before."""
    if old is None:
        return (Change("first call"),)
    changes = []
    if old.function() is not new.function():
        changes.append(Change("new function object"))
    elif old.jit is not new.jit:
        changes.append(Change("new jit"))
    if old.tree != new.tree:
        leaves = (f"{tree[1]} leaves" for tree in (old.tree, new.tree))
        changes.append(Change("argument structure", "", *leaves))
    for name, aval in new.avals.items():
        before = old.avals.get(name)
        if before is None or before is aval or before == aval:
            continue
        for kind in ("shape", "dtype", "weak_type", "sharding"):
            values = [getattr(each, kind, None) for each in (before, aval)]
            if values[0] != values[1]:
                changes.append(Change(kind, name, *map(str, values)))
    changes += _changed("static value", old.static, new.static)
    if old.context != new.context:
        changes += _changed("config", old.settings, new.settings) or [Change("config")]
    return tuple(changes) or (Change("cache cleared"),)


def _changed(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    return [
        Change(kind, name, *(v if isinstance(v, str) else _text(v) for v in (old.get(name), value)))
        for name, value in new.items()
        if old.get(name) is not value and old.get(name) != value
    ]


RETRACE_LOG = RetraceLog()


def retraces() -> Retraces:
    """Which jits were traced, by function and call site: how often, why, and the cost.

    Noted are the outermost traces of ``jax.jit`` while jaxide is installed, and of
    :func:`jaxide.jit` always.

    Example:
      >>> jaxide.clear_caches()
      >>> for _ in range(3):
      ...     y = jaxide.jit(lambda x: x + 1)(1.0)
      >>> [(row.count, row.shared) for row in jaxide.retraces()]
      [(3, 2)]

    Returns:
      A tuple of :class:`Retrace`, the dearest first. It prints as a table (``rich`` shows it in
      colour). Times are in seconds.
    """
    return RETRACE_LOG.retraces()


def explain(fun: Callable[..., Any] | None = None) -> Explanation | None:
    """Why a function was last traced, and where its program differs from the nearest earlier one.

    Args:
      fun: a function, or what a jit made of it; a function that was defined at the same place of
        the code counts as the same. Without it, the function that was traced last.

    Returns:
      An :class:`Explanation`, which prints as text; None where no trace was noted.

    Raises:
      TypeError: ``fun`` is no function.
    """
    if fun is not None and not callable(fun):
        raise TypeError(f"explain takes a function, got {fun!r}")
    return RETRACE_LOG.explain(None if fun is None else _compat.function_place(fun))
