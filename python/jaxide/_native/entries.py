"""Objects of the entries of the store: records of objects, and objects of records.

They are those of stored programs (:mod:`jaxide._native.storage`), and a few that only calls have.
Nothing is imported for an entry: what it names is in a module that is there, or there is no entry.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxide import _core
from jaxide._native.content import Unsettled, name_of
from jaxide._native.described_trees import made_tree
from jaxide._native.portable import fields_of, place_of, primitive_at, primitive_place
from jaxide._native.requests import Requests, RuleRequest
from jaxide._native.storage import Objects, Private, Records, Unstorable

# What a rule is called, and the call that comes to it.
NamedRule = tuple[tuple[Any, ...], RuleRequest]


class CallObjects(NamedTuple):
    """Private things of jax that only calls have."""

    primitive: Any
    zero: Any
    requests: Requests
    shape: Any
    make_shape: Callable[[Any, Any, bool], Any]
    # The class of rules that equations of functions with one have.
    rule: Any
    # jax's ``FlatTree`` of a tree.
    flatten: Callable[[Any], Any]
    typed_array: Any
    axis_data: Any
    no_axis_name: Any


class EntryRecords(Records):
    """Records of the objects of entries."""

    # Of other NaNs it counts which object they are.
    nan = np.nan

    def __init__(self, private: Private, known: CallObjects):
        super().__init__(private)
        self._known = known
        self._num_rules = 0

    def record(self, value: Any, place: str) -> tuple[str, Any]:
        """The name of what an object is, and its parts."""
        if isinstance(value, self._known.primitive):
            try:
                return "primitive at", primitive_place(value)
            except Unsettled as error:
                raise Unstorable(str(error)) from None
        if type(value) is self._known.zero:
            return "zero", value.aval
        if type(value) is self._known.shape:
            parts = value.shape, value.dtype, bool(value.weak_type)
            if repr(self._known.make_shape(*parts)) != repr(value) or value.sharding is not None:
                raise Unstorable("a shape with a sharding has no form in a file")
            return "shape", parts
        if type(value) is self._known.typed_array:
            # With its type, which may have a sharding.
            return "typed array", (np.asarray(value), value.aval)
        if value is self._known.no_axis_name:
            return "no axis name", None
        if type(value) is self._known.axis_data:
            return "axis data", fields_of(value)
        if type(value) is self._known.rule:
            request = self._known.requests.request_of_rule(value)
            # Each has an object of its own.
            self._num_rules += 1
            named = _names_of(value), _known(request, "its rule is of no function of jax's")
            return "rule of", (named, self._num_rules)
        if isinstance(value, type) and self._private.classes.get(name_of(value)) is value:
            return "class", name_of(value)
        if isinstance(value, type) and (at := place_of(value)) and at.startswith("jax._src."):
            return "class at", at
        return super().record(value, place)

    def request(self, params: dict[str, Any]) -> Any:
        """By which call of a jit of its own jax has made the params of an equation.

        Raises:
          Unstorable: by none.
        """
        return _known(self._known.requests.of(params), "its program is of no jit of jax's")

    def origin(self, program: Any) -> tuple[Any, ...]:
        """How jax comes to a program.

        Raises:
          Unstorable: that is not known.
        """
        origin: tuple[Any, ...] = _known(
            self._known.requests.origin(program), "its program is none that jax keeps"
        )
        return origin

    def rule_request(self, params: dict[str, Any]) -> NamedRule:
        """By which call of a function with a derivative rule such params come about, and what the
        rule is called.

        Raises:
          Unstorable: by none.
        """
        request = self._known.requests.rule_of(params)
        named = _known(request, "its rule is of no function of jax's")
        return self.names_of_rule(params), named

    def names_of_rule(self, params: dict[str, Any]) -> tuple[Any, ...]:
        """What the rule of an equation is called."""
        return _names_of(params["jvp_jaxpr_fun"])


def _names_of(rule: Any) -> tuple[Any, ...]:
    return tuple(rule.debug_info[:3])


def _known(request: Any, otherwise: str) -> Any:
    if request is None:
        raise Unstorable(otherwise)
    return request


def _class_at(place: str) -> type:
    module, _, qualname = place.partition(":")
    found = vars(sys.modules[module]).get(qualname) if module.startswith("jax._src.") else None
    if not isinstance(found, type):
        raise LookupError(place)
    return found


class EntryObjects(Objects):
    """Objects of the records of entries."""

    def __init__(self, private: Private, known: CallObjects):
        super().__init__(private)
        self._requests = known.requests
        # Those that were made last.
        self.rules: list[Any] = []
        self._flatten = known.flatten
        self._make["primitive at"] = lambda place: primitive_at(place, known.primitive)
        self._make["zero"] = known.zero
        self._make["request"] = known.requests.params
        self._make["rule of"] = lambda parts: self._noted_rule(parts[0])
        self._make["shape"] = lambda parts: known.make_shape(*parts)
        self._make["class"] = self._class
        self._make["class at"] = _class_at
        self._make["no axis name"] = lambda parts: known.no_axis_name
        self._make["axis data"] = lambda parts: known.axis_data(*parts)
        # Of an array of its own, as jax makes them.
        self._make["typed array"] = lambda parts: known.typed_array(parts[0].copy(), parts[1])

    def rule(self, named: NamedRule) -> Any:
        """A rule, which is made when somebody asks for it."""
        return self._requests.rule(*named)

    def derived_rule(
        self, names: tuple[Any, ...], derive: Callable[[], Any], item: int, eqn: int
    ) -> Any:
        """The rule of an equation of an item of what ``derive`` returns, which is asked for once
        somebody asks for the rule."""
        return self._requests.derived_rule(names, derive, item, eqn)

    def _noted_rule(self, named: NamedRule) -> Any:
        self.rules.append(made := self.rule(named))
        return made

    def flat_tree(self, tree: Any, leaves: tuple[Any, ...]) -> Any:
        """jax's ``FlatTree`` of a tree that was described.

        Raises:
          LookupError: a class is not where it was.
        """
        return self._flatten(made_tree(tree, iter(leaves)))

    def program(self, request: Any, within: bool, traceback: Any) -> Any:
        """The program of a jit of jax's own."""
        return self._requests.program(request, within, traceback)

    def program_of(self, origin: tuple[Any, ...], program: Any) -> Any:
        """Has a jit of jax's own come to ``program``, unless jax has traced it before: the program
        that it has."""
        within, request, tree = origin
        if (expected := self._requests.expected(request, within)) is not None:
            return expected
        self._requests.note_loaded(program)
        try:
            # jax asks for no results of a function of two numbers, but for its constants.
            traced = program if hasattr(program, "jaxpr") else self.close(program, [])
            out = None if tree == () else self.flat_tree(tree, tuple(program.out_avals))
            self._requests.promise(request, traced, out)
            return self._requests.program_of_jax(request, within, None)
        except RecursionError:
            # jax is tracing it just now.
            return program
        finally:
            _core.is_still_promised()

    def derivation(
        self,
        function: str,
        within: bool,
        program: Any,
        key: tuple[Any, ...],
        is_tuple: bool,
        items: tuple[Any, ...],
    ) -> None:
        """Has a function that keeps its results say ``items`` of a program, unless it has said
        something before."""
        try:
            _core.promise_derivation(function, program, items if is_tuple else items[0])
            with contextlib.suppress(RecursionError), self._requests.as_for(within, None):
                self._requests.ask(function, program, key)
        finally:
            _core.is_still_promised()

    def derived(
        self,
        function: str,
        program: Any,
        key: tuple[Any, ...],
        index: int,
        within: bool,
        traceback: Any,
    ) -> Any:
        """What a function that keeps its results makes of a program."""
        with self._requests.as_for(within, traceback):
            return self._requests.derive(function, program, key, index)
