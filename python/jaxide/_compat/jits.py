"""How jax traces, lowers and executes jits, and how these functions of it are intercepted."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax

from jaxide import _core
from jaxide._compat.jaxprs import open_part
from jaxide._compat.symbols import (
    Mismatch,
    checked_function,
    jax_module,
    known_symbols,
    symbol,
)
from jaxide._compat.tracing import is_top_level, private
from jaxide._native import trust
from jaxide._native.instrumented import noted
from jaxide._native.trampolines import copy_function, trampoline

_EXECUTE = "pjit:_pjit_call_impl_python"
_EXECUTE_PARAMETERS = (
    "*args jaxpr in_shardings out_shardings in_layouts out_layouts donated_invars ctx_mesh name "
    "keep_unused inline compiler_options_kvs"
)


class _Execution:
    """How jax executes a jit's program: the steps of ``_pjit_call_impl_python``."""

    def __init__(self) -> None:
        function = checked_function(_EXECUTE, _EXECUTE_PARAMETERS)
        self.function = function
        self.stock = copy_function(function)
        self.param_names = _EXECUTE_PARAMETERS.split()[1:]
        self.lowering = checked_function(
            "pjit:_resolve_and_lower",
            f"args {' '.join(self.param_names[:-1])} lowering_platforms lowering_parameters "
            "pgle_profiler compiler_options_kvs",
        )
        self.stock_lowering = copy_function(self.lowering)
        self.test_event = checked_function("util:test_event", "name *args")
        self.argument_type = checked_function("pjit:convert_to_metaty", "arg")
        self._trace_context = symbol("config:trace_context")
        self._resolve_in_shardings = checked_function(
            "pjit:_resolve_in_shardings", "args pjit_in_shardings"
        )
        self._resolve_in_layouts = checked_function(
            "pjit:_resolve_in_layouts", "args jit_in_layouts resolved_in_shardings in_avals"
        )
        self._resolve_out_layouts = checked_function(
            "pjit:_resolve_out_layouts", "out_layouts out_shardings out_avals"
        )
        self._lower = symbol("pjit:_pjit_lower")
        self._lowering_parameters = symbol("interpreters.mlir:LoweringParameters")
        self._unspecified = symbol("sharding_impls:UNSPECIFIED")
        names = "enable_pgle distributed_debug use_simplified_jaxpr_constants"
        self._settings = [symbol(f"config:{name}") for name in names.split()]
        if not isinstance(getattr(jax.config, "_value_holders", None), dict):
            raise Mismatch("jax.config does not hold its settings as it did")

    def is_plain(self) -> bool:
        """Whether no setting asks jax for more than to lower, compile and run."""
        return not any(setting.value for setting in self._settings)

    def trace_context(self) -> Any:
        """What jax's own key for a lowering has of the configuration."""
        return self._trace_context()

    def settings(self) -> tuple[Any, ...]:
        """All that is set, in this thread too: what XLA is told besides, which jax reads anew for
        each new program."""
        return tuple(holder.value for holder in jax.config._value_holders.values())

    def resolve(self, args: Sequence[Any], params: dict[str, Any]) -> tuple[Any, ...]:
        """What the lowering of a program depends on besides the program and the configuration.

        Raises:
          ValueError: the shardings of arguments contradict those that were asked for.
        """
        return self.resolve_types(list(map(self.argument_type, args)), params)

    def resolve_types(self, types_: Sequence[Any], params: dict[str, Any]) -> tuple[Any, ...]:
        """As :meth:`resolve`, for the types of arguments."""
        jaxpr = params["jaxpr"]
        in_shardings = self._resolve_in_shardings(types_, params["in_shardings"])
        in_layouts = self._resolve_in_layouts(
            types_, params["in_layouts"], in_shardings, jaxpr.in_avals
        )
        out_layouts = self._resolve_out_layouts(
            params["out_layouts"], params["out_shardings"], jaxpr.out_avals
        )
        return (
            tuple(in_shardings),
            params["out_shardings"],
            tuple(in_layouts),
            tuple(out_layouts),
            tuple(params["donated_invars"]),
            *(params[name] for name in self.param_names[6:]),
        )

    def with_arguments(self, resolved: tuple[Any, ...], avals: Sequence[Any]) -> tuple[Any, ...]:
        """As ``resolved``, with further arguments before the others, which go wherever the
        computation is, as constants do."""
        count = len(avals)
        in_shardings, out_shardings, in_layouts, out_layouts, donated, *others = resolved
        return (
            (self._unspecified,) * count + in_shardings,
            out_shardings,
            (None,) * count + in_layouts,
            out_layouts,
            (False,) * count + donated,
            *others,
        )

    def of_preparation(
        self, resolved: tuple[Any, ...], num_inputs: int, num_outputs: int, device: Any
    ) -> tuple[Any, ...]:
        """As ``resolved``, of another program, whose arguments are on one device."""
        mesh = resolved[5]
        return (
            (jax.sharding.SingleDeviceSharding(device),) * num_inputs,
            (self._unspecified,) * num_outputs,
            (None,) * num_inputs,
            (None,) * num_outputs,
            (False,) * num_inputs,
            mesh,
            "captured",
            False,
            False,
            (),
        )

    def devices(self, lowering: Any) -> list[Any]:
        """The devices that a program was lowered for."""
        found = getattr(lowering, "_device_list", None)
        return [] if found is None else list(found)

    def lower(self, jaxpr: Any, resolved: tuple[Any, ...]) -> Any:
        """What ``jaxpr`` is lowered to; jax remembers it for as long as the jaxpr lives."""
        return self._lower(
            jaxpr,
            *resolved,
            lowering_platforms=None,
            lowering_parameters=self._lowering_parameters(),
            pgle_profiler=None,
        )


