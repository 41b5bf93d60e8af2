"""``assert_same_program``: do all processes of a distributed run have the same program?

Processes that run different programs wait for each other's collectives for ever. Hashes are
compared over the key-value store of ``jax.distributed``, which needs no device and no collective.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import jax

from jaxide import _compat
from jaxide._program.program import Program

# All processes call in the same order, so the number of a call names it.
_calls = itertools.count()


class ProgramMismatchError(AssertionError):
    """Processes of a distributed run have different programs."""


def assert_same_program(program: Any, *, timeout: float = 60.0) -> None:
    """Fails where the processes of a distributed run do not all have the same program.

    Every process has to call this, in the same order as the others. Constants count by their types
    (:attr:`Program.structural_hash`), because each process may have its own part of the data.

    Args:
      program: a :class:`Program` or any jaxpr.
      timeout: seconds to wait for the other processes.

    Raises:
      ProgramMismatchError: the programs differ. The message names the first equation that differs,
        and its line in the user's code, for each process; it is the same in all of them.
      TimeoutError: a process did not call in time.
      RuntimeError: there are several processes, and ``jax.distributed`` is not initialized.
      TypeError: the argument is no program.
    """
    own = program if isinstance(program, Program) else _program(program)
    graph = own._read_graph()
    count, rank = jax.process_count(), jax.process_index()
    if count == 1:
        return
    exchange = _Exchange(next(_calls), rank, count, timeout)
    hashes = exchange.all("hash", f"{own.structural_hash:032x}")
    if len(set(hashes)) == 1:
        return
    # 64 bits of each step tell where programs part.
    mine = [f"{step & 0xFFFFFFFFFFFFFFFF:016x}" for step in graph.steps("structure")]
    steps = [json.loads(text) for text in exchange.all("steps", json.dumps(mine))]
    first = min(_parting(steps[0], other) for other in steps[1:] if other != steps[0])
    text, traceback = "nothing: the program ends", None
    if first < len(mine):
        text, traceback = graph.describe_step("structure", first)
    line = _compat.user_line(traceback)
    texts = exchange.all("text", f"{text} at {line}" if line else text)
    same: dict[str, list[int]] = {}
    for process, each in enumerate(texts):
        same.setdefault(each, []).append(process)
    lines = "\n".join(
        f"  process{'es' if len(which) > 1 else ''} {', '.join(map(str, which))}: {each}"
        for each, which in same.items()
    )
    raise ProgramMismatchError(
        f"the processes do not have the same program; they first differ in\n{lines}"
    )


def _program(jaxpr: Any) -> Program:
    if not _compat.is_jaxpr(jaxpr):
        raise TypeError(
            "jaxide.assert_same_program expects a Program or a jaxpr, got an object of type "
            f"{type(jaxpr).__module__}.{type(jaxpr).__qualname__}"
        )
    return Program._of(jaxpr)


def _parting(one: list[str], another: list[str]) -> int:
    """The first step at which two programs differ; one of them may end there."""
    pairs = zip(one, another, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(another)))


class _Exchange:
    """One call's texts, of all processes."""

    def __init__(self, call: int, rank: int, count: int, timeout: float):
        self._call, self._rank, self._count = call, rank, count
        self._timeout = max(1, int(timeout * 1e3))
        self._client = _compat.coordination_client()
        if self._client is None:
            raise RuntimeError(
                "jaxide.assert_same_program compares processes by jax.distributed, which is not "
                "initialized: call jax.distributed.initialize()"
            )

    def all(self, what: str, own: str) -> list[str]:
        """What each process has said of something."""

        def key(rank: int) -> str:
            return f"jaxide/assert_same_program/{self._call}/{what}/{rank}"

        self._client.key_value_set(key(self._rank), own)
        texts = []
        for rank in range(self._count):
            try:
                texts.append(self._client.blocking_key_value_get(key(rank), self._timeout))
            except Exception as error:
                raise TimeoutError(
                    f"process {rank} has not called jaxide.assert_same_program as often as process "
                    f"{self._rank}, which waited for {self._timeout / 1e3:g} s ({error})"
                ) from error
        return texts
