"""Programs of jax's own jits: by which call of the jit jax has made them.

A program counts by identity: jax prints one that occurs twice as such. jax keeps the program of a
jit under its function and the types of its arguments. So a *request*, the place of the jit in a
module of jax and arguments of these types, leads to the same program again, and in another process
to the one that jax has there.
"""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxide import _core
from jaxide._native.interposed import callables
from jaxide._native.trampolines import copy_function

# Where a jit is, its positional and its named arguments, with types in the place of arrays.
Request = tuple[str, tuple[Any, ...], dict[str, Any]]
# The name of a function with a derivative rule, and the types of its arguments.
RuleRequest = tuple[str, tuple[Any, ...]]

_MAX_DEPTH = 16
_MAX_TWICE = 1024


class Symbols(NamedTuple):
    """Private things of jax by which programs of jits are found."""

    jit: type
    # What jax's own call of a jit asks for params: of the function, options, arguments.
    infer_params: Callable[..., tuple[Any, Any]]
    tracer: Any
    array: Any
    aval: Any
    typeof: Callable[[Any], Any]
    # The class of functions with a derivative rule, and where such a function is from.
    with_rule: type
    source_of: Callable[[Any], str]
    # The params of the equation that a function of one comes to, for types of arguments.
    params_of: Callable[[Any, tuple[Any, ...]], dict[str, Any]]
    # Everything that is configured in this thread, with a hash.
    configuration: Callable[[], Any]


class _Unknown(Exception):
    """An argument of which nothing is known."""


class Requests:
    """Requests of the programs that jax has made so far."""

    def __init__(self, symbols: Symbols):
        self._symbols = symbols
        # By the address of the program: itself, so that its address is its own, and its params.
        self._known: dict[int, tuple[Any, Request, dict[str, Any]]] = {}
        # Those of inlined jits that jax has traced without a warning.
        self._silent: dict[int, Any] = {}
        # By the address of the jit.
        self._places: dict[int, tuple[Any, str]] = {}
        # Functions with derivative rules, by where they are from, and by name.
        self._rules: dict[str, str] = {}
        self._functions: dict[str, Any] = {}
        # Params of their equations, twice: what differs is new in each call.
        self._twice: dict[Any, tuple[dict[str, Any], dict[str, Any]]] = {}

    def note(
        self,
        jitted: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        was_traced: bool,
        was_silent: bool,
    ) -> bool:
        """Notes which program a jit has for arguments, once it was called with them.

        Whether somebody who traces the program, as this call has not, may hear a warning: equations
        of a jit that is inlined are part of the caller's, so nobody asks for its program.
        """
        info = getattr(jitted, "_jit_info", None)
        if info is None:
            return True
        place = self.place(jitted)
        try:
            request = place or "", self._types(args, 0), self._types(kwargs or {}, 0)
            params = self._params(jitted, request)
        except _Unknown:
            return info.inline is not False and not was_traced
        program = params["jaxpr"]
        if place is not None:
            known = self._known.get(id(program))
            if known is None or known[0] is not program:
                self._known[id(program)] = program, request, params
        if info.inline is False or self._silent.get(id(program)) is program:
            return False
        if not was_traced:
            was_silent = self._is_silent(jitted, request)
        if was_silent and place is not None:
            self._silent[id(program)] = program
        return not was_silent and not was_traced

    def _is_silent(self, jitted: Any, request: Request) -> bool:
        """Whether jax gives no warning when it traces a jit, which it does once more."""
        function = jitted._fun
        if type(function) is not types.FunctionType:
            return False
        own = copy_function(function)
        _, args, kwargs = request
        infer = self._symbols.infer_params
        return _core.is_silent(lambda: infer(own, jitted._jit_info, args, kwargs))

    def clear(self) -> None:
        """Forgets all, as jax has forgotten its programs."""
        self._known.clear()
        self._silent.clear()
        self._twice.clear()

    def of(self, params: dict[str, Any]) -> Request | None:
        """The request that leads to the params of an equation; None where there is none."""
        program = params.get("jaxpr")
        known = self._known.get(id(program))
        if known is None or known[0] is not program:
            return None
        _, request, own = known
        same = len(own) == len(params) and all(
            name == other and (value is params[name] or _is_same(value, params[name]))
            for (name, value), other in zip(own.items(), params, strict=True)
        )
        return request if same else None

    def params(self, request: Request) -> dict[str, Any]:
        """The params that jax has for a request.

        Raises:
          LookupError: no jit is at its place.
        """
        place, *_ = request
        module, _, qualname = place.partition(":")
        if module.partition(".")[0] != "jax":
            raise LookupError(place)
        found: Any = sys.modules[module]
        for part in qualname.split("."):
            found = getattr(found, part)
        if type(found) is not self._symbols.jit or self.place(found) != place:
            raise LookupError(place)
        try:
            params = self._params(found, request)
        except _Unknown:
            raise LookupError(place) from None
        program = params["jaxpr"]
        self._known[id(program)] = program, request, params
        return dict(params)

    def rule_of(self, params: dict[str, Any]) -> RuleRequest | None:
        """The function of jax, and the types, whose call comes to an equation with such params, but
        for what is new in each call; None where none is known. Whoever asks compares them."""
        program = params.get("call_jaxpr")
        if program is None or params.get("num_consts") != 0 or "jvp_jaxpr_fun" not in params:
            return None
        self._look_for_rules()
        name = self._rules.get(program.debug_info.func_src_info)
        return None if name is None else (name, tuple(program.in_avals))

    def params_of_rule(self, request: RuleRequest) -> tuple[dict[str, Any], dict[str, Any]]:
        """The params of the equations of two calls of a function with a derivative rule.

        Raises:
          LookupError: there is no such function.
        """
        key = request, self._symbols.configuration()
        known = self._twice.get(key)
        if known is None:
            name, avals = request
            self._look_for_rules()
            function = self._functions.get(name)
            if function is None:
                raise LookupError(name)
            one, another = (self._symbols.params_of(function, avals) for _ in range(2))
            known = one, another
            if len(self._twice) < _MAX_TWICE:
                self._twice[key] = known
        return known

    def _look_for_rules(self) -> None:
        for value, name in list(callables()):
            if type(value) is self._symbols.with_rule and name not in self._functions:
                self._functions[name] = value
                self._rules.setdefault(self._symbols.source_of(value), name)

    def _params(self, jitted: Any, request: Request) -> dict[str, Any]:
        _, args, kwargs = request
        found, _ = self._symbols.infer_params(jitted._fun, jitted._jit_info, args, kwargs)
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
        if found is not jitted:
            return None
        # It lives as long as its module.
        place = f"{module}:{qualname}"
        self._places[id(jitted)] = jitted, place
        return place

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
        if isinstance(value, symbols.tracer) or class_ is symbols.array:
            aval = symbols.typeof(value)
            if type(aval) is not symbols.aval:
                raise _Unknown
            return aval
        if isinstance(value, _UNCHANGING):
            return value
        raise _Unknown


def _is_same(one: Any, another: Any) -> bool:
    return type(one) is type(another) and one.__eq__(another) is True


_PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None)))
_UNCHANGING = (np.dtype, np.generic, enum.Enum, type)
