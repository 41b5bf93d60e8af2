"""What was traced, lowered and compiled in this run, and how long it took.

One note is made of each trace that is not within another, of each lowering and each compilation;
none of what the core replays. What jax says is put aside when it says it, and counted when there is
much of it or somebody asks. Notes are counts and texts, no arrays and no functions, and there are
only so many.
"""

from __future__ import annotations

import contextlib
import datetime
import heapq
import os
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from jaxide._compat import monitoring
from jaxide._compat.monitoring import COMPILE, KINDS, LOAD, LOWER, TRACE
from jaxide._jit.executables import Outcome
from jaxide._native.bounded import trim
from jaxide._reports.run import RunFunction, RunSpan, RunTimes

# Functions that have a row of their own; what becomes of others is one row.
MAX_FUNCTIONS = 2048
OTHERS = "(other functions)"
# The longest spans.
MAX_SPANS = 2000
# Names of which the function that had it last is known.
MAX_NAMES = 4096
# Reasons of one function.
MAX_REASONS = 8
# Of a name.
MAX_TEXT = 500
# Spans of one thread that another one may turn out to enclose.
MAX_OPEN = 1000
# Events that are not counted yet.
MAX_PENDING = 500


class _Row:
    """What became of one function."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.left: Counter[str] = Counter()

    def function(self, place: str) -> RunFunction:
        name, _, line = place.partition(" at ")
        counts, seconds = self.counts, self.seconds
        return RunFunction(
            name,
            line,
            traced=counts[TRACE],
            recorded=counts["recorded"],
            lowered=counts[LOWER],
            compiled=counts[COMPILE],
            loaded=counts[LOAD],
            stored=counts["stored"],
            shared=counts["shared"],
            tracing=seconds[TRACE],
            lowering=seconds[LOWER],
            compiling=seconds[COMPILE],
            loading=seconds[LOAD],
            left=dict(self.left),
        )


class _Work:
    """What one thread does."""

    def __init__(self) -> None:
        self.thread = threading.current_thread().name[:MAX_TEXT]
        # The function that it lowers or compiles for.
        self.place: str | None = None
        # Spans that are over, begin and seconds; those within another go when it is over.
        self.over: deque[tuple[float, float]] = deque()
        # When it last read an executable from jax's compilation cache, and how long that took.
        self.loaded: tuple[float, float] | None = None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.work = _Work()


class _Event(NamedTuple):
    """What jax said, and when; ``place`` is the function's, where it is known."""

    work: _Work
    kind: str
    name: str
    place: str | None
    end: float
    seconds: float
    is_recorded: bool


class _Span(NamedTuple):
    """A span as it is kept: the shortest is the least."""

    seconds: float
    number: int
    kind: str
    place: str
    thread: str
    begin: float


class RunNotes(NamedTuple):
    """A copy of the notes."""

    began: datetime.datetime | None
    seconds: float
    recorded: float
    times: RunTimes
    functions: tuple[RunFunction, ...]
    spans: tuple[RunSpan, ...]
    num_spans: int


