"""The short run of the tests: of combinations it takes a covering choice, `--long` takes them all.
`HYPOTHESIS_PROFILE=long`, which draws thousands of examples, is a long run as well.

Most tests run always. A test that takes every combination of some parameters is marked, and the
short run takes of these as few as cover what the marker asks for:

    @pytest.mark.covering(times=2)
        Each value of each parameter is in at least two combinations of the test. Among the
        combinations that serve this, those come first whose pairs of values are new. With
        `together=True` the tests of a module that have this mark share what they cover.
    @pytest.mark.covering(kinds=function)
        For tests of one parameter that several tests of a module have. Each value is in at least
        one of these tests, and each test has values of all kinds. The function tells, of the
        text of a value in the test's id, the kinds of the value. With `each_value=False` the test
        has `times` values of each kind, but not each value.
    @pytest.mark.covering(times=2, each_value=False)
        Two combinations of the test, whichever: for tests that take long and are much alike.
    @pytest.mark.covering(by_turns=True)
        Every second one, on newer versions of jax the others: for tests that take long, of what is
        much alike in all versions.

The choice is made of the ids alone: it is the same in all processes, whatever the order of the
tests, and a new value of a parameter is in it. What is asked for by name always runs: a test's id,
a name after `::`, and what `-k` or `--last-failed` select.
"""

from __future__ import annotations

import hashlib
import heapq
import importlib.metadata
import itertools
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import pytest

Value = TypeVar("Value")
Kinds = Callable[[str], Iterable[str]]

is_short = False
"""Whether this is the short run; set before test modules are imported."""


def one_in(number: int, values: Sequence[Value], start: int) -> list[Value]:
    """All values, or in the short run one in so many: other ones for the next `start`."""
    return [v for i, v in enumerate(values) if not is_short or (start + i) % number == 0]


def examples(short: int, whole: int) -> int:
    """How many examples a test draws in this run."""
    return short if is_short else whole


class Candidate(NamedTuple):
    """A test, and what it covers."""

    id: str
    demands: Counter[Hashable]
    """How often each of these has to be covered, by this and other tests."""
    pairs: frozenset[Hashable]
    """What it is preferred for."""
    by_turns: bool = False


def configure(config: pytest.Config) -> None:
    """Decides whether this is the short run."""
    global is_short
    is_short = not (config.getoption("long") or os.environ.get("HYPOTHESIS_PROFILE") == "long")


def is_asked_for_by_name(config: pytest.Config) -> bool:
    """Whether the command line names tests, rather than files and folders."""
    return bool(
        config.getoption("keyword")
        or config.getoption("lf", default=False)
        or any("::" in argument for argument in config.args)
    )


def deselected(config: pytest.Config, items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The tests that this run leaves out."""
    if not is_short or is_asked_for_by_name(config):
        return set()
    candidates = {item: made for item in items if (made := candidate(item)) is not None}
    chosen = {made.id for made in cover(candidates.values())}
    chosen.update(by_turns([made.id for made in candidates.values() if made.by_turns], TURN))
    return {item for item, made in candidates.items() if made.id not in chosen}


# jax itself must not be imported yet.
TURN = int(not importlib.metadata.version("jax").startswith("0.10."))


def by_turns(ids: Iterable[str], turn: int) -> Iterator[str]:
    """Every second of the tests of each function."""
    function = lambda id_: id_.partition("[")[0]
    for _, of_function in itertools.groupby(sorted(ids, key=lambda i: (function(i), i)), function):
        yield from itertools.islice(of_function, turn, None, 2)


def candidate(item: pytest.Item) -> Candidate | None:
    """What a marked test covers."""
    marker = item.get_closest_marker("covering")
    if marker is None:
        return None
    if marker.kwargs.get("by_turns"):
        return Candidate(item.nodeid, Counter(), frozenset(), by_turns=True)
    call = item.callspec
    module, _, function = item.nodeid.partition("[")[0].rpartition("::")
    return Candidate(
        item.nodeid, *_covered(module, function, call.id, call.params, **marker.kwargs)
    )


def _covered(
    module: str,
    function: str,
    text: str,
    parameters: dict[str, Any],
    times: int = 1,
    kinds: Kinds | None = None,
    each_value: bool = True,
    together: bool = False,
) -> tuple[Counter[Hashable], frozenset[Hashable]]:
    if kinds is not None:
        (parameter,) = parameters
        demands = Counter[Hashable]({(module, parameter, text): 1} if each_value else {})
        demands.update({(module, function, "kind", kind): times for kind in kinds(text)})
        demands[module, function] = 1
        return demands, frozenset()
    if not each_value:
        return Counter({(module, function): times}), frozenset()
    # A value is one object in all combinations, but for texts, which may be equal ones.
    place = module if together else f"{module}::{function}"
    values = [
        (place, name, value if isinstance(value, str) else id(value))
        for name, value in sorted(parameters.items())
    ]
    pairs = itertools.combinations(values, 2) if len(values) > 2 else ()
    return Counter(dict.fromkeys([(module, function), *values], times)), frozenset(pairs)


def cover(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """As few of them as a greedy choice finds that cover all demands, where that is possible."""
    # Gains only become smaller, so one that is still what it was is the largest.
    met: Counter[Hashable] = Counter()
    seen: set[Hashable] = set()

    def gain(of: Candidate) -> tuple[int, int]:
        missing = sum(met[demand] < times for demand, times in of.demands.items())
        return -missing, -len(of.pairs - seen)

    queue: list[tuple[Any, bytes, Candidate]] = [
        (gain(of), hashlib.sha256(of.id.encode()).digest(), of) for of in candidates
    ]
    heapq.heapify(queue)
    while queue:
        before, order, of = heapq.heappop(queue)
        now = gain(of)
        if now[0] == 0:
            continue
        if now != before:
            heapq.heappush(queue, (now, order, of))
            continue
        met.update(of.demands.keys())
        seen |= of.pairs
        yield of
