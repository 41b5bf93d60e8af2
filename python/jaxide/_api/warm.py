"""The store: what was recorded in one process is there in the next."""

from __future__ import annotations

import atexit
import collections
import dataclasses
import os
import stat
import threading
import warnings
from pathlib import Path

from jaxide import _compat, _core, _settings

# In the place of a folder: the one in which jax keeps what it has compiled.
BESIDE_JAX = ":jax:"
# What was learnt is written this often, for processes that do not come to their end.
_SECONDS = 30.0


class StoreError(ValueError):
    """A store that cannot be used, or a setting of it that is none."""


@dataclasses.dataclass(frozen=True)
class StoreInfo:
    """The state of the store, and what was found in it by this process.

    Attributes:
      folder: where the entries of this installation are.
      mode: "write", or "read" where nothing is added.
      segments: files that are open.
      entries: entries that they have.
      hits: calls that were found in them.
      misses: calls that were looked for and were not there.
      refused: files and entries that are as if they were not there, because they are damaged.
      whole: functions whose programs were found, so that they were not traced.
      traced: functions that were traced although there was a store, by the reason why.
      files: files of all installations.
      bytes: their bytes.
      max_bytes: bound of ``bytes``.
    """

    folder: Path
    mode: str
    segments: int
    entries: int
    hits: int
    misses: int
    refused: int
    whole: int
    traced: collections.Counter[str]
    files: int
    bytes: int
    max_bytes: int


@dataclasses.dataclass
class _Store:
    """The store that is open."""

    folder: Path
    mode: str
    stopped: threading.Event
    writer: threading.Thread | None = None


_open: list[_Store] = []
_lock = threading.Lock()


def store_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the store: ``folder``, or what ``JAXIDE_CACHE_DIR`` says.

    Raises:
      StoreError: neither says one; or it is to be beside jax's, and jax has none.
    """
    named = _settings.value("cache_dir") if folder is None else _checked("cache_dir", folder)
    if named is None:
        raise StoreError("no folder is named: set JAXIDE_CACHE_DIR, or give one")
    if named == BESIDE_JAX:
        beside = _compat.compilation_cache_dir()
        if beside is None:
            raise StoreError(f"{BESIDE_JAX} needs jax_compilation_cache_dir, which is not set")
        return Path(beside).expanduser().absolute() / "jaxide"
    return Path(named).expanduser().absolute()


def check_folder(folder: Path) -> None:
    """Refuses a folder that others may write to, unless a setting says that they are trusted.

    Raises:
      StoreError: it is such a folder, or none.
    """
    if _settings.value("cache_trust") or not hasattr(os, "getuid"):
        return
    for path in (folder, folder.parent):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(found.st_mode):
            raise StoreError(f"{path} is no folder")
        if path != folder and found.st_mode & stat.S_ISVTX:
            # Others may add to it, but not replace what is ours.
            continue
        if found.st_uid not in (0, os.getuid()):
            raise StoreError(f"{path} is somebody else's: JAXIDE_CACHE_TRUST=1 uses it")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise StoreError(f"others may write to {path}: JAXIDE_CACHE_TRUST=1 uses it")


def open_store(folder: str | os.PathLike[str] | None = None, mode: str | None = None) -> None:
    """Opens the store, in the place of the one that is open. What is not given, settings say.

    Raises:
      StoreError: the folder cannot be used, or a setting is none.
    """
    mode = _settings.value("cache_mode") if mode is None else _checked("cache_mode", mode)
    try:
        path = store_folder(folder)
        check_folder(path)
    except (OSError, RuntimeError) as error:
        raise StoreError(str(error)) from None
    salt, packages = _compat.installation()
    records, objects = _compat.entry_objects()
    _compat.use_whole_traces()  # Not within the first trace.
    close_store()
    with _lock:
        _core.open_store(
            path,
            salt,
            packages,
            mode == "write",
            _settings.value("cache_max_bytes"),
            records,
            objects,
            _compat.portable_names(),
        )
        store = _Store(path, mode, threading.Event())
        if mode == "write":
            store.writer = threading.Thread(target=_write_now_and_then, args=(store,), daemon=True)
            store.writer.start()
        _open.append(store)


def _checked(name: str, given: object) -> str:
    try:
        return str(_settings.SETTINGS[name].checked(given))
    except ValueError as error:
        raise StoreError(str(error)) from None


def _write_now_and_then(store: _Store) -> None:
    while not store.stopped.wait(_SECONDS):
        _write(closes=False)


def _write(closes: bool) -> tuple[int, int]:
    """Writes what was learnt; how many entries and bytes. Where that fails, only that is lost."""
    try:
        return _core.write_store(closes)
    except Exception as error:
        warnings.warn(f"the store was not written: {error}", stacklevel=2)
        return 0, 0


def close_store() -> tuple[int, int]:
    """Writes what was learnt, and closes the store; how many entries and bytes were written."""
    with _lock:
        if not _open:
            return 0, 0
        store = _open.pop()
        store.stopped.set()
        if store.writer is not None:
            store.writer.join()
        return _write(closes=True)


def open_of_environment() -> None:
    """Opens the store that ``JAXIDE_CACHE_DIR`` names; where that cannot be, there is a warning."""
    if _settings.value("cache_dir") is not None:
        try:
            open_store()
        except StoreError as error:
            warnings.warn(f"the store is not used: {error}", stacklevel=2)


def store_info() -> StoreInfo | None:
    """The state of the store; None where there is none."""
    info = _core.store_info()
    if info is None or not _open:
        return None
    of_traces = _compat.whole_traces()
    whole, traced = (of_traces.num_loaded, of_traces.traced) if of_traces else (0, {})
    return StoreInfo(
        mode=_open[-1].mode,
        whole=whole,
        traced=collections.Counter(traced),
        **{**info, "folder": Path(info["folder"])},
    )


def _forget_in_child() -> None:
    """Leaves the store to the parent: threads are not in a child, and what they held they hold."""
    global _lock
    _lock = threading.Lock()
    _core.forget_opening()
    for store in _open:
        store.stopped, store.writer = threading.Event(), None


# Before the interpreter is taken down, while threads still run.
atexit.register(close_store)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
