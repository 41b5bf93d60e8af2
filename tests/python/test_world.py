"""What changes in the world between two traces shows in the second one, as with stock jax.

A pair is a program of `world.programs` around the function of a world of `world.kinds`. Its history
is run by stock jax and by jaxide, each in a process of its own. `HYPOTHESIS_PROFILE=long` draws
20,000 pairs.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from world import client, histories
from world.kinds import KINDS, settings
from world.known import KNOWN
from world.programs import PROGRAMS

IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
EXECUTED = [name for name in histories.SCHEDULES if name.startswith(client.EXECUTED)]
TRACED = [name for name in histories.SCHEDULES if name not in EXECUTED]
ITEMS = sorted({kind.covered_by for kind in KINDS.values()})

# Pairs drawn, and how many of them make a test.
DRAWN_TRACED = 20_000 if IS_LONG else 80
DRAWN_EXECUTED = 1_000 if IS_LONG else 6
CHUNK = 500 if IS_LONG else 40
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
    assert KNOWN.keys() <= KINDS.keys()


@pytest.mark.parametrize("item", ITEMS)
def test_each_kind(server: client.Server, item: str) -> None:
    """A change of each kind shows in a simple program, and jaxide shows what stock jax shows."""
    failed, replays = [], 0
    for kind in KINDS.values():
        if kind.covered_by != item or (kind.name in settings.SETTINGS and not IS_LONG):
            continue
        outcome = server.run(client.witness(kind, PROGRAMS))
        assert outcome.tells or not kind.tells, f"{kind.name} changes nothing"
        if outcome.difference and kind.name not in KNOWN:
            failed.append(outcome)
        replays += outcome.replays
    assert not failed, described(failed)
    assert replays > 0, "nothing was replayed"


@pytest.mark.parametrize("kind", KNOWN)
def test_known_differences(server: client.Server, kind: str) -> None:
    """What is known to differ is not forgotten in the table when it does not any more."""
    pair, reason = KNOWN[kind]
    assert server.run(pair).difference, f"{pair} does not differ any more: {reason}"


def chunks(drawn: int) -> range:
    return range(0, drawn, min(CHUNK, drawn))


@pytest.mark.parametrize("start", chunks(DRAWN_TRACED))
def test_traces(server: client.Server, start: int) -> None:
    _assert_same(server, TRACED, start, DRAWN_TRACED)


@pytest.mark.parametrize("start", chunks(DRAWN_EXECUTED))
def test_executions(server: client.Server, start: int) -> None:
    _assert_same(server, EXECUTED, start, DRAWN_EXECUTED)


def _assert_same(server: client.Server, schedules: list[str], start: int, end: int) -> None:
    kinds = {name: kind for name, kind in KINDS.items() if name not in KNOWN}
    if schedules is TRACED:
        kinds = {n: k for n, k in kinds.items() if client.EXECUTED not in k.needs}
    pairs = client.drawn(kinds, PROGRAMS, schedules, SEED)
    outcomes = map(server.run, itertools.islice(pairs, start, min(start + CHUNK, end)))
    failed = [outcome for outcome in outcomes if outcome.difference]
    assert not failed, described(failed)
