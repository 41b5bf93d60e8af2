"""How jax differs from what it was when jaxide first looked: what the user has put on its modules,
classes and registries, or on its functions.

A replay holds only while the functions of jax do what they did. ``World`` keeps what jax's names
referred to, and says what differs: the core notices that something may have changed, and asks.
What differs is *named*: a call that was recorded while these names differed, and that reached
none of them, does not depend on them.
"""

from __future__ import annotations

import builtins
import dis
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jaxide import _core, _trust

_MISSING: Any = object()
# Modules that functions of jax look into, besides its own; of a package those within as well.
_BESIDE = (
    "builtins",
    "collections",
    "functools",
    "itertools",
    "math",
    "ml_dtypes",
    "numpy",
    "operator",
)
_PACKAGES = ("jax", "opt_einsum")
_WITHIN_PACKAGES = tuple(f"{package}." for package in _PACKAGES)
# Whoever is asked to warn; the other names of the module are its state.
_WARNING = ("warnings", "warn")
# Names that say nothing about what a class does.
_SILENT = {"__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"}
_SILENT |= {"__doc__", "__static_attributes__", "__firstlineno__", "__abstractmethods__"}
# Written by `copyreg`, `abc` and `weakref` when they meet a class.
_SILENT |= {"__slotnames__", "_abc_impl", "__weakref__", "__match_args__"}
# What modules of jax assign in others: state, no definitions.
_STATE = {("jax._src.util", "test_event_listener")}
# What the start of a backend assigns, before any trace: found without reading code.
STARTED = {
    *(("jax._src.compilation_cache", name) for name in ("_cache_checked", "_cache_used")),
    *(
        ("jax._src.xla_bridge", name)
        for name in ("_at_fork_handler_installed", "_default_backend", "_plugins_registered")
    ),
}
# The class that has a property for each option.
_OPTIONS = "jax._src.config.Config"
# Modules of which the core does some of the work natively.
_NATIVE = tuple(
    f"jax._src.{name}"
    for name in (
        *("ad_checkpoint", "ad_util", "api", "core", "custom_derivatives", "effects", "flattree"),
        *("interpreters", "linear_util", "pjit", "source_info_util", "tree_util"),
    )
)
# Modules without which programs are printed, but for those that have functions for printing.
_SILENT_MODULES = (
    *("jax.numpy", "jax.lax", "jax.nn", "jax.scipy", "jax.random"),
    *("jax._src.numpy", "jax._src.lax", "jax._src.nn", "jax._src.scipy", "jax._src.random"),
)
# What jax prints primitives by.
_PRINTING = "jax._src.core.pp_"
# Modules whose registries say how programs are lowered, which no trace asks.
_LOWERING = ("jax._src.interpreters.mlir", "jax._src.interpreters.pxla", "jax._src.dispatch")
# In every module, and none of its definitions.
_OF_MODULES = frozenset(
    ("__builtins__", "__warningregistry__", "__annotations__", "__cached__", "_")
)
_OF_MODULES |= {"__spec__", "__loader__"}


class Place(NamedTuple):
    """A dict that functions of jax look into."""

    kind: str
    """``modules``, ``module``, ``class``, ``registry`` or ``instance``."""
    name: str
    entries: Any
    """The dict, or of a class its attributes."""
    was: dict[Any, Any]
    """What it had."""


