"""What jaxide remembers: ``cache_info`` and ``clear_caches``."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from jaxide import _core
from jaxide._api.warm import StoreInfo, store_info
from jaxide._jit.executables import EXECUTABLES
from jaxide._jit.retraces import RETRACE_LOG
from jaxide._reports.tables import Shown, as_text, counted, line, size, table


@dataclasses.dataclass(frozen=True)
class CallableInfo:
    """What became of the calls of one callable.

    Attributes:
      hits: calls that were replayed.
      misses: calls that ran, and were recorded.
      bypasses: calls that ran because they must, by reason.
      entries: signatures that are remembered now.
    """

    hits: int
    misses: int
    bypasses: Mapping[str, int]
    entries: int


@dataclasses.dataclass(frozen=True)
class CacheInfo(Shown):
    """The state of the expansion cache, and what became of all calls since it was last cleared.

    Attributes:
      hits: calls that were replayed.
      misses: calls that ran, and were recorded.
      bypasses: calls that ran because they must, by reason.
      callables: the same for each callable that was called and is still there, by name.
      entries: signatures that are remembered now.
      programs: executed programs that are remembered now, see :func:`jaxide.jit`.
      program_bytes: bytes of these programs, with their executables and the arrays built into them.
      bytes: roughly the bytes that the signatures take.
      evictions: entries that were given up to keep within the bounds.
      max_entries: bound of ``entries``.
      max_entries_per_callable: bound of the entries of one callable.
      max_bytes: bound of ``bytes``.
      store: what was found in the store, see ``docs/warm_start.md``; None where there is none.
    """

    hits: int
    misses: int
    bypasses: Mapping[str, int]
    callables: Mapping[str, CallableInfo]
    entries: int
    programs: int
    program_bytes: int
    bytes: int
    evictions: int
    max_entries: int
    max_entries_per_callable: int
    max_bytes: int
    store: StoreInfo | None

    __str__ = as_text

    def __repr__(self) -> str:
        return (
            f"<jaxide.CacheInfo: {self.hits:,} hits, {self.misses:,} misses, "
            f"{counted(self.programs, 'program')}>"
        )

    def __rich_console__(self, _console: Any, _options: Any) -> Any:
        rows = sorted(self.callables.items(), key=lambda item: -(item[1].hits + item[1].misses))
        whole = CallableInfo(self.hits, self.misses, self.bypasses, self.entries)

        def cells(row: tuple[str, CallableInfo]) -> Iterator[str]:
            name, of = row
            yield name
            counts = of.hits, of.misses, sum(of.bypasses.values()), of.entries
            yield from (f"{count:,}" for count in counts)

        columns = ("callable", "hits", "misses", "bypasses", "entries")
        yield table(columns, rows, cells, last=[("total", whole)])
        for reason, count in self.bypasses.items():
            yield line(f"ran because of {reason}: {count:,} times")
        taken, most = size(self.bytes), size(self.max_bytes)
        yield line(f"entries: {self.entries:,} of {self.max_entries:,}, {taken} of {most}")
        yield line(f"executed programs: {self.programs:,}, {size(self.program_bytes)}")
        if (store := self.store) is not None:
            yield line(
                f"store: {store.hits:,} hits, {store.misses:,} misses, {store.whole:,} whole, "
                f"{store.entries:,} entries in {store.folder}"
            )


def cache_info() -> CacheInfo:
    """The state of the expansion cache, and counts since it was last cleared.

    Example:
      >>> info = jaxide.cache_info()
      >>> info.entries <= info.max_entries
      True

    Returns:
      A :class:`CacheInfo`: hits, misses, bypasses by reason and by callable, entries, bytes and
      bounds.
    """
    info = _core.fragment_info()
    callables: dict[str, CallableInfo] = {}
    for name, entries, hits, misses, bypasses in info.pop("callables"):
        same = callables.get(name, CallableInfo(0, 0, {}, 0))
        callables[name] = CallableInfo(
            same.hits + hits,
            same.misses + misses,
            Counter(same.bypasses) + Counter(bypasses),
            same.entries + entries,
        )
    programs, program_bytes = len(EXECUTABLES), EXECUTABLES.num_bytes
    return CacheInfo(
        callables=callables,
        programs=programs,
        program_bytes=program_bytes,
        store=store_info(),
        **info,
    )


def clear_caches() -> None:
    """Forgets everything that jaxide remembers, and starts counting anew.

    ``jax.clear_caches()`` does the same, except for the retrace log of :func:`jaxide.retraces`.
    """
    _core.clear_memo()
    _core.clear_fragments()
    EXECUTABLES.cache_clear()
    RETRACE_LOG.clear()
