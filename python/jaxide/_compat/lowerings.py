"""What jax's lowering and compilation of a program come to, and how a process comes to it again.

jax's own functions do all of both, but for two steps. In the place of the program's translation to
a module stands what is known of it. In the place of the module's compilation stands the entry of
jax's persistent compilation cache that was made for it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import re
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxide._compat.jaxprs import closed_form, literal_type, new_var, open_part
from jaxide._compat.symbols import Mismatch, checked_function, jax_module, symbol
from jaxide._native.interruptions import tried
from jaxide._native.trampolines import copy_function

# A key of jax's persistent compilation cache.
_ENTRY = re.compile(r"[\w.-]+-[0-9a-f]{64}", re.ASCII)


class Lowered(NamedTuple):
    """What a program was lowered and compiled to, as far as nothing else says it.

    Attributes:
      entry: the key of jax's persistent compilation cache.
      beside: a digest of what jax makes that key of besides the module.
      kept: which arguments the module has.
      tuple_args: whether the module takes them as one tuple.
      is_detailed: whether the module is large enough for what jax logs of it.
      is_plain: whether the types of the program say all that its lowering depends on but the
        module; else its equations are read as well.
    """

    entry: str
    beside: str
    kept: tuple[int, ...]
    tuple_args: bool
    is_detailed: bool
    is_plain: bool

    @classmethod
    def of_value(cls, value: Any) -> Lowered | None:
        """One of a value that was stored; None where it is none."""
        classes = (str, str, tuple, bool, bool, bool)
        if type(value) is not tuple or tuple(map(type, value)) != classes:
            return None
        self = cls(*value)
        are_places = all(type(place) is int for place in self.kept)
        are_places = are_places and list(self.kept) == sorted(set(self.kept))
        # The key is the name of a file.
        is_key = _ENTRY.fullmatch(self.entry) is not None
        return self if is_key and are_places and min(self.kept, default=0) >= 0 else None


class _NotThere(Exception):
    """jax's persistent compilation cache has no such entry any more."""


def _with(function: types.FunctionType, module: str = "", **others: Any) -> types.FunctionType:
    """A function for which other objects are under names of its module, or of one that it uses."""
    function = inspect.unwrap(function)
    found = {**function.__globals__}
    if module:
        others = {**vars(found[module]), **others}
        found[module] = types.SimpleNamespace(**others)
    else:
        found.update(others)
    return copy_function(function, found)


def _cached(path: str, parameters: str) -> types.FunctionType:
    """The function behind one of jax's caches."""
    found = [f for f in gc.get_referents(symbol(path)) if isinstance(f, types.FunctionType)]
    named = [f for f in found if f.__name__ == path.rpartition(":")[2]]
    if len(named) != 1 or " ".join(_parameters(named[0])) != parameters:
        raise Mismatch(f"jax._src.{path} is not the cache that it was")
    return named[0]


def _parameters(function: types.FunctionType) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


# What a lowering says that has to be the same where its program is known.
_COMPARED = (
    "global_in_avals",
    "global_out_avals",
    "in_shardings",
    "out_shardings",
    "tuple_args",
    "kept_var_idx",
    "backend",
    "num_devices",
    "committed",
    "in_layouts",
    "out_layouts",
    "context_mesh",
)
# What a lowering has that lasts for a process only.
_PASSING = (
    "unordered_effects",
    "ordered_effects",
    "host_callbacks",
    "keepalive",
    "mut",
    "pgle_profiler",
)


