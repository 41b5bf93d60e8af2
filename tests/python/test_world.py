"""What changes in the world between two traces shows in the second one, as with stock jax.

A pair is a program of `world.programs` around the function of a world of `world.kinds`. Its history
is run by stock jax and by jaxide, each in a process of its own. `HYPOTHESIS_PROFILE=long` runs a
pair of each kind, and draws 20,000; otherwise there are some hundred, the same each time.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator

import pytest

import covering
from jaxide import _core
from world import client, histories
from world.kinds import KINDS, settings
from world.known import KNOWN
from world.needed import NEEDED
from world.programs import PROGRAMS
from world.world import Kind

IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
EXECUTED = [name for name in histories.SCHEDULES if name.startswith(client.EXECUTED)]
TRACED = [name for name in histories.SCHEDULES if name not in EXECUTED]
ITEMS = sorted({kind.covered_by for kind in KINDS.values()})

# Of how many kinds one is tried by itself.
ONE_OF = 1 if IS_LONG else covering.examples(20, 4)
# Pairs drawn, and how many of them make a test.
DRAWN_TRACED = 20_000 if IS_LONG else 50
DRAWN_EXECUTED = 1_000 if IS_LONG else 6
CHUNK = 500 if IS_LONG else 25
SEED = 24


@pytest.fixture(scope="module")
def server() -> Iterator[client.Server]:
    with client.Server() as made:
        yield made


def described(outcomes: list[client.Outcome]) -> str:
    parts = [f"{outcome.pair}\n{outcome.difference}" for outcome in outcomes]
    return f"{len(outcomes)} pairs differ\n\n" + "\n\n".join(parts[:5])


def test_there_are_enough() -> None:
    assert len(KINDS) - len(settings.SETTINGS) >= 300
    assert len(PROGRAMS) >= 60
    assert {kind for kind, _ in KNOWN} <= KINDS.keys()


@pytest.mark.parametrize("item", ITEMS)
def test_each_kind(server: client.Server, item: str) -> None:
    """A change of each kind shows in a simple program, and jaxide shows what stock jax shows."""
    failed, replays = [], 0
    for kind in _tried(item):
        pair = client.witness(kind, PROGRAMS)
        outcome = server.run(pair)
        assert outcome.tells or not kind.tells, f"{kind.name} changes nothing"
        if outcome.difference and (pair.kind, pair.schedule) not in KNOWN:
            failed.append(outcome)
        replays += outcome.replays
    assert not failed, described(failed)
    assert replays > 0, "nothing was replayed"


def _tried(item: str) -> list[Kind]:
    """The kinds that an item covers; some of them, where that has to be quick."""
    kinds = [
        kind
        for kind in KINDS.values()
        if kind.covered_by == item and (IS_LONG or kind.name not in settings.SETTINGS)
    ]
    random.Random(SEED).shuffle(kinds)
    return kinds[: -(-len(kinds) // ONE_OF)]


@pytest.mark.unaudited
@pytest.mark.parametrize("item", NEEDED)
def test_each_item_of_the_key_is_needed(server: client.Server, item: str) -> None:
    """With an item left out of the key, jaxide shows something else than stock jax."""
    kind = KINDS[NEEDED[item]]
    pair = client.witness(kind, PROGRAMS)
    assert not server.run(pair).difference
    assert server.run(pair, left_out=item).difference


def test_every_item_of_the_key_is_tested() -> None:
    assert NEEDED.keys() == {*ITEMS, *_core.key_items()}
    for item, kind in NEEDED.items():
        assert KINDS[kind].covered_by == item


@pytest.mark.unaudited  # an audit finds them
@pytest.mark.parametrize(("kind", "schedule"), KNOWN)
def test_known_differences(server: client.Server, kind: str, schedule: str) -> None:
    """What is known to differ is not forgotten in the table when it does not any more."""
    program, reason = KNOWN[kind, schedule]
    pair = client.Pair(kind, program, schedule)
    assert server.run(pair).difference, f"{pair} does not differ any more: {reason}"


def chunks(drawn: int) -> range:
    return range(0, drawn, min(CHUNK, drawn))


@pytest.mark.covering(times=1, each_value=False)
@pytest.mark.parametrize("start", chunks(DRAWN_TRACED))
def test_traces(server: client.Server, start: int) -> None:
    _assert_same(server, TRACED, start, DRAWN_TRACED)


@pytest.mark.parametrize("start", chunks(DRAWN_EXECUTED))
def test_executions(server: client.Server, start: int) -> None:
    _assert_same(server, EXECUTED, start, DRAWN_EXECUTED)


def _assert_same(server: client.Server, schedules: list[str], start: int, end: int) -> None:
    kinds = KINDS
    if schedules is TRACED:
        kinds = {n: k for n, k in kinds.items() if client.EXECUTED not in k.needs}
    pairs = client.drawn(kinds, PROGRAMS, schedules, SEED)
    pairs = (pair for pair in pairs if (pair.kind, pair.schedule) not in KNOWN)
    outcomes = map(server.run, itertools.islice(pairs, start, min(start + CHUNK, end)))
    failed = [outcome for outcome in outcomes if outcome.difference]
    assert not failed, described(failed)
