"""Files that are there as a whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import TypeVar

Content = TypeVar("Content", str, bytes)

# What the name of a folder may end in.
_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Makes a file, or replaces it, at once. A link stays: the file that it leads to is replaced,
    and keeps its mode. What is no file, a device or a pipe, is written to.

    Raises:
      OSError: it cannot be written; what was there before still is.
    """
    if os.fsdecode(path).endswith(_SEPARATORS):
        # A path without its last separator would be another one, that of a file.
        raise IsADirectoryError(errno.EISDIR, "path names a folder, not a file", os.fspath(path))
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
        with open(beside, "xb", opener=_private if mode is not None else None) as file:
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


def _private(path: str, flags: int) -> int:
    """Opens a file that nobody else may read until it has the mode of its target."""
    return os.open(path, flags, 0o600)


def deliver(content: Content, path: str | os.PathLike[str] | None) -> Content | None:
    """What was made, where no path is given; else it is written there."""
    if path is None:
        return content
    write(path, content)
    return None
