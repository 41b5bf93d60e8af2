"""How jax differs from what it was when jaxide first looked: what the user has put on its modules,
classes and registries, or on its functions.

A replay holds only while the functions of jax do what they did. ``World`` keeps what jax's names
referred to, and says what differs: the core notices that something may have changed, and asks.
What differs is *named*: a call that was recorded while these names differed, and that reached
none of them, does not depend on them.
"""

from __future__ import annotations

import builtins
import collections
import dis
import functools
import sys
import types
import warnings
from collections.abc import Callable, Set
from typing import Any, NamedTuple

from jaxide import _core
from jaxide._native import roles, trust
from jaxide._native.addresses import ByIdentity
from jaxide._native.module_code import assigned, filled, is_as_in_its_source, is_imported_from

_MISSING: Any = object()


class Difference(NamedTuple):
    """What jax differs in."""

    number: int
    """Names all that differs; 0 where nothing does."""
    names: frozenset[str]
    """Names whose lookup may find something else."""
    codes: tuple[types.CodeType, ...]
    """Code that does not belong to jax, or belongs to a function that was changed."""
    operations: bytes
    """Instructions by which code does something else."""
    described: str
    """What differs, for a person."""
    is_total: bool
    """Whether everything may be affected."""
    is_printed: bool
    """Whether texts of programs may be affected."""
    is_lowered: bool
    """Whether what programs are lowered to, and executed by, may be affected."""


class Changed(NamedTuple):
    """A function of jax and what it was before it was first changed."""

    function: types.FunctionType
    code: types.CodeType
    defaults: Any
    kwdefaults: Any
    name: str
    qualname: str


