"""Printing jaxprs: what only Python says of the objects in a program."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxide import _core
from jaxide._native import trust

MAX_WIDTH = 2**31 - 1
ADDRESS = re.compile(r" at 0x([0-9a-fA-F]+)")


@dataclasses.dataclass(frozen=True)
class Private:
    """What printing needs of jax."""

    core: types.ModuleType
    rules: Mapping[Any, Callable[..., Any]]
    """How primitives are printed that are not printed like others."""
    call_rules: tuple[Callable[..., Any], ...]
    """Those under which a nested program has its names from the operands."""
    other_rules: Mapping[Any, Any]
    """Of primitives whose nested programs are not all those in their params; from jax 0.12 on."""
    jaxprs_in_params: Callable[[Any], Any]
    jaxpr_types: tuple[type, ...]
    document_type: type
    """What functions that print make."""
    summarize: Callable[[Any], str]
    use_color: Callable[[], bool]
    """Whether text is coloured where nobody says."""
    text_format: Any
    """The only format that is written here."""
    is_known: Callable[[], bool]
    """Whether this jax prints as it did when this was written."""


class _Printed:
    """Stands for what a rule has made of an equation."""

    def __init__(self, params: Mapping[str, Any], names: list[str]):
        self.params, self.names = params, names


class _Equation:
    """An equation of which only the params can be seen."""

    __slots__ = ("params",)

    def __init__(self, params: Mapping[str, Any]):
        self.params = params

    def replace(self, params: Mapping[str, Any]) -> _Equation:
        return _Equation(params)


class _Core:
    """jax's module, whose function that prints an equation only notes what it would print."""

    def __init__(self, module: types.ModuleType):
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    @staticmethod
    def _pp_eqn(
        eqn: _Equation, context: Any, settings: Any, params: list[str] | None = None, **more: Any
    ) -> _Printed:
        if more:
            raise AttributeError("it has another name than its primitive")
        return _Printed(eqn.params, sorted(eqn.params) if params is None else params)


