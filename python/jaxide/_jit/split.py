"""A program whose constants are arguments is split: what depends on them alone is computed once.

Where arrays are built in, the compiler computes what depends on them alone. Where they are
arguments, that part is a program of its own, the *preparation*: of the constants it makes what the
rest needs, once for each closure. Small arrays come out of it packed, one array for each dtype,
since a call costs by the number of its arguments.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxide import _compat
from jaxide._jit.hoist_computations import pull_out

# Arrays of so many bytes at most are packed, where there are so many of them at least.
MAX_PACKED = 1 << 16
MIN_PACKED = 4
# What is computed once is not larger than so many times what it is computed of, beyond so many
# bytes.
MAX_GROWTH = 4
MAX_SIZE = 1 << 24
# Primitives that make larger arrays of smaller ones, for little, wherever they are used.
_SPREADING = frozenset({"broadcast_in_dim", "convert_element_type", "reshape", "squeeze"})
_ASSOCIATIVE = frozenset({"add", "mul"})
# What these do depends on where and how often it is done, or may.
_BOUND = frozenset(
    {
        "pure_callback",
        "io_callback",
        "debug_callback",
        "debug_print",
        "ffi_call",
        "custom_partitioning",
        "sharding_constraint",
        "layout_constraint",
        "shard_map",
        "device_put",
        "reshard",
        "mesh_cast",
        "rng_uniform",
        "while",
        "optimization_barrier",
    }
)


class Split(NamedTuple):
    """A program in two parts."""

    # Of the constants it makes the first arguments of the rest.
    preparation: Any
    # How many these are, and their types.
    prepared: tuple[Any, ...]
    rest: Any


def split(jaxpr: Any) -> Split:
    """A closed jaxpr, whose constants are to be arguments, in two parts."""
    jaxpr = _reassociated(pull_out(jaxpr, _is_free))
    inner = _compat.open_part(jaxpr)
    known = _known(inner)
    wanted, again = _frontier(inner, known)
    eqns = [eqn for index, eqn in enumerate(inner.eqns) if index not in known or index in again]
    packs = _packs(wanted)
    packed = {var for pack in packs for var in pack}
    direct = [var for var in wanted if var not in packed]
    made = [inner.eqns[index] for index in sorted(known)]
    outputs, unpacking, inputs = list(direct), [], list(direct)
    for pack in packs:
        packing = _traced(_pack, [var.aval for var in pack])
        made += _applied(packing, pack)
        outputs += _results(packing, pack)
        taking = _traced(_unpack([var.aval.shape for var in pack]), list(packing.out_avals))
        place = _compat.new_var(packing.out_avals[0])
        inputs.append(place)
        unpacking += _applied(taking, [place], pack)
    preparation = _compat.program(jaxpr, list(inner.constvars), made, outputs)
    none = [None] * len(inputs)
    rest = _compat.consts_as_invars(_compat.with_parts(jaxpr, inputs, none, [*unpacking, *eqns]))
    return Split(preparation, tuple(var.aval for var in inputs), rest)


def _reassociated(jaxpr: Any) -> Any:
    """A sum ``(x + a) + b`` is ``x + (a + b)`` where ``a`` and ``b`` depend on constants alone, and
    so are products: what XLA makes of constants."""
    inner = _compat.open_part(jaxpr)
    known, made = set(inner.constvars), []
    # By its result, a sum of something and a known value.
    sums: dict[Any, tuple[Any, Any, Any]] = {}
    for eqn in inner.eqns:
        operands = [atom for atom in eqn.invars if _is_var(atom)]
        if operands and all(atom in known for atom in operands) and _is_free(eqn):
            known.update(eqn.outvars)
        elif eqn.primitive.name in _ASSOCIATIVE and len(operands) == 2:
            value, constant = operands if operands[1] in known else operands[::-1]
            if constant in known:
                primitive, before, first = sums.get(value, (None, None, None))
                if primitive is eqn.primitive and first.aval == constant.aval == value.aval:
                    both = _compat.new_var(constant.aval)
                    made.append(eqn.replace(invars=[first, constant], outvars=[both]))
                    known.add(both)
                    eqn, value, constant = eqn.replace(invars=[before, both]), before, both
                sums[eqn.outvars[0]] = eqn.primitive, value, constant
        made.append(eqn)
    live = _live(made, inner.outvars)
    return _compat.with_parts(jaxpr, list(inner.constvars), list(jaxpr.consts), live)


def _live(eqns: list[Any], outvars: Iterable[Any]) -> list[Any]:
    """The equations that something comes of."""
    used, live = {atom for atom in outvars if _is_var(atom)}, []
    for eqn in reversed(eqns):
        if eqn.effects or any(var in used for var in eqn.outvars):
            used.update(atom for atom in eqn.invars if _is_var(atom))
            live.append(eqn)
    return live[::-1]


def _known(inner: Any) -> set[int]:
    """The equations that depend on constants alone."""
    vars_, found = set(inner.constvars), set()
    for index, eqn in enumerate(inner.eqns):
        operands = [atom for atom in eqn.invars if _is_var(atom)]
        if operands and all(atom in vars_ for atom in operands) and _is_free(eqn):
            found.add(index)
            vars_.update(eqn.outvars)
    return found


def _frontier(inner: Any, known: set[int]) -> tuple[list[Any], set[int]]:
    """The values of the known part that the rest needs, and the known equations that the rest does
    once more, since what they make is large and made for little."""
    constants = set(inner.constvars)
    produced = {var for index in known for var in inner.eqns[index].outvars}
    needed: dict[Any, None] = {}

    def need(atoms: Iterable[Any]) -> None:
        for atom in atoms:
            if _is_var(atom) and (atom in constants or atom in produced):
                needed[atom] = None

    for index, eqn in enumerate(inner.eqns):
        if index not in known:
            need(eqn.invars)
    need(inner.outvars)
    again = set()
    for index in sorted(known, reverse=True):
        eqn = inner.eqns[index]
        if any(var in needed for var in eqn.outvars) and _grows(eqn):
            again.add(index)
            for var in eqn.outvars:
                needed.pop(var, None)
            need(eqn.invars)
    return list(needed), again


def _grows(eqn: Any) -> bool:
    made = sum(_num_bytes(var.aval) for var in eqn.outvars)
    used = sum(_num_bytes(atom.aval) for atom in eqn.invars if _is_var(atom))
    if eqn.primitive.name in _SPREADING:
        return made > used
    return made > MAX_SIZE and made > MAX_GROWTH * used


def _is_free(eqn: Any) -> bool:
    """Whether it does not matter where and how often an equation is computed."""
    if eqn.effects or eqn.primitive.name in _BOUND:
        return False
    return all(_is_free(inner) for jaxpr in _compat.jaxprs_in(eqn.params) for inner in jaxpr.eqns)


def _is_var(atom: Any) -> bool:
    return not isinstance(atom, _compat.literal_type())


def _num_bytes(aval: Any) -> int:
    size: int = math.prod(aval.shape) * getattr(aval.dtype, "itemsize", 1)
    return size


def _packs(wanted: list[Any]) -> list[list[Any]]:
    """Small arrays of one dtype, several of them."""
    kinds: dict[Any, list[Any]] = {}
    for var in filter(_is_packable, wanted):
        kinds.setdefault(var.aval.dtype, []).append(var)
    return [pack for pack in kinds.values() if len(pack) >= MIN_PACKED]


def _is_packable(var: Any) -> bool:
    aval = var.aval
    is_plain = isinstance(aval.dtype, np.dtype) and aval.dtype.kind in "biufc"
    return is_plain and 0 < _num_bytes(aval) <= MAX_PACKED and aval.sharding.mesh.empty


def _pack(*arrays: Any) -> list[Any]:
    return [jax.lax.concatenate([jax.lax.reshape(a, (a.size,)) for a in arrays], 0)]


def _unpack(shapes: list[tuple[int, ...]]) -> Callable[[Any], list[Any]]:
    def unpack(packed: Any) -> list[Any]:
        ends = list(itertools.accumulate(map(math.prod, shapes)))
        begins = [0, *ends[:-1]]
        pieces = [
            jax.lax.slice(packed, (begin,), (end,)) for begin, end in zip(begins, ends, strict=True)
        ]
        return [jax.lax.reshape(p, shape) for p, shape in zip(pieces, shapes, strict=True)]

    return unpack


def _traced(function: Callable[..., Any], avals: list[Any]) -> Any:
    types = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    return jax.make_jaxpr(function)(*types)


def _applied(jaxpr: Any, inputs: list[Any], outputs: list[Any] | None = None) -> list[Any]:
    """The equations of a jaxpr with other variables for inputs and outputs."""
    inner = _compat.open_part(jaxpr)
    stands = dict(zip(inner.invars, inputs, strict=True))
    if outputs is not None:
        stands |= dict(zip(inner.outvars, outputs, strict=True))
    other = lambda atom: stands.get(atom, atom) if _is_var(atom) else atom
    return [
        eqn.replace(invars=list(map(other, eqn.invars)), outvars=list(map(other, eqn.outvars)))
        for eqn in inner.eqns
    ]


def _results(jaxpr: Any, inputs: list[Any]) -> list[Any]:
    inner = _compat.open_part(jaxpr)
    stands = dict(zip(inner.invars, inputs, strict=True))
    return [stands.get(var, var) for var in inner.outvars]
