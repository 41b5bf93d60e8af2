"""Auditing: of every so many replays and shared executables jax does the same again, and the two
are compared.

The core audits replays (``src/python/cache/audit.rs``) and tells what it finds; shared executables
are audited here. See ``docs/audit.md``.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
import itertools
import json
import os
import pathlib
import platform
import re
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jaxlib.version

from jaxide import _compat, _core, _settings
from jaxide._reports.tables import Shown, counted

MAX_DIFFERENCES = 1000
MAX_TEXT = 20_000
# Objects that are compared in the place of two.
MAX_OBJECTS = 100_000

BARRED = "barred by audit"

# Whose objects are what their attributes are.
_JAX = ("jax", "jaxlib", "jaxide")


class AuditWarning(UserWarning):
    """What jaxide remembered is not what jax does; what jax does was used."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """A difference that an audit found.

    Attributes:
      kind: "replay", "evaluation" or "executable".
      callable: the name of what was called; of an executable the function, with the place of its
        definition.
      reason: what was different.
      call: the line of the user's code.
      file: where it is written down; None where it could not be.
    """

    kind: str
    callable: str
    reason: str
    call: str
    file: str | None

    def __str__(self) -> str:
        return f"{self.kind} of {self.callable}, called at {self.call}: {self.reason} ({self.file})"


@dataclasses.dataclass(frozen=True)
class AuditReport(Shown):
    """What was audited since the process began, or since :func:`clear_audit`.

    Attributes:
      every: of how many one is audited now; 0 where none is.
      replays: calls that could be replayed while auditing was on.
      replays_audited: how many of them ran, and were compared.
      replays_different: how many of these were different.
      other_objects: audited calls that are structurally equal with other objects, which jax makes
        where it has forgotten the old ones; these are no differences.
      evaluations: abstract evaluations that were remembered while auditing was on.
      evaluations_audited: how many of them were done again.
      evaluations_different: how many of these were different.
      executables: executions of an executable that was made for another function.
      executables_audited: how many of these functions were lowered, and compared.
      executables_different: how many of these were different.
      differences: what was found, the first thousand.
    """

    every: int
    replays: int
    replays_audited: int
    replays_different: int
    other_objects: int
    evaluations: int
    evaluations_audited: int
    evaluations_different: int
    executables: int
    executables_audited: int
    executables_different: int
    differences: tuple[Finding, ...]

    def __repr__(self) -> str:
        return f"<jaxide.AuditReport: {counted(len(self.differences), 'difference')}>"

    def __str__(self) -> str:
        on = f"one of every {self.every:,}" if self.every else "off"
        rows = [
            ("replays", self.replays, self.replays_audited, self.replays_different),
            (
                "abstract evaluations",
                self.evaluations,
                self.evaluations_audited,
                self.evaluations_different,
            ),
            (
                "shared executables",
                self.executables,
                self.executables_audited,
                self.executables_different,
            ),
        ]
        lines = [f"audit: {on}", f"{'':20}  {'seen':>12}  {'audited':>12}  {'different':>12}"]
        lines += [f"{name:20}  {a:12,}  {b:12,}  {c:12,}" for name, a, b, c in rows]
        lines += [f"- {difference}" for difference in self.differences]
        return "\n".join(lines)


class _State:
    """What was found, and the counts of executables."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.every = 0
        self.differences: list[Finding] = []
        self.executables = self.audited = self.different = 0
        # Functions whose programs run no executable of another, by name and place.
        self.barred: set[str] = set()
        self.numbers = itertools.count(1)


_STATE = _State()


def audit_every(every: int) -> int:
    """Of how many replays and shared executables one is audited from now on; returns what it was.

    Raises:
      ValueError: the number is negative.
    """
    every = _settings.SETTINGS["audit"].checked(every)
    before, _STATE.every = _STATE.every, every
    _core.set_audit(every)
    return before


def audit_report() -> AuditReport:
    """What was audited, and what was found.

    :func:`jaxide.install` says how auditing is switched on.

    Returns:
      An :class:`AuditReport`: counts of replays, abstract evaluations and shared executables, and
      each difference with its file. It prints as text.
    """
    replays, evaluations, other_objects = _core.audit_counts()
    with _STATE.lock:
        return AuditReport(
            _STATE.every,
            *replays,
            other_objects,
            *evaluations,
            _STATE.executables,
            _STATE.audited,
            _STATE.different,
            tuple(_STATE.differences),
        )


