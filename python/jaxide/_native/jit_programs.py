"""Programs of jits of jax's own, from the store.

jax keeps the program of a jit, which it traces when somebody first asks. A process that has the
program from the store need not trace it: it is jax's answer once jax is to trace it, whoever asks.
A program counts by identity, so the one from the store is used only where jax has none.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxide import _core
from jaxide._native.described_trees import NodeOf, described_tree
from jaxide._native.entries import EntryObjects
from jaxide._native.interruptions import tried
from jaxide._native.jit_arguments import Arguments
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
    """A program to which jax comes when it is to trace it."""

    program: Any
    # The params of an equation, which has it.
    params: dict[str, Any]
    jitted: Any
    request: Request
    arguments: Arguments
    # What jax's cache goes by besides, and whether that is as within an equation.
    context: Any
    within: bool
    # jax's ``FlatTree`` of the types of the results.
    out: Any


class _Programs:
    """Programs to which jax comes when it is to trace a function."""

    def __init__(self) -> None:
        self._new: list[_Expected] = []
        self._known: dict[tuple[Any, Any], _Expected] = {}

    def add(self, expected: _Expected) -> None:
        self._new.append(expected)

    def by_key(self) -> dict[tuple[Any, Any], _Expected]:
        """They by what jax's cache goes by: arguments and context."""
        while self._new:
            expected = self._new.pop()
            self._known[expected.arguments.flat, expected.context] = expected
        return self._known


class _Traced:
    """For which arguments jax has traced a function."""

    def __init__(self) -> None:
        self.new: list[Any] = []
        self._known: set[Any] = set()

    def has(self, arguments: Arguments) -> bool:
        """Whether jax may have traced it for these."""
        while self.new:
            self._known.add(self.new.pop())
        return arguments.flat is None or arguments.flat in self._known


