"""What the objects of jax are in a stored program, and how they are made again."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from jaxide._compat.jaxprs import close
from jaxide._compat.jits import user_line
from jaxide._compat.objects import flat_trees
from jaxide._compat.passes import typed_array
from jaxide._compat.stored_tracebacks import frame, tracebacks
from jaxide._compat.stored_trees import tree_of, tree_parts
from jaxide._compat.symbols import known_symbols, optional_symbol, symbol
from jaxide._native.addresses import AddressCache
from jaxide._native.content import name_of
from jaxide._native.global_names import variables
from jaxide._native.storage import Kind, Private, StorageError, Unstorable
from jaxide._native.symbolic_texts import is_small

# Modules that take long to import, and that few programs have anything of.
LATE = ("pallas.core",)

# Enumerations and named tuples of jax.
CLASSES = (
    "api:Inline",
    "core:MemorySpace",
    "interpreters.partial_eval:Offloadable",
    "lax.control_flow.solves:_LinearSolveTuple",
    "lax.convolution:ConvDimensionNumbers",
    "lax.fft:FftType",
    "lax.lax:AccuracyMode",
    "lax.lax:DotAlgorithm",
    "lax.lax:DotAlgorithmPreset",
    "lax.lax:Precision",
    "lax.lax:RandomAlgorithm",
    "lax.lax:RoundingMethod",
    "lax.linalg:EigImplementation",
    "lax.linalg:SvdAlgorithm",
    "lax.slicing:GatherDimensionNumbers",
    "lax.slicing:GatherScatterMode",
    "lax.slicing:ScatterDimensionNumbers",
    "layout:LayoutMode",
    "lib:_jax.ArrayCopySemantics",
    "mesh:AxisType",
    "pallas.core:MemorySpace",
    "random.prng:PRNGImpl",
)

# Dataclasses of jax that are what their fields are.
DATACLASSES = (
    "ad_checkpoint:DotsSaveable",
    "ad_checkpoint:OffloadDotWithNoBatchDims",
    "ad_checkpoint:SaveAndOffloadOnlyTheseNames",
    "ad_checkpoint:SaveAnyNamesButThese",
    "ad_checkpoint:SaveOnlyTheseNames",
    "core:NamedAxisEffect",
    "lax.lax:RaggedDotDimensionNumbers",
    "mesh:AbstractDevice",
    "pallas.core:Blocked",
    "pallas.core:BlockMapping",
    "pallas.core:BoundedSlice",
    "pallas.core:Buffered",
    "pallas.core:CostEstimate",
    "pallas.core:Element",
    "pallas.core:GridMapping",
    "pallas.core:Squeezed",
    "state.indexing:NDIndexer",
    "state.indexing:Slice",
)

# Classes of effects that have no parts.
EFFECTS = {
    "callback:IOEffect": "callback:_IOEffect",
    "callback:OrderedIOEffect": "callback:_OrderedIOEffect",
    "core:InternalMutableArrayEffect": "core:internal_mutable_array_effect",
    "debugging:DebugEffect": "debugging:debug_effect",
    "debugging:OrderedDebugEffect": "debugging:ordered_debug_effect",
    "export.shape_poly:ShapeAssertionEffect": "export.shape_poly:shape_assertion_effect",
    "lax.lax:NoDCEEffect": "lax.lax:no_dce_effect",
}

# Classes of effects on a variable.
REF_EFFECTS = (
    "state.types:ReadEffect",
    "state.types:WriteEffect",
    "state.types:AccumEffect",
)

# Operations of jax's that are what their types and params are (jax 0.12 on).
OPERATIONS = (
    "ad_checkpoint:CheckpointName",
    "ad_checkpoint:CheckpointNameFwd",
    "numpy.hijax:Einsum",
    "numpy.hijax:Nonzero",
    "numpy.hijax:SearchSorted",
    "numpy.ufuncs:Frexp",
    "numpy.ufuncs:Ldexp",
)

# Objects of which there is one.
SINGLETONS = {
    "unspecified": ("named_sharding:UNSPECIFIED", "sharding_impls:UNSPECIFIED"),
    "token": ("core:abstract_token",),
    "automatic layout": ("layout:AutoLayout",),
}

# Modules of jax with primitives that are there once somebody imports them.
WITH_PRIMITIVES = (
    "jax.experimental.pallas",
    "jax.experimental.sparse",
    "jax.experimental.shard_map",
)

# Params that are functions which transformations call.
RULES = frozenset(
    {
        "custom_jvp_call.jvp_jaxpr_fun",
        "custom_vjp_call.bwd",
        "custom_vjp_call.fwd_jaxpr_thunk",
        "custom_vjp_call.out_trees",
        "custom_vmap_call.rule",
        "custom_lin.bwd",
        "linear_call.transpose_thunk",
        "reduce.computation",
        "remat2.policy",
        "remat_opt.fun_jaxpr_thunk",
    }
)
# Params that are functions which an execution calls.
CALLBACKS = frozenset(
    {
        "call_hi_primitive._prim",
        "debug_callback.callback",
        "io_callback.callback",
        "pure_callback.callback",
        "python_callback.callback",
    }
)


def storage() -> Private:
    """What programs are stored and loaded with, but for what is in modules that take long to
    import."""
    return _storage(tuple(f"jax._src.{module}" for module in LATE))


def _whole() -> Private:
    return _storage(())


@functools.cache
def _storage(without: tuple[str, ...]) -> Private:
    classes = known_symbols(_paths(CLASSES, without)).values()
    return Private(
        kinds=_kinds(without),
        kind_name=_kind_name,
        classes={name_of(found): found for found in (*classes, *flat_trees())},
        late=without,
        whole=_whole,
        of_fields=_of_fields,
        functions=_functions,
        primitives=_primitives,
        dtypes=dtypes(),
        aval=symbol("core:ShapedArray"),
        debug_info=symbol("linear_util:DebugInfo"),
        close=close,
        frame=frame,
        tracebacks=tracebacks,
        rules=RULES,
        callbacks=CALLBACKS,
        user_line=lambda traceback: user_line(traceback) or "unknown",
        version=jax.__version__,
    )


def _paths(paths: Iterable[str], without: Collection[str]) -> Iterator[str]:
    """Those that are in no module of some."""
    return (path for path in paths if f"jax._src.{path.partition(':')[0]}" not in without)


def _of_fields(class_: Any, fields: Mapping[str, Any]) -> Any:
    if (names := flat_trees().get(class_)) is None:
        if not hasattr(class_, "_fields"):
            raise TypeError("it has none")
        made = class_(**fields)
        return own_implementation(made) if class_ is symbol("random.prng:PRNGImpl") else made
    if tuple(fields) != names:
        raise TypeError(f"they are {', '.join(names)}")
    if names == ("elts",):
        return class_(*fields["elts"])
    return class_(*fields.values())


# ---- tables ------------------------------------------------------------------------------------


@functools.cache
def dtypes() -> dict[str, Any]:
    """Dtypes by name."""
    ml_dtypes = symbol("dtypes:ml_dtypes")
    plain = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
    own = "int1 int2 int4 uint1 uint2 uint4 bfloat16 float4_e2m1fn float6_e2m3fn float6_e3m2fn"
    own += " float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz"
    own += " float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
    found = {name: np.dtype(name) for name in (*plain.split(), "complex64", "complex128")}
    for name in own.split():
        if hasattr(ml_dtypes, name):
            found[name] = np.dtype(getattr(ml_dtypes, name))
    found["float0"] = np.dtype(jax.dtypes.float0)
    return found


@functools.cache
def _functions() -> dict[str, Callable[..., Any]]:
    """Functions of jax that are params as such."""
    found = list(vars(jax.checkpoint_policies).values())
    for impl in symbol("random.prng:prngs").values():
        found += [impl.seed, impl.split, impl.random_bits, impl.fold_in]
    return {name_of(function): function for function in found if hasattr(function, "__qualname__")}


def _primitives() -> dict[str, Any]:
    """The primitives of jax's modules, and those of others that have a rule, by name."""
    tables: list[Any] = [
        symbol("interpreters.mlir:_lowerings"),
        *symbol("interpreters.mlir:_platform_specific_lowerings").values(),
        symbol("interpreters.batching:fancy_primitive_batchers"),
        symbol("interpreters.ad:primitive_jvps"),
        symbol("interpreters.ad:primitive_transposes"),
        symbol("interpreters.partial_eval:custom_staging_rules"),
    ]
    # Last, so that nobody's primitive stands for one of jax's.
    names = [name for name in list(sys.modules) if name.startswith("jax._src.")]
    tables += [list(_primitives_of(name).values()) for name in names]
    return {primitive.name: primitive for table in tables for primitive in table}


