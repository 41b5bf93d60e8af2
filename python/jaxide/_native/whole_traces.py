"""Functions that are traced as a whole, not within another trace: their programs, from the store.

A function that only computes comes to the same program whenever what it reads and the types of its
arguments are the same. The core makes the key of these (``src/python/cache/warm/whole.rs``).
"""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from jaxide import _core
from jaxide._native.described_trees import NodeOf, described_tree
from jaxide._native.entries import EntryObjects, EntryRecords
from jaxide._native.kept_programs import WRONG, KeptPrograms
from jaxide._native.requests import Requests


class Symbols(NamedTuple):
    """Private things of jax that whole traces need."""

    objects: tuple[EntryRecords, EntryObjects]
    requests: Requests
    node_of: NodeOf
    # What jax's cache of traces goes by besides.
    trace_context: Callable[[], Hashable]
    # Whether jax is to check, to log or to explain what it does, which only a trace does.
    is_watched: Callable[[], bool]
    # Whether a program has no constants, no effects and no types that are made of others.
    is_plain: Callable[[Any], bool]
    # Gives a program names.
    rename: Callable[[Any, Any], None]


class _Loaded(NamedTuple):
    """What the store has: a program, jax's ``FlatTree`` of the types of its results, and nested
    programs by their places."""

    program: Any
    out: Any
    programs: dict[int, Any]


class WholeTraces:
    """The programs of functions that are traced as a whole."""

    def __init__(self, symbols: Symbols):
        self._symbols = symbols
        self._records, self._objects = symbols.objects
        self._kept = KeptPrograms(
            symbols.requests, symbols.objects, symbols.node_of, symbols.is_watched
        )
        # The codes of functions of which the store was asked.
        self._codes: weakref.WeakSet[types.CodeType] = weakref.WeakSet()
        # What it had for functions of this process: jax, too, traces a function once.
        self._loaded: weakref.WeakKeyDictionary[Any, dict[Any, tuple[Any, tuple[Any, Any]]]] = (
            weakref.WeakKeyDictionary()
        )
        symbols.requests.when_cleared.append(self._clear)

    def _clear(self) -> None:
        self._codes.clear()
        self._loaded.clear()

    def trace(
        self,
        function: Any,
        is_new: bool,
        args: tuple[Any, Any],
        in_avals: Any,
        debug_info: Any,
        context: tuple[Any, ...],
        trace: Callable[[], tuple[Any, Any]],
    ) -> tuple[Any, Any]:
        """What ``trace`` returns, which traces a function for positional and named arguments with
        types; ``is_new`` says that jax cannot have traced it before. The store is asked once for
        functions with the same code: from then on the cache of the process is faster."""
        if _core.may_be_whole():
            _core.settle()
        if not _core.may_be_whole() or self._symbols.is_watched():
            return trace()
        code = _code_of(function)
        if code is None:
            return trace()
        if (traced := self._known(function, in_avals, debug_info, context)) is not None:
            return traced
        if not is_new or code in self._codes:
            return trace()
        self._codes.add(code)
        asked = function, args, tuple(in_avals.vals), context
        key = _core.key_of_whole(*asked, False)
        if key is None:
            return trace()
        stored = _core.stored_value(key)
        if stored is None:
            return self._recorded(key, asked, trace)
        loaded = self._of_store(stored, debug_info) if stored else None
        if loaded is None:
            return trace()
        if _core.is_whole_audited():
            return self._audited(debug_info.func_src_info, loaded, trace)
        if kept := stored[2]:
            _core.settle_later(self._kept.settling(kept, loaded.programs))
        known = in_avals, context, self._symbols.trace_context()
        traced = loaded.program, loaded.out
        self._loaded.setdefault(function, {})[known] = debug_info, traced
        _core.use_loaded(self._asked)
        return traced

    def _known(
        self, function: Any, in_avals: Any, debug_info: Any, context: tuple[Any, ...]
    ) -> tuple[Any, Any] | None:
        """What was loaded of a function; None where jax would trace it."""
        loaded = self._loaded.get(function)
        if loaded is None:
            return None
        found = loaded.get((in_avals, context, self._symbols.trace_context()))
        if found is None:
            return None
        names, traced = found
        fields = "traced_for", "func_src_info", "arg_names"
        same = all(getattr(names, field) == getattr(debug_info, field) for field in fields)
        return traced if same else None

    def _asked(self, function: Any, in_avals: Any, debug_info: Any, *others: Any) -> Any:
        """What was loaded of a function that jax is about to trace; else ``NotImplemented``."""
        if type(function) is not types.FunctionType or any(others[:3]):
            return NotImplemented
        found = self._known(function, in_avals, debug_info, others[3] if others[3:] else ())
        return NotImplemented if found is None else found

    def _of_store(self, stored: tuple[Any, ...], debug_info: Any) -> _Loaded | None:
        """What the store has; None where this process cannot have it."""
        programs: dict[int, Any] = {}
        try:
            content, tree, kept = stored
            if kept and not self._kept.is_new(kept):
                return None
            program = _core.load(content, self._objects, programs)
            out = self._objects.flat_tree(tree, tuple(program.out_avals))
        except WRONG:
            return None
        self._symbols.rename(program, debug_info.set_result_paths(out.unflatten()))
        return _Loaded(program, out, programs)

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
        asked: tuple[Any, tuple[Any, Any], tuple[Any, ...], Any],
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
            with contextlib.suppress(*WRONG):
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


# There is one once there is a store.
whole_traces: list[WholeTraces] = []


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