class Difference(NamedTuple):
    """What jax differs in."""

    number: int
    """Names all that differs; 0 where nothing does."""
    names: frozenset[str]
    """Names whose lookup may find something else."""
    codes: tuple[types.CodeType, ...]
    """Code that does not belong to jax, or belongs to a function that was changed."""
    described: str
    """What differs, for a person."""
    is_total: bool
    """Whether everything may be affected."""
    is_printed: bool
    """Whether texts of programs may be affected."""


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
      watch: is given the dicts, classes and modules that are to be watched, and returns the number
        of each; what is watched already keeps its own.
      note_functions: is given functions of jax.
      note_modules: is given modules of jax.
      note_primitives: is given primitives that are jax's own.
      is_noted_code: whether a code is one that jaxide gives to a function of jax.
      primitive_type: the class of jax's primitives.
      instance_types: classes whose instances in modules of jax count by their attributes.
    """

    def __init__(
        self,
        watch: Callable[[list[Any]], list[int]],
        note_functions: Callable[[list[Any]], None],
        note_modules: Callable[[list[Any]], None],
        note_primitives: Callable[[list[Any]], None],
        is_noted_code: Callable[[types.CodeType], bool],
        primitive_type: type,
        instance_types: tuple[type, ...],
    ) -> None:
        self._watch = watch
        self._note_functions = note_functions
        self._note_modules = note_modules
        self._note_primitives = note_primitives
        self._is_noted_code = is_noted_code
        self._primitive_type = primitive_type
        self._instance_types = instance_types
        self._places: dict[int, Place] = {}
        # All that were taken in, also where an interrupt came before they had a number: what they
        # had stays alive, so that addresses stand for it.
        self._taken: list[Place] = []
        self._known: set[int] = set()
        # Values that places had (which keeps them alive) whose functions are noted, and those of
        # them that are not foreign.
        self._noted: set[int] = set()
        self._own: set[int] = set()
        self._modules: dict[int, types.ModuleType] = {}
        self._census = _core.Census()
        # What functions import when they are called.
        self._imported = Place("modules", "sys.modules", sys.modules, {})
        self._primitives: set[int] = set()
        self._foreign: dict[int, frozenset[Any]] = {}
        self._differing: dict[int, frozenset[Any]] = {}
        self._functions: dict[int, Changed] = {}
        self._numbers: dict[Any, int] = {frozenset(): 0}

    def extend(self) -> list[int]:
        """Takes in what was imported since the last time; the numbers of new places that somebody
        has changed already.

        Whoever is interrupted leaves it to the next one.
        """
        if len(sys.modules) == len(self._census):
            return []
        new, unfinished = self._new_modules()
        modules = {id(module): module for module in new.values() if id(module) not in self._modules}
        taken: dict[int, tuple[Place, Any]] = {id(sys.modules): (self._imported, sys.modules)}
        noted: set[int] = set()
        for module in modules.values():
            self._take_in(module, taken, noted)
        numbers = self._watch([owner for _, owner in taken.values()])
        changed = []
        for number, (place, _) in zip(numbers, taken.values(), strict=True):
            if self._places.setdefault(number, place) is place and (
                foreign := self._foreign_in(place)
            ):
                self._foreign[number] = self._differing[number] = foreign
                changed.append(number)
        self._noted |= noted
        self._known.update(taken)
        self._modules.update(modules)
        for name, module in new.items():
            self._imported.was.setdefault(name, module)
        self._census.note(unfinished)
        return changed

    def look(self, changed: list[int], functions: list[list[Any]]) -> Difference:
        """What differs, once some places may have changed, and functions: each as it was, with its
        code and its defaults."""
        for was in (Changed(*parts) for parts in functions):
            self._functions.setdefault(id(was.function), was)
        if any(self._places.get(number) is self._imported for number in changed):
            self.extend()
        for number in changed:
            self._differing.pop(number, None)
            if differing := self._differences(number):
                self._differing[number] = differing
        parts = [(number, key) for number, keys in self._differing.items() for key in keys]
        altered = [was for was in self._functions.values() if self._is_altered(was)]
        key: frozenset[Any] = frozenset(parts)
        key |= frozenset(("function", id(was.function)) for was in altered)
        number = self._numbers.setdefault(key, len(self._numbers))
        return self._described(number, parts, altered)

    # ---- what there is ----

    def _new_modules(self) -> tuple[dict[str, types.ModuleType], list[str]]:
        """By name, modules that were not there, and the names of those that are still being
        imported, which are left to the next time."""
        new, unfinished = {}, []
        for name in self._census.unseen(sys.modules):
            module = sys.modules.get(name) if _is_looked_into(name) else None
            if not isinstance(module, types.ModuleType):
                continue
            if _is_being_imported(module):
                unfinished.append(name)
            else:
                new[name] = module
        return new, unfinished

    def _take_in(
        self, module: types.ModuleType, taken: dict[int, tuple[Place, Any]], noted: set[int]
    ) -> None:
        """Notes a module with its classes, registries and instances; adds what to watch, by the
        address of the owner, and the addresses of what is noted."""

        def take(kind: str, path: str, entries: Any, owner: Any) -> dict[Any, Any]:
            place = Place(kind, path, entries, dict(entries))
            self._taken.append(place)
            taken[id(owner)] = place, owner
            return place.was

        entries_of_module = _entries_of(module)
        name = str(entries_of_module.get("__name__"))
        was = take("module", name, entries_of_module, module)
        if not _has_tables(name):
            return
        if _trust.is_jax_module(name):
            self._note_modules([module])
        if type(file := was.get("__file__")) is str:
            _trust.is_file_of_library(file)  # so that its functions are sorted out
        functions, entries = _sorted(was, _OF_MODULES, self._noted)
        new = {id(value): value for _, value in entries if id(value) not in noted}
        own = [value for value in new.values() if self._is_own_primitive(value)]
        within = [found for value in new.values() for found in _functions_within(value)]
        self._note_functions(functions + within)
        self._note_primitives(own)
        self._primitives.update(map(id, own))
        noted.update(map(id, functions), new)
        for key, value in entries:
            if id(value) in self._known or id(value) in taken:
                continue
            path = f"{name}.{key}"
            if isinstance(value, type):
                if _has_tables(str(value.__module__)) and _is_made_in_python(value):
                    take("class", path, vars(value), value)
            elif isinstance(value, dict) and not name.startswith(_LOWERING):
                take("registry", path, value, value)
            elif type(value) in self._instance_types or id(value) in self._primitives:
                take("instance", path, vars(value), value)

    def _is_own_primitive(self, value: Any) -> bool:
        if not isinstance(value, self._primitive_type):
            return False
        # Attributes that somebody has given it are what it differs in.
        return not _trust.is_foreign(type(value))

    # ---- what differs ----

    def _foreign_in(self, place: Place) -> frozenset[Any]:
        """The entries of a new place that were not made by jax."""
        if place.name == _WARNING[0]:
            return frozenset()
        own, foreign = self._own, []
        is_table = place.kind == "registry"
        _, entries = _sorted(place.was, frozenset() if is_table else _OF_MODULES, own)
        for key, value in entries:
            if id(value) in own or (is_table and not self._is_of_jax(key)):
                continue
            if _trust.is_foreign(value):
                foreign.append(_Key(key))
            else:
                own.add(id(value))
        return frozenset(foreign)

    def _differences(self, number: int) -> frozenset[Any]:
        place = self._places.get(number)
        if place is None:
            # Whoever takes it in was interrupted; what it has is what it had.
            return frozenset()
        now, was = dict(place.entries), place.was
        if place.kind == "modules":
            # Those that were not there are taken in.
            return frozenset(_Key(key) for key in list(was) if now.get(key) is not was[key])
        new = [(key, value) for key, value in now.items() if was.get(key, _MISSING) is not value]
        new += [(key, _MISSING) for key in was if key not in now]
        found = {
            _Key(key)
            for key, value in new
            if self._counts(place, key, value, was.get(key, _MISSING))
        }
        return self._foreign.get(number, frozenset()) | found

    def _counts(self, place: Place, key: Any, new: Any, old: Any) -> bool:
        """Whether it matters that an entry is another one."""
        if place.name == _WARNING[0]:
            return key == _WARNING[1]
        if place.kind == "module":
            if key in _OF_MODULES:
                return False
            if old is _MISSING:
                # A submodule, or a name that nobody could look up before.
                module = sys.modules.get(place.name)
                if isinstance(new, types.ModuleType) or not (
                    hasattr(builtins, key) or hasattr(module, "__getattr__")
                ):
                    return False
            return not self._is_state(place, key)
        if place.kind == "class":
            # A library has added an option, which nobody could look up before.
            is_option = place.name == _OPTIONS and old is _MISSING and isinstance(new, property)
            return key not in _SILENT and not is_option
        if place.kind == "registry":
            if not self._is_of_jax(key):
                return False
            if old is _MISSING:
                # Modules of jax that are imported later add rules to registries.
                return _trust.is_foreign(new)
            # A function that stands in for another one is no state.
            is_state = not (self._is_dispatched(key) or _is_code(old) or _is_code(new))
            return not (is_state and self._is_filled(place.name)) or _trust.is_foreign(new)
        return True

    def _is_of_jax(self, key: Any) -> bool:
        """Whether jax looks a registry's key up without being given it: no class and no primitive
        of the user's."""
        if isinstance(key, type):
            return _trust.is_jax_module(str(key.__module__)) or not _trust.is_foreign(key)
        if isinstance(key, self._primitive_type):
            return id(key) in self._primitives
        return not _trust.is_foreign(key)

    def _is_dispatched(self, key: Any) -> bool:
        return isinstance(key, (type, self._primitive_type))

    def _is_state(self, place: Place, name: str) -> bool:
        """Whether jax assigns a global variable of a module: state of jax's."""
        known = (place.name, name)
        return known in _STATE or known in STARTED or name in assigned(place.name, place.entries)

    def _is_filled(self, table: str) -> bool:
        """Whether functions of its module change a dict: state of jax's."""
        module, _, name = table.rpartition(".")
        places = self._places.values()
        entries = (p.entries for p in places if p.kind == "module" and p.name == module)
        return name in _filled_in(module, next(entries, {}))

    def _is_altered(self, was: Changed) -> bool:
        function: Any = was.function
        code = function.__code__
        return (
            (code is not was.code and not self._is_noted_code(code))
            or function.__defaults__ is not was.defaults
            or function.__kwdefaults__ is not was.kwdefaults
            or function.__name__ != was.name
            or function.__qualname__ != was.qualname
        )

    def _described(
        self, number: int, parts: list[tuple[int, Any]], altered: list[Changed]
    ) -> Difference:
        names: set[str] = set()
        codes: list[types.CodeType] = []
        is_total = is_printed = False
        texts = []
        for place, key in ((self._places[index], key.key) for index, key in parts):
            texts.append(
                f"{place.name}[{key!r}]" if place.kind == "registry" else f"{place.name}.{key}"
            )
            is_printed |= self._is_printed(place)
            if place.kind == "module" and not place.name.startswith(_NATIVE):
                names.add(key)
                continue
            found = list(_trust.functions_of(place.entries.get(key)))
            is_total |= not found or place.kind in ("class", "module")
            # What stages an equation remembers what such rules have said.
            is_total |= place.name.startswith("jax._src.interpreters.partial_eval.")
            codes += [function.__code__ for function in found]
        for changed in altered:
            texts.append(f"{changed.function.__module__}.{changed.function.__qualname__}")
            codes += [changed.function.__code__, changed.code]
            is_printed |= not self._is_silent(changed.function.__module__)
        described = ", ".join(sorted(texts)[:8])
        is_printed |= is_total
        return Difference(number, frozenset(names), tuple(codes), described, is_total, is_printed)

    def _is_printed(self, place: Place) -> bool:
        """Whether what somebody changes there may show in texts of programs."""
        if place.kind == "registry":
            return _is_for_printing(place)
        return place.kind != "module" or not self._is_silent(place.name)

    def _is_silent(self, module: Any) -> bool:
        """Whether no text of a program depends on the functions of a module."""
        if not _is_within(module, _SILENT_MODULES):
            return False
        rules = (
            p.entries for p in self._places.values() if p.kind == "registry" and _is_for_printing(p)
        )
        return not any(
            function.__module__ == module
            for registry in rules
            for rule in list(registry.values())
            for function in _trust.functions_of(rule)
        )