def _variables(module: str) -> dict[str, Any]:
    return vars(sys.modules[module]) if module == "__main__" else variables(module)


def _primitives_of(module: str) -> dict[str, Any]:
    """The primitives of a module, by the name there."""
    class_ = symbol("core:Primitive")
    of_module = list(_variables(module).items())
    return {name: value for name, value in of_module if issubclass(type(value), class_)}


@functools.cache
def _primitive_cache() -> dict[str, Any]:
    return {}


def primitive_or_none(name: str) -> Any:
    """The primitive of a name; None where neither jax nor a library that was imported has one."""
    known = _primitive_cache()
    if name not in known:
        known.update(_primitives())
    if name not in known:
        for module in WITH_PRIMITIVES:
            try:
                __import__(module)
            except ImportError:
                continue
        known.update(_primitives())
    return known.get(name)


def primitive_parts(of: Any) -> tuple[str, ...]:
    """The name of a primitive, and where a library has it: two libraries may have one name. jax's
    own have a name alone; what no module has cannot be found, and has an empty place.
    """
    places = _places.get(of)
    if places is None or not all(_primitive_at(place) is of for place in places):
        places = _places_of(of)
        _places.put(of, places)
    return of.name, *places


# Where primitives of libraries are.
_places: AddressCache[tuple[str, ...]] = AddressCache()