class World:
    """The modules, classes, registries and functions of jax as they were.

    Args:
      survey: what jax's modules have.
      is_noted_code: whether jaxide gives a function of jax this code.
      primitive_type: the class of jax's primitives.
      looked_up: names, some of other modules than jax's, that functions look up of which the core
        does the work.
    """

    def __init__(
        self,
        survey: _core.Survey,
        is_noted_code: Callable[[types.FunctionType, types.CodeType], bool],
        primitive_type: type,
        looked_up: Set[str],
    ) -> None:
        self._survey = survey
        self._is_noted_code = is_noted_code
        self._primitive_type = primitive_type
        self._looked_up = looked_up
        self._places = survey.places
        self._differing: dict[int, frozenset[Any]] = {}
        self._functions: dict[int, Changed] = {}
        self._numbers: dict[Any, int] = {frozenset(): 0}
        self._contents: dict[int, tuple[Any, ...]] = {0: ()}

    def look(self, changed: list[int], functions: list[list[Any]]) -> Difference:
        """What differs, once some places may have changed, and functions: each as it was, with its
        code and its defaults."""
        for was in (Changed(*parts) for parts in functions):
            self._functions.setdefault(id(was.function), was)
        differing = {n: keys for n, keys in self._differing.items() if n not in changed}
        for number in changed:
            if keys := self._differences(number):
                differing[number] = keys
        all_parts = [(number, key) for number, keys in differing.items() for key in keys]
        parts = [part for part in all_parts if not self._is_of_lowering(part[0])]
        altered = [was for was in self._functions.values() if self._is_altered(was)]
        key: frozenset[Any] = frozenset(parts)
        key |= frozenset(("function", id(was.function)) for was in altered)
        # Calls that reach these are remembered, so it matters which they are. They stay alive.
        rules = {part: self._rule_that_hands_on(*part) for part in parts}
        key |= frozenset(("rule", id(rule)) for rule in rules.values() if rule is not None)
        number = self._numbers.setdefault(key, len(self._numbers))
        is_lowered = bool(altered) or len(parts) < len(all_parts)
        is_lowered |= any(self._matters_to_lowering(part[0], rules[part]) for part in parts)
        found = self._described(number, rules, altered, is_lowered)
        if number not in self._contents:
            handed_on = frozenset(
                (self._places[place].name, _word_of(key.of), rule.__code__)
                for (place, key), rule in rules.items()
                if rule is not None
            )
            named = tuple(sorted(found.names)), frozenset(found.codes)
            self._contents[number] = *named, found.operations, handed_on
        # Last: of a look that somebody interrupts nothing may stay.
        self._differing = differing
        return found

    def content(self, number: int) -> tuple[Any, ...]:
        """What counts of what differs under a number, for calls that reach none of it: names whose
        lookup may find something else, code, instructions, and rules that only hand on."""
        return self._contents[number]

    def _is_of_lowering(self, number: int) -> bool:
        place = self._places[number]
        return place.kind == "registry" and _is_within(place.name, roles.LOWERING)

    def _matters_to_lowering(self, number: int, rule: Any) -> bool:
        name = self._places[number].name
        is_handing_on = rule is not None and name.endswith(roles.TRANSPOSES)
        return not is_handing_on and not _is_within(name, roles.NOT_FOR_LOWERING)

    # ---- what differs ----

    def _differences(self, number: int) -> frozenset[Any]:
        place = self._places.get(number)
        if place is None:
            # Whoever takes it in was interrupted, and nobody knows what it had.
            return frozenset()
        changes = self._survey.changes(place, _MISSING)
        if place.kind == "modules":
            # Those that were not there are taken in, and not among them.
            return frozenset(_key_of(key) for key, _, _ in changes)
        foreign = [] if place.name in (roles.WARNING, *roles.UNASKED) else place.foreign
        # What somebody had put there before anybody looked, and has taken back.
        restored = [
            key
            for key, new, _ in changes
            if key in foreign and self._is_defined_as(new, place, key)
        ]
        foreign = [key for key in foreign if key not in restored]
        changes = [change for change in changes if change[0] not in restored]
        found = [_key_of(key) for key, new, old in changes if self._counts(place, key, new, old)]
        if place.name == "builtins":
            foreign = [
                key for key in foreign if type(key) is not str or key not in roles.INTERACTIVE
            ]
        return frozenset((*map(_key_of, foreign), *found))

    def _is_defined_as(self, value: Any, place: _core.Place, name: Any) -> bool:
        """Whether a value is what a module of jax defines under a name, or takes from where it is
        defined."""
        if place.kind != "module" or type(name) is not str:
            return False
        module = _module_of(value)
        if module != place.name:
            has = self._has_always_had(module, name, value)
            return has and is_imported_from(place.entries, name, module)
        return (
            type(value) is types.FunctionType
            and trust.is_own_function(value)
            and value.__name__ == value.__code__.co_name == name
            and is_as_in_its_source(value)
        )

    def _has_always_had(self, module: Any, name: str, value: Any) -> bool:
        """Whether a module has had a value of its own under a name ever since jaxide looked."""
        places = self._places.items()
        found = [it for it in places if it[1].kind == "module" and it[1].name == module]
        return any(
            place.entries.get(name) is value
            and name not in place.foreign
            and all(name != key for key, _, _ in self._survey.changes(place, _MISSING))
            for _, place in found
        )

    def _counts(self, place: _core.Place, key: Any, new: Any, old: Any) -> bool:
        """Whether it matters that an entry is another one."""
        if place.kind in ("module", "class") and type(key) is not str:
            # A name is text; a text of another class may be equal to a name.
            return isinstance(key, str)
        if place.kind == "module":
            if key in roles.OF_MODULES or (place.name == "builtins" and key in roles.INTERACTIVE):
                return False
            if old is _MISSING and not _was_found(place.name, key):
                return False
            return not self._is_state(place, key)
        if place.kind == "class":
            # A library has added an option, which nobody could look up before.
            is_option = (
                place.name == roles.OPTIONS and old is _MISSING and isinstance(new, property)
            )
            # A module of jax says where a class of jaxlib's belongs.
            is_place = key == "__module__" and _is_within(place.name, ("jaxlib",))
            return key not in roles.SILENT and not is_option and not is_place
        if place.kind == "registry":
            if place.name in roles.UNASKED:
                return False
            is_state = not self._is_dispatched(key)
            if old is not _MISSING:
                # A function that stands in for another one is no state.
                is_state = is_state and not (_is_code(old) or _is_code(new))
            return not (is_state and self._is_filled(place)) or trust.is_foreign(new)
        return True

    def _is_dispatched(self, key: Any) -> bool:
        return isinstance(key, (type, self._primitive_type))

    def _is_state(self, place: _core.Place, name: str) -> bool:
        """Whether jax assigns a global variable of a module: state of jax's."""
        return (place.name, name) in roles.STATE or name in assigned(place.name, place.entries)

    def _is_filled(self, table: _core.Place) -> bool:
        """Whether functions of its module change a dict: state of jax's."""
        module, _, name = table.name.rpartition(".")
        places = self._places.values()
        entries = (p.entries for p in places if p.kind == "module" and p.name == module)
        # Whoever looks into a dict with defaults may add to it.
        has_defaults = isinstance(table.entries, collections.defaultdict)
        is_filled = has_defaults or name in filled(module, next(entries, {}))
        if is_filled:
            table.note_filled()
        return is_filled

    def _is_altered(self, was: Changed) -> bool:
        function: Any = was.function
        code = function.__code__
        return (
            (code is not was.code and not self._is_noted_code(function, code))
            or function.__defaults__ is not was.defaults
            or not _are_same(function.__kwdefaults__, was.kwdefaults)
            or function.__name__ != was.name
            or function.__qualname__ != was.qualname
        )

    def _described(
        self,
        number: int,
        rules: dict[tuple[int, ByIdentity], Any],
        altered: list[Changed],
        is_lowered: bool,
    ) -> Difference:
        """Says what differs: places and keys, with the rules there that only hand on, functions,
        and whether programs are lowered in another way."""
        names: set[str] = set()
        codes: list[types.CodeType] = []
        operations: list[int] = []
        is_total = is_printed = False
        texts = []
        rules_of_native_work = self._rules_of_native_work() if altered else set()
        for (index, own_key), rule in rules.items():
            place, key = self._places[index], own_key.of
            word = _word_of(key)
            is_name = type(key) is str and place.kind != "registry"
            texts.append(f"{place.name}.{key}" if is_name else f"{place.name}[{word}]")
            is_native = _is_native(place.name)
            is_printed |= self._is_printed(place)
            if place.kind == "module" and not is_native and type(key) is str:
                is_beside = place.name in roles.BESIDE
                is_total |= is_beside and key in self._looked_up
                names.add(key)
                if place.name == "builtins" and key in roles.BY_INSTRUCTIONS:
                    operations.append(dis.opmap[roles.BY_INSTRUCTIONS[key]])
                continue
            if rule is not None:
                continue
            value = place.entries.get(key)
            found = trust.functions_of(value)
            is_total |= not _runs(value) or place.kind in ("class", "module")
            is_total |= place.name.startswith(roles.REMEMBERED)
            codes += [function.__code__ for function in found]
        for changed in altered:
            # Where it is defined, whatever module jax says that it is from.
            function: Any = changed.function
            module = function.__globals__.get("__name__")
            texts.append(f"{module}.{function.__qualname__}")
            codes += [function.__code__, changed.code]
            is_total |= _is_native(module) or function in rules_of_native_work
            is_printed |= not self._is_silent(module)
        described = ", ".join(sorted(texts)[:8])
        is_printed |= is_total
        return Difference(
            number,
            frozenset(names),
            tuple(codes),
            bytes(operations),
            described,
            is_total,
            is_printed,
            is_lowered,
        )

    def _rules_of_native_work(self) -> set[Any]:
        """Functions of any module that the core does not call, since it does their work: rules for
        staging, attributes of primitives, and what classes of jax's core have from other modules,
        such as the operators of tracers."""
        return {
            function
            for place in self._places.values()
            if place.kind == "instance"
            or (place.kind == "class" and _is_native(place.name))
            or place.name.startswith(roles.REMEMBERED)
            for value in list(place.entries.values())
            for function in trust.functions_of(value)
        }

    def _rule_that_hands_on(self, number: int, key: ByIdentity) -> Any:
        """The rule that somebody has registered under a key, where it only hands on its arguments,
        which cannot matter. Whoever changes that is noticed from now on."""
        place = self._places[number]
        if place.kind != "registry" or place.name.startswith(roles.REMEMBERED):
            return None
        rule = place.entries.get(key.of)
        if type(rule) is not types.FunctionType or not trust.hands_on(rule):
            return None
        _core.watch_function(rule)
        return rule if trust.hands_on(rule) else None

    def _is_printed(self, place: _core.Place) -> bool:
        """Whether what somebody changes there may show in texts of programs."""
        if place.kind == "registry":
            return _is_for_printing(place)
        return place.kind != "module" or not self._is_silent(place.name)

    def _is_silent(self, module: Any) -> bool:
        """Whether no text of a program depends on the functions of a module."""
        if not _is_within(module, roles.SILENT_MODULES):
            return False
        rules = (
            p.entries for p in self._places.values() if p.kind == "registry" and _is_for_printing(p)
        )
        return not any(
            function.__globals__.get("__name__") == module
            for registry in rules
            for rule in list(registry.values())
            for function in trust.functions_of(rule)
        )