class Printing:
    """The texts of the objects in a program, as Rust asks for them."""

    def __init__(self, private: Private):
        self._private = private
        self._core = _Core(private.core)
        # A rule that is made anew is another one.
        self._noting = functools.lru_cache(maxsize=256)(self._noting_copy)

    @property
    def rules(self) -> Mapping[Any, Callable[..., Any]]:
        """How primitives are printed that have their own way."""
        return self._private.rules

    def params(
        self, primitive: Any, params: Mapping[str, Any], custom_rules: bool
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], str | None, bool] | None:
        """The params that are shown, with their texts or jaxprs; the jaxprs among all of them; how
        these are called; whether names go from the equation to the jaxpr.

        None where the primitive is printed by more than its params.
        """
        if custom_rules and primitive in self._private.other_rules:
            return None
        rule = self._private.rules.get(primitive) if custom_rules else None
        is_call = rule is not None and rule in self._private.call_rules
        if rule is None:
            shown = _Printed(params, sorted(params))
        else:
            found = _without_trivial(params) if is_call else self._noted(rule, params)
            if found is None:
                return None
            shown = found
        values = [shown.params[key] for key in shown.names]
        if any(isinstance(value, self._private.document_type) for value in values):
            return None
        name = params.get("name")
        return (
            tuple(zip(shown.names, map(self._value, values), strict=True)),
            tuple(self._private.jaxprs_in_params(params)),
            None if name is None else name.strip("<>"),
            is_call,
        )

    def _noted(self, rule: Callable[..., Any], params: Mapping[str, Any]) -> _Printed | None:
        """What a rule prints of params; None where it prints more than these, or otherwise."""
        noting = self._noting(rule)
        if noting is None:
            return None
        try:
            printed = noting(_Equation(params), None, None)
        except AttributeError:
            # It looked at more.
            return None
        return printed if isinstance(printed, _Printed) else None

    def _noting_copy(self, rule: Callable[..., Any]) -> Callable[..., Any] | None:
        """The rule, but that it only notes what it prints; None where the rule is not jax's own and
        so may ask for anything."""
        if not trust.is_own_function(rule):
            return None
        names = {
            name
            for name in rule.__code__.co_names
            if rule.__globals__.get(name) is self._private.core
        }
        scope = {**rule.__globals__, **dict.fromkeys(names, self._core)}
        return types.FunctionType(
            rule.__code__, scope, rule.__name__, rule.__defaults__, rule.__closure__
        )

    def _value(self, value: Any) -> Any:
        """A param as it is printed: a text, a jaxpr or a tuple of them."""
        jaxpr_types = self._private.jaxpr_types
        if isinstance(value, jaxpr_types):
            return value
        if type(value) is tuple and all(isinstance(item, jaxpr_types) for item in value):
            return value
        return object_text(value)

    def type_text(self, aval: Any) -> str:
        return f":{aval.str_short(short_dtypes=True)}"

    def source_text(self, source_info: Any) -> str:
        return self._private.summarize(source_info)

    def name_stack_text(self, source_info: Any) -> str:
        return f"[{source_info.name_stack}]"

    def effect_texts(self, effects: Any) -> list[str] | None:
        """Each effect; None where one of them depends on the names of variables."""
        if any(hasattr(effect, "_pretty_print") for effect in effects):
            return None
        return [str(effect) for effect in effects]

    def text(
        self,
        program: Any,
        *,
        source_info: bool = False,
        print_shapes: bool = True,
        custom_pp_eqn_rules: bool = True,
        name_stack: bool = False,
        print_effects: bool = False,
        width: int = 80,
        use_color: bool | None = None,
        output_format: Any = None,
        separable_lines: bool = False,
        annotation_prefix: str = " # ",
        source_map: Any = None,
        max_depth: int | None = None,
        max_eqns: int | None = None,
        collapse: Sequence[str] = (),
    ) -> str | None:
        """A jaxpr, or a graph, as jax prints it, or the parts of that within limits; None where it
        is left to jax."""
        private = self._private
        if output_format not in (None, private.text_format) or source_map is not None:
            return None
        if type(width) is not int or abs(width) > MAX_WIDTH or not private.is_known():
            return None
        return _core.print_jaxpr(
            program,
            source_info=bool(source_info),
            print_shapes=bool(print_shapes),
            custom_rules=bool(custom_pp_eqn_rules),
            name_stack=bool(name_stack),
            print_effects=bool(print_effects),
            width=width,
            use_color=private.use_color() if use_color is None else bool(use_color),
            separable_lines=bool(separable_lines),
            annotation_prefix=annotation_prefix,
            max_depth=max_depth,
            max_eqns=max_eqns,
            collapse=list(collapse),
        )


def object_text(value: Any) -> str:
    """The text of a param that is no jaxpr, as jax prints it."""
    if isinstance(value, frozenset):
        return f"frozenset({{{', '.join(repr(item) for item in sorted(value))}}})"
    return ADDRESS.sub(lambda match: " at 0x" + "X" * len(match[1]), str(value))


def _without_trivial(params: Mapping[str, Any]) -> _Printed:
    """The params of a jit, those left out that say nothing, and its name first."""
    unspecified = lambda values: all(type(v).__name__ == "UnspecifiedValue" for v in values)
    none = lambda values: all(v is None for v in values)
    trivial: dict[str, Callable[[Any], Any]] = {
        "inline": lambda _: True,
        "donated_invars": lambda donated: not any(donated),
        "in_shardings": unspecified,
        "out_shardings": unspecified,
        "in_layouts": none,
        "out_layouts": none,
        "keep_unused": lambda keep: not keep,
        "ctx_mesh": lambda mesh: mesh.empty,
        "compiler_options_kvs": lambda options: not options,
        "name": lambda _: True,
    }
    shown = (key for key, value in params.items() if key not in trivial or not trivial[key](value))
    return _Printed(params, ["name", *sorted(shown)])