def _places_of(of: Any) -> tuple[str, ...]:
    """The modules that have a primitive, each with its name there: the one that has its functions,
    or where that is not known, all. Nothing where it is jax's own."""
    found = {}
    for module in sorted(sys.modules, key=lambda name: (not name.startswith("jax."), name)):
        names = [name for name, value in _primitives_of(module).items() if value is of]
        if names and module.startswith("jax.") and primitive_or_none(of.name) is of:
            return ()
        if names:
            found[module] = f"{module}:{min(names)}"
    definer = getattr(of.impl, "__module__", None)
    return (found[definer],) if definer in found else tuple(found.values()) or ("",)


def _primitive_at(place: str) -> Any:
    """The primitive of a place; None where it is not imported, or has none."""
    module, _, name = place.partition(":")
    found = _variables(module).get(name)
    return found if issubclass(type(found), symbol("core:Primitive")) else None


def primitive_of(parts: tuple[str, ...]) -> Any:
    """The primitive that has such parts; None where it is not imported, or its places have more."""
    name, *places = parts
    if not places:
        return primitive_or_none(name)
    found = [known for place in places if (known := _primitive_at(place)) is not None]
    is_one = found and all(known is found[0] for known in found)
    return found[0] if is_one and found[0].name == name else None


def _primitive(parts: tuple[str, ...]) -> Any:
    if (known := primitive_of(parts)) is None:
        raise StorageError(f"jax {jax.__version__} has no primitive {parts[0]!r}")
    return known


# ---- kinds -------------------------------------------------------------------------------------


