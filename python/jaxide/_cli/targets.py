"""What the command line is given: a function with its arguments, or a program that was stored."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import jax

import jaxide
from jaxide import _compat
from jaxide._program.checks import SwitchedOff

# Where a command notes the files of which it has the programs.
_LOADED = "jaxide.loaded"


@dataclasses.dataclass(frozen=True)
class Call:
    """How a function is to be traced."""

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    static: Sequence[int] = ()
    """Which of the arguments are Python values."""
    wrappers: Sequence[str] = ()
    """The transformations it is under, the innermost one first."""

    @property
    def says_anything(self) -> bool:
        return bool(self.args or self.kwargs or self.static or self.wrappers)


def find(name: str) -> Any:
    """The object that ``MODULE:OBJECT`` or ``path/to/file.py:OBJECT`` names.

    Raises:
      click.UsageError: there is none.
    """
    place, _, path = name.rpartition(":")
    if not place or not path:
        raise click.UsageError(f"{name!r} is neither MODULE:FUNCTION nor a stored program")
    found: Any = _module(place)
    for part in path.split("."):
        with in_users_code(f"looking for {name}"):
            try:
                found = getattr(found, part)
            except AttributeError:
                near = difflib.get_close_matches(part, dir(found), 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise click.UsageError(f"{place} has no {path!r}{hint}") from None
    return found


def _module(name: str) -> Any:
    """A module by its name or by its file.

    Raises:
      click.UsageError: there is none, or importing it fails.
    """
    path = Path(name) if name.endswith(".py") else None
    if path is not None and not path.is_file():
        raise click.UsageError(f"there is no file {name}")
    # A script finds its neighbours, and a module is looked for here, as `python` does it.
    folder = os.fspath((path or Path("here")).absolute().parent)
    if folder not in sys.path and not (path is None and "" in sys.path):
        sys.path.insert(0, folder)
    with in_users_code(f"importing {name}"):
        return importlib.import_module(name) if path is None else _script(path)


def _script(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "it ends in .py"
    module = importlib.util.module_from_spec(spec)
    known = sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if known is module:
            sys.modules.pop(path.stem, None)
        raise
    return module


@contextlib.contextmanager
def in_users_code(doing: str, hint: str = "") -> Iterator[None]:
    """Says in a line what fails in code of the user's, which may also want to exit.

    Raises:
      click.UsageError: something fails.
    """
    try:
        yield
    except click.UsageError:
        raise
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{doing}: {error}") from None
    except (Exception, SystemExit) as error:
        raise click.UsageError(f"{doing}: {_said(error)}{hint}") from error


def _said(error: BaseException) -> str:
    """What an error says, with its type, and the innermost line of the user's code."""
    libraries = tuple(str(Path(module.__file__ or "").parent) for module in (jax, jaxide))
    frames = traceback.extract_tb(error.__traceback__)
    lines = [
        f" ({frame.filename}:{frame.lineno})"
        for frame in frames
        if not frame.filename.startswith((*libraries, "<"))
    ]
    said = str(error).partition("\n\n")[0]
    return f"{type(error).__name__}: {said}{lines[-1] if lines else ''}"


def function_of(target: str, call: Call) -> Callable[..., Any]:
    """The function of a target, under the transformations that are asked for.

    Raises:
      click.UsageError: it names no function.
    """
    if is_stored(target):
        raise click.UsageError(f"{target} is a stored program, which is not traced again")
    found = find(target)
    if not callable(found):
        raise click.UsageError(f"{target} is no function but of type {type(found).__name__}")
    function: Callable[..., Any] = found
    for wrapper in call.wrappers:
        function = getattr(jax, wrapper)(function)
    return function


def trace(target: str, function: Callable[..., Any], call: Call, tracer: Callable[..., Any]) -> Any:
    """What a tracer makes of a function.

    Raises:
      click.UsageError: it cannot be traced so.
    """
    hint = "" if call.args or call.kwargs else " (types of arguments: --arg 'f32[8,128]')"
    with in_users_code(f"tracing {target}", hint):
        return tracer(function, static_argnums=tuple(call.static))(*call.args, **call.kwargs)


def program_of(target: str, call: Call) -> jaxide.Program:
    """The program of a target: of a function, of an object that is one, or of a file.

    Raises:
      click.UsageError: there is none.
    """
    if is_stored(target):
        if call.says_anything:
            raise click.UsageError(f"{target} is a stored program, which takes no arguments")
        return _stored(Path(target))
    found = find(target)
    if isinstance(found, jaxide.Program) or _compat.is_jaxpr(found):
        if call.says_anything:
            raise click.UsageError(f"{target} is a program, which takes no arguments")
        return found if isinstance(found, jaxide.Program) else jaxide.from_jaxpr(found)
    program: jaxide.Program = trace(target, function_of(target, call), call, jaxide.trace)
    return program


def is_stored(target: str) -> bool:
    """Whether a target is a file with a program."""
    path = Path(target)
    return path.suffix == ".jaxide" or (path.is_file() and path.suffix != ".py")


def _stored(path: Path) -> jaxide.Program:
    with in_one_line(path):
        program = jaxide.load(path)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta.setdefault(_LOADED, []).append(os.fspath(path))
    return program


@contextlib.contextmanager
def of_stored_programs() -> Iterator[None]:
    """Says in a line what fails with programs of files, whose params may be those of no jax.

    Raises:
      click.UsageError: something fails, and a program was loaded.
    """
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, click.Abort, OSError, SwitchedOff):
        raise
    except Exception as error:
        if not (loaded := click.get_current_context().meta.get(_LOADED)):
            raise
        said = f"{type(error).__name__}: {error}"
        why = f"not a program as jax {jax.__version__} has them: {said}"
        raise click.UsageError(f"{', '.join(loaded)}: {why}") from error


@contextlib.contextmanager
def in_one_line(path: Path) -> Iterator[None]:
    """Says in a line what cannot be done with a file.

    Raises:
      click.UsageError: it cannot be read or written, or is not what it should be.
    """
    try:
        yield
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror or error}") from None
    except (ImportError, ValueError, NotImplementedError) as error:
        raise click.UsageError(f"{path}: {error}") from None
