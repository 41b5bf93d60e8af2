"""Files that are there as a whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path
from typing import TypeVar

Content = TypeVar("Content", str, bytes)


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Makes a file, or replaces it, at once.

    Raises:
      OSError: it cannot be written; what was there before still is.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    data = content.encode() if isinstance(content, str) else content
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        # Who reads it knows nothing of the file beside.
        raise type(error)(error.errno, error.strerror, str(target)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def deliver(content: Content, path: str | os.PathLike[str] | None) -> Content | None:
    """What was made, where no path is given; else it is written there."""
    if path is None:
        return content
    write(path, content)
    return None


def _umask() -> int:
    """The mask of new files, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
