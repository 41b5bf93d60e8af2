"""Has pairs run elsewhere, and tells where the two histories of a pair differ."""

from __future__ import annotations

import difflib
import os
import pickle
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from world.known import KILLS_JAX

EXECUTED = "executed"
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Pair(NamedTuple):
    """A kind of change and a program, and when the change comes."""

    kind: str
    program: str
    schedule: str


class Outcome(NamedTuple):
    """What became of a pair."""

    pair: Pair
    tells: bool
    """Whether stock jax shows the change."""
    difference: str
    """Where jaxide shows something else than stock jax; empty where it does not."""
    replays: int = 0
    """How many calls jaxide replayed."""


class Server:
    """Processes of which others are forked: one that has imported jax, and one that has imported
    jaxide too."""

    def __init__(self, **environment: str):
        path = os.pathsep.join([HERE, *filter(None, sys.path)])
        added = {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        self._environment = os.environ | added | environment
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            process.communicate()

    def run(self, pair: Pair, left_out: str = "") -> Outcome:
        """Runs a pair, by a jaxide that leaves an item out of its keys if one is named."""
        imports = "jax" if pair.schedule == "before the import" else "jaxide"
        stock, ours = self._ask(imports, (*pair, left_out))
        if isinstance(stock, str):
            if (pair.kind, pair.program) in KILLS_JAX:
                return Outcome(pair, False, "")
            raise AssertionError(f"{pair}: {stock}")
        tells = len({repr(outcome) for outcome in stock[0]}) > 1
        if isinstance(ours, str):
            return Outcome(pair, tells, ours)
        return Outcome(pair, tells, difference(stock[0], ours[0]), ours[1])

    def _ask(self, imports: str, request: tuple[str, ...]) -> Any:
        process = self._processes.get(imports)
        if process is None:
            process = self._processes[imports] = subprocess.Popen(
                [sys.executable, "-m", "world.server", imports],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self._environment,
            )
        source, to = process.stdout, process.stdin
        assert source and to
        to.write(f"{request!r}\n".encode())
        to.flush()
        head = source.read(8)
        if len(head) < 8:
            raise RuntimeError("the server died")
        return pickle.loads(source.read(struct.unpack("<q", head)[0]))


def difference(stock: list[Any], ours: list[Any]) -> str:
    """The first trace that differs, as a unified diff."""
    for number, (expected, made) in enumerate(zip(stock, ours, strict=True)):
        if expected != made:
            lines = difflib.unified_diff(_lines(expected), _lines(made), "stock", "jaxide", n=1)
            return f"trace {number}\n" + "\n".join([*lines][:40])
    return ""


def _lines(outcome: Any) -> list[str]:
    parts = []
    for part in outcome[0] if isinstance(outcome[0], tuple) else outcome:
        parts += part if isinstance(part, tuple | list) else [part]
    return [line.rstrip() for p in (*parts, outcome[1:]) for line in str(p).splitlines()]


def drawn(
    kinds: dict[str, Any], programs: dict[str, Any], schedules: list[str], seed: int
) -> Iterator[Pair]:
    """Pairs without end: every kind in turn, with a program that shows its change more often."""
    source = random.Random(seed)
    while True:
        names = list(kinds)
        source.shuffle(names)
        for name in names:
            fitting = [program.name for program in _fitting(kinds[name], programs)]
            chosen = fitting if source.random() < 0.8 else list(programs)
            when = [schedule for schedule in schedules if schedule.startswith("executed")]
            when = when if EXECUTED in kinds[name].needs and when else schedules
            yield Pair(name, source.choice(chosen), source.choice(when))


def witness(kind: Any, programs: dict[str, Any]) -> Pair:
    """The pair with the simplest program that shows a change of this kind."""
    simplest = min(_fitting(kind, programs), key=lambda program: len(program.has))
    program = kind.witness or simplest.name
    return Pair(kind.name, program, "executed" if EXECUTED in kind.needs else "between")


def _fitting(kind: Any, programs: dict[str, Any]) -> list[Any]:
    return [program for program in programs.values() if kind.needs - {EXECUTED} <= program.has]