class RunLog:
    """The notes of this process."""

    def __init__(self) -> None:
        # The same thread may take it again: a signal handler or a finalizer may run a jit. So
        # what is done with it holds whatever comes in between.
        self._lock = threading.RLock()
        self._thread = _Thread()
        # How many want notes to be taken, and whether they are.
        self._wanted = 0
        self._is_listening = False
        self._clear()

    def _clear(self) -> None:
        self._began: datetime.datetime | None = None
        self._begin = 0.0
        # Seconds of earlier times in which notes were taken, and since when they are.
        self._earlier = 0.0
        self._since: float | None = None
        self._rows: dict[str, _Row] = {}
        self._places: dict[str, str] = {}
        self._totals: defaultdict[str, float] = defaultdict(float)
        self._pending: deque[_Event] = deque()
        # The longest, the shortest of them first.
        self._spans: list[_Span] = []
        self._num_spans = 0

    def begin(self) -> None:
        """Takes notes from now on, until :meth:`end` was called as often as this."""
        with self._lock:
            self._wanted += 1
            self._settle()

    def end(self) -> None:
        """Takes no more notes; those that there are stay."""
        with self._lock:
            self._wanted -= 1
            self._settle()

    def _settle(self) -> None:
        """Takes notes where somebody wants that. A signal handler may begin or end meanwhile, and
        do the same: whoever was interrupted goes on towards what is wanted by then."""
        while (is_wanted := self._wanted > 0) != self._is_listening:
            self._is_listening = is_wanted
            if is_wanted:
                self._resume()
                monitoring.listen(self._heard)
            else:
                self._pause()
                monitoring.leave(self._heard)

    def _resume(self) -> None:
        if self._since is None:
            self._since = time.perf_counter()
        if self._began is None:
            self._began, self._begin = datetime.datetime.now(datetime.UTC), self._since

    def _pause(self) -> None:
        if self._since is not None:
            self._earlier += time.perf_counter() - self._since
            self._since = None

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """A context in which notes are taken."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    @contextlib.contextmanager
    def working_for(self, place: Callable[[], str | None]) -> Iterator[None]:
        """A context in which this thread lowers and compiles for one function."""
        if self._since is None:
            yield
            return
        work = self._thread.work
        before, work.place = work.place, place()
        try:
            yield
        finally:
            work.place = before

    def executed(self, place: str | None, outcome: Outcome) -> None:
        """Notes what became of a program that was executed for the first time since its trace."""
        if place is None or self._since is None:
            return
        with self._lock:
            row = self._row(place)
            row.counts["shared"] += outcome.known and not outcome.lowered
            row.counts["stored"] += outcome.stored
            if outcome.reason is not None:
                row.left[outcome.reason[:MAX_TEXT]] += 1
                trim(row.left, MAX_REASONS)

    def _heard(
        self, kind: str, name: str, place: str | None, seconds: float, is_recorded: bool, /
    ) -> None:
        work = self._thread.work
        if kind != TRACE:
            place = work.place
        end = time.perf_counter()
        self._pending.append(_Event(work, kind, name, place, end, seconds, is_recorded))
        if len(self._pending) > MAX_PENDING:
            self._count_pending()

    def _count_pending(self) -> None:
        with self._lock:
            while (event := self._next_pending()) is not None:
                self._count(event)

    def _next_pending(self) -> _Event | None:
        try:
            return self._pending.popleft()
        except IndexError:
            return None

    def _count(self, event: _Event) -> None:
        kind, work, seconds = event.kind, event.work, max(event.seconds, 0.0)
        begin = event.end - seconds
        own = max(seconds - _take_enclosed(work.over, begin), 0.0)
        work.over.append((begin, seconds))
        if kind == LOAD:
            # jax says of what when the compilation is over that this stands in for.
            work.loaded = begin, own
            return
        loaded, work.loaded = work.loaded, None
        if kind == COMPILE and loaded is not None and _is_within(loaded, begin):
            kind, own = LOAD, own + loaded[1]
        name = event.name[:MAX_TEXT]
        place = event.place or self._places.get(name) or name
        if kind in (TRACE, LOWER):
            self._note_place(name, place[:MAX_TEXT])
        row = self._row(place)
        row.counts[kind] += 1
        row.counts["recorded"] += event.is_recorded
        row.seconds[kind] += own
        self._totals[kind] += own
        self._note_span(kind, place[:MAX_TEXT], work.thread, begin - self._begin, seconds)

    def _row(self, place: str) -> _Row:
        place = place[:MAX_TEXT]
        row = self._rows.get(place)
        if row is None:
            if len(self._rows) >= MAX_FUNCTIONS:
                place = OTHERS
            row = self._rows.setdefault(place, _Row())
        return row

    def _note_place(self, name: str, place: str) -> None:
        if self._places.get(name) != place:
            # The last of the name, which goes last.
            self._places.pop(name, None)
            self._places[name] = place
            trim(self._places, MAX_NAMES)

    def _note_span(self, kind: str, place: str, thread: str, begin: float, seconds: float) -> None:
        self._num_spans += 1
        span = _Span(seconds, self._num_spans, kind, place, thread, begin)
        if len(self._spans) < MAX_SPANS:
            heapq.heappush(self._spans, span)
        elif self._spans[0] < span:
            heapq.heapreplace(self._spans, span)

    def notes(self) -> RunNotes:
        """What was noted, the dearest functions first, the spans in order."""
        with self._lock:
            self._count_pending()
            now = time.perf_counter()
            recorded = self._earlier + (now - self._since if self._since is not None else 0.0)
            rows = [row.function(place) for place, row in self._rows.items()]
            spans = list(map(_shown, self._spans))
            spent = {kind: self._totals[kind] for kind in KINDS}
            began, seconds = self._began, now - self._begin if self._began else 0.0
            num_spans = self._num_spans
        return RunNotes(
            began,
            seconds,
            recorded,
            RunTimes(
                tracing=spent[TRACE],
                lowering=spent[LOWER],
                compiling=spent[COMPILE],
                loading=spent[LOAD],
                rest=max(recorded - sum(spent.values()), 0.0),
            ),
            tuple(sorted(rows, key=lambda row: -row.seconds)),
            tuple(sorted(spans, key=lambda span: (span.begin, -span.seconds))),
            num_spans,
        )

    def begin_in_child(self) -> None:
        """A child has a run of its own. What its parent's threads held they hold."""
        self._lock, self._thread = threading.RLock(), _Thread()
        self._clear()
        if self._wanted:
            self._resume()


def _is_within(span: tuple[float, float], begin: float) -> bool:
    """Whether a span is part of one that ends now. Both are known by the end and the seconds, so
    that a begin may be off by the time that it took to say so."""
    return span[0] + span[1] / 2 >= begin


def _take_enclosed(over: deque[tuple[float, float]], begin: float) -> float:
    """Takes the spans that began since then; their seconds."""
    seconds = 0.0
    while over and _is_within(over[-1], begin):
        seconds += over.pop()[1]
    if len(over) > MAX_OPEN:
        # Whatever encloses the second encloses the first, or began between them.
        (first, one), (_, other) = over.popleft(), over.popleft()
        over.appendleft((first, one + other))
    return seconds


def _shown(span: _Span) -> RunSpan:
    name, _, line = span.place.partition(" at ")
    return RunSpan(span.kind, name, line, span.thread, span.begin, span.seconds)


RUN_LOG = RunLog()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=RUN_LOG.begin_in_child)