def _kinds(without: Collection[str]) -> tuple[Kind, ...]:
    sharding = jax.sharding
    kinds = [
        Kind("frozenset", (frozenset,), lambda v: tuple(sorted(v, key=repr)), frozenset),
        Kind("set", (set,), lambda v: tuple(sorted(v, key=repr)), set),
        Kind("slice", (slice,), lambda v: (v.start, v.stop, v.step), lambda p: slice(*p)),
        Kind("ellipsis", (type(...),), lambda v: None, lambda p: ...),
        Kind(
            "float0",
            (type(np.dtype(jax.dtypes.float0)),),
            _float0_parts,
            lambda p: np.dtype(jax.dtypes.float0),
        ),
        Kind("type", (type,), _type_parts, lambda p: _dtype(p).type),
        Kind(
            "typed array",
            (symbol("literals:TypedNdArray"),),
            lambda v: (np.asarray(v), bool(jax.typeof(v).weak_type)),
            lambda p: typed_array(p[0], _aval(p[0].shape, p[0].dtype, p[1])),
        ),
        Kind("array", (symbol("array:ArrayImpl"),), _array_parts, _array),
        Kind("keys", (symbol("random.prng:PRNGKeyArray"),), _key_parts, _keys),
        Kind("key dtype", (symbol("random.prng:KeyTy"),), _impl_name, _key_dtype),
        Kind("primitive", (), primitive_parts, _primitive),
        Kind("device", (), lambda v: v.id, _device),
        Kind("numpy scalar", (), np.asarray, lambda p: p[()]),
        Kind("dtype", (), _dtype_parts, _dtype),
        Kind("partition spec", (sharding.PartitionSpec,), _spec_parts, _spec),
        Kind("mesh", (sharding.Mesh,), _mesh_parts, _mesh),
        Kind(
            "abstract mesh",
            (sharding.AbstractMesh,),
            lambda v: (v.axis_sizes, v.axis_names, v.axis_types, v.abstract_device),
            lambda p: sharding.AbstractMesh(*p[:3], abstract_device=p[3]),
        ),
        Kind(
            "named sharding",
            (sharding.NamedSharding,),
            lambda v: (v.mesh, v.spec, v.memory_kind if type(v.mesh) is sharding.Mesh else None),
            lambda p: sharding.NamedSharding(p[0], p[1], memory_kind=p[2]),
        ),
        Kind(
            "single device",
            (sharding.SingleDeviceSharding,),
            lambda v: (next(iter(v.device_set)), v.memory_kind),
            lambda p: sharding.SingleDeviceSharding(p[0], memory_kind=p[1]),
        ),
        Kind("tree", (jax.tree_util.PyTreeDef,), tree_parts, tree_of),
        Kind("context", (symbol("core:JaxprEqnContext"),), _context_parts, _context),
        Kind("array type", (symbol("core:ShapedArray"),), _slots, _shaped),
        Kind(
            "ref type",
            (symbol("state.types:AbstractRef"),),
            lambda v: (v.inner_aval, v.memory_space, v.kind),
            lambda p: symbol("state.types:AbstractRef")(*p),
        ),
        Kind("name stack", (symbol("source_info_util:NameStack"),), _scopes, _name_stack),
        Kind("symbolic", (symbol("export.shape_poly:_DimExpr"),), _symbolic_parts, _symbolic),
        Kind(
            "symbolic scope",
            (symbol("export.shape_poly:SymbolicScope"),),
            _scope_parts,
            _scope,
        ),
    ]
    if (manual := optional_symbol("core:ManualAxisType")) is not None:
        kinds.append(Kind("manual axes", (manual,), _slots, _manual))
    kinds += [_typed_scalar(typed) for typed in symbol("literals:typed_scalar_types")]
    for singleton, paths in SINGLETONS.items():
        for value in list(known_symbols(paths).values())[:1]:
            kinds.append(_singleton(singleton, value))
    for effect_class, effect in EFFECTS.items():
        if (value := optional_symbol(effect)) is not None and optional_symbol(effect_class):
            kinds.append(_singleton(type(value).__name__, value))
    kinds += [_effect_on_variable(class_) for class_ in known_symbols(REF_EFFECTS).values()]
    classes = known_symbols(_paths(DATACLASSES, without)).values()
    kinds += [dataclass_kind(class_) for class_ in classes]
    kinds += [_operation(class_) for class_ in known_symbols(OPERATIONS).values()]
    return tuple(kinds)


