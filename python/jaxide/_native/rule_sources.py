"""The sources of the modules that a derivative rule may use, as a digest.

What a rule consists of is read off its code and its objects (``rule_contents.py``). Python can
reach more than can be read off: by tables that others fill, by names that are computed. All that
was written down somewhere, so the sources count too: those of the modules that a rule's code and
classes are of, of the modules that these import anywhere, and so on. Comments and blank lines do
not count. What is of an installed library has no sources here. Example: a rule of ``model.py``,
which imports ``layers.py``, is another one once something in ``layers.py`` is edited.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import importlib.machinery
import itertools
import os
import re
import sys
import types
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from typing import Any, NamedTuple

from jaxide._native import trust
from jaxide._native.addresses import ByIdentity
from jaxide._native.content import PLAIN, element_text
from jaxide._native.global_names import variables
from jaxide._native.interruptions import is_of_signal
from jaxide._native.storage import Unstorable

# Of the sources of a rule.
_MAX_BYTES = 1 << 24


def is_of_library(module: Any) -> bool:
    """Whether a module that was imported is Python's, or one of an installed library."""
    found = sys.modules.get(module) if type(module) is str else None
    if found is None or module == "__main__":
        return False
    own = variables(module)
    if type(file := own.get("__file__")) is str:
        return trust.is_installed_file(file)
    if not isinstance(spec := own.get("__spec__"), ModuleSpec):
        # What an extension has made, within its own.
        return is_of_library(module.rpartition(".")[0])
    folders = spec.submodule_search_locations or ()
    return spec.origin in ("built-in", "frozen") or any(map(trust.is_installed_file, folders))


def imported_by(instructions: Sequence[dis.Instruction], place: int) -> str:
    """What an ``IMPORT_NAME`` asks for, as a statement has it: with a dot for each level."""
    level: int = instructions[place - 2].argval
    return "." * level + str(instructions[place].argval)


def instructions_of(code: types.CodeType) -> list[dis.Instruction]:
    """The instructions of code, without those that belong to others."""
    found = dis.get_instructions(code)
    return [instruction for instruction in found if instruction.opname != "EXTENDED_ARG"]


def places(package: str, name: str) -> list[str]:
    """The modules that code of a package imports by a name: the last, and the packages it is in."""
    relative = name.lstrip(".")
    levels = len(name) - len(relative)
    base = package.split(".") if levels and package else []
    parts = [*base[: len(base) - levels + 1], *filter(None, relative.split("."))]
    return [".".join(parts[:number]) for number in range(1, len(parts) + 1)]


def digest(modules: Iterable[str]) -> bytes:
    """A digest of the sources of modules, and of all that these import.

    Raises:
      Unstorable: they cannot be read, or are too many.
    """
    found: dict[str, bytes] = {}
    # The packages of a module run before it.
    seen = {place for name in modules for place in places("", name)}
    pending = sorted(seen)
    left = _MAX_BYTES
    while pending:
        name = pending.pop()
        source = _source(name)
        if source is None:
            continue
        left -= source.num_bytes
        if left < 0:
            raise Unstorable("a rule may use too many modules")
        found[name] = source.digest
        new = source.imports - seen
        seen |= new
        pending += sorted(new)
    said = hashlib.sha256()
    for name, of in sorted(found.items()):
        said.update(b"%d %s %s" % (len(name), name.encode(), of))
    return said.digest()


class _Source(NamedTuple):
    num_bytes: int
    digest: bytes
    # What the module may import, by all names that it may have.
    imports: frozenset[str]


def _source(name: str) -> _Source | None:
    """The source of a module; None where it is of a library, or there is none."""
    try:
        spec = _spec(name)
        if spec is None or not _has_source(spec):
            return None
        content = _read(spec, name)
    except Exception as error:
        # Finders and loaders are somebody's, too.
        if is_of_signal(error.__traceback__):
            raise
        raise Unstorable(f"the source of {name} cannot be read: {error}") from error
    is_package = spec.submodule_search_locations is not None
    package = name if is_package else name.rpartition(".")[0]
    return _parsed(content, package, is_package, str(spec.origin).endswith(_OF_CODE))


_OF_CODE = tuple(importlib.machinery.SOURCE_SUFFIXES)


def _has_source(spec: ModuleSpec) -> bool:
    """Whether a module is somebody's, and more than a folder of others."""
    if not spec.has_location and spec.submodule_search_locations is not None:
        return False
    return spec.loader is not None and _is_of_somebody(spec)


def _spec(name: str) -> ModuleSpec | None:
    """Where a module is; imports nothing."""
    if name == "__main__":
        return None
    if isinstance(spec := variables(name).get("__spec__"), ModuleSpec):
        return spec
    package = name.rpartition(".")[0]
    if not package:
        return _found(name, None, (*sys.path, *map(ByIdentity, sys.meta_path)))
    parent = _spec(package)
    folders = None if parent is None else parent.submodule_search_locations
    if parent is None or folders is None or not _is_of_somebody(parent):
        return None
    return _found(name, tuple(folders), (*map(ByIdentity, sys.meta_path),))


