"""What jax keeps of a trace beyond the program, for a process that has the program from the store.

jax keeps the programs of its own jits, and what it has derived from them (linearizations,
transposes). Who needs one later gets the same object, with the lines of the call that came first.
So a process that has not traced a function has jax know these programs before the next trace
begins.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from jaxide import _core
from jaxide._native.described_trees import NodeOf, described_tree
from jaxide._native.entries import EntryObjects, EntryRecords
from jaxide._native.interruptions import tried
from jaxide._native.requests import Requests
from jaxide._native.storage import Unstorable
from jaxide._native.trust import OF_JAX


def is_jit(names: Any) -> bool:
    """Whether a program with these names is what a jit traces."""
    return bool(names.traced_for == "jit")


def is_of_jax(names: Any) -> bool:
    """Whether the function of a program with these names is in a file of jax."""
    place: str = names.func_src_info.partition(" at ")[2]
    return place.startswith(OF_JAX)


def _is_kept(program: Any) -> bool:
    """Whether jax keeps a program with a function: that of a jit of its own, or what was derived
    from it, or that of a function of two numbers."""
    names = getattr(program, "jaxpr", program).debug_info
    return (is_jit(names) and is_of_jax(names)) or names.traced_for == "reduction_jaxpr"


class KeptPrograms:
    """What jax keeps of traces, as plain values.

    These are bytes of programs, and of what was derived from them; bytes that say how jax comes to
    programs of its jits; which of all are programs of the trace; where the jits are; and whether
    anything was derived.
    """

    def __init__(
        self,
        requests: Requests,
        objects: tuple[EntryRecords, EntryObjects],
        node_of: NodeOf,
        is_watched: Callable[[], bool],
    ):
        self._is_watched = is_watched
        self._requests = requests
        self._records, self._objects = objects
        self._node_of = node_of

    def saved(self, derived: list[Any], places: list[tuple[int, Any]]) -> tuple[Any, ...]:
        """What jax keeps of a trace; empty where that is nothing.

        Args:
          derived: what functions that keep their results have made of programs meanwhile.
          places: the programs of the trace, each with its place.

        Raises:
          Unstorable: something has no form in an entry.
        """
        chain = self._requests.chain
        # Of programs to which jax comes again.
        told = []
        for function, within, of, key, made in derived:
            if chain(of) is not None:
                is_tuple = type(made) is tuple
                told.append((function, within, of, key, is_tuple, made if is_tuple else (made,)))
        chains = [(program, chain(program)) for _, program in places]
        if any(found is None and _is_kept(program) for program, found in chains):
            raise Unstorable("a program that jax keeps, of which is not known how it comes to it")
        own = tuple(program for program, found in chains if found is not None)
        if not told and not own:
            return ()
        all_places: list[tuple[int, Any]] = []
        content = _core.save((own, tuple(told)), self._records, all_places)
        origins = []
        for place, program in all_places:
            found = chain(program)
            if found is not None and len(found) == 2:
                origins.append((place, self._origin(*found)))
        of_trace = {id(program): place for place, program in places}
        known = tuple(
            (place, of_trace[id(program)])
            for place, program in all_places
            if id(program) in of_trace
        )
        jits = tuple({request[0] for _, (_, request, _) in origins})
        return content, _core.save(tuple(origins), self._records), known, jits, bool(told)

    def _origin(self, within: bool, request: Any) -> tuple[Any, ...]:
        """How jax comes to a program of a jit, with the tree of its results: an empty one for a
        function of two numbers."""
        tree = self._requests.out_tree(request, within)
        return within, request, () if tree is None else described_tree(tree, self._node_of)

    def is_new(self, kept: tuple[Any, ...]) -> bool:
        """Whether jax has neither such programs, nor derived anything so far."""
        *_, jits, derives = kept
        if not self._requests.noted_places.isdisjoint(jits):
            return False
        before = self._requests.kept_derivations()
        return not derives or (before is not None and before.results == 0)

    def settling(
        self, kept: tuple[Any, ...], programs: dict[int, Any], rules: list[Any]
    ) -> Callable[[], None]:
        """What has jax know what it would have kept of a trace with these programs, by place, as
        long as the configuration is that of now; and makes these rules."""
        configuration = self._requests.configuration()

        def settle() -> None:
            # At the end of the process nobody asks jax any more, and its modules are gone.
            if sys.is_finalizing() or self._is_watched():
                return
            if kept and self._requests.configuration() == configuration:
                self._settle(kept, programs)
            for rule in rules:
                with tried():
                    _ = rule.f

        return settle

    def _settle(self, kept: tuple[Any, ...], programs: dict[int, Any]) -> None:
        with tried():
            content, origins, known, *_ = kept
            of_jits = dict(_core.load(origins, self._objects))
            own = {place: programs[of_trace] for place, of_trace in known}
            args = content, self._objects, of_jits, own
            _core.as_recorded(functools.partial(_core.load_shared, *args))
