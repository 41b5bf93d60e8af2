"""Classes, functions and other callables of modules by name, for what is stored: those of modules
that somebody has imported. Looking one up imports nothing."""

from __future__ import annotations

import sys
import types
from typing import Any


def global_name(value: Any) -> tuple[str, str] | None:
    """The module and the name under which it has a callable; None where it has none, or is the
    script that is running."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if type(module) is not str or type(name) is not str or module == "__main__":
        return None
    return (module, name) if found_global(module, name) is value else None


def found_global(module: Any, name: Any) -> Any:
    """The callable of a name; None where its module was not imported or has none."""
    if type(module) is not str or type(name) is not str or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        # What a module makes when it is asked for something is code of its own.
        found = vars(found).get(part) if isinstance(found, (types.ModuleType, type)) else None
    return found if callable(found) else None