def clear_audit() -> None:
    """Forgets the counts and the differences. Barred callables stay barred."""
    _core.clear_audit_counts()
    with _STATE.lock:
        _STATE.differences.clear()
        _STATE.executables = _STATE.audited = _STATE.different = 0


def unbar() -> None:
    """Lets what is barred be remembered and shared again."""
    _core.clear_barred()
    with _STATE.lock:
        _STATE.barred.clear()


# What the core calls


def replay_differs(
    name: str | None, reason: str, key: Mapping[str, Any] | None, replayed: Any, real: Any
) -> None:
    """Writes down that a replay, or an abstract evaluation, is not what jax does; warns."""
    kind = "evaluation" if name and name.startswith("abstract evaluation of ") else "replay"
    _found(
        kind,
        name or "a callable that is gone",
        reason,
        {
            "key": _plain(key or {}),
            "remembered": _programs(replayed),
            "jax": _programs(real),
        },
    )


def _found(kind: str, name: str, reason: str, details: Mapping[str, Any]) -> None:
    call = _safely(_compat.call_site)
    file = _write(kind, name, reason, call, details)
    finding = Finding(kind, name, reason, call, file)
    with _STATE.lock:
        if len(_STATE.differences) < MAX_DIFFERENCES:
            _STATE.differences.append(finding)
    message = (
        f"jaxide remembered something else than jax does: {finding}. The result is jax's, and "
        "nothing is remembered of it any more in this process. Please report this with the file."
    )
    # At the user's line, without a registry: each is shown.
    place, _, line = call.partition(" ")[0].rpartition(":")
    number = int(line) if line.isdigit() else 1
    warnings.warn_explicit(message, AuditWarning, place or "<unknown>", number)


