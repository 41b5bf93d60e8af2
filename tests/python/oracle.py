"""The oracle: a program traced by jaxide must be what stock jax makes of it, field by field.

A traced program is turned into plain data by `describe`, which walks the jaxpr and everything
nested in it, and names variables, nested jaxprs and captured objects by where they occur instead
of by address. Two programs are the same when their descriptions are equal and jax prints them
alike under every one of `PRINT_SETTINGS`.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import inspect
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax._src import core, effects, linear_util, source_info_util

from corpus import Case

PRINT_SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "source_info": {"source_info": True},
    "name_stack": {"name_stack": True},
    "no_custom_rules": {"custom_pp_eqn_rules": False},
    "effects": {"print_effects": True},
    "no_shapes": {"print_shapes": False},
    "everything": {"source_info": True, "name_stack": True, "print_effects": True},
    "color": {"use_color": True},
    "color_of_notes": {"use_color": True, "source_info": True, "name_stack": True},
    "separable_lines": {"use_color": True, "separable_lines": True, "width": 60},
    "prefix": {"name_stack": True, "annotation_prefix": " // "},
    "width_0": {"width": 0},
    "width_40": {"width": 40},
    "width_200": {"width": 200},
}

IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"

# Those under which effects are printed.
WITH_EFFECTS = [name for name, setting in PRINT_SETTINGS.items() if "print_effects" in setting]

_OPEN_JAXPR = jax.extend.core.Jaxpr
_CLOSED_JAXPR = jax.extend.core.ClosedJaxpr  # the same class as Jaxpr from jax 0.11 on


# ---- tracing ----------------------------------------------------------------------------------


@dataclasses.dataclass
class Traced:
    """What a maker made of a fresh function of a case."""

    result: Any
    function: Callable[..., Any]

    @property
    def jaxpr(self) -> Any:
        """The closed jaxpr in whatever form the maker returns it."""
        result = self.result[0] if isinstance(self.result, tuple) else self.result
        return result if isinstance(result, _CLOSED_JAXPR) else result.jaxpr

    @property
    def out_shape(self) -> Any:
        """The second result of `make_jaxpr(..., return_shape=True)`."""
        return self.result[1] if isinstance(self.result, tuple) else None

    @functools.cached_property
    def texts(self) -> dict[str, str]:
        """The program as jax prints it under every setting."""
        return texts(self.jaxpr)

    @functools.cached_property
    def telling_texts(self) -> list[str]:
        """What tells programs apart; to print them in all ways takes longer than to trace them."""
        found = str(self.jaxpr), self.jaxpr.pretty_print(source_info=True, name_stack=True)
        return [sort_effects(scrub(text)) for text in found]

    @functools.cached_property
    def description(self) -> dict[str, Any]:
        """Everything else that must be equal."""
        return describe(self)


def trace_with(
    makers: Sequence[Callable[..., Any]], case: Case, *, cold: bool, return_shape: bool = True
) -> list[Traced]:
    """Traces a fresh function of the case with each maker in turn, all from one line.

    jax records the caller's frames in every equation, so only traces that start at the same
    instruction have equal source info. A cold trace finds no sub-trace that an earlier one left.
    """
    options = dict(case.options)
    if not return_shape:
        options.pop("return_shape", None)
    traces = []
    for maker in makers:
        if cold:
            jax.clear_caches()
        function = case.function()
        args, kwargs = case.arguments()
        traces.append(Traced(maker(function, **options)(*args, **kwargs), function))
    return traces


# ---- description ------------------------------------------------------------------------------


def describe(traced: Traced) -> dict[str, Any]:
    """Everything that must be equal, except for the printed texts, as plain nested data."""
    describer = _Describer(_captured(traced.function))
    return {
        "jaxpr": describer.value(traced.jaxpr),
        "in_avals": [describer.aval(a) for a in traced.jaxpr.in_avals],
        "out_avals": [describer.aval(a) for a in traced.jaxpr.out_avals],
        "out_shape": describer.value(traced.out_shape),
        "well_formed": _check(traced.jaxpr),
    }


def describe_value(value: Any) -> Any:
    """A value as plain data: containers by content, arrays by type and bits."""
    return _Describer({}).value(value)


class _Describer:
    def __init__(self, captured: dict[int, str]):
        self._captured = captured
        self._vars: dict[core.Var, int] = {}
        self._jaxprs: dict[int, int] = {}
        # What equations share is described once; the objects are kept, so that ids stay theirs.
        self._shared: dict[int, tuple[Any, Any]] = {}

    def shared(self, value: Any, describe: Callable[[Any], Any]) -> Any:
        """The description of an object that many equations have."""
        known = self._shared.get(id(value))
        if known is None:
            known = self._shared[id(value)] = (value, describe(value))
        return known[1]

    def value(self, value: Any) -> Any:
        if type(value) in (int, bool, float, type(None)):
            return (_type_name(value), repr(value))
        match value:
            case _OPEN_JAXPR() | _CLOSED_JAXPR():
                return self.jaxpr(value)
            case core.Var() | core.Literal():
                return self.atom(value)
            case core.AbstractValue():
                return self.aval(value)
            case linear_util.DebugInfo():
                return self.debug_info(value)
            case linear_util.WrappedFun():
                return (_type_name(value), self.debug_info(value.debug_info))
            case core.Tracer():
                # A function that leaks the tracers of a transformation captures them as constants.
                return (_type_name(value), self.aval(value.aval))
            case jax.Ref():
                return (_type_name(value), self.aval(jax.typeof(value)), self.value(value[...]))
            case _ if hasattr(value, "__array__") and hasattr(value, "dtype"):
                return self.array(value)
            case enum.Enum():
                return (_type_name(value), value.name)
            case dict():
                return (
                    _type_name(value),
                    [(self.value(k), self.value(v)) for k, v in value.items()],
                )
            case tuple() | list():
                return (_type_name(value), [self.value(v) for v in value])
            case set() | frozenset():
                return (_type_name(value), sorted((self.value(v) for v in value), key=repr))
            case _ if callable(value) and hasattr(value, "__qualname__"):
                return (_type_name(value), value.__module__, value.__qualname__)
            case _ if dataclasses.is_dataclass(value):
                fields = dataclasses.fields(value)
                return (
                    _type_name(value),
                    [(f.name, self.value(getattr(value, f.name))) for f in fields],
                )
        return (_type_name(value), scrub(repr(value)))

    def jaxpr(self, jaxpr: Any) -> Any:
        # jax prints and lowers a jaxpr object that occurs twice as one, so identity counts.
        if id(jaxpr) in self._jaxprs:
            return ("same as", self._jaxprs[id(jaxpr)])
        self._jaxprs[id(jaxpr)] = len(self._jaxprs)
        if not isinstance(jaxpr, _OPEN_JAXPR):
            consts = [self.const(c) for c in jaxpr.consts]
            return {"type": _type_name(jaxpr), "consts": consts, "jaxpr": self.jaxpr(jaxpr.jaxpr)}
        return {
            "consts": [self.const(c) for c in getattr(jaxpr, "consts", ())],
            "constvars": [self.atom(v) for v in jaxpr.constvars],
            "invars": [self.atom(v) for v in jaxpr.invars],
            "eqns": [self.eqn(e) for e in jaxpr.eqns],
            "outvars": [self.atom(v) for v in jaxpr.outvars],
            "effects": self.effects(jaxpr.effects),
            "debug_info": self.debug_info(jaxpr.debug_info),
        }

    def eqn(self, eqn: Any) -> dict[str, Any]:
        return {
            "primitive": (_type_name(eqn.primitive), eqn.primitive.name),
            "invars": [self.atom(v) for v in eqn.invars],
            "params": self.value(eqn.params),
            "outvars": [self.atom(v) for v in eqn.outvars],
            "effects": self.effects(eqn.effects),
            "ctx": self.shared(eqn.ctx, _context),
            "name_stack": self.shared(eqn.source_info.name_stack, self.value),
            "frames": user_frames(eqn.source_info.traceback),
        }

    def atom(self, atom: Any) -> Any:
        if isinstance(atom, core.Literal):
            return ("literal", self.value(atom.val), self.aval(atom.aval))
        number = self._vars.setdefault(atom, len(self._vars))
        return (_type_name(atom), number, self.aval(atom.aval))

    def const(self, value: Any) -> Any:
        """A constant, with the place where the function captured it if it is that very object."""
        is_view = isinstance(value, np.ndarray) and value.base is not None
        return (self._captured.get(id(value.base if is_view else value)), self.value(value))

    def array(self, value: Any) -> Any:
        described = (_type_name(value), str(value.dtype), self.aval(jax.typeof(value)))
        if isinstance(value, jax.Array):
            described += (str(value.sharding), value.committed)
            if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                value = jax.random.key_data(value)
        return (*described, np.asarray(value).tobytes())

    def aval(self, aval: Any) -> Any:
        return self.shared(aval, self._aval)

    def _aval(self, aval: Any) -> Any:
        fields = ("dtype", "shape", "weak_type", "sharding", "memory_space", "kind")
        return (
            _type_name(aval),
            aval.str_short(),
            [(f, str(getattr(aval, f))) for f in fields if hasattr(aval, f)],
        )

    def effects(self, effs: Any) -> list[Any]:
        return sorted(
            (_type_name(e), self.atom(e.input))
            if isinstance(e, effects.JaxprInputEffect)
            else (_type_name(e), scrub(repr(e)))
            for e in effs
        )

    def debug_info(self, info: Any) -> Any:
        return {
            "traced_for": info.traced_for,
            "func_src_info": info.func_src_info,
            "arg_names": info.arg_names,
            "result_paths": info.result_paths
            if isinstance(info.result_paths, tuple | None)
            else _type_name(info.result_paths),
        }


def user_frames(traceback: Any) -> tuple[Any, ...]:
    """All frames of the user, as `source_info_util.user_frames` lists them."""
    codes, offsets = traceback.raw_frames() if traceback else ((), ())
    return tuple(
        _frame(code, offset)
        for code, offset in zip(codes, offsets, strict=True)
        if source_info_util.is_user_filename(code.co_filename)
    )


# The frames of the test runner are in every traceback, and decoding a position is slow.
_frame = functools.cache(source_info_util.raw_frame_to_frame)


def scrub(text: str) -> str:
    """The text without object addresses."""
    if "0x" not in text and "id=" not in text:  # sooner than the pattern is looked for everywhere
        return text
    return re.sub(r"\b0x[0-9a-f]+\b|\bid=\d+", "0x...", text)


def _captured(function: Callable[..., Any]) -> dict[int, str]:
    """Where each object that the function closes over is found, by the object's id."""
    if not inspect.isfunction(function):
        return {}
    captured = inspect.getclosurevars(function).nonlocals
    return {
        id(leaf): jax.tree_util.keystr(path) for path, leaf in jax.tree.leaves_with_path(captured)
    }