class JitPrograms:
    """The programs of jits of jax's own that this process has from the store."""

    def __init__(self, symbols: Symbols):
        self._symbols = symbols
        self._requests = symbols.requests
        self._arguments = symbols.requests.arguments
        self._objects, self._node_of = symbols.objects, symbols.node_of
        # By the address of the function.
        self._expected: dict[int, _Programs] = {}
        # By the function.
        self._traced: weakref.WeakKeyDictionary[Any, _Traced] = weakref.WeakKeyDictionary()
        # Whether all traces that jax keeps were seen, and how many there were before.
        self._has_all = symbols.num_misses() == 0
        self._num_before = _core.num_traces()
        # Programs that were looked at, to be stored or not.
        self._noted: dict[int, Any] = {}
        # Keys of those that another process may not come to.
        self._refused: set[int] = set()
        symbols.requests.when_cleared.append(self._clear)

    def _clear(self) -> None:
        self._expected.clear()
        self._traced.clear()
        self._noted.clear()
        self._has_all = self._symbols.num_misses() == 0
        self._num_before = _core.num_traces()

    def forget(self, function: Any) -> None:
        """Forgets the programs of a function, as jax has."""
        self._expected.pop(id(function), None)
        self._traced.pop(function, None)

    def is_expected(self, function: Any) -> bool:
        """Whether jax is to come to a program of a function."""
        return id(function) in self._expected

    def traced(self, function: Any, in_avals: Any, debug_info: Any, *flags: Any) -> Any:
        """What jax comes to that traces a function now; ``NotImplemented`` where it traces."""
        self._check_misses()
        if not is_jit(debug_info) or not is_of_jax(debug_info):
            return NotImplemented
        # A function that counts by identity in jax's cache can be referred to weakly.
        if (traced := self._traced.get(function)) is None:
            traced = self._traced[function] = _Traced()
        traced.new.append(in_avals)
        of_function = self._expected.get(id(function))
        if of_function is None or any(flags[:3]):
            return NotImplemented
        expected = of_function.by_key().get((in_avals, self._requests.context(False)))
        if expected is None or expected.program.debug_info[:3] != debug_info[:3]:
            return NotImplemented
        self._remove(expected)
        return expected.program, expected.out

    def _check_misses(self) -> None:
        if self._num_before + self._symbols.num_misses() != _core.num_traces():
            self._has_all = False

    def _remove(self, expected: _Expected) -> None:
        function = id(expected.jitted._fun)
        of_function = self._expected.get(function)
        if of_function is not None:
            of_function.by_key().pop((expected.arguments.flat, expected.context), None)
            if not of_function.by_key():
                self._expected.pop(function, None)

    def tell_all(self) -> None:
        """Has jax keep all programs to which it can come now: nobody answers for them later."""
        everything = [
            expected
            for of_function in list(self._expected.values())
            for expected in list(of_function.by_key().values())
        ]
        for expected in everything:
            with tried(), self._requests.as_for(expected.within, None):
                if self._requests.context(False) == expected.context:
                    # jax traces it, so this is asked for it.
                    self._requests.asked(expected.jitted, expected.request)
            self._remove(expected)
        self._has_all = False

    def expected(self, request: Request, within: bool) -> Any:
        """The program of a jit to which jax is to come; None where there is none.

        Raises:
          LookupError: no jit is at its place.
        """
        if not self._expected:
            return None
        jitted = self._requests.jit_at(request[0])
        arguments = self._arguments.of(jitted, *request[1:])
        known = None if arguments is None else self._known(jitted, arguments, within)
        return None if known is None else known.program

    def _known(self, jitted: Any, arguments: Arguments, within: bool) -> _Expected | None:
        of_function = self._expected.get(id(jitted._fun))
        if of_function is None:
            return None
        return of_function.by_key().get((arguments.flat, self._requests.context(within)))

    def program(self, request: Request, within: bool) -> Any:
        """The program of a jit; None where jax is to be asked.

        Raises:
          LookupError: no jit is at its place.
        """
        found = self._found(request, within)
        return None if found is None else found.program

    def params(self, request: Request) -> dict[str, Any] | None:
        """The params of an equation with the program of a jit; None where jax is to be asked.

        Raises:
          LookupError: no jit is at its place.
        """
        found = self._found(request, False)
        # Another jit of the function has its own.
        return found.params if found is not None and found.request[0] == request[0] else None

    def _found(self, request: Request, within: bool) -> _Expected | None:
        if not _core.is_installed():
            # Traces between two activations are not seen.
            return None
        jitted = self._requests.jit_at(request[0])
        arguments = self._arguments.of(jitted, *request[1:])
        if arguments is None:
            return None
        known = self._known(jitted, arguments, within)
        return known if known is not None else self._loaded(jitted, request, arguments, within)

    def _loaded(
        self, jitted: Any, request: Request, arguments: Arguments, within: bool
    ) -> _Expected | None:
        """What the store has; None where jax is to be asked."""
        function = jitted._fun
        if self._symbols.has_line() or self._symbols.is_watched():
            return None
        traced = self._traced.get(function)
        if self._is_unknown(function) or (traced is not None and traced.has(arguments)):
            return None
        context = self._requests.context(within)
        is_within = context == self._requests.context(True)
        words = request[0], arguments.positional, arguments.named, is_within
        key = _core.key_of_program(words)
        stored = None if key is None else _core.stored_program(key)
        if stored is None:
            return None
        program, (params, tree) = stored
        out = self._objects.flat_tree(tree, tuple(program.out_avals))
        params["jaxpr"] = program
        found = _Expected(program, params, jitted, request, arguments, context, within, out)
        if _core.is_whole_audited():
            self._audit(found)
            return None
        if (of_function := self._expected.get(id(function))) is None:
            of_function = self._expected[id(function)] = _Programs()
        of_function.add(found)
        self._requests.note_expected(params, request, context)
        return found

    def _audit(self, found: _Expected) -> None:
        """Compares a program with that to which jax comes."""
        with self._requests.as_for(found.within, None):
            asked = self._requests.asked(found.jitted, found.request)
        texts = _text(found.program), _text(asked.params["jaxpr"])
        if texts[0] != texts[1]:
            _core.tell_whole_differs(found.request[0], *texts)

    def _is_unknown(self, function: Any) -> bool:
        """Whether jax may have traced a function without being seen."""
        self._check_misses()
        # A jit has a weak reference to its function, and so has each cache of jax.
        return not self._has_all and weakref.getweakrefcount(function) > 1

    def note(self, jitted: Any, request: Request, params: dict[str, Any], within: bool) -> None:
        """Has the store keep the program that jax has for a request, if another process comes to
        the same."""
        program = params["jaxpr"]
        if self._noted.get(id(program)) is program:
            return
        self._noted[id(program)] = program
        if self._symbols.has_line() or self._symbols.is_watched():
            return
        arguments = self._arguments.of(jitted, *request[1:])
        if arguments is None:
            return
        with tried():
            words = request[0], arguments.positional, arguments.named, within
            key = _core.key_of_program(words)
            if key is None or key in self._refused or not _core.may_store_program(key, program):
                return
            if not self._is_made_anew(program, jitted, request):
                self._refused.add(key)
                return
            tree = described_tree(self._requests.asked(jitted, request).out_tree, self._node_of)
            _core.store_program(key, program, ({**params, "jaxpr": None}, tree))

    def _is_made_anew(self, program: Any, jitted: Any, request: Request) -> bool:
        """Whether jax comes to an equal program once more, without a warning."""
        own = copy_function(jitted._fun)
        made: list[Any] = []

        def make() -> None:
            made.append(self._requests.asked(jitted, request, own).params["jaxpr"])

        if not _is_silent(make):
            return False
        texts = [_text(of) for of in (program, *made)]
        names = [of.debug_info for of in (program, *made)]
        types = [(*of.in_avals, *of.out_avals) for of in (program, *made)]
        return all(len(all_) == 2 and all_[0] == all_[1] for all_ in (texts, names, types))


def _is_silent(make: Callable[[], None]) -> bool:
    """Whether a function gives no warning, be it one of numpy's; nobody hears those."""
    state, heard = np.geterr(), []
    if not {"ignore", "warn"}.issuperset(state.values()):
        return False
    calls: dict[str, Any] = {name: "call" for name, does in state.items() if does == "warn"}
    with np.errstate(**calls, call=lambda *args: heard.append(args)):
        return _core.is_silent(make) and not heard


def _text(program: Any) -> str:
    text: str = program.pretty_print(source_info=True, name_stack=True)
    return text
