"""That programs survive being stored."""

from __future__ import annotations

from typing import Any

import jaxide
import oracle
from jaxide import _compat
from jaxide._native import program_files

# Everything that a line is annotated with.
ANNOTATED = oracle.PRINT_SETTINGS["everything"]


def stored(program: jaxide.Program, **options: Any) -> bytes:
    """The file of a program, without one."""
    trees = (program._in_tree, program._out_tree)
    return program_files.to_bytes(_compat.program_files(), program.jaxpr, trees, **options)


def loaded(content: bytes) -> jaxide.Program:
    """The program of a file, without one."""
    return jaxide.Program._of_file(content)


def assert_survives(program: jaxide.Program) -> None:
    """A program is the same when it has been stored and loaded, but for what it says was left
    out."""
    try:
        content = stored(program)
    except jaxide.StorageError as error:
        assert "core.Ref" in str(error)
        return
    again = loaded(content)
    assert again.structural_hash == program.structural_hash
    assert again.content_hash == program.content_hash
    assert len(again) == len(program)
    # numpy's functions have a text that says what they do.
    if not any("ufunc" in text for text in again.left_out):
        texts = [oracle.scrub(oracle.sort_effects(p.pretty(**ANNOTATED))) for p in (again, program)]
        assert texts[0] == texts[1]
    if not again.left_out:
        assert loaded(stored(program, complete=True)).left_out == ()
    second = loaded(stored(again))
    assert second.content_hash == program.content_hash
    assert second.left_out == again.left_out
