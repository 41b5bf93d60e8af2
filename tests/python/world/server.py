"""Runs pairs, each in processes of its own: reads requests from stdin, writes results to stdout.

A process that has imported jax but not yet started a backend is forked for every history, so that
nothing that a pair changes or registers is there for another pair.
"""

from __future__ import annotations

import functools
import gc
import os
import pickle
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

TIMEOUT = 120


def forked(work: Callable[[], Any]) -> Any:
    """What a function returns in a process of its own."""
    sys.stdout.flush()
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            if "WORLD_STDERR" not in os.environ:
                os.dup2(null, 2)
            try:
                outcome = work()
            except BaseException:
                outcome = f"the history died\n{traceback.format_exc()}"
            with os.fdopen(writes, "wb") as to:
                pickle.dump(outcome, to)
        finally:
            os._exit(0)
    os.close(writes)
    data = _read_all(reads, time.monotonic() + TIMEOUT)
    if data is None:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if data is None:
        return "the history did not end"
    if not data:
        return f"the process died (status {status})"
    return pickle.loads(data)


def _read_all(reads: int, deadline: float) -> bytes | None:
    parts = []
    with os.fdopen(reads, "rb", buffering=0) as source:
        while True:
            ready, _, _ = select.select([source], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                return None
            part = source.read(1 << 16)
            if not part:
                return b"".join(parts)
            parts.append(part)


def main() -> None:
    from world import histories

    out = sys.stdout.buffer
    _warm_up(histories, with_jaxide=sys.argv[1] == "jaxide")
    for line in sys.stdin.buffer:
        kind, program, schedule, left_out = eval(line)
        run = functools.partial(histories.history, kind, program, schedule)
        stock = forked(lambda: (run(with_jaxide=False), 0))
        ours = forked(lambda: _ours(run, left_out))
        data = pickle.dumps((stock, ours))
        out.write(struct.pack("<q", len(data)) + data)
        out.flush()


def _ours(run: Callable[..., Any], left_out: str) -> tuple[Any, int]:
    from world import histories

    if left_out:
        from world.left_out import LEAVE_OUT

        LEAVE_OUT[left_out]()
    return run(with_jaxide=True), histories.replays()


def _warm_up(histories: Any, with_jaxide: bool) -> None:
    """Does here, once, what a process does when it traces for the first time."""
    import jax
    from jax._src import xla_bridge

    for program in ("gradient", "mapped", "custom_vjp_of_a_module"):
        histories.history("global_variable", program, "between", with_jaxide)
    jax.clear_caches()
    if with_jaxide:
        import jaxide

        jaxide.clear_caches()
    assert not xla_bridge.backends_are_initialized()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()