@functools.cache
def execution() -> _Execution:
    """How jax executes a jit's program."""
    return _Execution()


def is_default_layout(layout: Any, array: Any) -> bool:
    """Whether an array lies as jax's arrays do where nobody says how."""
    is_default = symbol("interpreters.pxla:is_default_layout")
    return bool(is_default(layout, array.sharding, array.aval))


def coordination_client() -> Any:
    """The client of the service by which processes find each other; None where there is none."""
    return symbol("distributed:global_state").client


class JitCall(NamedTuple):
    """A jit that was traced for a call."""

    fun: Callable[..., Any]
    # The name of the function and the place of its definition.
    place: str
    # jax's options of the jit, the same object for the same jit.
    jit: Any
    jaxpr: Any
    avals: tuple[Any, ...]
    arg_names: tuple[str, ...]
    tree: Any
    # Static arguments by name or position.
    static: dict[str, Any]
    settings: dict[str, Any]
    context: Any


_TRACE = "pjit:_trace_for_jit"
_TRACE_PARAMETERS = "fun ji ctx_mesh dbg avals args kwargs"


def _line_of(frame: Any) -> str | None:
    return frame and f"{frame.file_name}:{frame.start_line} ({frame.function_name})"


class _JitTracing:
    """How jax traces a jit for a call that it has not traced."""

    def __init__(self) -> None:
        self.function = checked_function(_TRACE, _TRACE_PARAMETERS)
        self.stock = copy_function(self.function)
        self._is_top_level = is_top_level()
        self._current = checked_function("source_info_util:current", "")
        self._user_frames = checked_function("source_info_util:user_frames", "traceback")
        self._trace_context = symbol("config:trace_context")

    def is_top_level(self) -> bool:
        """Whether no trace is under way."""
        return bool(self._is_top_level())

    def call_of(self, traced: Any, fun: Any, jit: Any, args: Any, kwargs: Any) -> JitCall:
        """What was traced for what."""
        names = list(getattr(jit.fun_signature, "parameters", ()))

        def name_of(position: int) -> str:
            return names[position] if position < len(names) else f"argument {position}"

        static = {name_of(i): args[i] for i in jit.static_argnums if i < len(args)}
        static |= {name: kwargs[name] for name in jit.static_argnames if name in kwargs}
        return JitCall(
            fun,
            jit.fun_sourceinfo or "<unknown>",
            jit,
            traced.params["jaxpr"],
            traced.in_avals,
            traced.arg_names,
            traced.in_tree,
            static,
            jax.config.values,
            self._trace_context(),
        )

    def line(self, traceback: Any) -> str | None:
        """The innermost line of the user's code in a traceback."""
        frame = next(iter(self._user_frames(traceback)), None) if traceback else None
        return _line_of(frame)

    def frames(self, traceback: Any) -> list[Any]:
        """The user's frames of a traceback, the innermost first."""
        return list(self._user_frames(traceback)) if traceback else []

    def stack(self) -> list[str]:
        """The lines of the user's code that are running, the innermost first."""
        frames = self.frames(self._current().traceback)
        return [f"{f.file_name}:{f.start_line} ({f.function_name})" for f in frames]

    def call_site(self) -> str:
        """The line of the user's code that is running."""
        return self.line(self._current().traceback) or "<unknown>"


