"""Which functions of the user are pure by analysis: what their code does, and what it reads.

A function whose instructions only read variables, compute with them and call what they read does
the same whenever these values are the same. ``reads`` lists the values. The core encodes them, and
refuses values that have no key. A function that is called is among them. It is refused where it is
neither of jax, nor a builtin one without side effects, nor pure itself.
"""

from __future__ import annotations

import dis
import enum
import inspect
import math
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxide import _core
from jaxide._native import interposed, trust


class Read(NamedTuple):
    """Something that a function reads whenever it is called."""

    name: str
    """A global or builtin variable, or one of the closure."""
    cell: int | None
    """The position in the function's closure; None for a global or builtin variable."""
    attributes: tuple[tuple[str, bool], ...]
    """What is read of it at once, to be followed through modules; and whether that may be read of
    what is no module."""


class Reads(NamedTuple):
    """All that a function reads."""

    variables: tuple[Read, ...]
    changes: bool = False
    """Whether it changes lists or dicts in place, which must then be its own."""
    fills: bool = False
    """Whether it calls methods that may write to an array, which must then be its own."""
    writes: bool = False
    """Whether it makes texts of values, among which no array may be."""
    is_of_jax: bool = False
    """Whether it is a function of jax."""
    orders: bool = False
    """Whether it may go by the order of a set's items, which is another one in each process."""
    returns: int | None = None
    """The position in the closure of what it returns, where it does nothing else."""


