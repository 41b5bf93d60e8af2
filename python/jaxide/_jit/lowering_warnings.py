"""Warnings of a lowering are noted, to be said again where its executable is shared.

Stock jax lowers each new function, and each time warns of what it finds, as of donated buffers that
are not usable. Python's filters then decide, each time, what becomes of the warning.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from jaxide import _compat, _core


class Said(NamedTuple):
    """A warning, and the line that it was about; None where that is the caller's."""

    text: str
    category: type[Warning]
    filename: str | None
    line: int
    module: str | None


class Warned(list[Said]):
    """The warnings of a lowering, in their order."""

    # Whether these are all: what native code warns of, such as numpy's, only a lowering says again.
    are_all = True


class _Thread(threading.local):
    def __init__(self) -> None:
        # What is noted, of the innermost context last, and whether nobody else hears it.
        self.noted: list[tuple[list[Said], bool]] = []


_THREAD = _Thread()


@contextlib.contextmanager
def noting(silently: bool = False) -> Iterator[Warned]:
    """A context whose warnings, those of this thread, are noted, and said as ever or silently."""
    said = Warned()
    heard = _core.HeardWarnings()
    _THREAD.noted.append((said, silently))
    try:
        yield said
    finally:
        _THREAD.noted.pop()
        said.are_all = heard.close() == 0


def _note(message: Any, category: Any, level: int, is_of_caller: bool) -> bool:
    """Notes a warning; whether nobody else hears it."""
    noted = _THREAD.noted
    if not noted:
        return False
    said, silently = noted[-1]
    said.append(_said(message, category, level, is_of_caller))
    return silently


_core.set_warning_hook(_note)


def _said(message: Any, category: Any, level: int, is_of_caller: bool) -> Said:
    class_ = type(message) if isinstance(message, Warning) else category or UserWarning
    frame = sys._getframe(2)
    for _ in range(level - 1):
        if frame.f_back is None:
            break
        frame = frame.f_back
    filename = frame.f_code.co_filename
    if is_of_caller or not _compat.is_file_of_jax(filename):
        return Said(str(message), class_, None, 0, None)
    return Said(str(message), class_, filename, frame.f_lineno, frame.f_globals.get("__name__"))


def say_again(said: list[Said]) -> None:
    """Warns as somebody did; the filters decide anew."""
    for warning in said:
        filename, line, module = warning.filename, warning.line, warning.module
        if filename is None:
            caller = sys._getframe(1)
            while caller.f_back is not None and _compat.is_internal_file(caller.f_code.co_filename):
                caller = caller.f_back
            filename, line = caller.f_code.co_filename, caller.f_lineno
            names = caller.f_globals
            module = names.get("__name__")
        else:
            names = vars(sys.modules.get(module or "", warnings))
        registry = names.setdefault("__warningregistry__", {})
        warnings.warn_explicit(
            warning.text, warning.category, filename, line, module=module, registry=registry
        )