def _write(kind: str, name: str, reason: str, call: str, details: Mapping[str, Any]) -> str | None:
    """Writes a difference into a file; where that is, None if it cannot be written."""
    content = {
        "what": f"{kind} of {name}",
        "reason": reason,
        "call": call,
        "stack": _user_stack(),
        "time": datetime.datetime.now(datetime.UTC).isoformat(),
        "versions": {
            "jaxide": _safely(lambda: __import__("jaxide").__version__),
            "jax": jax.__version__,
            "jaxlib": jaxlib.version.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
        "argv": list(map(str, sys.argv)),
        "configuration": {n: _text(v) for n, v in sorted(jax.config.values.items())},
        **details,
    }
    folder = _settings.value("audit_dir") or tempfile.gettempdir()
    path = pathlib.Path(folder) / f"jaxide-audit-{os.getpid()}-{next(_STATE.numbers)}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1, default=_text), encoding="utf-8")
    except OSError:
        return None
    return str(path)


def _user_stack() -> list[str]:
    """The lines of the user's code that are running, the innermost first."""
    frames = _safely(_compat.user_stack)
    return frames if isinstance(frames, list) else []


def _safely(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        return f"<{type(error).__name__}: {error}>"


def _text(value: Any) -> str:
    text = str(_safely(lambda: repr(value)))
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."


def _plain(value: Any) -> Any:
    """A key as data that can be written."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if type(value) in (list, tuple):
        return [_plain(item) for item in value]
    return value if type(value) in (int, str, bool, type(None)) else _text(value)


def _programs(rows: Any) -> Any:
    """Equations as text, or what else is compared."""
    if not isinstance(rows, list):
        return _plain(rows)
    return [[_equation(*row) for row in program] for program in rows]


def _equation(
    primitive: Any,
    params: Mapping[str, Any],
    operands: list[str],
    avals: list[Any],
    effects: Any,
    name_stack: Any,
    traceback: Any,
) -> dict[str, Any]:
    equation = {
        "primitive": str(primitive),
        "operands": operands,
        "types": [_text(aval) for aval in avals],
        "params": {name: _text(value) for name, value in params.items()},
    }
    if effects:
        equation["effects"] = _text(effects)
    if name_stack is not None:
        equation["name stack"] = str(name_stack)
    if traceback is not None:
        equation["source"] = _safely(lambda: _compat.user_line(traceback))
    return equation


def same(one: Any, another: Any) -> bool:
    """Whether two objects say the same: programs by their text, functions by code and closure,
    objects of jax by their attributes, those of others by identity if they can be called."""
    return _Comparison().same(one, another)


class _Comparison:
    """Two objects, compared with all that they refer to."""

    def __init__(self) -> None:
        # Pairs that are the same, or are being compared.
        self._pairs: dict[tuple[int, int], tuple[Any, Any]] = {}

    def same(self, one: Any, another: Any) -> bool:
        if one is another:
            return True
        if type(one) is not type(another) or len(self._pairs) > MAX_OBJECTS:
            return False
        place = id(one), id(another)
        if place not in self._pairs:
            # Kept, so that the addresses stay theirs.
            self._pairs[place] = one, another
            return self._same(one, another)
        return True

    def _all(self, one: Iterable[Any], another: Iterable[Any]) -> bool:
        return all(map(self.same, one, another))

    def _same(self, one: Any, another: Any) -> bool:
        if _compat.is_jaxpr(one):
            return _program_text(one) == _program_text(another)
        if isinstance(one, jax.core.Tracer):
            return bool(one.aval == another.aval)
        if isinstance(one, (tuple, list)):
            return len(one) == len(another) and self._all(one, another)
        if isinstance(one, dict):
            return len(one) == len(another) and self._all(one.items(), another.items())
        if isinstance(one, types.FunctionType):

            def parts(function: types.FunctionType) -> tuple[Any, ...]:
                return function.__defaults__, function.__kwdefaults__, _cells(function)

            return one.__code__ == another.__code__ and self._all(parts(one), parts(another))
        if isinstance(one, types.MethodType):
            return one.__func__ is another.__func__ and self.same(one.__self__, another.__self__)
        if isinstance(one, functools.partial):

            def parts_of(partial: functools.partial[Any]) -> tuple[Any, ...]:
                return partial.func, partial.args, partial.keywords

            return self._all(parts_of(one), parts_of(another))
        if isinstance(one, jax.tree_util.PyTreeDef):
            # Trees are equal where their keys are, as 1 and True.
            return bool(one == another) and str(one) == str(another)
        if type(one).__module__.partition(".")[0] not in _JAX:
            return not callable(one) and _are_equal(one, another)
        if not dataclasses.is_dataclass(one) and _are_equal(one, another):
            return True
        fields = _fields(one)
        return bool(fields) and self.same(fields, _fields(another))


def _program_text(program: Any) -> str:
    return str(program.pretty_print(source_info=True, name_stack=True, use_color=False))


def _cells(function: types.FunctionType) -> tuple[Any, ...]:
    contents = lambda cell: _safely(lambda: cell.cell_contents)
    return tuple(map(contents, function.__closure__ or ()))


def _are_equal(one: Any, another: Any) -> bool:
    try:
        if hasattr(one, "dtype"):
            import numpy as np

            arrays = np.asarray(one), np.asarray(another)
            return (
                arrays[0].dtype == arrays[1].dtype
                and arrays[0].shape == arrays[1].shape
                and arrays[0].tobytes() == arrays[1].tobytes()
            )
        return bool(one == another)
    except Exception:
        return False


def _fields(value: Any) -> dict[str, Any]:
    """The attributes of an object."""
    fields = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        for name in getattr(base, "__slots__", ()):
            if hasattr(value, name) and name not in ("__weakref__", "__dict__"):
                fields[name] = getattr(value, name)
    return fields


# Shared executables

# What a lowering was told besides the module: compared as it is.
_TOLD = [
    "global_in_avals",
    "global_out_avals",
    "in_shardings",
    "out_shardings",
    "spmd_lowering",
    "tuple_args",
    "auto_spmd_lowering",
    "unordered_effects",
    "ordered_effects",
    "kept_var_idx",
    "committed",
    "all_default_mem_kind",
    "context_mesh",
    "in_layouts",
    "out_layouts",
    "xla_in_layouts",
    "xla_out_layouts",
    "allow_prop_to_inputs",
    "allow_prop_to_outputs",
]
_SYMBOL = re.compile(r'@"(?:[^"\\]|\\.)*"|@[\w.$-]+')
_CALLBACK = re.compile(r"index = (\d+) : ui64")
# Names of results, which programs that share an executable need not have in common.
_RESULT_INFO = re.compile(r'jax\.result_info = "(?:[^"\\]|\\.)*"(?:, )?')


def is_barred(params: Mapping[str, Any]) -> bool:
    """Whether a jit's program is to run no executable of another."""
    return bool(_STATE.barred) and _place(params) in _STATE.barred


def _place(params: Mapping[str, Any]) -> str:
    info = getattr(_compat.open_part(params["jaxpr"]), "debug_info", None)
    return str(getattr(info, "func_src_info", None) or params.get("name"))


def is_executable_due() -> bool:
    """Counts one more execution of another function's executable; whether it is to be audited."""
    if not _STATE.every:
        return False
    with _STATE.lock:
        _STATE.executables += 1
        due = _STATE.executables % _STATE.every == 0
        _STATE.audited += due
    return due


def executable_holds(
    params: Mapping[str, Any], shared: Any, lower: Callable[[], Any], entry: str | None = None
) -> bool:
    """Whether a program is lowered to what the executable was made of that it is about to run.

    Where it is not, that is written down, and the function barred.

    Args:
      params: those of the jit that is executed.
      shared: what was lowered for another function.
      lower: lowers this one's program as jax does.
      entry: what jax's persistent compilation cache has as key of the module, where the store
        says so, and the module is not there.
    """
    with warnings.catch_warnings():
        # They were said when the other one was lowered.
        warnings.simplefilter("ignore")
        own = lower()
    if own is shared:
        return True
    if entry is None:
        callbacks = _callbacks(shared), _callbacks(own)
        every = [*callbacks[0], *callbacks[1]]
        texts = [
            _module(lowering, own, every)
            for lowering, own in zip((shared, own), callbacks, strict=True)
        ]
    else:
        texts = [entry, _compat.lowerings().key(own) or entry]
    told = [_told(lowering) for lowering in (shared, own)]
    reason = None
    if texts[0] != texts[1]:
        reason = "the module"
    else:
        other = [n for n in _TOLD if n in told[0] and not same(told[0][n], told[1].get(n))]
        if other:
            reason = f"what XLA is told: {', '.join(other)}"
    if reason is None:
        return True
    place = _place(params)
    with _STATE.lock:
        _STATE.different += 1
        _STATE.barred.add(place)
    details = {
        "key": {name: _text(value) for name, value in params.items() if name != "jaxpr"},
        "program": _text(params["jaxpr"]),
        "shared": {"module": entry or str(shared.stablehlo()), **_texts(told[0])},
        "jax": {"module": str(own.stablehlo()), **_texts(told[1])},
    }
    _found("executable", place, reason, details)
    return False


def _callbacks(lowering: Any) -> list[Any]:
    return list(lowering.compile_args.get("host_callbacks") or ())


def _told(lowering: Any) -> dict[str, Any]:
    told = dict(lowering.compile_args)
    return {name: told[name] for name in _TOLD if name in told}


def _texts(told: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in told.items()}


def _module(lowering: Any, callbacks: list[Any], every: list[Any]) -> str:
    """The text of a module, in which functions are named by what they say, and callbacks by what is
    called: equal functions within are one or several, depending on what was traced before."""
    operations = {}
    for operation in lowering.stablehlo().body.operations:
        name = operation.attributes["sym_name"].value if "sym_name" in operation.attributes else ""
        operations[name] = _RESULT_INFO.sub("", str(operation))
    texts: dict[str, str] = {}

    def of_callback(found: re.Match[str]) -> str:
        index = int(found[1])
        if index >= len(callbacks):
            return found[0]
        first = next(i for i, other in enumerate(every) if same(other, callbacks[index]))
        return f"callback = {first}"

    def text_of(name: str) -> str:
        if name not in texts:
            texts[name] = ""

            def symbol(found: re.Match[str]) -> str:
                other = found[0][1:].strip('"')
                if other == name:
                    return "@self"
                if other not in operations:
                    return found[0]
                return "@" + hashlib.sha256(text_of(other).encode()).hexdigest()

            texts[name] = _CALLBACK.sub(of_callback, _SYMBOL.sub(symbol, operations[name]))
        return texts[name]

    return text_of("main") if "main" in operations else str(lowering.stablehlo())