def _are_same(some: dict[str, Any] | None, others: dict[str, Any] | None) -> bool:
    """Whether two functions have the very same defaults of keywords, of which one has a copy."""
    some, others = some or {}, others or {}
    return len(some) == len(others) and all(
        name is other and value is another
        for (name, value), (other, another) in zip(some.items(), others.items(), strict=True)
    )


def _word_of(key: Any) -> str:
    try:
        return repr(key)
    except Exception:  # the user's class says nothing
        return object.__repr__(key)


def _runs(rule: Any) -> bool:
    """Whether to call a rule runs code that is among its functions, whatever it consists of
    besides."""
    class_ = type(rule)
    if class_ is types.FunctionType:
        return True
    if class_ is types.MethodType:
        return _runs(rule.__func__)
    if class_ is trust.PARTIAL:
        values = (*rule.args, *rule.keywords.values())
        return _runs(rule.func) and all(type(v) in _IMMUTABLE or _runs(v) for v in values)
    return False


_IMMUTABLE = frozenset((type(None), bool, int, float, complex, str, bytes))


def _key_of(key: Any) -> ByIdentity:
    """What a registry has as keys may compare in any way."""
    return ByIdentity(sys.intern(key) if type(key) is str else key)


def _is_for_printing(registry: _core.Place) -> bool:
    return registry.name.startswith(roles.PRINTING)