@functools.cache
def jit_tracing() -> _JitTracing:
    """How jax traces a jit."""
    return _JitTracing()


def call_site() -> str:
    """The line of the user's code that is running."""
    return jit_tracing().call_site()


def user_stack() -> list[str]:
    """The lines of the user's code that are running, the innermost first."""
    return jit_tracing().stack()


def user_line(traceback: Any) -> str | None:
    """The innermost line of the user's code in a traceback."""
    return jit_tracing().line(traceback)


def program_place(jaxpr: Any) -> str | None:
    """The name and place of the function that a program was traced of."""
    info = getattr(open_part(jaxpr), "debug_info", None)
    return getattr(info, "func_src_info", None)


def own_line(traceback: Any) -> str | None:
    """As ``user_line``, of the innermost code that is not installed, where there is any: what calls
    flax rather than flax."""
    frames = jit_tracing().frames(traceback)
    is_own = lambda frame: not trust.is_installed_package(frame.file_name)
    return _line_of(next(filter(is_own, frames), next(iter(frames), None)))


def user_frames(traceback: Any) -> list[tuple[str, str, int]]:
    """The user's frames of a traceback, the innermost first: function, file and line."""
    frames = jit_tracing().frames(traceback)
    return [(frame.function_name, frame.file_name, frame.start_line) for frame in frames]


def is_place_of_jax(place: str) -> bool:
    """Whether a function that is at a place (``function_place``) is one of jax's."""
    return f" at {os.path.dirname(jax.__file__)}{os.sep}" in place


def function_place(fun: Callable[..., Any]) -> str:
    """The name of a function and the place of its definition, as jits have it."""
    return private().fun_sourceinfo(fun) or "<unknown>"


def _trampoline(function: Any, hook: Callable[..., Any]) -> tuple[Any, types.CodeType]:
    """A function, and code for it that calls ``hook`` with its parameters, in their order."""
    code = trampoline(function.__code__, hook)
    _core.note_code(function, code)
    return function, code


@functools.cache
def _tracing_code(before: Callable[..., Any], after: Callable[..., Any]) -> types.CodeType:
    """Code of the function that traces a jit. A user's function is not called any deeper for it."""
    jax_ = jit_tracing()
    code = noted(jax_.stock, before, after)
    if code is None:

        def trace(*args: Any) -> Any:
            begun = before(*args)
            return after(begun, jax_.stock(*args))

        code = trampoline(jax_.stock.__code__, trace)
    _core.note_code(jax_.function, code)
    return code


# Functions that say what XLA calls while it compiles, which only it remembers.
_TRANSFORMATIONS = tuple(
    f"xla_transform:{verb}_hlo_module_transformation" for verb in ("register", "clear")
)


class _Transformations:
    """Counts how often transformations of XLA's modules are registered, or taken back."""

    def __init__(self) -> None:
        self.times = 0
        for function in known_symbols(_TRANSFORMATIONS).values():
            # Somebody else's may do anything, and is a change of jax.
            if trust.is_own_function(function):
                _, function.__code__ = _trampoline(function, self._counting(function))

    def _counting(self, function: Any) -> Callable[..., Any]:
        stock, code = copy_function(function), function.__code__
        num = code.co_argcount
        names = code.co_varnames[num : num + code.co_kwonlyargcount]

        def counting(*args: Any) -> Any:
            try:
                return stock(*args[:num], **dict(zip(names, args[num:], strict=True)))
            finally:
                self.times += 1

        return counting


@functools.cache
def transformations() -> _Transformations:
    """Those that were registered, or taken back, since this was called first."""
    return _Transformations()


