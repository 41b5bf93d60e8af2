"""The command line, ``python -m jaxide``.

==============  ========================================================
``commands``    the commands
``cache``       the commands of the store
``targets``     finds the programs that commands are given
``arguments``   reads the types that functions are traced with
``demo``        traces a GPT training step with jax and with jaxide
``timing``      how long tracers take, side by side
==============  ========================================================
"""

import contextlib
import os
import sys
from collections.abc import Sequence

import click

from jaxide._cli.commands import cli
from jaxide._program.program import SwitchedOff


def main(argv: Sequence[str]) -> int:
    """Runs a command and returns its exit status.

    That is 0, or 1 where the answer is no (programs differ, a hash is not the one that was
    expected), or 2 where the command cannot be carried out as it was given: then one line on
    stderr says why.
    """
    try:
        with contextlib.suppress(click.exceptions.Exit):
            return cli.main(list(argv), prog_name="python -m jaxide", standalone_mode=False) or 0
        return 0
    except click.Abort:
        print("jaxide: interrupted", file=sys.stderr)
        return 130
    except click.ClickException as error:
        command = getattr(getattr(error, "ctx", None), "command_path", "python -m jaxide")
        print(f"{command}: {one_line(error.format_message())}", file=sys.stderr)
        return 2
    except SwitchedOff as error:
        print(f"python -m jaxide: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever reads has seen enough; nothing may be written when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def one_line(text: str) -> str:
    """A message without line breaks."""
    return " ".join(text.split())