class _Lowerings:
    """How jax lowers and compiles programs: its own functions, with steps that are known."""

    def __init__(self) -> None:
        self._lower = checked_function(
            "interpreters.pxla:lower_sharding_computation",
            "closed_jaxpr api_name fun_name in_shardings out_shardings in_layouts out_layouts "
            "donated_invars keep_unused context_mesh compiler_options_kvs lowering_platforms "
            "lowering_parameters pgle_profiler",
        )
        symbol("interpreters.pxla:_dce_jaxpr")
        self._finish = symbol("interpreters.pxla:UnloadedMeshExecutable").from_hlo
        self._compile = _cached(
            "interpreters.pxla:_cached_compilation",
            "computation name tuple_args allow_prop_to_inputs allow_prop_to_outputs host_callbacks "
            "backend da compiler_options_kvs pgle_profiler",
        )
        self._options = checked_function(
            "interpreters.pxla:create_compile_options",
            "computation tuple_args allow_prop_to_inputs allow_prop_to_outputs backend np_dev "
            "compiler_options",
        )
        self._compile_or_read = checked_function(
            "compiler:compile_or_get_cached",
            "backend computation devices compile_options host_callbacks executable_devices "
            "pgle_profiler",
        )
        self._strategy = checked_function(
            "compiler:_resolve_compilation_strategy",
            "computation devices compile_options backend pgle_profiler is_multi_process "
            "module_name min_device_process_id",
        )
        self._is_detailed = checked_function("compiler:use_detailed_logging", "module")
        self._key = checked_function(
            "cache_key:get",
            "module devices compile_options backend compression_algorithm ignore_callbacks",
            "module devices compile_options backend compression_algorithm "
            "ignore_custom_partitioning",
        )
        checked_function(
            "cache_key:_hash_computation",
            "hash_obj module ignore_callbacks",
            "hash_obj module ignore_custom_partitioning",
        )
        self._key_of_module = checked_function(
            "compilation_cache:get_cache_key",
            "module devices compile_options backend ignore_callbacks",
            "module devices compile_options backend ignore_custom_partitioning",
        )
        self._caching = vars(jax_module("jax._src.compilation_cache"))
        self._begin = checked_function("compilation_cache:_initialize_cache", "")
        self._is_used = checked_function("compilation_cache:is_cache_used", "backend")
        self._is_there = checked_function(
            "compilation_cache:is_executable_in_cache", "backend cache_key"
        )
        self._read = symbol("compilation_cache:get_executable_and_time")
        self._parameters = symbol("interpreters.mlir:LoweringParameters")
        # Settings under which a lowering does more, or jax's cache is asked for more.
        names = (
            "compilation_cache_expect_pgle compilation_cache_check_contents "
            "compilation_cache_include_metadata_in_key log_compiles explain_cache_misses "
            "jax_dump_ir_to"
        )
        self._settings = [symbol(f"config:{name}") for name in names.split()]
        self._folder = symbol("config:compilation_cache_dir")
        self._is_enabled = symbol("config:enable_compilation_cache")

    def begin(self) -> None:
        """Has jax open its persistent compilation cache: to open it changes jax. Where that fails,
        jax tries it again once a program is lowered, and says what is wrong."""
        names = self._caching
        if not names.get("_cache_initialized", True):
            with tried():
                try:
                    self._begin()
                except BaseException:
                    names["_cache_initialized"] = False
                    raise

    def are_kept(self) -> bool:
        """Whether jax has a persistent compilation cache, and nothing asks for more than that."""
        is_on = bool(self._folder.value) and self._is_enabled.value
        return is_on and not any(setting.value for setting in self._settings)

    def known(self, lowered: Lowered, jaxpr: Any, resolved: tuple[Any, ...]) -> Any:
        """What ``jaxpr`` is lowered to, compiled; it has no module. None where jax's cache does not
        have the entry any more, or would not look for it now: jax then lowers it, and says what is
        wrong."""

        def strategy(_: Any, devices: Any, options: Any, backend: Any, *__: Any) -> Any:
            is_same = self._is_used(backend)
            is_same = is_same and self._beside(devices, options, backend) == lowered.beside
            return (lowered.entry, options) if is_same else _gone()

        options = _with(
            self._options, "compiler", use_detailed_logging=lambda _: lowered.is_detailed
        )
        compile_or_read = _with(
            self._compile_or_read,
            ir=_NAMES,
            _resolve_compilation_strategy=strategy,
            # Where it cannot be read, jax warns when the program has been lowered.
            _cache_read=lambda _, *args: self._read(*args),
            log_persistent_cache_miss=_gone,
            _compile_and_write_cache=_gone,
            _compile_and_share_module=_gone,
        )
        with tried():
            lowering = self._lowering(lowered, jaxpr, resolved)
            self._compile_by(lowering, compile_or_read, create_compile_options=options)
            return lowering
        return None

    def compiled(self, lowering: Any, jaxpr: Any, resolved: tuple[Any, ...]) -> Lowered | None:
        """Compiles what jax has lowered ``jaxpr`` to. Returns what another process may know of it;
        None where that is not enough, or jax's cache does not have it."""
        noted: list[tuple[str, Any]] = []

        def strategy(*args: Any) -> Any:
            entry, options = self._strategy(*args)
            _, devices, _, backend, *_ = args
            if entry is not None:
                noted.append((entry, (devices, options, backend)))
            return entry, options

        compile_or_read = _with(self._compile_or_read, _resolve_compilation_strategy=strategy)
        self._compile_by(lowering, compile_or_read)
        # The program is compiled, whatever there is to say of it.
        with tried():
            if len(noted) == 1:
                return self._of_lowering(lowering, jaxpr, resolved, *noted[0])
        return None

    def _of_lowering(
        self, lowering: Any, jaxpr: Any, resolved: tuple[Any, ...], entry: str, beside: Any
    ) -> Lowered | None:
        own, backend = lowering.compile_args, beside[-1]
        lasts = not lowering.const_args and not any(own[name] for name in _PASSING)
        shapes = own["shape_poly_state"]
        if not lasts or (shapes and shapes.uses_dim_vars) or not self._is_there(backend, entry):
            return None
        found = Lowered(
            entry,
            self._beside(*beside),
            tuple(sorted(own["kept_var_idx"])),
            bool(own["tuple_args"]),
            bool(self._is_detailed(lowering._hlo)),
            is_plain=True,
        )
        for lowered in (found, found._replace(is_plain=False)):
            with tried():
                if _are_alike(lowering, self._lowering(lowered, jaxpr, resolved)):
                    return lowered
        return None

    def key(self, lowering: Any) -> str | None:
        """The key of jax's persistent compilation cache for what was lowered."""
        noted: list[str] = []

        def strategy(*args: Any) -> Any:
            noted.append(self._strategy(*args)[0])
            return _gone()

        compile_or_read = _with(self._compile_or_read, _resolve_compilation_strategy=strategy)
        with contextlib.suppress(_NotThere):
            self._compile_by(lowering, compile_or_read)
        return noted[0]

    def _lowering(self, lowered: Lowered, jaxpr: Any, resolved: tuple[Any, ...]) -> Any:
        """What jax's function returns where the translation to a module is left out."""
        others: dict[str, Any] = {}
        if lowered.is_plain:
            jaxpr, others["_dce_jaxpr"] = _of_types(jaxpr, lowered.kept)
        module = _module(lowered.entry.rpartition("-")[0])
        done: tuple[Any, ...] = module, [], [], [], [], lowered.tuple_args, None
        lower = _with(self._lower, _cached_lowering_to_hlo=lambda *_, **__: done, **others)
        *places, donated, mesh, name, keep_unused, _, compiler_options = resolved
        return lower(
            jaxpr,
            "jit",
            name,
            *places,
            tuple(donated),
            keep_unused=keep_unused,
            context_mesh=mesh,
            compiler_options_kvs=compiler_options,
            lowering_platforms=None,
            lowering_parameters=self._parameters(),
            pgle_profiler=None,
        )

    def _compile_by(self, lowering: Any, compile_or_read: Any, **others: Any) -> None:
        """Compiles what was lowered, as jax does it, with another function that asks its cache."""
        compile_ = _with(self._compile, "compiler", compile_or_get_cached=compile_or_read)
        compile_ = _with(compile_, **others)
        finish = _with(self._finish, _cached_compilation=compile_)
        lowering._executable = finish(
            lowering._name,
            lowering._hlo,
            **lowering.compile_args,
            compiler_options_kvs=lowering._compiler_options_kvs,
            device_list=lowering._device_list,
        )

    def _beside(self, devices: Any, options: Any, backend: Any) -> str:
        """A digest of what jax makes the key of a module of besides the module."""
        get = _with(self._key, ir=_NAMES, _hash_computation=lambda *_: None)
        key = _with(self._key_of_module, "cache_key", get=get)
        found: str = key(_module(""), devices, options, backend)
        return found


