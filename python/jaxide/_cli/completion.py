"""What shells complete: commands, options, and the functions of a file."""

from __future__ import annotations

import ast
from pathlib import Path

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
)

PROGRAM = "jaxide"
VARIABLE = "_JAXIDE_COMPLETE"


class Target(click.ParamType):  # type: ignore[type-arg] # of no older click
    """``MODULE:FUNCTION``, ``file.py:FUNCTION``, or a stored program."""

    name = "target"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The functions of a file, which is not imported; without a colon, files."""
        file, colon, start = incomplete.rpartition(":")
        if not colon:
            return [CompletionItem(incomplete, type="file")]
        return [
            CompletionItem(f"{file}:{name}") for name in _functions(file) if name.startswith(start)
        ]


TARGET_TYPE = Target()


def _functions(place: str) -> list[str]:
    """The functions at the top of a file, or of a module that is in this folder."""
    path = Path(place if place.endswith(".py") else f"{place.replace('.', '/')}.py")
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    return [statement.name for statement in body if isinstance(statement, ast.FunctionDef)]


class Bash(BashComplete):
    """bash takes a colon for a word of its own, and replaces only what follows it."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, last = super().get_completion_args()
        words: list[str] = []
        for word in (*args, last):
            if words and ":" in (word, words[-1][-1:]):
                words[-1] += word
            else:
                words.append(word)
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value.rpartition(':')[2]}"


add_completion_class(Bash)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Prints what has a shell complete the command jaxide.

    \b
    bash: eval "$(jaxide completion bash)" in ~/.bashrc
    zsh:  eval "$(jaxide completion zsh)" in ~/.zshrc
    fish: jaxide completion fish > ~/.config/fish/completions/jaxide.fish
    """
    made = get_completion_class(shell)
    assert made is not None, "click knows each of the choices"
    click.echo(made(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
