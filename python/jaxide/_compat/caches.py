"""Caches and types that jax is told of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxide import _core
from jaxide._compat.symbols import checked_function, jax_module, symbol

# Frames of files here are none of the user's.
_PACKAGE = f"{Path(__file__).parent.parent}/"


class _Cache:
    """Something remembered in the shape of a cache of jax: ``jax.clear_caches`` empties it."""

    def __init__(self, clear: Callable[[], None], count: Callable[[], int]):
        self.cache_clear, self._count = clear, count

    def cache_info(self) -> str:
        return f"{self._count()} entries"

    def cache_keys(self) -> list[Any]:
        return []


# What `jax.clear_caches` empties besides jax's own; it does not keep them alive.
_CACHES: list[_Cache] = []


def clear_with_jax(clear: Callable[[], None], count: Callable[[], int], what: str) -> None:
    """Has ``jax.clear_caches()`` call ``clear``."""
    _CACHES.append(_Cache(clear, count))
    checked_function("util:register_cache", "cache for_what")(_CACHES[-1], what)


def _clear_core() -> None:
    _core.clear_memo()
    _core.clear_fragments()


def register_trace_types(tracer: type, trace: type) -> None:
    """Makes jax treat tracers and traces of the core as it treats its own."""
    core = jax_module("jax._src.core")
    core.pytype_aval_mappings[tracer] = core.pytype_aval_mappings[
        symbol("interpreters.partial_eval:DynamicJaxprTracer")
    ]
    clear_with_jax(_clear_core, _core.memo_len, "jaxide abstract evaluation")
    for register in (
        checked_function("source_info_util:register_exclusion", "path"),
        checked_function("traceback_util:register_exclusion", "path"),
    ):
        register(_PACKAGE)


def register_jaxpr_type(jaxpr: type) -> None:
    """Makes jax treat jaxprs that nobody has read as it treats others."""
    jax_module("jax._src.util").weakref_cache_key_types.add(jaxpr)
