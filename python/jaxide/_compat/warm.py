"""What of jax the store needs: names of objects, objects of entries, the installation."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable
from typing import Any

import jax

from jaxide._compat.hooks import flat_tree
from jaxide._compat.interposing import world
from jaxide._compat.jaxprs import closed_jaxpr_type
from jaxide._compat.namespace import numpy_error_state, requests
from jaxide._compat.objects import objects
from jaxide._compat.storage import own_slots, storage
from jaxide._compat.symbols import known_symbols, symbol
from jaxide._native.entries import CallObjects, EntryObjects, EntryRecords
from jaxide._native.portable import Names, PortableObjects, Symbols


def portable_names() -> Names:
    """Portable names of objects of jax."""
    return Names(_symbols())


def portable_objects(describe_captured: Callable[[Any], bytes]) -> PortableObjects:
    """What the objects of programs are to executables, in every process; of a captured array
    ``describe_captured`` says it."""
    return PortableObjects(_symbols(), describe_captured)


@functools.cache
def _symbols() -> Symbols:
    return Symbols(
        known=objects().known,
        axis_env=symbol("core:AxisEnv"),
        axis_data=symbol("interpreters.batching:AxisData"),
        no_axis_name=symbol("core:no_axis_name"),
        programs=(symbol("core:Jaxpr"), closed_jaxpr_type()),
        chain=requests().chain,
        slots=_slots(),
        name_stack=symbol("source_info_util:NameStack"),
        scopes=(symbol("source_info_util:Scope"), symbol("source_info_util:Transform")),
        lasting=frozenset(
            (
                *map(type, storage().dtypes.values()),
                jax.sharding.NamedSharding,
                *known_symbols(("core:ManualAxisType", "core:MemorySpace")).values(),
            )
        ),
        trace_context=symbol("config:trace_context"),
        concrete_mesh=symbol("mesh:get_concrete_mesh"),
        empty_mesh=symbol("mesh:empty_concrete_mesh"),
        settings=jax.config._value_holders,
        number_errors=numpy_error_state,
        world=world().content,
        backends=vars(sys.modules["jax._src.xla_bridge"]),
    )


def _slots() -> dict[type, tuple[str, ...]]:
    """Classes that are what these attributes are."""
    types_ = known_symbols(("core:ShapedArray", "core:ManualAxisType")).values()
    context = symbol("core:JaxprEqnContext")
    sharding = jax.sharding.NamedSharding
    parts = ("mesh", "spec", "memory_kind", "_logical_device_ids")
    return {
        **{class_: tuple(own_slots(class_)) for class_ in types_},
        jax.sharding.AbstractMesh: ("axis_sizes", "axis_names", "axis_types", "abstract_device"),
        # `configs` are the settings that the others are of.
        context: tuple(name for name in own_slots(context) if name != "configs"),
        sharding: tuple(name for name in parts if hasattr(sharding, name)),
        symbol("partition_spec:PartitionSpec"): ("partitions", "unreduced", "reduced"),
    }


@functools.cache
def entry_objects() -> tuple[EntryRecords, EntryObjects]:
    """Records of the objects of entries, and objects of these."""
    known = CallObjects(
        primitive=symbol("core:Primitive"),
        zero=symbol("ad_util:Zero"),
        requests=requests(),
        shape=jax.ShapeDtypeStruct,
        make_shape=lambda shape, dtype, weak_type: jax.ShapeDtypeStruct(
            shape, dtype, weak_type=weak_type
        ),
        rule=symbol("linear_util:WrappedFun"),
        flatten=getattr(flat_tree().type, "flatten", None) or symbol("flattree:flatten"),
        typed_array=symbol("literals:TypedNdArray"),
        axis_data=symbol("interpreters.batching:AxisData"),
        no_axis_name=symbol("core:no_axis_name"),
    )
    private = storage()
    return EntryRecords(private, known), EntryObjects(private, known)


def compilation_cache_dir() -> str | None:
    """The folder in which jax keeps what it has compiled; None where there is none."""
    folder = jax.config._value_holders["jax_compilation_cache_dir"].value
    return None if folder is None else str(folder)


def _digests(package: str) -> list[str]:
    """The digests of the files of a package with code, as its installer noted them."""
    try:
        distribution = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return []
    record = distribution.read_text("RECORD") or ""
    suffixes = (".py", ".so", ".pyd", ".dylib")
    return sorted(line for line in record.splitlines() if line.partition(",")[0].endswith(suffixes))


def installation() -> tuple[bytes, list[str]]:
    """What entries hold for: a text, and the folders of packages whose content counts."""
    words: tuple[Any, ...] = (
        sys.implementation.name,
        sys.version,
        sys.flags.optimize,
        platform.machine(),
        *(importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")),
        *map(_digests, ("jaxlib", "numpy", "scipy")),
    )
    names = ("jax", "jaxlib", "ml_dtypes", "opt_einsum", "jaxide")
    files = (str(importlib.import_module(name).__file__) for name in names)
    return repr(words).encode(), [os.path.dirname(file) for file in files]
