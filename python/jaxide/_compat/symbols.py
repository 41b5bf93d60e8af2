"""Looking up private parts of jax, and checking that they are what jaxide was written against:
classes by their slots, functions by their parameters.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

SUPPORTED = "jax 0.10.2 to 0.12"


class Mismatch(Exception):
    """A private symbol of jax is missing or not what the trace was written against."""


class JaxideFallbackWarning(UserWarning):
    """jaxide does not know this jax and leaves tracing to it."""


# Where modules were before, below `jax._src`.
_MOVED = {"random.prng": "prng", "named_sharding": "sharding_impls"}


def jax_module(name: str) -> types.ModuleType:
    if (loaded := sys.modules.get(name)) is not None:
        return loaded
    try:
        return importlib.import_module(name)
    except ImportError as error:
        before = _MOVED.get(name.removeprefix("jax._src."))
        if before is not None:
            return importlib.import_module(f"jax._src.{before}")
        raise Mismatch(f"{name} ({error})") from None


def symbol(path: str) -> Any:
    """The object at ``module:attribute.attribute`` below ``jax._src``."""
    module, _, attributes = path.partition(":")
    found: Any = jax_module(f"jax._src.{module}")
    for attribute in attributes.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            raise Mismatch(f"jax._src.{path} is missing") from None
    return found


# Names that functions look up whose work may be done in their place.
LOOKED_UP: set[str] = set()


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _names_in(const)


def checked_function(path: str, *signatures: str) -> Any:
    """The function at ``path``, whose parameters read like one of ``signatures``."""
    function = symbol(path)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise Mismatch(f"jax._src.{path} has no signature ({error})") from None
    stars: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    names = " ".join(stars.get(p.kind, "") + p.name for p in parameters)
    if names not in signatures:
        raise Mismatch(f"jax._src.{path} takes ({names}), not ({' or '.join(signatures)})")
    if (code := getattr(inspect.unwrap(function), "__code__", None)) is not None:
        LOOKED_UP.update(_names_in(code))
    return function


def slotted_class(path: str, *layouts: str) -> Any:
    """The class at ``path``, whose own ``__slots__`` read like one of ``layouts``."""
    cls = symbol(path)
    own = vars(cls).get("__slots__")
    slots = "no __slots__" if own is None else " ".join(own)
    if slots not in layouts:
        raise Mismatch(f"jax._src.{path} has the slots ({slots}), not ({' or '.join(layouts)})")
    return cls


def check_methods(path: str, **signatures: str) -> None:
    """Checks methods that the trace overrides or calls."""
    for name, signature in signatures.items():
        checked_function(f"{path}.{name}", *signature.split(" | "))


def optional_symbol(path: str) -> Any:
    try:
        return symbol(path)
    except Mismatch:
        return None


def known_symbols(paths: Iterable[str]) -> dict[str, Any]:
    """What this jax has at these paths."""
    found = {path: optional_symbol(path) for path in paths}
    return {path: value for path, value in found.items() if value is not None}
