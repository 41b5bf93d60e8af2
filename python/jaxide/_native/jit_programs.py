"""Programs of jits of jax's own, from the store.

jax keeps the program of a jit, which it traces when somebody first asks. A process that has the
program from the store need not trace it: jax is told once it is to trace it, by whoever asks. A
program counts by identity, so the one from the store is used only where jax has none.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jaxide import _core
from jaxide._native.described_trees import NodeOf, described_tree
from jaxide._native.entries import EntryObjects
from jaxide._native.interruptions import tried
from jaxide._native.kept_programs import is_jit, is_of_jax
from jaxide._native.requests import Request, Requests
from jaxide._native.trampolines import copy_function


class Symbols(NamedTuple):
    """Private things of jax that programs of its jits need."""

    objects: EntryObjects
    requests: Requests
    node_of: NodeOf
    # Whether jax is to check, to log or to explain what it does, which only a trace does.
    is_watched: Callable[[], bool]
    # Whether equations are to have a line that somebody has set.
    has_line: Callable[[], bool]
    # How often jax had not traced yet what it was asked for, since it has forgotten all.
    num_misses: Callable[[], int]


class _Expected(NamedTuple):
    """A program of which jax is told when it is to trace it."""

    program: Any
    # The params of an equation, which has it.
    params: dict[str, Any]
    # The function that jax is to trace.
    function: Any
    jitted: Any
    request: Request
    within: bool
    # What jax's cache goes by besides.
    context: Any
    # jax's ``FlatTree`` of the types of the results.
    out: Any


class JitPrograms:
    """The programs of jits of jax's own that this process has from the store."""

    def __init__(self, symbols: Symbols):
        self._symbols = symbols
        self._requests = symbols.requests
        self._objects, self._node_of = symbols.objects, symbols.node_of
        # By the address of the function.
        self._expected: dict[int, list[_Expected]] = {}
        # The types of arguments for which jax has traced a function.
        self._traced: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
        # Whether all traces that jax keeps were seen, and how many there were before.
        self._has_all = symbols.num_misses() == 0
        self._num_before = _core.num_traces()
        # Programs that were looked at, to be stored or not.
        self._kept: dict[int, Any] = {}
        symbols.requests.when_cleared.append(self._clear)

    def _clear(self) -> None:
        self._expected.clear()
        self._traced.clear()
        self._kept.clear()
        self._has_all = self._symbols.num_misses() == 0
        self._num_before = _core.num_traces()

    def forget(self, function: Any) -> None:
        """Forgets the programs of a function, as jax has."""
        self._expected.pop(id(function), None)
        self._traced.pop(function, None)

    def is_expected(self, function: Any) -> bool:
        """Whether jax is to be told of a program of a function."""
        return id(function) in self._expected

    def traced(self, function: Any, in_avals: Any, debug_info: Any, *flags: Any) -> Any:
        """What jax is to come to that traces a function now; ``NotImplemented`` where it traces."""
        self._check_misses()
        if not is_jit(debug_info) or not is_of_jax(debug_info):
            return NotImplemented
        # A function that counts by identity in jax's cache can be referred to weakly.
        self._traced.setdefault(function, []).append(in_avals)
        expected = self._expected.get(id(function))
        return NotImplemented if expected is None else self._told(list(expected))

    def _check_misses(self) -> None:
        if self._num_before + self._symbols.num_misses() != _core.num_traces():
            self._has_all = False

    def _told(self, expected: list[_Expected]) -> Any:
        """Has jax know programs of a function that it traces; the program that it traces now."""
        answer: Any = NotImplemented
        for known in expected:
            with self._as_of(known) as is_of_now:
                if not is_of_now:
                    continue
                try:
                    _core.promise_trace(known.function, (known.program, known.out))
                    self._requests.asked(known.jitted, known.request)
                except RecursionError as error:
                    # So says jax's cache where it is this very program.
                    if not str(error).startswith("Recursively calling"):
                        raise
                    answer = known.program, known.out
                finally:
                    _core.is_still_promised()
            self._remove(known)
        return answer

    def _remove(self, known: _Expected) -> None:
        others = [own for own in self._expected.get(id(known.function), ()) if own is not known]
        if others:
            self._expected[id(known.function)] = others
        else:
            self._expected.pop(id(known.function), None)

    @contextlib.contextmanager
    def _as_of(self, known: _Expected) -> Iterator[bool]:
        """Within, jax keeps what it traces as it would have then; whether that can be."""
        with self._requests.as_for(known.within, None):
            yield self._requests.context(False) == known.context

    def tell_all(self) -> None:
        """Has jax know all programs: nobody tells it later."""
        for expected in list(self._expected.values()):
            with tried():
                self._told(list(expected))
        self._expected.clear()
        self._has_all = False

    def expected(self, request: Request, within: bool) -> Any:
        """The program of a jit of which jax is to be told; None where there is none.

        Raises:
          LookupError: no jit is at its place.
        """
        known = self._known(request, within)
        return None if known is None else known.program

    def program(self, request: Request, within: bool) -> Any:
        """The program of a jit; None where jax is to be asked.

        Raises:
          LookupError: no jit is at its place.
        """
        known = self._known(request, within) or self._loaded(request, within)
        return None if known is None else known.program

    def params(self, request: Request) -> dict[str, Any] | None:
        """The params of an equation with the program of a jit; None where jax is to be asked.

        Raises:
          LookupError: no jit is at its place.
        """
        known = self._known(request, False) or self._loaded(request, False)
        return None if known is None else known.params

    def _known(self, request: Request, within: bool) -> _Expected | None:
        if not self._expected:
            return None
        function = self._requests.jit_at(request[0])._fun
        context = self._requests.context(within)
        for known in self._expected.get(id(function), ()):
            if known.context == context and _are_same(known.request, request):
                return known
        return None

    def _loaded(self, request: Request, within: bool) -> _Expected | None:
        """What the store has, of which jax is to be told; None where jax is to be asked."""
        jitted = self._requests.jit_at(request[0])
        function = jitted._fun
        if self._symbols.has_line() or self._symbols.is_watched() or self._is_unknown(function):
            return None
        key = _core.key_of_program((request, within))
        if key is None:
            return None
        stored = _core.stored_program(key)
        if stored is None:
            return None
        program, (params, tree) = stored
        if self._may_have(function, list(program.in_avals)):
            return None
        out = self._objects.flat_tree(tree, tuple(program.out_avals))
        context = self._requests.context(within)
        params["jaxpr"] = program
        known = _Expected(program, params, function, jitted, request, within, context, out)
        if _core.is_whole_audited():
            self._audit(known)
            return None
        self._expected.setdefault(id(function), []).append(known)
        self._requests.note_expected(params, request, context)
        return known

    def _audit(self, known: _Expected) -> None:
        """Compares a program with that to which jax comes."""
        with self._requests.as_for(known.within, None):
            asked = self._requests.asked(known.jitted, known.request)
        texts = _text(known.program), _text(asked.params["jaxpr"])
        if texts[0] != texts[1]:
            _core.tell_whole_differs(known.request[0], *texts)

    def _is_unknown(self, function: Any) -> bool:
        """Whether jax may have traced a function without being seen."""
        self._check_misses()
        # A jit has a weak reference to its function, and so has each cache of jax.
        return not self._has_all and weakref.getweakrefcount(function) > 1

    def _may_have(self, function: Any, in_avals: list[Any]) -> bool:
        """Whether jax may have traced a function for arguments of such types."""
        return any(list(of.vals) == in_avals for of in self._traced.get(function, ()))

    def keep(self, program: Any, request: Request, within: bool) -> None:
        """Has the store keep the program of a jit, if another process comes to the same."""
        if self._kept.get(id(program)) is program:
            return
        self._kept[id(program)] = program
        with tried():
            key = _core.key_of_program((request, within))
            if key is None or self._symbols.is_watched():
                return
            jitted = self._requests.jit_at(request[0])
            with self._requests.as_for(within, None):
                asked = self._requests.asked(jitted, request)
            params = asked.params
            if params["jaxpr"] is program and self._is_made_anew(program, jitted, request, within):
                tree = described_tree(asked.out_tree, self._node_of)
                _core.store_program(key, program, ({**params, "jaxpr": None}, tree))

    def _is_made_anew(self, program: Any, jitted: Any, request: Request, within: bool) -> bool:
        """Whether jax comes to an equal program once more, without a warning."""
        own = copy_function(jitted._fun)
        made: list[Any] = []

        def make() -> None:
            with self._requests.as_for(within, None):
                made.append(self._requests.asked(jitted, request, own).params["jaxpr"])

        if not _core.is_silent(make):
            return False
        texts = [_text(of) for of in (program, *made)]
        names = [of.debug_info for of in (program, *made)]
        types = [(*of.in_avals, *of.out_avals) for of in (program, *made)]
        return all(len(all_) == 2 and all_[0] == all_[1] for all_ in (texts, names, types))


def _text(program: Any) -> str:
    text: str = program.pretty_print(source_info=True, name_stack=True)
    return text


def _are_same(one: Any, another: Any) -> bool:
    """Whether two requests are the same, as jax's cache may not tell 1 from True."""
    if type(one) is not type(another):
        return False
    if type(one) in (tuple, list):
        return len(one) == len(another) and all(map(_are_same, one, another))
    if type(one) is dict:
        # The order of named arguments counts in jax's cache.
        return _are_same(list(one.items()), list(another.items()))
    return bool(one == another)
