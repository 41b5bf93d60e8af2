"""Files that are there as a whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import TypeVar

Content = TypeVar("Content", str, bytes)


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Makes a file, or replaces it, at once. A link stays: the file that it leads to is replaced,
    and keeps its mode. What is no file, a device or a pipe, is written to.

    Raises:
      OSError: it cannot be written; what was there before still is.
    """
    target = Path(os.path.realpath(path))
    data = content.encode() if isinstance(content, str) else content
    try:
        mode: int | None = target.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        target.write_bytes(data)
        return
    # A name of its own, however long that of the target is.
    beside = target.with_name(f".jaxide-{secrets.token_hex(8)}")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(beside, stat.S_IMODE(mode))
        os.replace(beside, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        if isinstance(error, OSError) and error.filename == str(beside):
            # Who reads it knows nothing of the file beside.
            raise type(error)(error.errno, error.strerror, str(path)) from None
        raise


def deliver(content: Content, path: str | os.PathLike[str] | None) -> Content | None:
    """What was made, where no path is given; else it is written there."""
    if path is None:
        return content
    write(path, content)
    return None
