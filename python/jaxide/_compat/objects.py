"""What the objects in programs are, by classes of jax."""

from __future__ import annotations

import builtins
import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxide._compat.derivative_rules import rule_reader
from jaxide._compat.jaxprs import are_always_closed
from jaxide._compat.lowering_rules import lowering_rules
from jaxide._compat.symbols import known_symbols, symbol
from jaxide._native.content import Known, is_global
from jaxide._native.objects import Objects, Private


def immutable_types() -> set[type]:
    """Classes of jax's whose instances never change: equal ones are the same. Params have them."""
    paths = """
        mesh:Mesh mesh:AbstractMesh named_sharding:UnspecifiedValue
        sharding_impls:SingleDeviceSharding partition_spec:PartitionSpec
        partition_spec:UnconstrainedSingleton layout:Layout layout:Format layout:AutoLayoutSingleton
        ad_checkpoint:DotsSaveable ad_checkpoint:OffloadDotWithNoBatchDims
        ad_checkpoint:SaveAnyNamesButThese ad_checkpoint:SaveAndOffloadOnlyTheseNames
        ad_checkpoint:SaveOnlyTheseNames tree_util:PyTreeDef
    """
    found = known_symbols(paths.split()).values()
    return {cls for cls in found if isinstance(cls, type)}


def fixed_types() -> set[type]:
    """Classes of Python and numpy that nobody can change, and that do nothing but make a value.

    A record of numpy's may change, and times have a unit beside what they are: these are none.
    """
    plain = (bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, range, slice)
    makers = (zip, enumerate, map, filter, reversed, type(None))
    others = (np.void, np.datetime64, np.timedelta64, np.object_)
    pending: list[Any] = [np.generic]
    scalars: set[type] = set()
    while pending:
        cls = pending.pop()
        pending += type.__subclasses__(cls)
        known = cls.__module__.partition(".")[0] in ("numpy", "ml_dtypes", "jax")
        if known and not issubclass(cls, others):
            scalars.add(cls)
    errors = (value for value in vars(builtins).values() if isinstance(value, type))
    errors = (cls for cls in errors if issubclass(cls, BaseException))
    return {*plain, *makers, *scalars, *errors}


def ref_effects() -> set[type]:
    """Classes of the effects that equations have on Refs. Instances are what they act on."""
    paths = """
        state.types:ReadEffect state.types:WriteEffect state.types:AccumEffect
        core:InternalMutableArrayEffect
    """
    return set(known_symbols(paths.split()).values())


def records() -> tuple[dict[type, tuple[str, ...]], Callable[[type], tuple[str, ...] | None]]:
    """Classes of objects among params whose instances are what their fields are, and what adds
    those that come with a module that is imported later: the frozen dataclasses of Pallas.
    """
    known = flat_trees().copy()

    def find(cls: type) -> tuple[str, ...] | None:
        params = vars(cls).get("__dataclass_params__")
        if params is None or not (params.frozen and params.eq):
            return None
        if not cls.__module__.startswith("jax._src.pallas."):
            return None
        known[cls] = tuple(field.name for field in dataclasses.fields(cls))
        return known[cls]

    return known, find


# Params with programs that rules trace at each call, by primitive; whether no function of jax
# makes such programs of others and remembers them, as the one that looks for dead code does.
_MADE_ANEW = {
    "pallas.pallas_call:pallas_call_p": ({"jaxpr", "grid_mapping"}, True),
    "shard_map:shard_map_p": ({"jaxpr"}, False),
}


@functools.cache
def made_anew(primitive: Any) -> tuple[frozenset[str], bool] | None:
    """The params of a primitive's equations with programs that its rules make at each call."""
    for path, (names, always) in _MADE_ANEW.items():
        module, _, name = path.partition(":")
        if getattr(sys.modules.get(f"jax._src.{module}"), name, None) is primitive:
            # Where a jaxpr need not be closed, what jvp makes of a kernel is remembered.
            is_kept = always and are_always_closed()
            return frozenset(names - {"jaxpr"} if is_kept else names), always
    return None