def _is_within(module: Any, packages: tuple[str, ...]) -> bool:
    return isinstance(module, str) and any(f"{module}.".startswith(f"{p}.") for p in packages)


def _was_found(place: str, name: str) -> bool:
    """Whether functions may have found a name that a module did not have: a builtin, or that of
    something deprecated."""
    if place == "builtins":
        return False
    module = sys.modules.get(place)
    find = getattr(module, "__getattr__", None)
    if place == "numpy":
        # It says so itself. None of jax's functions runs in numpy's own module.
        return find is None or _finds(find, name)
    if name in vars(builtins):
        return True
    if find is None:
        return False
    if type(find) is _MEMO:
        find = find.__wrapped__
    if not (trust.is_own_function(find) and find.__closure__):
        return True
    # Those of jax look into tables.
    tables = [cell.cell_contents for cell in find.__closure__]
    return any(type(table) in _TABLES and name in table for table in tables)


def _finds(find: Callable[[str], Any], name: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            find(name)
        except AttributeError:
            return False
    return True


# The class of functions that remember what they have returned.
_MEMO: Any = type(functools.lru_cache(len))
_TABLES = (dict, set, frozenset, list, tuple)


def _module_of(value: Any) -> Any:
    """The name of the module that defines a class or a function, or what is made of one."""
    if isinstance(value, type):
        return value.__module__
    functions = trust.functions_of(value)
    return functions[0].__globals__.get("__name__") if functions else None


def _is_native(module: Any) -> bool:
    return _is_within(module, roles.NATIVE) and not _is_within(module, roles.RECORDED)


def _is_code(value: Any) -> bool:
    return value is not _MISSING and bool(trust.functions_of(value))


def _keys_of_modules() -> list[str]:
    """The strings that name what is none of the definitions of a module, as objects."""
    module = types.ModuleType("any")
    exec("name: int", vars(module))
    # CPython 3.11 has some of its own, which are not the interned ones.
    return [
        *map(sys.intern, roles.OF_MODULES),
        *(key for key in vars(module) if key in roles.OF_MODULES),
    ]


def survey(primitive_type: type, instance_types: tuple[type, ...]) -> _core.Survey:
    """What jax's modules have, once they are taken in.

    Args:
      primitive_type: the class of jax's primitives.
      instance_types: classes whose instances in modules of jax count by their attributes.
    """
    return _core.Survey(
        trust.TRUST,
        roles.PACKAGES,
        {*roles.BESIDE, roles.WARNING},
        _keys_of_modules(),
        roles.LOWERING,
        roles.STARTED,
        primitive_type,
        (*instance_types, types.SimpleNamespace),
        sys.modules,
    )