def intercept_jits(
    before_trace: Callable[..., Any],
    after_trace: Callable[[Any, Any], Any],
    execute: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    lowered: Callable[[Any, Callable[[], Any]], AbstractContextManager[Any]],
) -> None:
    """From now on jits call ``before_trace(fun, options, mesh, debug_info, avals, args, kwargs)``
    where they have to be traced, and ``after_trace`` on what that returned and what was traced,
    which returns the latter; ``execute(args, params)`` where they have no executable; and lower
    what ``lowered(jaxpr, resolve)`` has as context; ``resolve()`` says for what it is lowered."""
    interceptions = _interceptions(before_trace, after_trace, execute, lowered)
    # Somebody may have given one of them another code, and all belong together.
    if all(function.__code__ in (stock, code) for function, stock, code in interceptions):
        for function, _, code in interceptions:
            function.__code__ = code


@functools.cache
def _interceptions(
    before_trace: Callable[..., Any],
    after_trace: Callable[[Any, Any], Any],
    execute: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    lowered: Callable[[Any, Callable[[], Any]], AbstractContextManager[Any]],
) -> list[tuple[Any, types.CodeType, types.CodeType]]:
    jax_ = execution()
    stock, names = jax_.stock_lowering, jax_.param_names

    def lower(types_: Any, jaxpr: Any, *rest: Any) -> Any:
        options = (*rest[: len(names) - 2], rest[-1])
        params = dict(zip(names, (jaxpr, *options), strict=True))
        resolve = functools.partial(jax_.resolve_types, types_, params)
        with lowered(jaxpr, resolve) as instead:
            return stock(types_, instead, *rest)

    found = [
        _trampoline(jax_.lowering, lower),
        (jit_tracing().function, _tracing_code(before_trace, after_trace)),
        _trampoline(
            jax_.function,
            lambda args, *params: execute(args, dict(zip(names, params, strict=True))),
        ),
    ]
    codes = dict(_stock_codes())
    return [(function, codes[function], code) for function, code in found]


def _stock_codes() -> list[tuple[Any, types.CodeType]]:
    """The functions of jits that are intercepted, with their own codes."""
    jax_, tracing = execution(), jit_tracing()
    return [
        (tracing.function, tracing.stock.__code__),
        (jax_.function, jax_.stock.__code__),
        (jax_.lowering, jax_.stock_lowering.__code__),
    ]


def leave_jits() -> None:
    """Lets jits be as they were. A function that somebody has given another code keeps that."""
    for function, code in _stock_codes():
        if _core.is_noted_code(function, function.__code__):
            function.__code__ = code


def lower_of(jitted: Any) -> Callable[..., Any]:
    """The method ``lower`` of a jit, without a reference to it: it needs no more than this."""
    this = types.SimpleNamespace(_fun=jitted._fun, _jit_info=jitted._jit_info)
    return functools.partial(type(jitted).lower, this)


def catch_misses(
    jitted: Any, hook: Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
) -> Any:
    """Has ``jitted`` call ``hook(stock, options, args, kwargs)`` where it finds no executable.

    Returns its options, which tell it from other jits. Tracebacks keep the code of their frames, so
    the code may not refer to the jit: the hook has to be the same one for all.
    """
    functions = [f for f in gc.get_referents(jitted) if isinstance(f, types.FunctionType)]
    misses = [f for f in map(inspect.unwrap, functions) if f.__name__ == "cache_miss"]
    if len(misses) != 1 or misses[0].__code__.co_freevars != ("fun", "jit_info"):
        raise Mismatch("jax.jit does not handle what it has not compiled as it did")
    [miss] = misses
    miss.__code__ = _miss_code(miss.__code__, hook)
    return jitted._jit_info


@functools.cache
def _miss_code(stock: types.CodeType, hook: Callable[..., Any]) -> types.CodeType:
    module = vars(jax_module("jax._src.pjit"))

    def caught(fun: Any, jit_info: Any, args: Any, kwargs: Any) -> Any:
        cells = types.CellType(fun), types.CellType(jit_info)
        miss = types.FunctionType(stock, module, stock.co_name, None, cells)
        return hook(miss, jit_info, args, kwargs)

    return trampoline(stock, caught, with_closure=True)