def _check(jaxpr: Any) -> str:
    """What jax's own check of the jaxpr says; stock makes a few that do not pass it."""
    try:
        core.check_jaxpr(jaxpr.jaxpr)
    except Exception as error:
        return f"{type(error).__name__}: {scrub(str(error))}"
    return "well-formed"


def _context(context: Any) -> dict[str, str]:
    """The settings of an equation."""
    names = [s for s in type(context).__slots__ if s != "__weakref__"]
    return {name: scrub(repr(getattr(context, name, None))) for name in names}


def _type_name(value: Any) -> str:
    # A derivative rule of the store is of jax's class once somebody has asked for it.
    getattr(value, "f", None)
    return f"{type(value).__module__}.{type(value).__qualname__}"


# ---- comparison -------------------------------------------------------------------------------


def texts(jaxpr: Any, names: Sequence[str] = tuple(PRINT_SETTINGS)) -> dict[str, str]:
    """The program as jax prints it under every setting, or under some of them."""
    printed = {name: jaxpr.pretty_print(**PRINT_SETTINGS[name]) for name in names}
    with_effects = {name: sort_effects(printed[name]) for name in WITH_EFFECTS if name in printed}
    return {"str": str(jaxpr), **printed, **with_effects}


def sort_effects(text: str) -> str:
    """The text with every set of effects in alphabetical order.

    jax prints them in the order of their hashes, which for the effects on references are the
    addresses of variables: two stock traces agree only by chance.
    """
    effect = r"[A-Z]\w*(?:<\w+>|\([^()]*\))?"
    return re.sub(
        rf"\{{ ({effect}(?:,\s+{effect})+) \}}",
        lambda match: "{ " + ", ".join(sorted(re.split(r",\s+", match[1]))) + " }",
        text,
    )


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """The places where two descriptions differ, innermost first."""
    if isinstance(expected, dict) and isinstance(actual, dict) and expected.keys() == actual.keys():
        for name in expected:
            yield from differences(expected[name], actual[name], f"{path}.{name}")
    elif (
        isinstance(expected, list | tuple)
        and type(expected) is type(actual)
        and len(expected) == len(actual)
    ):
        for i, (e, a) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(e, a, f"{path}[{i}]")
    elif isinstance(expected, list) and isinstance(actual, list):
        yield f"{path}: {len(expected)} items expected, {len(actual)} made"
    elif type(expected) is not type(actual) or expected != actual:
        yield f"{path}:\n  expected {expected!r}\n  made     {actual!r}"


