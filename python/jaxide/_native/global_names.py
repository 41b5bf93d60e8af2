"""Classes, functions and other callables of modules by name, for what is stored: those of modules
that somebody has imported. Looking one up imports nothing."""

from __future__ import annotations

import sys
import types
from typing import Any


def variables(module: Any) -> dict[str, Any]:
    """The variables of a module that was imported; none of something else."""
    found: Any = sys.modules.get(module) if type(module) is str and module != "__main__" else None
    # One that is imported when it is asked for something is not asked.
    asks: Any = getattr(type(found), "__getattribute__")  # noqa: B009
    return vars(found) if asks is types.ModuleType.__getattribute__ else {}


def global_name(value: Any) -> tuple[str, str] | None:
    """The module and the name under which it has a callable; None where it has none, or is the
    script that is running."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if type(module) is not str or type(name) is not str:
        return None
    return (module, name) if found_global(module, name) is value else None


def found_global(module: Any, name: Any) -> Any:
    """The callable of a name; None where its module was not imported or has none."""
    if type(name) is not str:
        return None
    first, *rest = name.split(".")
    found: Any = variables(module).get(first)
    for part in rest:
        found = vars(found).get(part) if isinstance(found, type) else None
    return found if callable(found) else None
