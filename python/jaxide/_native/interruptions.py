"""Exceptions that signal handlers raise: they are for whoever runs, and never say that something is
wrong with what was running."""

from __future__ import annotations

import signal
import traceback
import types
from typing import Any


def is_of_signal(frames: types.TracebackType | None) -> bool:
    """Whether a signal handler, or something that it called, has raised the exception that has this
    traceback."""
    handlers = map(signal.getsignal, signal.valid_signals())
    functions = (getattr(handler, "__func__", handler) for handler in handlers)
    codes = {getattr(function, "__code__", None) for function in functions} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(frames))


class tried:
    """A context that ends where something in it fails, but for what a signal handler raises."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, class_: Any, error: BaseException | None, frames: Any) -> bool:
        return isinstance(error, Exception) and not is_of_signal(frames)