def assert_same_description(expected: Traced, actual: Traced) -> None:
    assert_equal(expected.description, actual.description)


def assert_equal(expected: Any, actual: Any) -> None:
    """Fails with the first few differences between two pieces of plain data."""
    if expected != actual:
        found = list(differences(expected, actual))
        raise AssertionError(f"{len(found)} differences, first:\n" + "\n".join(found[:5]))


def assert_same_texts(expected: Any, actual: Any, again: Callable[[], tuple[Any, Any]]) -> None:
    """Fails unless jax prints two jaxprs alike under every setting; see `compare_texts`."""
    compare_texts(texts(expected), texts(actual), again)


def compare_texts(
    texts_expected: dict[str, str],
    texts_actual: dict[str, str],
    again: Callable[[], tuple[Any, Any]],
) -> None:
    """Fails unless two programs have the same text under every setting.

    Objects without a text of their own print with their address. Addresses are let differ only
    under a setting where two stock traces (which `again` makes) differ from each other too.
    """
    if texts_expected == texts_actual:
        return
    first, second = map(texts, again())
    for setting, text in texts_expected.items():
        made = texts_actual[setting]
        if first[setting] != second[setting]:
            text, made = scrub(text), scrub(made)
        assert made == text, f"printed with setting {setting!r}\n{first_changes(text, made)}"