class _Key:
    """A key by identity: what a registry has as keys may compare in any way."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = sys.intern(key) if type(key) is str else key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.key is other.key

    def __hash__(self) -> int:
        return id(self.key)


def _is_for_printing(registry: Place) -> bool:
    return registry.name.startswith(_PRINTING)


def _is_within(module: Any, packages: tuple[str, ...]) -> bool:
    return isinstance(module, str) and any(f"{module}.".startswith(f"{p}.") for p in packages)


def _is_made_in_python(cls: type) -> bool:
    return bool(cls.__flags__ & (1 << 9))  # Py_TPFLAGS_HEAPTYPE


def _is_code(value: Any) -> bool:
    return value is not _MISSING and next(_trust.functions_of(value), None) is not None


def _has_tables(module: str) -> bool:
    """Whether what jax looks into includes the dicts of a module."""
    return module in _PACKAGES or module.startswith(_WITHIN_PACKAGES)


def _entries_of(module: types.ModuleType) -> dict[str, Any]:
    """The dict of a module. To ask a lazy one for an attribute would import it."""
    entries: dict[str, Any] = types.ModuleType.__getattribute__(module, "__dict__")
    return entries


def _is_being_imported(module: types.ModuleType) -> bool:
    """Whether a module does not have yet what it defines: another thread imports it, or nobody has
    asked for it (``importlib.util.LazyLoader``)."""
    spec = _entries_of(module).get("__spec__")
    return type(module).__name__ == "_LazyModule" or getattr(spec, "_initializing", False)


def _is_looked_into(module: str) -> bool:
    return _has_tables(module) or module in _BESIDE or module == _WARNING[0]


def _codes_of(module: str, entries: dict[str, Any]) -> Iterator[types.CodeType]:
    """The code of the functions that a module with these entries defines, and of those within
    them."""
    pending = [
        function.__code__
        for value in list(entries.values())
        if type(value) not in _trust.PLAIN and not _is_from_elsewhere(value, module)
        for function in _functions_within(value)
        if function.__module__ == module
    ]
    while pending:
        code = pending.pop()
        pending += [const for const in code.co_consts if isinstance(const, types.CodeType)]
        yield code


def _is_from_elsewhere(value: Any, module: str) -> bool:
    if not isinstance(value, (type, types.FunctionType)):
        return False
    # What stands in for classes of jaxlib has their module, and methods of jax.
    return value.__module__ != module and _trust.is_jax_module(str(value.__module__))


def _has(code: types.CodeType, operations: set[int]) -> bool:
    return not operations.isdisjoint(code.co_code[::2])


def _named_by(code: types.CodeType, *operations: str) -> set[str]:
    """The global variables that instructions of a code name (``dis`` takes ten times as long)."""
    operations_of, values = code.co_code[::2], code.co_code[1::2]
    found = set()
    for operation in operations:
        wanted = dis.opmap[operation]
        at = operations_of.find(wanted)
        while at >= 0:
            index, before, shift = values[at], at - 1, 8
            while before >= 0 and operations_of[before] == dis.EXTENDED_ARG:
                index |= values[before] << shift
                before, shift = before - 1, shift + 8
            # The last bit of `LOAD_GLOBAL` says whether a call follows.
            found.add(code.co_names[index >> (operation == "LOAD_GLOBAL")])
            at = operations_of.find(wanted, at + 1)
    return found


def _once_for_each_module(
    find: Callable[[str, dict[str, Any]], frozenset[str]],
) -> Callable[[str, dict[str, Any]], frozenset[str]]:
    known: dict[str, frozenset[str]] = {}

    @functools.wraps(find)
    def found(module: str, entries: dict[str, Any]) -> frozenset[str]:
        if module not in known:
            known[module] = find(module, entries)
        return known[module]

    return found


@_once_for_each_module
def assigned(module: str, entries: dict[str, Any]) -> frozenset[str]:
    """The global variables that functions of a module with these entries assign."""
    found: set[str] = set()
    for code in _codes_of(module, entries):
        if _has(code, _STORES):
            found |= _named_by(code, "STORE_GLOBAL", "DELETE_GLOBAL")
    return frozenset(found)


@_once_for_each_module
def _filled_in(module: str, entries: dict[str, Any]) -> frozenset[str]:
    """The global dicts that functions of a module change, as far as their code shows."""
    found: set[str] = set()
    for code in _codes_of(module, entries):
        if _CHANGING & set(code.co_names) or _has(code, _ITEMS):
            found |= _named_by(code, "LOAD_GLOBAL")
    return frozenset(found)


_CHANGING = {"clear", "pop", "popitem", "setdefault", "update"}
_ITEMS = {dis.opmap["STORE_SUBSCR"], dis.opmap["DELETE_SUBSCR"]}
_STORES = {dis.opmap["STORE_GLOBAL"], dis.opmap["DELETE_GLOBAL"]}


def _functions_within(value: Any) -> list[types.FunctionType]:
    if type(value) in _trust.PLAIN:
        return []
    if not isinstance(value, type):
        return list(_trust.functions_of(value))
    functions, members = _sorted(dict(vars(value)), frozenset(), set())
    return functions + [found for _, member in members for found in _trust.functions_of(member)]


def _sorted(
    entries: dict[Any, Any], skipped: frozenset[str], known: set[int]
) -> tuple[list[types.FunctionType], list[tuple[Any, Any]]]:
    """Functions that a library has defined, and the rest of which something has to be asked."""
    return _core.sort_entries(entries, skipped, _trust.PLAIN, _trust.FILES, known)