_PURE = {
    # On the stack only.
    *("RESUME", "NOP", "CACHE", "PRECALL", "PUSH_NULL", "POP_TOP", "COPY", "SWAP", "EXTENDED_ARG"),
    *("KW_NAMES", "COPY_FREE_VARS", "MAKE_CELL", "LOAD_CLOSURE", "LOAD_CONST", "RETURN_VALUE"),
    *("RETURN_CONST", "LOAD_ASSERTION_ERROR", "RAISE_VARARGS", "END_FOR", "TO_BOOL", "POP_ITER"),
    *("LOAD_SMALL_INT", "LOAD_COMMON_CONSTANT", "NOT_TAKEN"),
    # Local variables.
    *("LOAD_FAST", "STORE_FAST", "DELETE_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR"),
    *("LOAD_FAST_BORROW", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"),
    *("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"),
    # Calls, of what was read.
    *("CALL", "CALL_KW", "CALL_FUNCTION_EX"),
    # New objects.
    *("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE"),
    *("BUILD_CONST_KEY_MAP", "LIST_EXTEND", "LIST_APPEND", "LIST_TO_TUPLE", "DICT_MERGE"),
    *("DICT_UPDATE", "MAP_ADD", "SET_ADD", "SET_UPDATE", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"),
    # Operators.
    *("UNARY_NEGATIVE", "UNARY_NOT", "UNARY_INVERT", "UNARY_POSITIVE", "BINARY_SUBSCR"),
    *("BINARY_SLICE", "COMPARE_OP", "CONTAINS_OP", "UNPACK_SEQUENCE", "UNPACK_EX"),
    # Control flow. What handles an exception only cleans up: to catch one takes `PUSH_EXC_INFO`.
    *("GET_ITER", "FOR_ITER", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
    "RERAISE",
    # Of generator expressions, which compute when somebody asks for their items.
    *("RETURN_GENERATOR", "YIELD_VALUE", "GEN_START"),
}
# Of `CALL_INTRINSIC_1`.
_PURE_INTRINSICS = {
    *("INTRINSIC_LIST_TO_TUPLE", "INTRINSIC_UNARY_POSITIVE", "INTRINSIC_STOPITERATION_ERROR"),
}

# Attributes of arrays, types and universal functions that say or compute something, and do nothing
# else. Methods of arrays are added by `trust`.
_PURE_ATTRIBUTES = {
    *("T", "aval", "at", "dtype", "imag", "itemsize", "mT", "nbytes", "ndim", "real", "shape"),
    *("size", "weak_type", "name", "kind", "num", "reduce", "accumulate", "reduceat", "outer"),
}
# Classes of values that a function may read or be given, of which any other attribute may change
# something, or say what is another thing at the next call.
_VALUE_CLASSES = (
    *(jax.Array, jax.core.Tracer, np.ndarray, np.generic, np.dtype, types.FunctionType, type),
    *(jax.custom_jvp, jax.custom_vjp, jax.numpy.ufunc, jax.ShapeDtypeStruct, types.GeneratorType),
    *(jax.sharding.Sharding, jax.sharding.NamedSharding, enum.Enum, types.ModuleType),
)
# Methods of numpy's arrays that change them.
_CHANGING_ARRAYS = {"byteswap", "fill", "itemset", "partition", "put", "resize", "setfield"}
_CHANGING_ARRAYS |= {"setflags", "sort"}
# Those that write to an array that they are given; so may those of universal functions.
_FILLING = {name for name in dir(np.ndarray) if callable(getattr(np.ndarray, name))}
_FILLING |= {"reduce", "accumulate", "reduceat", "outer", "at"}
# Methods of Python's immutable classes.
_OF_VALUES = {
    name
    for of in (str, bytes, int, float, complex, tuple, slice, range, frozenset, bool)
    for name in vars(of)
}
# Methods of lists, dicts and sets that read, and those that change them.
_READING = {"copy", "count", "index", "get", "items", "keys", "values", "fromkeys"}
_READING |= {"difference", "intersection", "union", "isdisjoint", "issubset", "issuperset"}
_READING |= {"symmetric_difference"}
_CHANGING = {name for of in (list, dict, set) for name in vars(of)} - _READING - _OF_VALUES
_CHANGING |= _CHANGING_ARRAYS


# Attributes that those classes have besides; None as long as no attribute is known to be pure.
_impure_attributes: frozenset[str] | None = None


def _is_pure(attribute: str) -> bool:
    """Whether to read an attribute, of whatever a function may have, does nothing else."""
    if _impure_attributes is None or attribute.startswith("_"):
        return False
    return attribute not in _impure_attributes


# Functions without side effects, whose result depends on their arguments alone: no functions that
# make texts, since those of arrays depend on numpy's print options.
_PURE_FUNCTIONS = (
    *(abs, all, any, callable, divmod, hasattr, isinstance, issubclass, iter, len, max, min, next),
    *(pow, round, sorted, sum),
    *(value for value in vars(math).values() if isinstance(value, types.BuiltinFunctionType)),
)
# Classes that are called, or asked whether something is of them.
_PURE_CLASSES = (jax.Array, jax.core.Tracer, jax.numpy.finfo, jax.numpy.iinfo)


def is_pure_function(value: Any) -> bool:
    """Whether something is one of Python's functions and classes that only compute."""
    return any(value is known for known in (*_PURE_FUNCTIONS, *_PURE_CLASSES))


# What jax makes of functions, and its modules of functions without side effects.
_TRANSFORMATIONS = (
    *("checkpoint", "eval_shape", "grad", "hessian", "jacfwd", "jacrev", "jit", "jvp"),
    *("linear_transpose", "linearize", "named_call", "remat", "value_and_grad", "vjp", "vmap"),
)
_MODULES = ("jax.ops", "jax.tree", *interposed.MODULES)
_OF_TREES = ("all", "flatten", "leaves", "map", "reduce", "structure", "transpose", "unflatten")


def trust_pure_functions(array_methods: Iterable[str], jit_type: type) -> None:
    """Lets pure functions be arguments of calls that are remembered.

    Args:
      array_methods: names of the methods of jax's arrays that compute something.
      jit_type: the type of what ``jax.jit`` returns.
    """
    global _impure_attributes
    _PURE_ATTRIBUTES.update(name for name in array_methods if not name.startswith("_"))
    all_attributes = {name for of in (*_VALUE_CLASSES, jit_type) for name in dir(of)}
    pure = _PURE_ATTRIBUTES | _OF_VALUES | _READING | {"value"}
    _impure_attributes = frozenset(all_attributes - pure)
    for callable_ in (*_PURE_FUNCTIONS, *_PURE_CLASSES):
        _core.trust_callable(callable_)
    functions = [getattr(jax, name) for name in _TRANSFORMATIONS]
    functions += [getattr(jax.tree_util, f"tree_{name}") for name in _OF_TREES]
    for module in filter(None, map(sys.modules.get, _MODULES)):
        functions += [
            value
            for name, value in vars(module).items()
            if isinstance(value, types.FunctionType)
            and not name.startswith("_")
            and name not in interposed.STATEFUL
        ]
    for function in filter(trust.is_own_callable, functions):
        while function is not None:
            _core.trust_callable(function)
            function = vars(function).get("__wrapped__")


def probe() -> None:
    """Asks for the shapes of a function that nobody but the call holds."""
    jax.eval_shape(lambda: None)


def nothing() -> None:
    """Is called to find out whether the interpreter tells of calls."""


def reads(code: types.CodeType) -> Reads | None:
    """What a function with this code reads; None where it may do more than compute. The store has
    what was found once.

    A function of jax is taken at its word: it reads its closure, and modules of jax.
    """
    key = _core.key_of_code(code)
    if key is None:
        return _found_reads(code)
    match _core.stored_value(key, True):
        case ():
            return None
        case (tuple(variables), *flags) if _are_reads(variables, flags):
            return Reads(tuple(map(Read._make, variables)), *flags)
    found = _found_reads(code)
    _core.store_value(key, () if found is None else (tuple(map(tuple, found[0])), *found[1:]))
    return found


def _are_reads(variables: tuple[Any, ...], flags: list[Any]) -> bool:
    """Whether the store has what a function reads."""

    def is_read(value: Any) -> bool:
        match value:
            case (str(), None | int(), tuple(attributes)) if value[1] is None or value[1] >= 0:
                return all(map(is_attribute, attributes))
        return False

    def is_attribute(value: Any) -> bool:
        match value:
            case (str(), bool()):
                return True
        return False

    return len(flags) == len(Reads._fields) - 1 and all(map(is_read, variables))


def _found_reads(code: types.CodeType) -> Reads | None:
    if code.co_filename.startswith(trust.OF_JAX):
        # One without a closure is a module's, which is trusted or not.
        cells = tuple(Read(name, index, ()) for index, name in enumerate(code.co_freevars))
        return Reads(cells, is_of_jax=True) if cells else None
    outer = {name: index for index, name in enumerate(code.co_freevars)}
    try:
        found = list(_reads(code, outer))
    except _Opaque:
        return None
    variables = dict.fromkeys(read for read in found if isinstance(read, Read))
    return Reads(
        tuple(variables),
        changes=_CHANGES in found,
        fills=_FILLS in found,
        writes=_WRITES in found,
        orders=_ORDERS in found,
        returns=_returned(code, outer),
    )


def _returned(code: types.CodeType, outer: dict[str, int]) -> int | None:
    """The position in the closure of what code returns, where it does nothing else and needs no
    arguments."""
    if code.co_argcount or code.co_kwonlyargcount:
        return None
    instructions = (i for i in dis.get_instructions(code) if i.opname not in _NOTHING)
    match [(i.opname, i.argval) for i in instructions]:
        case [("LOAD_DEREF", name), ("RETURN_VALUE", _)]:
            return outer.get(name)
    return None


class _Opaque(Exception):
    """Code that may do more than compute."""


_CHANGES = object()
_FILLS = object()
_WRITES = object()
_ORDERS = object()
# Of which there is one in a process: to be one of these is to be equal to it.
_SINGLETONS: tuple[Any, ...] = (None, True, False, ...)


def _reads(code: types.CodeType, outer: dict[str, int]) -> Iterator[Any]:
    """What code reads, functions within it included; ``outer`` are the cells it shares with the
    function it is of."""
    flags = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    is_expression = code.co_name == "<genexpr>"
    if code.co_flags & flags or (code.co_flags & inspect.CO_GENERATOR and not is_expression):
        raise _Opaque
    followed: set[int] = set()
    instructions = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
    for position, instruction in enumerate(instructions):
        operation, value = instruction.opname, instruction.argval
        if _makes_set(instructions, position):
            yield _ORDERS
        if operation in _PURE or operation.startswith("POP_JUMP_") or "_IF_" in operation:
            continue
        elif operation == "LOAD_GLOBAL" or (operation in _CELLS and value in outer):
            attributes = _attributes(instructions, position)
            # The core looks at what they are read of.
            followed.update(range(position + 1, position + 1 + len(attributes)))
            yield Read(value, outer[value] if operation in _CELLS else None, attributes)
        elif operation in _CELLS:
            continue
        elif operation == "STORE_DEREF":
            if value in outer:
                raise _Opaque
        elif operation == "IS_OP":
            # Equal values are known by what they are, not which.
            before = instructions[position - 1]
            is_constant = before.opname == "LOAD_CONST" and not instruction.is_jump_target
            if not is_constant or not any(before.argval is one for one in _SINGLETONS):
                raise _Opaque
        elif operation in ("LOAD_ATTR", "LOAD_METHOD"):
            if value in _FILLING:
                yield _FILLS
            if value in ("format", "format_map"):
                yield _WRITES
            if value in _CHANGING:
                yield _CHANGES
            elif position not in followed and not _is_pure(value):
                raise _Opaque
        elif operation in _FORMATTING:
            if not _is_raised(instructions, position):
                yield _WRITES
        elif operation == "BINARY_OP":
            if instruction.argrepr.endswith("="):
                yield _CHANGES
            if instruction.argrepr.startswith("%"):
                yield _WRITES
        elif operation in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"):
            yield _CHANGES
        elif operation == "CALL_INTRINSIC_1" and instruction.argrepr in _PURE_INTRINSICS:
            continue
        else:
            raise _Opaque
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            shared = {name: outer[name] for name in constant.co_freevars if name in outer}
            yield from _reads(constant, shared)


_VIEWS = ("keys", "items")


def _makes_set(instructions: list[dis.Instruction], position: int) -> bool:
    """Whether an instruction comes to a set, or to a view of a dict, of which an operator makes
    one."""
    instruction = instructions[position]
    after = [i.opname for i in instructions[position + 1 :][:4]]
    if instruction.opname in ("BUILD_SET", "SET_ADD", "SET_UPDATE"):
        return True
    if instruction.opname in ("LOAD_CONST", "RETURN_CONST"):
        is_asked = after[:1] == ["CONTAINS_OP"]
        return isinstance(instruction.argval, frozenset) and not is_asked
    if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and instruction.argval in (
        "keys",
        "items",
    ):
        called = [name for name in after if name not in ("PRECALL", "CALL", "PUSH_NULL")]
        return called[:1] != ["GET_ITER"]
    return False


def _is_raised(instructions: list[dis.Instruction], position: int) -> bool:
    """Whether an exception is raised in any case after an instruction, and nothing but what it is
    made of is computed before."""
    for instruction in instructions[position + 1 :]:
        if instruction.opname == "RAISE_VARARGS":
            return True
        if instruction.is_jump_target or instruction.opname not in _OF_MESSAGES:
            return False
    return False


_OF_MESSAGES = {
    *("LOAD_CONST", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_DEREF"),
    *("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE", "BUILD_STRING"),
    *("PRECALL", "CALL", "PUSH_NULL", "COPY", "NOP", "EXTENDED_ARG"),
}
_NOTHING = ("RESUME", "NOP", "CACHE", "COPY_FREE_VARS")
_FORMATTING = ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE")
_CELLS = ("LOAD_DEREF", "LOAD_CLASSDEREF")


def _attributes(instructions: list[dis.Instruction], position: int) -> tuple[tuple[str, bool], ...]:
    """The attributes that are read of what an instruction loads, and of nothing else."""
    names = []
    for instruction in instructions[position + 1 :]:
        attribute = instruction.opname in ("LOAD_ATTR", "LOAD_METHOD")
        if not attribute or instruction.is_jump_target:
            break
        name = instruction.argval
        names.append((name, _is_pure(name) or name in _CHANGING))
    return tuple(names)
