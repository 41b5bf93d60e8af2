"""Each room of ``python/jaxide`` imports only those below it, and no modules import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import jaxide

FOLDER = Path(jaxide.__file__).parent

# What each room may import, besides the extension; the package itself has the names of `_public`.
ALLOWED: dict[str, set[str]] = {
    "_settings": set(),
    "_native": set(),
    "_compat": {"_settings", "_native"},
    "_reports": {"_settings", "_compat"},
    "_export": {"_native", "_compat", "_reports"},
    "_jit": {"_settings", "_native", "_compat", "_reports"},
    "_program": {"_settings", "_native", "_compat", "_reports", "_export"},
    "_api": {"_settings", "_native", "_compat", "_reports", "_export", "_jit", "_program"},
    "_public": {"_native", "_compat", "_reports", "_jit", "_program", "_api"},
    "": {"_public"},
    "brainstate": {"_compat"},
    "_cli": {"", "_api", "_compat", "_reports", "_program"},
    "__main__": {"_cli"},
}


def name_of(path: Path) -> str:
    parts = path.relative_to(FOLDER).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FOLDER.rglob("*.py")}


def imported(path: Path) -> Iterator[str]:
    """The modules of the package that a module imports, wherever in the module it does."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] != "jaxide" or parts[1:2] == ["_core"]:
                continue
            while ".".join(parts[1:]) not in MODULES:
                parts.pop()
            yield ".".join(parts[1:])


EDGES = {name: set(imported(path)) for name, path in MODULES.items()}


def room(module: str) -> str:
    return module.split(".")[0]


def test_rooms_import_what_is_below_them() -> None:
    found = {(one, other) for one, others in EDGES.items() for other in others}
    upward = {
        f"{one or 'jaxide'} -> {other or 'jaxide'}"
        for one, other in found
        if room(one) != room(other) and room(other) not in ALLOWED[room(one)]
    }
    assert not upward
    # Each entry of the table is needed.
    used = {(room(one), room(other)) for one, other in found if room(one) != room(other)}
    assert used == {(one, other) for one, others in ALLOWED.items() for other in others}


def test_no_modules_import_each_other() -> None:
    left = {name: set(others) for name, others in EDGES.items()}
    while leaves := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in leaves}
    assert not left, f"in or above a circle: {sorted(left)}"


def test_every_room_says_what_is_in_it() -> None:
    for name in MODULES:
        parent, _, own = name.rpartition(".")
        if parent.startswith("_"):
            text = ast.get_docstring(ast.parse(MODULES[parent].read_text()))
            assert text and f"``{own}``" in text, f"{parent} does not mention {own}"