def _kind_name(value: Any) -> str | None:
    """The kind of an object whose class is one of many."""
    for name, classes in (
        ("primitive", symbol("core:Primitive")),
        ("numpy scalar", np.generic),
        ("dtype", np.dtype),
        ("device", jax.Device),
        ("type", type),
    ):
        if isinstance(value, classes):
            return name
    return None


def _singleton(name: str, value: Any) -> Kind:
    return Kind(name, (type(value),), functools.partial(_only, value), lambda p: value)


def _typed_scalar(class_: Any) -> Kind:
    base = class_.__base__
    return Kind(class_.__name__, (class_,), lambda v: (base(v), v.dtype), lambda p: class_(*p))


def _effect_on_variable(class_: Any) -> Kind:
    return Kind(class_.__name__, (class_,), lambda v: None, lambda p: class_)


def _only(known: Any, value: Any) -> None:
    if value is not known and value != known:
        raise Unstorable(f"{value} is not the one that jax has")


def dataclass_kind(class_: Any) -> Kind:
    names = [field.name for field in dataclasses.fields(class_)]

    def make(parts: Any) -> Any:
        made = object.__new__(class_)
        if not isinstance(parts, dict) or set(parts) != set(names):
            raise StorageError(f"{class_.__name__} has other fields in jax {jax.__version__}")
        for name, part in parts.items():
            object.__setattr__(made, name, part)
        return made

    return Kind(
        name_of(class_), (class_,), lambda v: {name: getattr(v, name) for name in names}, make
    )


# What an operation consists of.
_OF_OPERATIONS = ("in_avals", "out_aval", "params", "effects")


def operation_parts(operation: Any) -> tuple[Any, ...]:
    return tuple(getattr(operation, name) for name in _OF_OPERATIONS)


def new_operation(class_: Any, parts: Any) -> Any:
    made = object.__new__(class_)
    vars(made).update(zip(_OF_OPERATIONS, parts, strict=True))
    symbol("hijax:HiPrim").__init__(made)
    return made


def _operation(class_: Any) -> Kind:
    make = functools.partial(new_operation, class_)
    return Kind(name_of(class_), (class_,), operation_parts, make)


_SLOTS: dict[Any, list[str]] = {}


def own_slots(class_: Any) -> list[str]:
    """The slots of a class that are part of what its instances are."""
    if (found := _SLOTS.get(class_)) is None:
        found = [name for name in class_.__slots__ if not name.startswith("_")]
        _SLOTS[class_] = found
    return found


def _slots(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in own_slots(type(value))}


def _with_slots(class_: Any, parts: Any, sample: Any) -> dict[str, Any]:
    """All slots, those of a newer or an older jax as they are by default."""
    names = own_slots(class_)
    if unknown := sorted(parts.keys() - names):
        raise StorageError(f"{class_.__name__} of jax {jax.__version__} has no {unknown[0]!r}")
    return {name: parts[name] if name in parts else getattr(sample, name) for name in names}


def _aval(shape: Any, dtype: Any, weak_type: bool) -> Any:
    return symbol("core:ShapedArray")(shape, dtype, weak_type)


def _shaped(parts: dict[str, Any]) -> Any:
    class_ = symbol("core:ShapedArray")
    if "sharding" not in parts:
        raise StorageError("a type has no sharding")
    sample = (
        None if len(parts) == len(own_slots(class_)) else _aval((), np.dtype(np.float32), False)
    )
    all_parts = _with_slots(class_, parts, sample)
    shape, dtype = all_parts.pop("shape"), all_parts.pop("dtype")
    return class_(shape, dtype, **all_parts)


