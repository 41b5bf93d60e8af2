"""Functions that are traced as a whole, not within another trace: their programs, from the store.

A function that only computes comes to the same program whenever what it reads and the types of its
arguments are the same. The core makes the key of these (``src/python/cache/warm/whole.rs``).
"""

from __future__ import annotations

import collections
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxide import _core
from jaxide._native.described_trees import NodeOf, described_tree
from jaxide._native.entries import EntryObjects, EntryRecords
from jaxide._native.interruptions import tried
from jaxide._native.kept_programs import KeptPrograms, is_jit, is_of_jax
from jaxide._native.requests import Requests


class Symbols(NamedTuple):
    """Private things of jax that whole traces need."""

    objects: tuple[EntryRecords, EntryObjects]
    requests: Requests
    node_of: NodeOf
    # jax's own function that traces another, behind its cache.
    trace: Callable[..., tuple[Any, Any]]
    # Whether no trace is under way.
    is_top_level: Callable[[], bool]
    # Whether jax is to check, to log or to explain what it does, which only a trace does.
    is_watched: Callable[[], bool]
    # Positional and named arguments with types in the place of arrays; None where the containers
    # are not Python's own.
    arguments: Callable[[Any], Any]
    # Whether a program has no constants, no effects and no types that are made of others.
    is_plain: Callable[[Any], bool]
    # Gives a program names.
    rename: Callable[[Any, Any], None]


class _Loaded(NamedTuple):
    """What the store has: a program, jax's ``FlatTree`` of the types of its results, nested
    programs by their places, and derivative rules that are made on demand."""

    program: Any
    out: Any
    programs: dict[int, Any]
    rules: list[Any]


class WholeTraces:
    """The programs of functions that are traced as a whole."""

    def __init__(self, symbols: Symbols):
        self._symbols = symbols
        self._records, self._objects = symbols.objects
        self._kept = KeptPrograms(
            symbols.requests, symbols.objects, symbols.node_of, symbols.is_watched
        )
        # How many traces were loaded, and why functions were traced.
        self.num_loaded = 0
        self.traced: collections.Counter[str] = collections.Counter()
        # The codes of functions of which the store was asked.
        self._codes: weakref.WeakSet[types.CodeType] = weakref.WeakSet()
        symbols.requests.when_cleared.append(self._codes.clear)

    def trace(
        self,
        function: Any,
        in_avals: Any,
        debug_info: Any,
        takes_flat_tree: bool,
        returns_flat_tree: bool,
        requires_low: bool,
        context: tuple[Any, ...] = (),
    ) -> Any:
        """What jax's own function comes to that traces another, which jax has not in its cache:
        arguments are those of jax's function. ``NotImplemented`` where that is to run.

        The store is asked once for functions with the same code: from then on what the process has
        recorded is faster.
        """
        if takes_flat_tree or returns_flat_tree or requires_low:
            return NotImplemented
        if not is_jit(debug_info) or is_of_jax(debug_info):
            return NotImplemented
        _core.settle()
        symbols = self._symbols
        if symbols.is_watched() or not symbols.is_top_level():
            return NotImplemented
        code = _code_of(function)
        if code is None:
            return self._not_whole("callable that is no function")
        if code in self._codes:
            return NotImplemented
        self._codes.add(code)
        args = symbols.arguments(in_avals)
        if args is None:
            return self._not_whole("arguments in containers of the user's")
        asked = function, args, len(in_avals), context
        key = _core.key_of_whole(*asked, False)
        if key is None:
            return self._not_whole(_core.refused_whole() or "jax that was changed")
        trace = functools.partial(symbols.trace, function, in_avals, debug_info, *context)
        stored = _core.stored_value(key)
        if stored is None:
            return self._recorded(key, asked, trace)
        if type(stored) is not tuple or len(stored) not in (0, 3):
            return self._not_whole("damaged entry")
        if not stored:
            return self._not_whole("program that cannot be stored")
        loaded = self._of_store(stored, debug_info)
        if loaded is None:
            return self._not_whole("programs that jax has made by now")
        if _core.is_whole_audited():
            return self._audited(debug_info.func_src_info, loaded, trace)
        if stored[2] or loaded.rules:
            _core.settle_later(self._kept.settling(stored[2], loaded.programs, loaded.rules))
        self.num_loaded += 1
        return loaded.program, loaded.out

    def _not_whole(self, reason: str) -> Any:
        self.traced[reason] += 1
        return NotImplemented

    def _of_store(self, stored: tuple[Any, ...], debug_info: Any) -> _Loaded | None:
        """What the store has; None where this process cannot have it."""
        programs: dict[int, Any] = {}
        loaded = None
        with tried():
            content, tree, kept = stored
            if kept and not self._kept.is_new(kept):
                return None
            rules: list[Any] = []
            self._objects.rules = rules
            program = _core.load(content, self._objects, programs)
            out = self._objects.flat_tree(tree, tuple(program.out_avals))
            self._symbols.rename(program, debug_info.set_result_paths(out.unflatten()))
            loaded = _Loaded(program, out, programs, rules)
        return loaded

    def _audited(
        self, name: str, loaded: _Loaded, trace: Callable[[], tuple[Any, Any]]
    ) -> tuple[Any, Any]:
        """What ``trace`` returns, compared with what the store has."""
        program, out = trace()
        texts = [
            of.pretty_print(source_info=True, name_stack=True) for of in (loaded.program, program)
        ]
        if texts[0] != texts[1] or loaded.out != out:
            _core.tell_whole_differs(name, *texts)
        return program, out

    def _recorded(
        self,
        key: int,
        asked: tuple[Any, Any, int, Any],
        trace: Callable[[], tuple[Any, Any]],
    ) -> tuple[Any, Any]:
        """What ``trace`` returns, which the store keeps."""
        before = self._symbols.requests.kept_derivations()
        result, derived = _core.record_whole(trace)
        # What jax had derived before has the lines of the call that has derived it.
        is_own = before is not None and (
            before.results == 0 or before == self._symbols.requests.kept_derivations()
        )
        # Unless something that counts has changed meanwhile.
        if is_own and derived is not None and _core.key_of_whole(*asked, True) == key:
            # An empty one where another process may come to something else: nobody tries again.
            stored: tuple[Any, ...] = ()
            with tried():
                stored = self._stored(result[0], result[1], derived)
            _core.store_value(key, stored)
        return result

    def _stored(self, program: Any, out: Any, derived: list[Any]) -> tuple[Any, ...]:
        """A program and the types of its results in bytes and plain values; nothing where another
        process may come to others."""
        tree = described_tree(out.tree, self._symbols.node_of)
        is_plain = self._symbols.is_plain(program) and tuple(program.out_avals) == tuple(out.vals)
        if not is_plain or self._objects.flat_tree(tree, out.vals) != out:
            return ()
        places: list[tuple[int, Any]] = []
        content = _core.save(program, self._records, places)
        return content, tree, self._kept.saved(derived, places)


def _code_of(function: Any) -> types.CodeType | None:
    """The code of the innermost function that one wraps, or its own; None where it is something
    else."""
    code = None
    for _ in range(_MAX_WRAPPED):
        if type(function) is not types.FunctionType:
            return code
        code = function.__code__
        function = function.__dict__.get("__wrapped__")
    return code


_MAX_WRAPPED = 16
