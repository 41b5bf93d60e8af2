"""Warnings of a lowering are noted, to be said again where its executable is shared.

Stock jax lowers each new function, and each time warns of what it finds, as of donated buffers that
are not usable. Python's filters then decide, each time, what becomes of the warning.
"""

from __future__ import annotations

import _warnings as builtin
import contextlib
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from jaxide import _compat


class Said(NamedTuple):
    """A warning, and the line that it was about; None where that is the caller's."""

    text: str
    category: type[Warning]
    filename: str | None
    line: int
    module: str | None


class _Thread(threading.local):
    def __init__(self) -> None:
        # What is noted, of the innermost context last, and whether nobody else hears it.
        self.noted: list[tuple[list[Said], bool]] = []
        self.is_inside = False


_THREAD = _Thread()
_LOCK = threading.Lock()
_users = 0
_stock: Any = warnings.warn


@contextlib.contextmanager
def noting(silently: bool = False) -> Iterator[list[Said]]:
    """A context whose warnings, those of this thread, are noted, and said as ever or silently."""
    global _users, _stock
    said: list[Said] = []
    with _LOCK:
        _users += 1
        if warnings.warn is not _warn:
            _stock, warnings.warn = warnings.warn, _warn
    _THREAD.noted.append((said, silently))
    try:
        yield said
    finally:
        _THREAD.noted.pop()
        with _LOCK:
            _users -= 1
            if not _users and warnings.warn is _warn:
                warnings.warn = _stock


def _warn(
    message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **options: Any
) -> None:
    """Stands in for ``warnings.warn``."""
    thread = _THREAD
    if thread.noted:
        said, silently = thread.noted[-1]
        said.append(_said(message, category, stacklevel, bool(options)))
        if silently:
            return
    # Who was there before may ask for whoever is there now.
    warn = builtin.warn if thread.is_inside else _stock
    inside, thread.is_inside = thread.is_inside, True
    try:
        warn(message, category, stacklevel=stacklevel + 1, source=source, **options)
    finally:
        thread.is_inside = inside


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