def first_changes(text: str, made: str, most: int = 12) -> str:
    lines = difflib.unified_diff(text.splitlines(), made.splitlines(), "stock", "jaxide", n=2)
    return "\n".join(itertools.islice(lines, most))


def assert_same(
    case: Case, expected: Traced, actual: Traced, *, cold: bool, every_setting: bool = IS_LONG
) -> None:
    """Fails unless `actual` is the program `expected` in every respect but its values.

    What a setting prints is in the description and the telling texts. That it is printed alike
    under `every_setting` need not be shown more than once of a function. A jaxpr of jaxide's is
    printed by Rust until it is described, then by jax, from what the description has.
    """
    assert isinstance(actual.jaxpr, _CLOSED_JAXPR)
    if every_setting or expected.telling_texts != actual.telling_texts:
        compare_texts(expected.texts, actual.texts, functools.partial(_twice_stock, case, cold))
    assert_same_description(expected, actual)
    if every_setting:
        again = Traced(actual.jaxpr, actual.function)
        if again.telling_texts != expected.telling_texts:
            compare_texts(expected.texts, again.texts, functools.partial(_twice_stock, case, cold))


def _twice_stock(case: Case, cold: bool) -> tuple[Any, Any]:
    first, second = trace_with([jax.make_jaxpr] * 2, case, cold=cold)
    return first.jaxpr, second.jaxpr


# ---- evaluation -------------------------------------------------------------------------------


def dynamic_arguments(case: Case, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """The case's arguments without the static ones, which are part of its program."""
    args, kwargs = case.arguments(seed)
    static = case.options.get("static_argnums", ())
    static = {i % len(args) for i in ([static] if isinstance(static, int) else static)}
    return [a for i, a in enumerate(args) if i not in static], kwargs


def evaluate(jaxpr: Any, case: Case, seed: int) -> list[Any]:
    """The results of the jaxpr, run by jax's interpreter on arguments drawn from `seed`."""
    # Made anew each time: a jaxpr may donate its arguments.
    return core.eval_jaxpr(
        jaxpr.jaxpr, jaxpr.consts, *jax.tree.leaves(dynamic_arguments(case, seed))
    )


def assert_close(expected: Sequence[Any], actual: Sequence[Any], tolerance: float) -> None:
    """Fails unless the numbers agree to the tolerance (relative to the largest of each array)."""
    assert len(expected) == len(actual)
    for e, a in zip(map(_numbers, expected), map(_numbers, actual), strict=True):
        assert e.shape == a.shape and e.dtype == a.dtype
        scale = max([1.0, *np.abs(e[np.isfinite(e)]).ravel().tolist()]) if e.size else 1.0
        np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance * scale)


def _numbers(value: Any) -> np.ndarray:
    """The value in a type numpy can compute with."""
    if isinstance(value, jax.Ref):
        value = value[...]
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    value = np.asarray(value)
    if value.dtype == jax.dtypes.float0:
        return np.zeros(value.shape)
    return value.astype(np.complex128 if np.iscomplexobj(value) else np.float64)