@functools.cache
def flat_trees() -> dict[type, tuple[str, ...]]:
    """Classes of trees among params, from jax 0.11 on: an instance is what these fields are."""
    fields = {
        "flattree:FTTuple": "elts",
        "flattree:FTDict": "keys _vals",
        "flattree:FTPyTree": "xs _tree",
        "flattree:FTSingleton": "val",
        "flattree:FTStatic": "val",
        "flattree:FTFiltered": "val",
        "util:Either": "is_right val",
    }
    found = known_symbols(fields).items()
    return {cls: tuple(fields[path].split()) for path, cls in found if isinstance(cls, type)}


@functools.cache
def objects() -> Objects:
    """What the objects in programs are."""
    derivative_rules = rule_reader()
    return Objects(
        Private(
            literal_type=symbol("core:Literal"),
            context_type=symbol("core:JaxprEqnContext"),
            primitive_type=symbol("core:Primitive"),
            wrapped_type=symbol("linear_util:WrappedFun"),
            tracer_type=symbol("core:Tracer"),
            array_types=(symbol("literals:TypedNdArray"),),
            immutable_types=frozenset(immutable_types()),
            mesh_type=symbol("mesh:Mesh"),
            tree_fields=flat_trees(),
            concrete_types=_concrete_types(),
            rules_alike=derivative_rules.are_alike if derivative_rules else None,
        ),
        Known(
            literal=symbol("core:Literal"),
            context=symbol("core:JaxprEqnContext"),
            primitive=symbol("core:Primitive"),
            arrays=(symbol("literals:TypedNdArray"),),
            numbers=tuple(
                known_symbols(f"literals:Typed{n}" for n in ("Int", "Float", "Complex")).values()
            ),
            immutable=frozenset(immutable_types()),
            lasting=(
                symbol("core:JaxprEqnContext"),
                symbol("mesh:Mesh"),
                symbol("mesh:AbstractMesh"),
                symbol("named_sharding:UnspecifiedValue"),
            ),
            mesh=symbol("mesh:Mesh"),
            partition_spec=symbol("partition_spec:PartitionSpec"),
            tree=symbol("tree_util:PyTreeDef"),
            fields=flat_trees(),
            effect=symbol("effects:Effect"),
            aval=symbol("core:ShapedArray"),
            callbacks=(symbol("callback:_FlatCallback"),),
            callback_modules=frozenset({"jax._src.callback", "jax._src.debugging"}),
            key_dtype=symbol("random.prng:KeyTy"),
            is_own_implementation=_is_own_implementation,
            lowering_rules=lowering_rules().of,
        ),
    )


def _is_own_implementation(implementation: Any) -> bool:
    """Whether a generator of random numbers is the very one that jax has under its name."""
    is_known = any(implementation is own for own in symbol("random.prng:prngs").values())
    return is_known and _has_own_functions(implementation)


@functools.lru_cache(maxsize=64)
def _has_own_functions(implementation: Any) -> bool:
    functions = [part for part in implementation if callable(part)]
    return all(f.__module__.startswith("jax._src.") and is_global(f) for f in functions)


def _concrete_types() -> tuple[type, ...]:
    """The classes of arrays that cannot change."""
    keys = symbol("random.prng:PRNGKeyArray")
    return symbol("array:ArrayImpl"), keys


# Params of which nothing is executed: rules of transformations and what they need, what a
# checkpoint saves, and functions beside the jaxpr that was made of them.
_UNEXECUTED = {
    "custom_derivatives:custom_jvp_call_p": "jvp_jaxpr_fun symbolic_zeros",
    "custom_derivatives:custom_vjp_call_p": "fwd_jaxpr_thunk bwd out_trees symbolic_zeros",
    "custom_batching:custom_vmap_p": "rule",
    "ad_checkpoint:remat_p": "policy",
    "lax.lax:reduce_p": "computation",
}


def unexecuted_params() -> dict[Any, frozenset[str]]:
    """Params that have no part in the execution, by primitive."""
    found = known_symbols(_UNEXECUTED).items()
    return {primitive: frozenset(_UNEXECUTED[path].split()) for path, primitive in found}
