"""The code of the documents: blocks are executed in order, and what they print is compared.

A page is executed in a folder and a process of its own:

- blocks of Python run one after another, in one namespace, as if they were one file,
  ``example.py``. One that begins with the name of a file (``# train.py``) is written to that file;
- in blocks of a console, lines that begin with ``$`` are commands, and the others are what these
  print;
- a block of text right after another block is what that one prints. ``...`` stands for anything.

A comment before a block says what is special about it: ``<!-- not run: needs a network -->``,
``<!-- status 1 -->``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import doctest
import functools
import io
import linecache
import multiprocessing
import os
import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*) -->\n)?^```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^```$"
    r"(?:\n+^```text\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
FILE = re.compile(r"# ([\w./-]+\.py)\n")
NOT_RUN = "not run: "
# What blocks of Python are, one after another.
EXAMPLE = "example.py"
SECONDS = 300


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of code."""

    language: str
    text: str
    output: str | None
    note: str
    line: int

    @property
    def not_run(self) -> str | None:
        """Why it is not executed, where it is not."""
        return self.note.removeprefix(NOT_RUN) if self.note.startswith(NOT_RUN) else None

    @property
    def status(self) -> int:
        """What its last command exits with."""
        return int(self.note.removeprefix("status ")) if self.note.startswith("status ") else 0

    @property
    def is_run(self) -> bool:
        return self.language != "text" and self.not_run is None


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(
            found["language"],
            found["text"],
            found["output"],
            found["note"] or "",
            text.count("\n", 0, found.start("text")),
        )
        for found in BLOCK.finditer(text)
    ]


def run(page: Path, folder: Path) -> list[str]:
    """Executes the code of a page; what is wrong with it."""
    ours, theirs = _server().Pipe()
    process = _server().Process(target=_run, args=(page, folder, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(SECONDS) else [f"it takes more than {SECONDS} s"]
    except EOFError:
        return ["the process ended early"]
    finally:
        process.kill()
        process.join()


@functools.cache
def _server() -> multiprocessing.context.ForkServerContext:
    """Processes that have jax and jaxide, in which nothing has happened yet."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["jaxide._public", "jaxide._cli.commands", "optax"])
    return context


def _run(page: Path, folder: Path, result: Connection) -> None:
    # One device, as users have it; what is compiled runs once or twice.
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    result.send([f"{page.name}:{line}: {said}" for line, said in _Session(folder).failures(page)])


class _Session:
    """What the blocks of a page have in common."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._namespace: dict[str, Any] = {"__name__": "__main__"}
        self._lines = 0

    def failures(self, page: Path) -> Iterator[tuple[int, str]]:
        """The blocks that fail: where, and how."""
        for block in blocks(page):
            if not block.is_run:
                continue
            try:
                {"python": self._python, "console": self._console}[block.language](block)
            except BaseException:
                yield block.line, traceback.format_exc()

    def _python(self, block: Block) -> None:
        if found := FILE.match(block.text):
            path = self._folder / found[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            return
        path = self._folder / EXAMPLE
        with path.open("a") as file:
            file.write(block.text)
        linecache.checkcache(str(path))
        code = compile("\n" * self._lines + block.text, path, "exec")
        self._lines += block.text.count("\n")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, self._namespace)
        if block.output is not None:
            self._compare(block.output, out.getvalue())

    def _console(self, block: Block) -> None:
        assert block.text.startswith("$ "), "a block of a console begins with a command"
        commands = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
        for number, text in enumerate(commands, 1):
            command, _, output = text.partition("\n")
            is_last = number == len(commands)
            if is_last and block.output is not None:
                output = block.output
            status, printed = self._command(command)
            assert status == (block.status if is_last else 0), f"{command}: {status}\n{printed}"
            if output.strip():
                self._compare(output, printed)

    def _command(self, command: str) -> tuple[int, str]:
        """The status of a command, and what it prints."""
        words = shlex.split(command, comments=True)
        environment = dict(os.environ)
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        if words[:3] == ["python", "-m", "jaxide"]:
            words = words[2:]
        if words[0] != "python" and environment == os.environ:
            return self._here(*words)
        done = subprocess.run(
            [sys.executable, *(words[1:] if words[0] == "python" else ["-m", *words])],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            check=False,
        )
        return done.returncode, done.stdout

    def _here(self, program: str, *arguments: str) -> tuple[int, str]:
        """The same of a command that needs no process of its own."""
        from jaxide._cli import main

        sys.argv = [program]
        run = {"jaxide": main, "pytest": pytest.main}[program]
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(out),
        ):
            status = int(run(list(arguments)))
        # The next command imports what is there by then.
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", "")).startswith(str(self._folder)):
                del sys.modules[name]
        return status, out.getvalue()

    def _compare(self, expected: str, printed: str) -> None:
        printed = printed.replace(f"{self._folder}/", "")
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        same = doctest.OutputChecker().check_output(expected, printed, options)
        assert same, f"the page says\n{expected}\nprinted is\n{printed}"