def _are_alike(one: Any, other: Any) -> bool:
    """Whether what was lowered is the same but for the module."""
    names = ("_name", "_donated_invars", "_platforms", "_compiler_options_kvs", "_device_list")
    own, others = one.compile_args, other.compile_args
    within = [_specified(args["intermediate_shardings"]) for args in (own, others)]
    return (
        not other.const_args
        and own.keys() == others.keys()
        and all(getattr(one, name) == getattr(other, name) for name in names)
        and all(own[name] == others[name] for name in _COMPARED)
        and within[0] == within[1]
    )


def _specified(shardings: Any) -> list[Any]:
    """The shardings that say something."""
    unspecified = symbol("sharding_impls:UNSPECIFIED")
    return [sharding for sharding in shardings if sharding is not unspecified]


def _gone(*_: Any) -> Any:
    raise _NotThere


def _module(name: str) -> Any:
    """A module of which only the name is read, by functions that have ``_NAMES`` for ``ir``."""
    return types.SimpleNamespace(operation=types.SimpleNamespace(attributes={"sym_name": name}))


_NAMES = types.SimpleNamespace(StringAttr=lambda name: types.SimpleNamespace(value=name))


def _of_types(jaxpr: Any, kept: tuple[int, ...]) -> tuple[Any, Callable[..., Any]]:
    """A closed jaxpr without equations that has the types of another, and what leaves out the
    inputs that are not kept."""
    inputs, outputs = list(jaxpr.in_avals), list(jaxpr.out_avals)

    def having(inputs: list[Any], debug_info: Any) -> Any:
        invars, outvars = list(map(new_var, inputs)), [literal_type()(0, aval) for aval in outputs]
        parts = {"invars": invars, "outvars": outvars, "debug_info": debug_info}
        return closed_form(_empty().replace(**parts))

    def drop(_: Any, __: Any, donated: Any) -> tuple[Any, Any, set[int]]:
        jaxpr = having([inputs[place] for place in kept], _empty().debug_info)
        return jaxpr, tuple(donated[place] for place in kept), set(kept)

    return having(inputs, open_part(jaxpr).debug_info), drop


@functools.cache
def _empty() -> Any:
    """An open jaxpr in which nothing is."""
    return open_part(jax.make_jaxpr(lambda: ())())


@functools.cache
def lowerings() -> _Lowerings:
    """How jax lowers and compiles programs."""
    return _Lowerings()
