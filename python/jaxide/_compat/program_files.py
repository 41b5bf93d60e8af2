"""What files of programs have besides: derivative rules, registered trees, and what stands for
functions that are left out."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any

import jax

from jaxide._compat.derivative_rules import rule_functions, rule_reader
from jaxide._compat.passes import known_primitives
from jaxide._compat.storage import (
    dataclass_kind,
    new_operation,
    operation_parts,
    own_implementation,
    primitive_of,
    primitive_parts,
    storage,
)
from jaxide._compat.stored_structures import NAMED, StoredTree, stored_tree
from jaxide._compat.stored_trees import (
    is_plain_tree,
    missing_classes,
    param_tree_of,
    param_tree_parts,
)
from jaxide._compat.symbols import known_symbols, optional_symbol, symbol
from jaxide._native.global_names import found_global, global_name
from jaxide._native.program_files import FilePrivate
from jaxide._native.storage import Kind, StorageError, Unstorable
from jaxide._native.stored_rules import (
    Private,
    StoredRules,
    is_left_out,
    mark_missing,
    stand_in,
    why_missing,
)

# What jax makes of functions that are called back: they are what their fields are.
CALLBACKS = ("callback:_FlatCallback",)
# Dataclasses that derivative rules have.
OF_RULES = ("interpreters.batching:AxisData",)
# Classes whose objects count as themselves.
SINGLE = ("core:TraceTag", "linear_util:EqualStore", "linear_util:Store")


@functools.cache
def program_files() -> FilePrivate:
    """What files are written and read with."""
    rules = _stored_rules()
    kinds = [dataclass_kind(class_) for class_ in known_symbols(OF_RULES).values()]
    kinds += [dataclass_kind(class_) for class_ in known_symbols(CALLBACKS).values()]
    kinds += [
        Kind("tree", (jax.tree_util.PyTreeDef,), param_tree_parts, param_tree_of),
        Kind("program tree", (StoredTree,), lambda tree: tree.rows, StoredTree),
        NAMED,
        Kind("primitive", (), _primitive_parts, _primitive),
        Kind("operation", (), _no_parts, _operation),
        *([] if rules is None else rules.kinds),
    ]
    return FilePrivate(
        storage=storage(),
        kinds=tuple(kinds),
        single={class_.__name__: class_ for class_ in known_symbols(SINGLE).values()},
        rule=(lambda value: None) if rules is None else rules.record,
        operation=_operation_record,
        is_function=_is_function,
        stand_in=Kind("dropped", (), _dropped_parts, _dropped),
        calls_nothing=_calls_nothing,
        missing=_missing,
        has_others=_has_others,
        call_nothing=frozenset(known_primitives()),
        is_own_implementation=_is_own_implementation,
        stored_tree=stored_tree,
        structure=jax.tree.structure,
        missing_classes=missing_classes,
    )


def _stored_rules() -> StoredRules | None:
    if (reader := rule_reader()) is None:
        return None
    variables = {code: own for _, code, own in rule_functions()}
    classes = [*reader.private.custom_rule_types, symbol("custom_batching:custom_vmap")]
    closed_rule = symbol("custom_batching:ClosedRule")
    private = Private(
        reader, variables, tuple(classes), closed_rule, symbol("tree_util:_registry"), _eqn
    )
    return StoredRules(private)


def _eqn(params: dict[str, Any]) -> Any:
    """An equation of which only the params are asked."""
    primitive = symbol("custom_derivatives:custom_jvp_call_p")
    return symbol("core:new_jaxpr_eqn")([], [], primitive, params, symbol("core:no_effects"))


def _is_wrapped(value: Any) -> bool:
    return isinstance(value, symbol("linear_util:WrappedFun"))


def _is_function(value: Any) -> bool:
    return callable(value) or _is_wrapped(value)


def _missing(made: Any) -> str | None:
    return why_missing(made.f if _is_wrapped(made) else made)


def _has_others(value: Any) -> bool:
    return isinstance(value, jax.tree_util.PyTreeDef) and not is_plain_tree(value)


def _is_own_implementation(value: Any) -> bool:
    if not isinstance(value, symbol("random.prng:PRNGImpl")):
        return True
    try:
        return own_implementation(value) is value
    except StorageError:
        return False


def _calls_nothing(value: Any) -> bool:
    """Whether a callback of a file calls nothing of anybody's: a function that was left out, what
    jax makes of one, or an operation of jax's."""
    while type(value) is functools.partial:
        value = value.func
    if type(value) in known_symbols(CALLBACKS).values():
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return all(_calls_nothing(part) for part in parts if callable(part))
    own = optional_symbol("hijax:HiPrim")
    return is_left_out(value) or (own is not None and isinstance(value, own))


# ---- primitives --------------------------------------------------------------------------------


def _primitive_parts(of: Any) -> tuple[Any, ...]:
    name, *place = primitive_parts(of)
    return name, of.multiple_results, *place


def _primitive(parts: tuple[Any, ...]) -> Any:
    """The primitive of a name; where nobody has it here, one that cannot be executed."""
    name, multiple_results, *place = parts
    if (known := primitive_of((name, *place))) is not None:
        return known
    made = symbol("core:Primitive")(name)
    made.multiple_results = multiple_results
    why = (
        f"the primitive {name} is none of jax {jax.__version__}, nor of a library that is imported"
    )
    made.def_impl(stand_in(why, __name__, name))
    return mark_missing(made, why)


# ---- operations --------------------------------------------------------------------------------


def _operation_record(value: Any) -> tuple[str, Any] | None:
    class_ = optional_symbol("hijax:HiPrim")
    if class_ is None or not isinstance(value, class_):
        return None
    place = global_name(type(value))
    if place is None or not place[0].startswith("jax."):
        return None
    return "operation", (*place, operation_parts(value))


def _operation(parts: Any) -> Any:
    module, name, fields = parts
    class_ = found_global(module, name) if module.startswith("jax.") else None
    own = optional_symbol("hijax:HiPrim")
    if own is None or not isinstance(class_, type) or not issubclass(class_, own):
        raise StorageError(f"jax {jax.__version__} has no operation {module}.{name}")
    return new_operation(class_, fields)


def _no_parts(value: Any) -> None:
    raise Unstorable(f"nothing is known of a {type(value).__qualname__}")


# ---- functions that are left out ---------------------------------------------------------------


def _dropped_parts(value: Any) -> tuple[Any, ...]:
    wrapped = _is_wrapped(value)
    function = value.f if wrapped else value
    is_function = isinstance(function, (types.FunctionType, types.BuiltinFunctionType))
    own = function if is_function else type(function)
    info = tuple(value.debug_info) if wrapped else None
    if info is not None:
        names = [part if isinstance(part, tuple) else None for part in info[2:]]
        info = (info[0], info[1], *names)
    return is_function, own.__module__, own.__qualname__, info


def _dropped(parts: Any) -> Any:
    place, (is_function, module, name, info) = parts
    primitive_name, _, param = place.partition(".")
    why = f"{name}, the {param} of {primitive_name}, was left out when the program was stored"
    # What a debug callback does is no part of what is computed.
    find = _no_callback if primitive_name == "debug_callback" else None
    made = stand_in(why, module, name, find)
    if not is_function:
        short = name.rpartition(".")[2]
        call = {"__module__": module, "__qualname__": name, "__call__": made}
        return type(short, (), vars(made) | call)()
    if info is None:
        return made
    wrap = symbol("linear_util:wrap_init")
    return wrap(made, debug_info=symbol("linear_util:DebugInfo")(*info))


def _no_callback() -> Any:
    return lambda *_args, **_kwargs: ()