@functools.lru_cache(maxsize=4096)
def _found(name: str, folders: tuple[str, ...] | None, among: tuple[Any, ...]) -> ModuleSpec | None:
    """Where finders find a module that was not imported, below folders of its package."""
    for finder in sys.meta_path:
        if (find := getattr(finder, "find_spec", None)) is not None:
            found: ModuleSpec | None = find(name, None if folders is None else [*folders])
            if found is not None:
                return found
    return None


def _is_of_somebody(spec: ModuleSpec) -> bool:
    if spec.origin in ("built-in", "frozen"):
        return False
    files = [spec.origin] if spec.has_location and spec.origin else []
    files += spec.submodule_search_locations or ()
    return not any(map(trust.is_installed_file, files))


def _read(spec: ModuleSpec, name: str) -> bytes:
    loader: Any = spec.loader
    if not (hasattr(loader, "get_data") and spec.has_location and spec.origin):
        source = loader.get_source(name) if hasattr(loader, "get_source") else None
        return (source or "").encode()
    try:
        known = os.stat(spec.origin)
    except OSError:  # such as a file in an archive
        return bytes(loader.get_data(spec.origin))
    if known.st_size > _MAX_BYTES:
        raise Unstorable("it is too long")
    return _content(loader, spec.origin, known.st_mtime_ns, known.st_size, known.st_ino)


@functools.lru_cache(maxsize=1024)
def _content(loader: Any, file: str, *version: int) -> bytes:
    return bytes(loader.get_data(file))


_FILE = "<jaxide: a source>"
_OF_FILE = re.compile(re.escape(_FILE))


@functools.lru_cache(maxsize=1024)
def _parsed(content: bytes, package: str, is_package: bool, is_code: bool) -> _Source:
    """What a source says: without comments and lines where it is one of Python."""
    if not is_code:
        return _Source(len(content), hashlib.sha256(content).digest(), frozenset())
    # What Python has to say of a source it says to those who import it. `catch_warnings` is not for
    # several threads.
    if not any(rule[3] == _OF_FILE for rule in warnings.filters[:1]):
        warnings.filterwarnings("ignore", module=_OF_FILE.pattern)
    try:
        code = compile(content, _FILE, "exec", dont_inherit=True, optimize=0)
        said = repr(_said(code)).encode("utf-8", "surrogatepass")
        imports = {*_imports(code, package), *(_exported(code, package) if is_package else ())}
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unstorable(f"a source is no code of this Python: {error}") from error
    return _Source(len(content), hashlib.sha256(said).digest(), frozenset(imports))


def _said(code: types.CodeType) -> Any:
    """What code does, in words, wherever its lines are."""
    own, consts = parts_of(code)
    return code.co_qualname, *own, [*map(_constant, consts)]


def parts_of(code: types.CodeType) -> tuple[tuple[Any, ...], list[Any]]:
    """What code consists of wherever its lines are, and its constants."""
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    bytecode, consts = _without_lines(code)
    return (bytecode, code.co_exceptiontable, counts, names), consts


def _without_lines(code: types.CodeType) -> tuple[bytes, list[Any]]:
    """The bytecode and the constants of code, without the line of a class, which the code of its
    body has from Python 3.13 on."""
    bytecode, consts = bytearray(code.co_code), [*code.co_consts]
    if "__firstlineno__" in code.co_names:
        instructions = [*dis.get_instructions(code)]
        loaded = Counter(found.arg for found in instructions if found.opname == "LOAD_CONST")
        for line, store in itertools.pairwise(instructions):
            if store.argval != "__firstlineno__" or not store.opname.startswith("STORE"):
                continue
            if line.opname != "LOAD_CONST":
                bytecode[line.offset + 1] = 0  # The number is in the instruction.
            elif loaded[line.arg] == 1:
                consts[line.arg or 0] = 0
    return bytes(bytecode), consts


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return _said(value)
    if type(value) is tuple:
        return "tuple", [*map(_constant, value)]
    if type(value) is frozenset:
        return "frozenset", sorted(element_text(_constant(item)) for item in value)
    return PLAIN[type(value)](value) if type(value) in PLAIN else repr(value)


def _imports(code: types.CodeType, package: str) -> Iterator[str]:
    """The modules that code may import."""
    if _IMPORT_NAME in code.co_code[::2]:
        instructions = instructions_of(code)
        last = ""
        for place, instruction in enumerate(instructions):
            if instruction.opname == "IMPORT_NAME":
                found = places(package, imported_by(instructions, place))
                yield from found
                last = found[-1] if found else ""
            elif instruction.opname == "IMPORT_FROM":
                yield f"{last}.{instruction.argval}"
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _imports(const, package)


_IMPORT_NAME = dis.opmap["IMPORT_NAME"]


def _exported(code: types.CodeType, package: str) -> Iterator[str]:
    """The modules of a package that ``import *`` may import: its texts name them."""
    texts = [
        item for const in code.co_consts for item in (const if type(const) is tuple else [const])
    ]
    yield from (f"{package}.{text}" for text in texts if type(text) is str and text.isidentifier())
