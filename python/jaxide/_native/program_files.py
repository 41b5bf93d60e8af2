"""Programs as files. What has no form is left out, and a loaded program says so.

Three things may be left out, in the order of what is lost. The structure of arguments and results:
the loaded program takes inputs one by one. Derivative and batching rules: it computes, and is not
transformed. Callbacks: it computes as far as it does not call back.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
import string
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxide import _core
from jaxide._native.content import name_of
from jaxide._native.interruptions import is_of_signal
from jaxide._native.storage import Kind, Objects, Private, Records, StorageError, Unstorable


class FilePrivate(NamedTuple):
    """Private things of jax that files are written and read with."""

    storage: Private
    # Kinds that entries of the store do not have.
    kinds: tuple[Kind, ...]
    # Classes whose objects count as themselves, and consist of nothing, by name.
    single: dict[str, type]
    # The record of a function that transformations call; None where it has none.
    rule: Callable[[Any], tuple[str, Any] | None]
    # The record of an operation of jax's that is an object; None for anything else.
    operation: Callable[[Any], tuple[str, Any] | None]
    # Whether something is a function, or what jax wraps around one.
    is_function: Callable[[Any], bool]
    # What is kept of a function that is left out, and what stands for it.
    stand_in: Kind
    # Whether a callback of a file calls nothing of anybody's.
    calls_nothing: Callable[[Any], bool]
    # What a function that was made cannot do, in words; None where it is whole.
    missing: Callable[[Any], str | None]
    # Whether a value is a tree that has other nodes than standard containers.
    has_others: Callable[[Any], bool]
    # The classes of a tree that a file does not have, or that nobody has registered here.
    missing_classes: Callable[[Any], list[str]]
    # Primitives whose execution calls no param.
    call_nothing: frozenset[str]
    # Whether a value is no kind of random keys, or one of jax's.
    is_own_implementation: Callable[[Any], bool]
    # What a file has of the structure of a program's arguments or results.
    stored_tree: Callable[[Any], Any]
    # The structure of a value.
    structure: Callable[[Any], Any]


class Loaded(NamedTuple):
    """What a file has."""

    jaxpr: Any
    # The structures of arguments and results; None where they were left out.
    in_tree: Any
    out_tree: Any
    # What the program cannot do, in words.
    left_out: tuple[str, ...]


# The options of XLA's that a jit has. Some name files.
_OPTIONS = "compiler_options_kvs"
# The text that a debug print fills in.
_FORMAT = "fmt"
# A field of such a text that leads to an attribute or an element with such a name.
_PRIVATE_FIELD = re.compile(r"[.\[]_")
# Texts within the fields of a text: Python fills in no deeper ones.
_MAX_FORMATS = 3
# Kinds of rules, and kinds that may have rules.
_OF_RULES = frozenset({"wrapped", "remembering", "closure", "reader", "rule", "batching rule"})
_WITH_RULES = frozenset({"partial", "value", "unhashable"})
_PLAIN = frozenset({type(None), bool, int, float, str})
# The function of another language that an equation calls.
_TARGETS = ("target_name", "call_target_name")


class FileRecords(Records):
    """Records of the objects of a file. ``drop`` says what is left out, and ``complete`` whether
    nothing else may be."""

    guarded_params = frozenset({_OPTIONS, _FORMAT, "impl"})

    def __init__(self, private: FilePrivate, drop: Collection[str] = (), complete: bool = False):
        self._files = private
        self._drop, self._complete = drop, complete
        # The place of what is tried by itself.
        self._within = ""
        # Whether the records of functions can be written, with the functions.
        self._tried: dict[int, tuple[Any, bool]] = {}
        # Objects that count as themselves, with a number for each.
        self._singles: dict[int, tuple[Any, int]] = {}
        super().__init__(private.storage)

    def _know(self, private: Private) -> None:
        super()._know(private)
        self._add(self._files.kinds)

    def record(self, value: Any, place: str) -> tuple[str, Any]:
        """The name of what an object is, and its parts."""
        for name, class_ in self._files.single.items():
            if type(value) is class_:
                _, number = self._singles.setdefault(id(value), (value, len(self._singles)))
                return "single", (name, number)
        place = place or self._within
        self._check_tree(value, place)
        return self._files.operation(value) or super().record(value, place)

    def _check_tree(self, value: Any, place: str) -> None:
        """Refuses a tree among params with classes that a file does not have, where all is to be in
        it."""
        storage = self._files.storage
        for what, places in (("rules", storage.rules), ("callbacks", storage.callbacks)):
            if place in places and what in self._drop:
                return
        if self._complete and self._files.has_others(value):
            raise Unstorable("a tree among params has nodes of other classes")

    def check_param(self, name: str, value: Any) -> None:
        """Refuses options of XLA's, texts that would print what is private, and kinds of keys that
        are not jax's.

        Raises:
          Unstorable: it is one of them.
        """
        if name == _OPTIONS:
            if value:
                raise Unstorable("options of XLA's may name files, and are not stored")
        elif name == _FORMAT:
            if (field := _private_field(value)) is not None:
                raise Unstorable(f"the field {field!r} leads to what is private, and is not stored")
        elif not self._files.is_own_implementation(value):
            raise Unstorable("the kind of keys is none of jax's own")

    def function(self, value: Any, place: str, what: str) -> tuple[str, Any]:
        """The record of a function that transformations or executions call."""
        stand_in = self._files.stand_in
        if not self._files.is_function(value):
            raise Unstorable(f"nothing is known of a {name_of(type(value))}")
        found = None
        if type(value) is functools.partial and what == "callbacks":
            found = "partial", (value.func, value.args, value.keywords)
        elif what == "rules" and what not in self._drop:
            found = self._files.rule(value)
        if found is not None and self._can_be_written(value, found[1], place):
            return found
        if self._complete and what not in self._drop:
            try:
                super().function(value, place, what)
            except Unstorable as error:
                raise Unstorable(f"{error}: drop=({what!r},) leaves it out") from None
        return stand_in.name, (place, stand_in.parts(value))

    def _can_be_written(self, value: Any, parts: Any, place: str) -> bool:
        if id(value) not in self._tried:
            before, self._within = self._within, place
            try:
                _core.save(parts, self)
                can = True
            except Unstorable:
                can = False
            finally:
                self._within = before
            self._tried[id(value)] = value, can
        return self._tried[id(value)][1]


class FileObjects(Objects):
    """Objects of the records of a file."""

    def __init__(self, private: FilePrivate):
        self._files = private
        # What the program cannot do, in words.
        self.left_out: dict[str, None] = {}
        callbacks = private.storage.callbacks
        names = (place.partition(".")[2] for place in callbacks)
        self.guarded_params = frozenset((*names, _OPTIONS, _FORMAT, *_TARGETS))
        # Rules, and what has some: by address, as long as the file is read.
        self._rules: dict[int, Any] = {}
        # Containers without any, and programs.
        self._looked_at: dict[int, Any] = {}
        self._programs: list[Any] = []
        super().__init__(private.storage)
        self._make["single"] = lambda parts: private.single[parts[0]]()

    def _know(self, private: Private) -> None:
        super()._know(private)
        self._add((*self._files.kinds, self._files.stand_in))

    def object(self, kind: str, parts: Any) -> Any:
        """The object of a record.

        Raises:
          StorageError: there is none, or it may not have a rule.
        """
        made = super().object(kind, parts)
        self._look_for_rules(kind, parts, made)
        if (missing := self._files.missing(made)) is not None:
            self.note(missing)
        if kind == "tree":
            for name in self._files.missing_classes(made):
                self.note(f"a tree among params has {name}, which a file does not have")
        return made

    def close(self, jaxpr: Any, consts: list[Any]) -> Any:
        """A closed jaxpr.

        Raises:
          StorageError: a constant is of another type than its variable.
        """
        closed = super().close(jaxpr, consts)
        self._programs.append(closed)
        for var, const in zip(closed.jaxpr.constvars, consts, strict=True):
            shape = getattr(var.aval, "shape", None)
            if shape is not None and np.shape(const) != shape:
                raise StorageError(f"a constant has the shape {np.shape(const)}, not {shape}")
        return closed

    def check_param(self, name: str, value: Any) -> None:
        """Refuses a function that executing the program would call, and what would reach files or
        print what is private.

        Raises:
          StorageError: it is one.
        """
        if name == _OPTIONS:
            if value:
                raise StorageError("the file has options of XLA's, which may name files")
        elif name == _FORMAT:
            if (field := _private_field(value)) is not None:
                raise StorageError(
                    f"the {name} of the file has the field {field!r}, which is private"
                )
        elif name in _TARGETS:
            if "callback" in str(value):
                raise StorageError(f"the file calls {value}, which calls Python functions")
        elif not self._files.calls_nothing(value):
            raise StorageError(f"the {name} of the file is a function")

    def may_be_partial(self, function: Any) -> bool:
        """Whether partials of a function are stored: also callbacks, which are left out."""
        return super().may_be_partial(function) or self._files.calls_nothing(function)

    def named(self, class_name: str, fields: dict[str, Any]) -> Any:
        """A named tuple, or a tree. It has no rules."""
        if self._has_rules(fields):
            raise StorageError(f"a {class_name} of the file has a rule")
        return super().named(class_name, fields)

    def _look_for_rules(self, kind: str, parts: Any, made: Any) -> None:
        """Notes a rule, which only the params of rules may have.

        Raises:
          StorageError: it is among the parts of something else.
        """
        if kind in _OF_RULES:
            self._rules[id(made)] = made
        elif self._has_rules(parts):
            if kind not in _WITH_RULES:
                raise StorageError(f"a {kind} of the file has a rule")
            self._rules[id(made)] = made
        elif kind == "value":
            self._looked_at[id(made)] = made

    def _has_rules(self, value: Any) -> bool:
        """Whether a value has rules. Notes the programs that it has."""
        if not self._rules:
            return False
        pending = [value]
        while pending:
            value = pending.pop()
            if id(value) in self._rules:
                return True
            if id(value) in self._looked_at:
                continue
            if isinstance(value, (tuple, list)):
                pending += (item for item in value if type(item) not in _PLAIN)
            elif type(value) is dict:
                pending += (*value, *value.values())
            elif hasattr(value, "eqns"):
                self._programs.append(value)
        return False

    def check_rules(self, closed: Any) -> None:
        """Refuses rules among params that executing a program would call.

        Raises:
          StorageError: there is one.
        """
        if not self._rules:
            return
        names = dict(_core.histogram(_core.graph_of(closed), "once")).keys()
        if names <= self._files.call_nothing:
            return
        seen: dict[int, Any] = {}
        while self._programs:
            jaxpr = self._programs.pop()
            jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
            if id(jaxpr) not in seen:
                seen[id(jaxpr)] = jaxpr
                for eqn in jaxpr.eqns:
                    self._check_eqn(eqn)

    def _check_eqn(self, eqn: Any) -> None:
        storage, primitive = self._files.storage, eqn.primitive.name
        for name, value in eqn.params.items():
            if type(value) in _PLAIN:
                continue
            if hasattr(value, "eqns"):
                self._programs.append(value)
            elif self._has_rules(value):
                place = f"{primitive}.{name}"
                if place not in storage.rules and place not in storage.callbacks:
                    raise StorageError(f"the file has a rule as {name} of {primitive}")

    def trees(self, in_tree: Any, out_tree: Any) -> tuple[Any, Any]:
        """The structures of arguments and results; None for what cannot be had here.

        Raises:
          StorageError: it is something else.
        """
        trees = in_tree, out_tree
        if any(tree is None for tree in trees):
            self.note("the structure of arguments and results was left out")
            return None, None
        if any(not hasattr(tree, "rows") for tree in trees):
            raise StorageError("the file holds something other than a program")
        missing = dict.fromkeys(name for tree in trees for name in tree.missing())
        for name in missing:
            self.note(
                f"the structure of arguments and results has {name}, which is not registered with "
                "jax here as it was"
            )
        if missing:
            return None, None
        unknown = out_tree.unknown(in_tree)
        for _, module, name, _ in sorted(unknown):
            self.note(f"the structure of results has {module}.{name}, which no argument has")
        return in_tree, None if unknown else out_tree

    def note(self, missing: str) -> None:
        """Notes what the program cannot do."""
        self.left_out[missing] = None


def _private_field(text: Any) -> str | None:
    """The first field of a format text that leads to what is private; None where there is none."""
    pending = [(text, 1)] if isinstance(text, str) else []
    while pending:
        text, depth = pending.pop()
        # What is malformed is an error when it is filled in, after the fields before it.
        with contextlib.suppress(ValueError):
            for _, field, specification, _ in string.Formatter().parse(text):
                if field is not None and _PRIVATE_FIELD.search(field):
                    return str(field)
                if specification and depth < _MAX_FORMATS:
                    pending.append((specification, depth + 1))
    return None


def to_bytes(
    private: FilePrivate,
    jaxpr: Any,
    trees: Sequence[Any],
    drop: Collection[str] = (),
    complete: bool = False,
) -> bytes:
    """The file of a closed jaxpr and the trees of its arguments and results.

    Raises:
      StorageError: something in it cannot be stored or, with ``complete``, is not to be left out.
    """
    records = FileRecords(private, drop, complete)
    try:
        own = _stored_trees(private, trees, records, drop, complete)
        return _core.save((private.storage.version, jaxpr, own), records)
    except Unstorable as error:
        raise StorageError(f"the program cannot be stored: {error}") from None


def _stored_trees(
    private: FilePrivate,
    trees: Sequence[Any],
    records: FileRecords,
    drop: Collection[str],
    complete: bool,
) -> tuple[Any, Any]:
    """What a file has of the structures of arguments and results; None for both where they are left
    out.

    Raises:
      Unstorable: nothing is to be left out.
    """
    in_tree, out_tree = trees
    if in_tree is None or out_tree is None:
        return None, None
    try:
        own = private.stored_tree(in_tree), private.stored_tree(out_tree)
        if "trees" in drop:
            return own if all(tree.is_plain for tree in own) else (None, None)
        why = _why_not(private, _core.load(_core.save(own, records), FileObjects(private)), trees)
        is_left_out = why is not None
    except Exception as error:
        # Classes of the user's are compared, and made.
        if is_of_signal(error.__traceback__):
            raise
        why, is_left_out = str(error), True
    if not is_left_out:
        unknown = ", ".join(".".join(key[1:3]) for key in sorted(own[1].unknown(own[0])))
        why = f"results have {unknown}, which no argument has" if unknown else None
    if complete and why is not None and "trees" not in drop:
        raise Unstorable(f"{why}: drop=('trees',) leaves out the structure")
    return (None, None) if is_left_out else own


def _why_not(private: FilePrivate, own: Sequence[Any], trees: Sequence[Any]) -> str | None:
    """Why structures of a file are not these ones; None where they are."""
    for stored, tree in zip(own, trees, strict=True):
        if type(stored) is not type(tree) and not stored.describes(tree):
            return "jax makes another structure of it"
    stored, (in_tree, out_tree) = own[1], trees
    if type(stored) is type(out_tree) or stored.unknown(own[0]):
        return None
    try:
        made = stored.results([0] * stored.num_leaves, in_tree)
    except Exception as error:
        if isinstance(error, StorageError) or is_of_signal(error.__traceback__):
            raise
        # Its class wants arrays, which a call has.
        given, wanted = (private.stored_tree(tree).named() for tree in (in_tree, out_tree))
        is_same = all(given[key].value == named.value for key, named in wanted.items())
    else:
        is_same = private.structure(made) == out_tree
    return None if is_same else "jax makes another structure of it"


def of_bytes(private: FilePrivate, content: bytes) -> Loaded:
    """What a file has.

    Raises:
      StorageError: it is no such file, or needs what the installed jax does not have.
    """
    objects = FileObjects(private)
    root = _core.load(content, objects)
    match root:
        case (str(version), jaxpr, (in_tree, out_tree)) if hasattr(jaxpr, "in_avals"):
            objects.check_rules(jaxpr)
            trees = objects.trees(in_tree, out_tree)
            for tree, avals in zip(trees, (jaxpr.in_avals, jaxpr.out_avals), strict=True):
                if tree is not None and tree.num_leaves != len(avals):
                    raise StorageError("a structure has another number of leaves than the program")
            if version != private.storage.version:
                objects.note(
                    f"the program was stored by jax {version}, and this is jax "
                    f"{private.storage.version}, whose primitives may take other params"
                )
            return Loaded(jaxpr, *trees, tuple(objects.left_out))
    raise StorageError("the file holds something other than a program")


def read_file(path: str | os.PathLike[str]) -> bytes:
    """What is in a file.

    Raises:
      StorageError: it is no file, but a device or a pipe, which may have no end.
      OSError: it cannot be read.
    """
    # A pipe is not opened: that waits for somebody who writes to it.
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise StorageError(f"{os.fspath(path)} is no regular file")
    return Path(path).read_bytes()
