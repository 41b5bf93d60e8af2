"""Two processes that check that they have the same program, before they run it.

With ``--differ`` the second process has another constant, as after a mistake in a configuration:
the check fails in both, and names the equation and its line.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys

PROCESSES = 2


def step(scale):
    """The step of a process with its configuration."""
    import jax.numpy as jnp

    return lambda x: jnp.sum(jnp.sin(x) * scale)


def run(rank: int, address: str, differ: bool) -> int:
    """One of the processes; its status."""
    import jax
    import jax.numpy as jnp

    import jaxide

    jax.distributed.initialize(address, PROCESSES, rank)
    scale = 3.0 if differ and rank == 1 else 2.0
    program = jaxide.trace(step(scale))(jnp.ones(4))
    try:
        jaxide.assert_same_program(program)
    except jaxide.ProgramMismatchError as error:
        print(f"process {rank}: {error}", flush=True)
        return 1
    print(
        f"process {rank}: all processes have the program {program.structural_hash:032x}", flush=True
    )
    return 0


def start(differ: bool) -> int:
    """Starts all processes on this machine; 0 where each of them ended well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    options = ["--differ"] if differ else []
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", str(rank), "--address", address, *options]
        )
        for rank in range(PROCESSES)
    ]
    return max(process.wait() for process in processes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--differ", action="store_true")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is None:
        return start(options.differ)
    return run(options.rank, options.address, options.differ)


if __name__ == "__main__":
    sys.exit(main())
