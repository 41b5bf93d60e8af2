"""Programs of jax's own jits: by which call of the jit jax has made them.

A program counts by identity: jax prints one that occurs twice as such. jax keeps the program of a
jit under its function and the types of its arguments. So a *request*, the place of the jit in a
module of jax and arguments of these types, leads to the same program again, and in another process
to the one that jax has there.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxide import _core
from jaxide._native.interposed import callables
from jaxide._native.interruptions import tried
from jaxide._native.jit_arguments import JitArguments
from jaxide._native.portable import place_of
from jaxide._native.trampolines import copy_function

# Where a jit is, its positional and its named arguments, with types in the place of arrays.
Request = tuple[str, tuple[Any, ...], dict[str, Any]]
# By which calls of ``vmap`` a function is batched, the outermost first: the size of the axis, and
# the dimension of each argument.
Batching = tuple[tuple[int, tuple[int | None, ...]], ...]
# The name of a function with a derivative rule, the types of its arguments, and how it is batched.
RuleRequest = tuple[str, tuple[Any, ...], Batching]

_MAX_DEPTH = 16
# What is in the place of a jit's, before the name of a function of two numbers.
_REDUCTION = "reduction by "
# What jax traces for it.
_TRACED_REDUCTION = "_reduction_jaxpr.<locals>.comp"
_MAX_OF_RULES = 1024


class RuleReader(Protocol):
    """Reads functions that trace derivative rules, and makes new ones
    (:mod:`jaxide._native.derivative_rules`)."""

    def batching(self, value: Any) -> Batching | None: ...
    def call(self, value: Any) -> tuple[str, tuple[Any, ...]] | None: ...
    def are_alike(self, one: Any, another: Any) -> bool: ...
    def renewal(self, value: Any) -> Callable[[dict[int, Any]], Any] | None: ...
    def on_demand(self, names: tuple[Any, ...], make: Callable[[], Any]) -> Any: ...


class StoredPrograms(Protocol):
    """Programs of jits that the store has (:mod:`jaxide._native.jit_programs`)."""

    def program(self, request: Request, within: bool) -> Any: ...
    def params(self, request: Request) -> dict[str, Any] | None: ...
    def expected(self, request: Request, within: bool) -> Any: ...
    def note(self, jitted: Any, request: Request, params: dict[str, Any], within: bool) -> None: ...
    def is_expected(self, function: Any) -> bool: ...


class Symbols(NamedTuple):
    """Private things of jax by which programs of jits are found."""

    jit: type
    # What jax's own call of a jit asks for params: of the function, options, arguments.
    infer_params: Callable[..., tuple[Any, Any]]
    tracer: Any
    arrays: tuple[Any, ...]
    aval: Any
    typeof: Callable[[Any], Any]
    # The class of functions with a derivative rule, and where a function is from.
    with_rule: type
    source_of: Callable[[Any], str]
    # What reads the rules that equations have; None where they are not known.
    rules: RuleReader | None
    # The params of the equation that a function of one comes to, for types of arguments, batched.
    params_of: Callable[[Any, tuple[Any, ...], Batching], dict[str, Any]]
    # The program of a function of two numbers, for their type; and these functions by name.
    reduction: Callable[[Any, Any], tuple[Any, Any]]
    reductions: Mapping[str, Any]
    # What jax's caches of programs go by besides: what it is now, and within an equation.
    contexts: Callable[[], tuple[tuple[Any, ...], tuple[Any, ...]]]
    # Has it be that for a while.
    within_equation: Callable[[], contextlib.AbstractContextManager[Any]]
    # Has equations have a traceback for a while.
    user_context: Callable[[Any], contextlib.AbstractContextManager[Any]]
    # Arguments as jax's cache of traces tells them apart.
    arguments: JitArguments
    # Everything that is configured in this thread, with a hash.
    configuration: Callable[[], Any]
    # Functions that keep what they make of a program, by name.
    derivations: Mapping[str, Callable[..., Any]]
    # Those among them whose results have lines of whoever asks first.
    deriving: tuple[str, ...]


class KeptDerivations(NamedTuple):
    """How many results functions keep that derive programs, and how often one was found."""

    results: int
    hits: int


class _Unknown(Exception):
    """An argument of which nothing is known."""


class _Calls(threading.local):
    """The calls of jits that are under way in a thread, the innermost last; None in the place of
    one that was asked for its program."""

    def __init__(self) -> None:
        self.under_way: list[Any] = []


class _Kept(NamedTuple):
    """In which context jax keeps a program, and whether that is one within an equation."""

    context: tuple[Any, ...]
    within: bool


class _Derived(NamedTuple):
    """A program that a function which keeps its results has made."""

    # The program, and the one that it was made of.
    item: weakref.ref[Any]
    function: str
    of: weakref.ref[Any]
    key: tuple[Any, ...]
    # Which item of the result it is.
    item_index: int
    kept: _Kept


class Once:
    """Calls a function when it is called first, and returns what that has returned."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Any]):
        self._make: Callable[[], Any] | None = make
        self._made: Any = None

    def __call__(self) -> Any:
        if self._make is not None:
            self._made = self._make()
            self._make = None
        return self._made


