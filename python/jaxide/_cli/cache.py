"""``python -m jaxide cache``: the store of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jaxide import _core
from jaxide._reports.tables import size

_DIR = click.option(
    "--dir",
    "folder",
    metavar="FOLDER",
    help="The folder of the store; without it, JAXIDE_CACHE_DIR. ':jax:' is beside jax's.",
)


@click.group()
def cache() -> None:
    """The store, in which one process leaves to the next what it has recorded."""


def _found(folder: str | None) -> Path:
    from jaxide._api.warm import StoreError, check_folder, store_folder

    try:
        found = store_folder(folder)
        check_folder(found)
    except (StoreError, OSError, RuntimeError) as error:
        raise click.ClickException(str(error)) from None
    return found


def _installed(folder: str | None) -> tuple[Any, ...]:
    from jaxide import _compat

    return _found(folder), *_compat.installation()


@cache.command()
@_DIR
def info(folder: str | None) -> None:
    """What the store has, for the installed jax and in all."""
    try:
        found = _core.inspect_store(*_installed(folder))
    except OSError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"folder    {found['folder']}")
    click.echo(f"segments  {found['segments']}")
    click.echo(f"entries   {found['entries']}")
    click.echo(f"in all    {found['files']} files, {size(found['bytes'])}")
    for path, reason in found["damaged"]:
        click.echo(f"not used  {path}: {reason}")


@cache.command()
@_DIR
def clear(folder: str | None) -> None:
    """Removes what the store has, for every installation."""
    removed = _core.clear_store(_found(folder))
    click.echo(f"{removed} files removed")


@cache.command()
@_DIR
def verify(folder: str | None) -> int:
    """Reads all of the store for the installed jax; status 1 where something is damaged."""
    try:
        damaged = _core.verify_store(*_installed(folder))
    except OSError as error:
        raise click.ClickException(str(error)) from None
    for path, reason in damaged:
        click.echo(f"{path}: {reason}")
    if not damaged:
        click.echo("nothing is damaged")
    return 1 if damaged else 0


@cache.command()
@click.argument("file", type=click.Path(dir_okay=False, writable=True, path_type=Path))
@_DIR
def pack(file: Path, folder: str | None) -> None:
    """Writes all entries for the installed jax to one FILE, for `unpack`."""
    try:
        content, entries = _core.pack_store(*_installed(folder))
        if not entries:
            raise click.ClickException("the store has no entries for the installed jax")
        file.write_bytes(content)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{entries} entries, {size(len(content))}")


@cache.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_DIR
def unpack(file: Path, folder: str | None) -> None:
    """Puts the entries of a FILE that `pack` has written into the store."""
    try:
        path, salt, packages = _installed(folder)
        entries = _core.unpack_store(path, salt, packages, file.read_bytes())
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{file}: {error}") from None
    click.echo(f"{entries} entries")