def _manual(parts: dict[str, Any]) -> Any:
    class_ = symbol("core:ManualAxisType")
    return class_(**_with_slots(class_, parts, class_()))


# What `JaxprEqnContext._create` takes, of the oldest jax first.
CONTEXTS = (
    "compute_type threefry_partitionable cur_abstract_mesh remove_size_one_mesh_axis xla_metadata",
    "compute_type threefry_partitionable cur_abstract_mesh cur_layout_mode"
    " remove_size_one_mesh_axis xla_metadata",
    "compute_type threefry_partitionable cur_abstract_mesh cur_layout_mode"
    " remove_size_one_mesh_axis no_collectives xla_metadata",
)


@functools.cache
def _context_fields() -> tuple[str, ...]:
    slots = {name for name in own_slots(symbol("core:JaxprEqnContext")) if name != "configs"}
    for fields in CONTEXTS:
        if set(fields.split()) == slots:
            return tuple(fields.split())
    raise Unstorable(f"contexts of jax {jax.__version__} are not known")


def _context_parts(context: Any) -> dict[str, Any]:
    parts = {name: getattr(context, name) for name in _context_fields()}
    metadata = parts["xla_metadata"]
    parts["xla_metadata"] = metadata and tuple(sorted(metadata.items()))
    return parts


def _context(parts: dict[str, Any]) -> Any:
    class_ = symbol("core:JaxprEqnContext")
    now = class_() if "configs" in class_.__slots__ else class_(None, False)
    sample = {name: getattr(now, name) for name in _context_fields()}
    if unknown := sorted(name for name in parts if name not in sample and parts[name]):
        raise StorageError(f"contexts of jax {jax.__version__} have no {unknown[0]!r}")
    values = {name: parts.get(name, sample[name]) for name in _context_fields()}
    if hasattr(class_, "_create"):
        return class_._create(*values.values())
    # Before jax 0.10.2 a context is made of the settings that hold now.
    for name, value in values.items():
        setattr(now, name, value)
    if "configs" in class_.__slots__:
        names = [name for name in class_.__slots__ if name not in ("xla_metadata", "configs")]
        pairs = zip(now.configs, names, strict=True)
        now.configs = [(setting, values[name]) for (setting, _), name in pairs]
    return now


def _float0_parts(dtype: Any) -> None:
    if dtype != jax.dtypes.float0:
        raise Unstorable(f"the dtype {dtype} has no form in a file")


def _dtype_parts(dtype: Any) -> str:
    if storage().dtypes.get(dtype.name) != dtype:
        raise Unstorable(f"the dtype {dtype} has no form in a file")
    return str(dtype.name)


def _dtype(name: str) -> Any:
    if (dtype := storage().dtypes.get(name)) is None:
        raise StorageError(f"there is no dtype {name!r}")
    return dtype


def _type_parts(value: Any) -> str:
    for name, dtype in storage().dtypes.items():
        if dtype.type is value:
            return name
    raise Unstorable(f"the class {name_of(value)} has no form in a file")


def _scopes(stack: Any) -> tuple[tuple[bool, str], ...]:
    scope = symbol("source_info_util:Scope")
    return tuple((type(entry) is scope, entry.name) for entry in stack.stack)


def _name_stack(parts: Any) -> Any:
    scope = symbol("source_info_util:Scope")
    transform = symbol("source_info_util:Transform")
    entries = ((scope if is_scope else transform)(name) for is_scope, name in parts)
    return symbol("source_info_util:NameStack")(tuple(entries))


def _symbolic_parts(value: Any) -> tuple[Any, str]:
    text = str(value)
    if not is_small([text]):
        raise Unstorable("a symbolic dimension is too large")
    return value.scope, text