class Requests:
    """Requests of the programs that jax has made so far."""

    def __init__(self, symbols: Symbols):
        self._symbols = symbols
        self.arguments = symbols.arguments
        # By the address of the program: itself, so that its address is its own, and its params.
        self._known: dict[int, tuple[Any, Request, dict[str, Any], _Kept]] = {}
        # Those of inlined jits that jax has traced without a warning.
        self._silent: dict[int, Any] = {}
        # By the address of the jit.
        self._places: dict[int, tuple[Any, str]] = {}
        # The calls of jits that are under way, those of each thread.
        self._calls = _Calls()
        # Functions with derivative rules, by where they are from, and by name.
        self._rules: dict[str, str] = {}
        self._functions: dict[str, Any] = {}
        # By the address of the program.
        self._derived: dict[int, _Derived] = {}
        # Params of equations of functions with derivative rules.
        self._of_rules: dict[Any, dict[str, Any]] = {}
        # Programs that are from the store, by address.
        self._loaded: dict[int, weakref.ref[Any]] = {}
        # Where the jits are of which a program was noted.
        self.noted_places: set[str] = set()
        # Those that the store has.
        self.stored: StoredPrograms | None = None
        # Who else forgets then.
        self.when_cleared: list[Callable[[], None]] = []
        # What a jit with no settings says of itself.
        self._plain_jit: Any = None

    def begin(self, jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        """Notes that a jit is called: rules may be given its program before the call is over."""
        self._calls.under_way.append((jitted, args, kwargs))

    def end(self) -> None:
        """Notes that the call that was noted last is over."""
        if self._calls.under_way:
            self._calls.under_way.pop()

    def _note_under_way(self, source: str) -> None:
        """Notes which program the jit has that is called, if it is of a function at a place in
        source code."""
        calls = self._calls.under_way
        if not calls or calls[-1] is None:
            return
        jitted, args, kwargs = calls[-1]
        if self.place(jitted) is None or self._symbols.source_of(jitted._fun) != source:
            return
        # jax may trace it for that, and come here again.
        calls[-1] = None
        # Whatever is wrong with the call, the call itself says.
        with contextlib.suppress(Exception):
            self._noted(jitted, args, kwargs)

    def _note_reduction(self, program: Any, name: str) -> None:
        """Notes how jax has made the program of a function of two numbers, which it keeps."""
        computation = self._symbols.reductions.get(name)
        if computation is None:
            return
        aval = getattr(program, "jaxpr", program).invars[0].aval
        # What jax would trace for this question would be its program from then on.
        ask = functools.partial(self._symbols.reduction, computation, aval)
        for within in (False, True):
            with self.as_for(within, None):
                kept = _core.kept_by_jax(_TRACED_REDUCTION, ask)
                if kept is not None and kept[0] is program:
                    self._note_made(program, (_REDUCTION + name, (aval,), {}))
                    return

    def _note_made(self, program: Any, request: Request) -> None:
        self._note_known(program, request, {}, self._kept())

    def _note_known(
        self, program: Any, request: Request, params: dict[str, Any], kept: _Kept
    ) -> None:
        self._known[id(program)] = program, request, params, kept
        self.noted_places.add(request[0])

    def _noted(
        self, jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> tuple[Any, Request]:
        """The program that a jit has for arguments, which is noted, and the request for it.

        Raises:
          _Unknown: it has none that is always the same.
        """
        place = self.place(jitted)
        request = place or "", self._types(args, 0), self._types(kwargs or {}, 0)
        params = self._params(jitted, request)
        program = params["jaxpr"]
        if place is not None:
            known = self._known.get(id(program))
            if known is None or known[0] is not program:
                self._note_params(jitted, request, params)
        return program, request

    def _note_params(self, jitted: Any, request: Request, params: dict[str, Any]) -> None:
        kept = self._kept()
        self._note_known(params["jaxpr"], request, params, kept)
        if self.stored is not None:
            self.stored.note(jitted, request, params, kept.within)

    def note(
        self,
        jitted: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        was_traced: bool,
        was_silent: bool,
        is_stored: bool,
    ) -> bool:
        """Notes which program a jit has for arguments, once it was called with them.

        Whether somebody who traces the program, as this call has not, may hear a warning: equations
        of a jit that is inlined are part of the caller's, so nobody asks for its program. So it is
        where no call that this one is part of may be stored: nobody looks for warnings then.
        """
        info = getattr(jitted, "_jit_info", None)
        if info is None:
            return True
        try:
            program, request = self._noted(jitted, args, kwargs)
        except _Unknown:
            return info.inline is not False and not was_traced
        place = self.place(jitted)
        if info.inline is False or self._silent.get(id(program)) is program:
            return False
        if not was_traced:
            was_silent = is_stored and self._is_silent(jitted, request)
        if was_silent and (place is not None or _is_of_jax(jitted)):
            self._silent[id(program)] = program
        return not was_silent and not was_traced

    def _is_silent(self, jitted: Any, request: Request) -> bool:
        """Whether jax gives no warning when it traces a jit, which it does once more."""
        function = jitted._fun
        if type(function) is not types.FunctionType:
            return False
        own = copy_function(function)
        return _core.is_silent(lambda: self.asked(jitted, request, own))

    def clear(self) -> None:
        """Forgets all, as jax has forgotten its programs."""
        for clear in self.when_cleared:
            clear()
        self._known.clear()
        self.noted_places.clear()
        self._derived.clear()
        self._silent.clear()
        self._of_rules.clear()

    def of(self, params: dict[str, Any]) -> Request | None:
        """The request that leads to the params of an equation; None where there is none."""
        program = params.get("jaxpr")
        known = self._known.get(id(program))
        if known is None or known[0] is not program:
            return None
        _, request, own, _ = known
        same = len(own) == len(params) and all(
            name == other and (value is params[name] or _is_same(value, params[name]))
            for (name, value), other in zip(own.items(), params, strict=True)
        )
        return request if same else None

    def is_requested(self, params: dict[str, Any]) -> bool:
        """Whether a request leads to the params of an equation now."""
        program = params.get("jaxpr")
        if self.of(params) is None:
            return False
        return bool(self._known[id(program)][3].context == self._symbols.contexts()[0])

    def params(self, request: Request) -> dict[str, Any]:
        """The params that jax has for a request.

        Raises:
          LookupError: no jit is at its place.
        """
        found = None if self.stored is None else self.stored.params(request)
        return dict(found) if found is not None else self._params_of_jax(request)

    def _params_of_jax(self, request: Request) -> dict[str, Any]:
        place = request[0]
        jitted = self.jit_at(place)
        try:
            params = self._params(jitted, request)
        except _Unknown:
            raise LookupError(place) from None
        self._note_params(jitted, request, params)
        return dict(params)

    def note_expected(self, params: dict[str, Any], request: Request, context: Any) -> None:
        """Notes params with the program of a jit that jax is to keep in a context, once it is
        asked."""
        kept = _Kept(context, context == self.context(True))
        self._note_known(params["jaxpr"], request, params, kept)

    def promise(self, request: Request, program: Any, out: Any) -> None:
        """Has jax come to a program, with such results, when it traces for a request next.

        Raises:
          LookupError: no jit is at its place.
        """
        place, args, kwargs = request
        if place.startswith(_REDUCTION):
            types = list(program.in_avals)
            function: Any = _TRACED_REDUCTION

            def fits(in_avals: Any) -> bool:
                return list(in_avals.vals) == types
        else:
            jitted = self.jit_at(place)
            function = jitted._fun
            arguments = self.arguments.of(jitted, args, kwargs)

            def fits(in_avals: Any) -> bool:
                return arguments is not None and bool(arguments.flat == in_avals)

        _core.promise_trace(function, (program, out), fits)

    def jit_at(self, place: str) -> Any:
        """The jit at a place.

        Raises:
          LookupError: there is none.
        """
        module, _, qualname = place.partition(":")
        if module.partition(".")[0] != "jax":
            raise LookupError(place)
        found: Any = sys.modules[module]
        for part in qualname.split("."):
            found = getattr(found, part)
        if type(found) is not self._symbols.jit or self.place(found) != place:
            raise LookupError(place)
        return found

    def note_derived(
        self, function: str, program: Any, key: tuple[Any, ...], items: list[tuple[int, Any]]
    ) -> None:
        """Notes which programs a function that keeps its results has made of a program, each with
        its place in the result."""
        of, kept = weakref.ref(program), self._kept()
        for index, item in items:
            if item is program or id(item) in self._derived:
                continue

            def forget(_: Any, place: int = id(item)) -> None:
                self._derived.pop(place, None)

            made = _Derived(weakref.ref(item, forget), function, of, key, index, kept)
            self._derived[id(item)] = made

    def origin(self, program: Any) -> tuple[Any, ...] | None:
        """How jax comes to a program: whether it keeps that within an equation, and the request of
        its jit; or that, the function that has made it, of which program, the key, and the item of
        the result. None where it is not known."""
        known = self._known.get(id(program))
        if known is not None and known[0] is program:
            return known[3].within, known[1]
        derived = self._derived.get(id(program))
        if derived is None or derived.item() is not program:
            return self._found(program)
        base = derived.of()
        if base is None:
            return None
        return derived.kept.within, derived.function, base, derived.key, derived.item_index

    def _found(self, program: Any) -> tuple[Any, ...] | None:
        """The request of a program of which nothing was noted so far."""
        names = getattr(program, "jaxpr", program).debug_info
        if names.traced_for == "jit":
            self._note_under_way(names.func_src_info)
        elif names.traced_for == "reduction_jaxpr":
            self._note_reduction(program, names.func_src_info.partition(" ")[0])
        known = self._known.get(id(program))
        return (known[3].within, known[1]) if known is not None and known[0] is program else None

    def configuration(self) -> Any:
        """Everything that is configured in this thread, with a hash."""
        return self._symbols.configuration()

    def is_within_equation(self) -> bool:
        """Whether jax keeps what it makes now as within an equation."""
        return self._kept().within

    def context(self, within: bool) -> Any:
        """What jax's caches of programs go by besides, now or within an equation."""
        return self._symbols.contexts()[within]

    def _kept(self) -> _Kept:
        now, within = self._symbols.contexts()
        return _Kept(now, now == within)

    def _is_of_now(self, program: Any, contexts: tuple[Any, Any]) -> bool:
        """Whether jax comes to a program whose origin is known by what it keeps now."""
        known, derived = self._known.get(id(program)), self._derived.get(id(program))
        if known is not None and known[0] is program:
            kept = known[3]
        elif derived is not None:
            kept = derived.kept
        else:
            return False
        return bool(kept.context == contexts[kept.within])

    def chain(self, program: Any) -> tuple[Any, ...] | None:
        """The request of the jit that a program comes from, and what was made of its program one
        after the other; None where that is not known, or leads to another program now."""
        steps: list[Any] = []
        contexts = self._symbols.contexts()
        while len(steps) < _MAX_DEPTH:
            origin = self.origin(program)
            match origin if self._is_of_now(program, contexts) else None:
                case (within, request):
                    return within, request, *reversed(steps)
                case (within, function, base, key, index):
                    steps.append((within, function, key, index))
                    program = base
                case _:
                    break
        return None

    def bases(self, program: Any) -> list[Any]:
        """The programs of which functions that keep their results have made a program, the nearest
        first; after the one that a jit of jax's own has comes None."""
        found: list[Any] = []
        contexts = self._symbols.contexts()
        while len(found) < _MAX_DEPTH:
            origin = self.origin(program)
            if origin is None or not self._is_of_now(program, contexts):
                break
            match origin:
                case (_, _):
                    found.append(None)
                    break
                case (_, _, base, _, _):
                    found.append(base)
                    program = base
        return found

    def as_for(self, within: bool, traceback: Any) -> contextlib.AbstractContextManager[Any]:
        """Within, jax traces as for an equation with a traceback, and within one or not."""
        symbols = self._symbols
        if traceback is None:
            return symbols.within_equation() if within else contextlib.nullcontext()
        if not within:
            return symbols.user_context(traceback)
        return self._within_equation_at(traceback)

    @contextlib.contextmanager
    def _within_equation_at(self, traceback: Any) -> Iterator[None]:
        with self._symbols.within_equation(), self._symbols.user_context(traceback):
            yield

    def program(self, request: Request, within: bool, traceback: Any) -> Any:
        """The program of a jit of jax's own, or of a function of two numbers.

        Raises:
          LookupError: no jit is at its place.
        """
        stored = self._stored_for(request) if traceback is None else None
        found = None if stored is None else stored.program(request, within)
        if found is not None:
            return found
        return self.program_of_jax(request, within, traceback)

    def expected(self, request: Request, within: bool) -> Any:
        """The program from the store to which jax is to come; None where there is none.

        Raises:
          LookupError: no jit is at its place.
        """
        stored = self._stored_for(request)
        return None if stored is None else stored.expected(request, within)

    def _stored_for(self, request: Request) -> StoredPrograms | None:
        """What has programs for a request; None where it is one for a function of two numbers."""
        return None if request[0].startswith(_REDUCTION) else self.stored

    def program_of_jax(self, request: Request, within: bool, traceback: Any) -> Any:
        """As ``program``, of which jax knows or which it traces.

        Raises:
          LookupError: no jit is at its place.
        """
        place, args, _ = request
        name = place.removeprefix(_REDUCTION)
        with self.as_for(within, traceback):
            if name == place:
                return self._params_of_jax(request)["jaxpr"]
            program, _ = self._symbols.reduction(self._symbols.reductions[name], *args)
            self._note_made(program, request)
            return program

    def out_tree(self, request: Request, within: bool) -> Any:
        """The tree of the results of a jit of jax's own; None of a function of two numbers.

        Raises:
          LookupError: no jit is at its place.
        """
        place = request[0]
        if place.startswith(_REDUCTION):
            return None
        jitted = self.jit_at(place)
        with self.as_for(within, None):
            return self.asked(jitted, request).out_tree

    def derive(self, function: str, program: Any, key: tuple[Any, ...], index: int) -> Any:
        """What a function that keeps its results makes of a program.

        Raises:
          LookupError: there is no such function, or no such item.
        """
        made = self.ask(function, program, key)
        return made[index] if isinstance(made, tuple) else made

    def ask(self, function: str, program: Any, key: tuple[Any, ...]) -> Any:
        """What a function that keeps its results makes of a program.

        Raises:
          LookupError: there is no such function.
        """
        return self._symbols.derivations[function](program, *key)

    def note_loaded(self, program: Any) -> None:
        """Notes that a program is from the store."""
        place = id(program)
        self._loaded[place] = weakref.ref(program, lambda _: self._loaded.pop(place, None))

    def is_loaded(self, program: Any) -> bool:
        """Whether a program is from the store, or was made of one that is."""
        return bool(self._loaded) and any(
            (known := self._loaded.get(id(of))) is not None and known() is of
            for of in (program, *filter(None, self.bases(program)))
        )

    def kept_derivations(self) -> KeptDerivations | None:
        """What functions keep that derive programs; None where they do not say that."""
        try:
            deriving: list[Any] = [self._symbols.derivations[of] for of in self._symbols.deriving]
            infos = [function.cache_info() for function in deriving]
        except AttributeError:
            return None
        return KeptDerivations(sum(i.currsize for i in infos), sum(i.hits for i in infos))

    def rule_of(self, params: dict[str, Any]) -> RuleRequest | None:
        """The function of jax, and the types, whose call comes to an equation with such params, but
        for what is new in each call; None where none is known. Whoever asks compares them."""
        program = params.get("call_jaxpr")
        if program is None or params.get("num_consts") != 0 or "jvp_jaxpr_fun" not in params:
            return None
        self._look_for_rules()
        name, rules = self._rules.get(program.debug_info.func_src_info), self._symbols.rules
        if name is None or rules is None:
            return None
        batching = rules.batching(params["jvp_jaxpr_fun"])
        return None if batching is None else (name, tuple(program.in_avals), batching)

    def request_of_rule(self, rule: Any) -> RuleRequest | None:
        """The function of jax, and the types, whose call comes to an equation with a rule that says
        the same; None where none is known."""
        rules = self._symbols.rules
        if rules is None:
            return None
        call, batching = rules.call(rule), rules.batching(rule)
        if call is None or batching is None:
            return None
        own, types_ = call
        self._look_for_rules()
        for name in self._functions:
            # What jax traces for another function has lines that it would not have.
            if name.rpartition(".")[2] != own:
                continue
            request: RuleRequest = name, types_, batching
            # One that is not for such types, jax says.
            with tried():
                if rules.are_alike(self.params_of_rule(request)["jvp_jaxpr_fun"], rule):
                    return request
        return None

    def rule(self, names: tuple[Any, ...], request: RuleRequest) -> Any:
        """A new rule as a request comes to, which is made when somebody asks for it."""
        name, avals, batching = request
        function = self._function(name)
        as_now = vars(function).copy()

        def rule() -> Any:
            if vars(function) == as_now:
                params = self.params_of_rule(request)
            else:
                # Somebody has given the function another rule since.
                before = object.__new__(type(function))
                vars(before).update(as_now)
                params = self._symbols.params_of(before, avals, batching)
            return params["jvp_jaxpr_fun"]

        return self._on_demand(names, rule)

    def deriving(self, function: Any, program: Any, key: tuple[Any, ...]) -> Callable[[], Any]:
        """Has jax make what a function makes of a program, once."""
        return Once(functools.partial(function, program, *key))

    def derived_rule(
        self, names: tuple[Any, ...], derive: Callable[[], Any], item: int, eqn: int
    ) -> Any:
        """A new rule as that of an equation of an item of what ``derive`` returns, which is made
        when somebody asks for it."""

        def rule() -> Any:
            made = derive()
            program: Any = made[item] if isinstance(made, tuple) else made
            return getattr(program, "jaxpr", program).eqns[eqn].params["jvp_jaxpr_fun"]

        return self._on_demand(names, rule)

    def _on_demand(self, names: tuple[Any, ...], rule: Callable[[], Any]) -> Any:
        rules = self._symbols.rules
        if rules is None:
            raise LookupError(names)

        def make() -> Any:
            # jax is told first what it would have kept of the trace that had the rule.
            _core.settle()
            made = rule()
            renewal = rules.renewal(made)
            # One that may not be made anew is nobody else's.
            return made if renewal is None else renewal({})

        return rules.on_demand(names, make)

    def params_of_rule(self, request: RuleRequest) -> dict[str, Any]:
        """The params of the equation of a call of a function with a derivative rule.

        Raises:
          LookupError: there is no such function.
        """
        key = request, self._symbols.configuration()
        known = self._of_rules.get(key)
        if known is None:
            name, avals, batching = request
            function = self._function(name)
            known = self._symbols.params_of(function, avals, batching)
            if len(self._of_rules) < _MAX_OF_RULES:
                self._of_rules[key] = known
        return known

    def _function(self, name: str) -> Any:
        """A function with a derivative rule.

        Raises:
          LookupError: there is none.
        """
        if (known := self._functions.get(name)) is not None:
            return known
        for value, own in list(callables()):
            if own == name and type(value) is self._symbols.with_rule:
                return value
        raise LookupError(name)

    def _look_for_rules(self) -> None:
        for value, name in list(callables()):
            if type(value) is self._symbols.with_rule and name not in self._functions:
                function: Any = value
                self._functions[name] = function
                self._rules.setdefault(self._symbols.source_of(function.fun), name)

    def asked(self, jitted: Any, request: Request, function: Any = None) -> Any:
        """What jax has for arguments of a jit, or would have if ``function`` was that of the
        jit."""
        _, args, kwargs = request
        fun = jitted._fun if function is None else function
        return self._symbols.infer_params(fun, jitted._jit_info, args, kwargs)[0]

    def _params(self, jitted: Any, request: Request) -> dict[str, Any]:
        found = self.asked(jitted, request)
        if found.consts:
            raise _Unknown
        params: dict[str, Any] = found.params
        return params

    def place(self, jitted: Any) -> str | None:
        """Where in a module of jax a jit is; None where it is in none."""
        known = self._places.get(id(jitted))
        if known is not None and known[0] is jitted:
            return known[1]
        module = getattr(jitted, "__module__", None)
        qualname = getattr(jitted, "__qualname__", None)
        if type(module) is not str or type(qualname) is not str:
            return None
        found: Any = sys.modules.get(module) if module.partition(".")[0] == "jax" else None
        for part in qualname.split("."):
            found = getattr(found, part, None)
        place = f"{module}:{qualname}"
        if found is not jitted:
            # That of a function with a derivative rule, or of a universal function.
            for attribute in ("fun", "_func"):
                if getattr(found, attribute, None) is jitted:
                    place = f"{place}.{attribute}"
                    break
            else:
                return None
        # It lives as long as its module.
        self._places[id(jitted)] = jitted, place
        return place

    def parts_of_jit(self, jitted: Any, may_be_seen: bool) -> tuple[Any, tuple[Any, ...]] | None:
        """The function of a jit that is inlined, and its settings where they are not those of any.

        None where jax may have traced it, or where a setting says more than which arguments are
        static.
        """
        function, info = getattr(jitted, "_fun", None), getattr(jitted, "_jit_info", None)
        if info is None or not hasattr(info, "_fields"):
            return None
        # A jit has a weak reference to its function.
        if not may_be_seen and self._may_have_traced(function):
            return None
        plain = self._plain_jit
        if plain is None:
            a_jit: Any = jax.jit(lambda: None)
            plain = self._plain_jit = a_jit._jit_info
        settings = tuple(
            (name, value)
            for name, value, other in zip(info._fields, info, plain, strict=True)
            if name not in _OF_FUNCTION and not (type(value) is type(other) and value == other)
        )
        known = all(name in _OF_ARGUMENTS for name, _ in settings)
        # jax keeps the program of one that is not inlined, for whoever calls it later.
        is_inlined = any(name == "inline" for name, _ in settings)
        return (function, settings) if known and is_inlined else None

    def _may_have_traced(self, function: Any) -> bool:
        is_expected = self.stored is not None and self.stored.is_expected(function)
        return is_expected or weakref.getweakrefcount(function) > 1

    def place_of_class(self, class_: type) -> str | None:
        """Where in a module a class is; None where it is in none."""
        return place_of(class_)

    def place_of_body(self, function: types.FunctionType) -> str | None:
        """Where in a module of jax the jit is that traces a function; None where that is none."""
        found: Any = sys.modules.get(function.__module__)
        for part in function.__qualname__.split("."):
            found = getattr(found, part, None)
        # That of a function with a derivative rule, or of a universal function.
        for jitted in (found, getattr(found, "fun", None), getattr(found, "_func", None)):
            if type(jitted) is self._symbols.jit and getattr(jitted, "_fun", None) is function:
                return self.place(jitted)
        return None

    def _types(self, value: Any, depth: int) -> Any:
        symbols = self._symbols
        class_ = type(value)
        if depth == _MAX_DEPTH:
            raise _Unknown
        if class_ in _PLAIN:
            return value
        if class_ is tuple:
            return tuple(self._types(item, depth + 1) for item in value)
        if class_ is list:
            return [self._types(item, depth + 1) for item in value]
        if class_ is dict:
            return {name: self._types(item, depth + 1) for name, item in value.items()}
        if isinstance(value, symbols.tracer) or class_ in symbols.arrays or class_ is np.ndarray:
            aval = symbols.typeof(value)
            if type(aval) is not symbols.aval:
                raise _Unknown
            return aval
        if isinstance(value, _UNCHANGING):
            return value
        if class_ is frozenset and all(type(item) in _PLAIN for item in value):
            return value
        if class_ is types.FunctionType and _is_of_jax(value) and place_of(value) is not None:
            return value
        raise _Unknown


def _is_of_jax(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] == "jax"


def _is_same(one: Any, another: Any) -> bool:
    return type(one) is type(another) and one.__eq__(another) is True


# What a jit says of its function, and which of its settings say how arguments are passed.
_OF_FUNCTION = frozenset(("fun_sourceinfo", "fun_signature"))
_OF_ARGUMENTS = frozenset(
    ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "inline")
)
_PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None)))
_UNCHANGING = (np.dtype, np.generic, enum.Enum, type)
