"""The command line, ``python -m jaxide``.

==============  ========================================================
``commands``    the commands
``cache``       the commands of the store
``targets``     finds the programs that commands are given
``arguments``   reads the types that functions are traced with
``completion``  what shells complete
``demo``        traces a GPT training step with jax and with jaxide
``timing``      how long tracers take, side by side
==============  ========================================================
"""

import contextlib
import io
import os
import sys
from collections.abc import Sequence

import click

from jaxide._cli import completion
from jaxide._cli.commands import cli
from jaxide._program.checks import SwitchedOff


def main(argv: Sequence[str]) -> int:
    """Runs a command and returns its exit status.

    That is 0, or 1 where the answer is no (programs differ, a hash is not the one that was
    expected), or 2 where the command cannot be carried out as it was given: then one line on
    stderr says why.
    """
    for stream in (sys.stdout, sys.stderr):
        # Names that a terminal cannot show are no reason not to print the rest.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = 0
        with contextlib.suppress(click.exceptions.Exit):
            status = cli.main(
                list(argv),
                prog_name=program_name(),
                complete_var=completion.VARIABLE,
                standalone_mode=False,
            )
        # What cannot be written is an error, not noticed when the interpreter ends.
        sys.stdout.flush()
        return status or 0
    except click.Abort:
        return _failed("interrupted", 130)
    except click.ClickException as error:
        command = getattr(getattr(error, "ctx", None), "command_path", program_name())
        print(f"{command}: {one_line(error.format_message())}", file=sys.stderr)
        return 2
    except SwitchedOff as error:
        return _failed(str(error), 2)
    except BrokenPipeError:
        # Whoever reads has seen enough.
        _write_nothing()
        return 0
    except OSError as error:
        _write_nothing()
        return _failed(f"the output cannot be written: {error.strerror or error}", 2)


def run() -> int:
    """The command ``jaxide``."""
    return main(sys.argv[1:])


def program_name() -> str:
    """What the program was started as."""
    return "jaxide" if os.path.basename(sys.argv[0]) == "jaxide" else "python -m jaxide"


def _failed(why: str, status: int) -> int:
    print(f"{program_name()}: {why}", file=sys.stderr)
    return status


def _write_nothing() -> None:
    """Nothing may be written when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_line(text: str) -> str:
    """A message without line breaks."""
    return " ".join(text.split())