def _symbolic(parts: Any) -> Any:
    scope, text = parts
    if not is_small([text]):
        raise StorageError("a symbolic dimension of the file is too large")
    (found,) = jax.export.symbolic_shape(text, scope=scope)
    return found


def _scope_parts(value: Any) -> tuple[str, ...]:
    constraints = tuple(constraint.debug_str for constraint in value._explicit_constraints)
    if not is_small(constraints):
        raise Unstorable("the constraints of symbolic dimensions are too large")
    return constraints


def _scope(constraints: Any) -> Any:
    if not is_small(constraints):
        raise StorageError("the constraints of symbolic dimensions of the file are too large")
    return symbol("export.shape_poly:SymbolicScope")(constraints)


# ---- values ------------------------------------------------------------------------------------


def _array_parts(value: Any) -> tuple[Any, ...]:
    if not value.is_fully_addressable:
        raise Unstorable("an array is partly in other processes")
    sharding = value.sharding if value.committed else None
    return np.asarray(value), value.aval.weak_type, sharding


def _array(parts: Any) -> Any:
    value, weak_type, sharding = parts
    typed = symbol("literals:TypedNdArray")(value, _aval(value.shape, value.dtype, False))
    with jax.ensure_compile_time_eval():
        made = jax.device_put(typed, sharding)
        if weak_type:
            made = symbol("lax.lax:_convert_element_type")(made, weak_type=True)
    return made


def _impl_name(dtype: Any) -> str:
    name = dtype._impl.name
    if symbol("random.prng:prngs").get(name) is not dtype._impl:
        raise Unstorable(f"the kind of keys {name!r} is none of jax's own")
    return str(name)


def _impl(name: str) -> Any:
    if (impl := symbol("random.prng:prngs").get(name)) is None:
        raise StorageError(f"jax {jax.__version__} has no keys of kind {name!r}")
    return impl


def own_implementation(impl: Any) -> Any:
    """The generator of jax's that this one is: executing a program calls its functions.

    Raises:
      StorageError: it is none of jax's.
    """
    if (own := _impl(impl.name)) != impl:
        raise StorageError(f"the kind of keys {impl.name!r} is none of jax's own")
    return own


def _key_dtype(name: str) -> Any:
    return symbol("random.prng:KeyTy")(_impl(name))


def _key_parts(keys: Any) -> tuple[str, Any]:
    return _impl_name(keys.dtype), np.asarray(jax.random.key_data(keys))


def _keys(parts: Any) -> Any:
    name, words = parts
    with jax.ensure_compile_time_eval():
        return jax.random.wrap_key_data(_array((words, False, None)), impl=_impl(name).name)


# ---- devices -----------------------------------------------------------------------------------


def _spec_parts(spec: Any) -> tuple[Any, ...]:
    partitions = getattr(spec, "partitions", None)
    if partitions is None:  # before jax 0.10
        partitions = spec._partitions
    return partitions, spec.unreduced, spec.reduced


def _spec(parts: Any) -> Any:
    return jax.sharding.PartitionSpec(*parts[0], unreduced=parts[1], reduced=parts[2])


def _mesh_parts(mesh: Any) -> tuple[Any, ...]:
    numbers = [] if mesh.empty else [device.id for device in mesh.devices.flat]
    return mesh.devices.shape, mesh.axis_names, mesh.axis_types, numbers


def _mesh(parts: Any) -> Any:
    shape, names, kinds, numbers = parts
    if not names:
        return symbol("mesh:empty_concrete_mesh")
    found = np.empty(len(numbers), object)
    found[:] = [_device(number) for number in numbers]
    return jax.sharding.Mesh(found.reshape(shape), names, axis_types=kinds)


def _device(number: int) -> Any:
    for device in jax.devices():
        if device.id == number:
            return device
    raise StorageError(
        f"the program needs device {number}, there are {len(jax.devices())} devices here"
    )
