"""The command line: ``python -m jaxide demo``."""

import argparse
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that `argv` names and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m jaxide", description="A faster tracer for JAX")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="trace a GPT training step with jax and jaxide and compare")
    parser.parse_args(argv)

    # Imported late: a question for --help need not import jax.
    from jaxide import _demo

    return _demo.run()


if __name__ == "__main__":
    sys.exit(main())
