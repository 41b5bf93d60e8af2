"""jax's transformations as data: each makes of a case of the corpus the transformed case.

Which arguments are differentiated or mapped follows from their types alone. Where nothing fits,
the transformation is applied all the same, and stock jax says what is wrong with it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from corpus import CASES, Case
from corpus.registry import Function, Spec

BATCH = 2


@dataclasses.dataclass(frozen=True)
class Subject:
    """A function that is transformed, and what its arguments allow."""

    function: Function
    real: tuple[int, ...]
    """The positions of arguments that are all real floats: those that `grad` takes."""
    inexact: tuple[int, ...]
    """The positions of arguments that are all floats or complex numbers: those that `jvp` takes."""
    axes: tuple[Any, ...]
    """`in_axes` of the arguments."""
    static: tuple[int, ...] = ()

    def with_function(self, function: Function) -> Subject:
        return dataclasses.replace(self, function=function)


# Of the number of a leaf among the arguments and its number of dimensions, the axis to map.
Axis = Callable[[int, int], int | None]


@dataclasses.dataclass(frozen=True)
class Transformation:
    name: str
    apply: Callable[[Subject], Function]
    axis: Axis | None = None
    """How the arguments are batched, if they are."""
    small: bool = False
    """Only of functions that have few numbers as arguments."""

    def subject(self, function: Function, args: Sequence[Any], static: Any = ()) -> Subject:
        """The function and which of these arguments of it are differentiated and mapped."""
        static = tuple(i % len(args) for i in ([static] if isinstance(static, int) else static))
        number = iter(range(10**6))

        def axis_of(leaf: Any) -> int | None:
            if self.axis is None or not _is_array(leaf):
                return None
            return self.axis(next(number), np.ndim(leaf))

        return Subject(
            function=function,
            real=_positions(args, static, jnp.floating),
            inexact=_positions(args, static, jnp.inexact),
            axes=tuple(
                jax.tree.map(_no_axis if i in static else axis_of, arg)
                for i, arg in enumerate(args)
            ),
            static=static,
        )

    def of(self, case: Case) -> Case:
        """The transformed case; to be called under the context of `case`."""
        args, _ = case.arguments()
        subject = self.subject(case.function, args, case.options.get("static_argnums", ()))
        batched: dict[str, Any] = {}
        if self.axis is not None:
            batched["args"] = jax.tree.map(_batched_spec, subject.axes, case.args, is_leaf=_is_none)
            batched["kwargs"] = jax.tree.map(functools.partial(_batched_spec, 0), dict(case.kwargs))
        return dataclasses.replace(
            case,
            name=f"{self.name}({case.name})",
            function=lambda: self.apply(subject.with_function(case.function())),
            **batched,
        )

    def nested(self, function: Function) -> Function:
        """A transformed function of the same arguments, which are batched within it."""

        def transformed(*args: Any) -> list[Any]:
            subject = self.subject(function, args)
            args = tuple(
                arg if axis is None else jnp.stack([arg] * BATCH, axis)
                for axis, arg in zip(subject.axes, args, strict=True)
            )
            outputs = jax.tree.leaves(self.apply(subject)(*args))
            return [x for x in outputs if dtype_of(x) != jax.dtypes.float0]

        return transformed

    def __str__(self) -> str:
        return self.name


# ---- arguments --------------------------------------------------------------------------------


def dtype_of(leaf: Any) -> Any:
    if isinstance(leaf, bool | int | float | complex):
        return jnp.result_type(leaf)
    return getattr(leaf, "dtype", None)


def is_a(kind: Any, leaf: Any) -> bool:
    dtype = dtype_of(leaf)
    return dtype is not None and jnp.issubdtype(dtype, kind)


def _no_axis(leaf: Any) -> None:
    return None


def _is_none(axis: Any) -> bool:
    return axis is None


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def _positions(args: Sequence[Any], static: tuple[int, ...], kind: Any) -> tuple[int, ...]:
    """The arguments with leaves of that kind only, or the first argument where there are none."""
    found = tuple(
        i
        for i, arg in enumerate(args)
        if i not in static
        and (leaves := jax.tree.leaves(arg))
        and all(is_a(kind, leaf) for leaf in leaves)
    )
    return found or tuple(range(len(args)))[:1]


def _batched_spec(axis: int | None, leaf: Any) -> Any:
    if axis is None:
        return leaf
    if isinstance(leaf, Spec):
        return Spec(lambda rng: _batched([leaf.make(rng) for _ in range(BATCH)], axis))
    return _batched([leaf] * BATCH, axis) if _is_array(leaf) else leaf


def _batched(values: Sequence[Any], axis: int) -> Any:
    """Values stacked outside of jax, which would compile for each shape."""
    first = values[0]
    if isinstance(first, jax.ShapeDtypeStruct):
        shape = (*first.shape[:axis], BATCH, *first.shape[axis:])
        return jax.ShapeDtypeStruct(shape, first.dtype, weak_type=first.weak_type)
    if jnp.issubdtype(first.dtype, jax.dtypes.prng_key):
        data = np.stack([jax.random.key_data(value) for value in values], axis)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(first))
    stacked = np.stack([np.asarray(value) for value in values], axis)
    if not isinstance(first, jax.Array):
        return stacked
    if not isinstance(first.sharding, jax.sharding.NamedSharding):
        return jax.device_put(stacked)
    spec = [*first.sharding.spec] + [None] * (first.ndim - len(first.sharding.spec))
    spec = jax.sharding.PartitionSpec(*spec[:axis], None, *spec[axis:])
    return jax.device_put(stacked, jax.sharding.NamedSharding(first.sharding.mesh, spec))


# ---- functions --------------------------------------------------------------------------------


def total(outputs: Any) -> Any:
    """The sum of all floats (real parts of complex ones), or of all integers if none is a float."""
    leaves = jax.tree.leaves(outputs)
    chosen = [x for x in leaves if is_a(jnp.inexact, x)] or [
        x for x in leaves if is_a(jnp.number, x)
    ]
    return sum((jnp.sum(jnp.real(x)).astype(jnp.float32) for x in chosen), jnp.float32(0))


def loss(function: Function) -> Function:
    @functools.wraps(function)
    def scalar(*args: Any, **kwargs: Any) -> Any:
        return total(function(*args, **kwargs))

    return scalar


def loss_and_outputs(function: Function) -> Function:
    @functools.wraps(function)
    def scalar(*args: Any, **kwargs: Any) -> Any:
        outputs = function(*args, **kwargs)
        return total(outputs), outputs

    return scalar


def real_outputs(function: Function) -> Function:
    @functools.wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        leaves = jax.tree.leaves(function(*args, **kwargs))
        return [jnp.real(leaf) for leaf in leaves if is_a(jnp.inexact, leaf)]

    return filtered


def of_inexact(use: Callable[[Function, list[Any]], Any]) -> Callable[[Subject], Function]:
    """`use` of the function of the inexact arguments, and of these arguments."""

    def apply(subject: Subject) -> Function:
        @functools.wraps(subject.function)
        def transformed(*args: Any, **kwargs: Any) -> Any:
            def of_some(*some: Any) -> Any:
                replaced = list(args)
                for i, value in zip(subject.inexact, some, strict=True):
                    replaced[i] = value
                return subject.function(*replaced, **kwargs)

            return use(of_some, [args[i] for i in subject.inexact])

        return transformed

    return apply


def cotangent(output: Any) -> Any:
    """The output itself, where it is a float; else what stands for no cotangent."""
    if is_a(jnp.inexact, output):
        return output
    return np.zeros(np.shape(output), jax.dtypes.float0)


def _jvp(function: Function, primals: list[Any]) -> Any:
    return jax.jvp(function, primals, primals)


def _jvp_with_aux(function: Function, primals: list[Any]) -> Any:
    with_aux = lambda *args: (real_outputs(function)(*args), function(*args))
    return jax.jvp(with_aux, primals, primals, has_aux=True)


def _jvp_of_all(subject: Subject) -> Function:
    """jvp with respect to all arguments, of which integers have tangents without a type."""

    @functools.wraps(subject.function)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        function = lambda *given: subject.function(*given, **kwargs)
        return jax.jvp(function, args, jax.tree.map(cotangent, args))

    return transformed


def _vjp(function: Function, primals: list[Any]) -> Any:
    outputs, pull_back = jax.vjp(function, *primals)
    return outputs, pull_back(jax.tree.map(cotangent, outputs))


def _vjp_with_aux(function: Function, primals: list[Any]) -> Any:
    outputs, pull_back, aux = jax.vjp(
        lambda *args: loss_and_outputs(function)(*args), *primals, has_aux=True
    )
    return outputs, pull_back(outputs), pull_back(2 * outputs), aux


def _linearize(function: Function, primals: list[Any]) -> Any:
    outputs, push_forward = jax.linearize(function, *primals)
    return outputs, push_forward(*primals)


def _grad_of_scan(subject: Subject) -> Function:
    """The gradient of a sum over the batch, taken by a scan of the function."""
    axes = jax.tree.leaves(subject.axes, is_leaf=_is_none)

    @functools.wraps(subject.function)
    def summed(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        mapped = [leaf for leaf, axis in zip(leaves, axes, strict=True) if axis is not None]

        def body(carry: Any, xs: Any) -> Any:
            items, keywords = iter(xs[0]), xs[1]
            one = [
                leaf if axis is None else next(items)
                for leaf, axis in zip(leaves, axes, strict=True)
            ]
            return carry + total(subject.function(*tree.unflatten(one), **keywords)), None

        return lax.scan(body, jnp.float32(0), (mapped, kwargs), length=BATCH)[0]

    return jax.grad(summed, subject.real)


def _jit(subject: Subject) -> Function:
    return jax.jit(subject.function, static_argnums=subject.static or None)


def _grad(subject: Subject) -> Function:
    return jax.grad(loss(subject.function), subject.real)


def _vmap(subject: Subject) -> Function:
    return jax.vmap(subject.function, subject.axes)


def first(number: int, ndim: int) -> int | None:
    return 0


def second(number: int, ndim: int) -> int | None:
    return min(1, ndim)


def mixed(number: int, ndim: int) -> int | None:
    return (0, None, min(1, ndim))[number % 3]


def last_alone(number: int, ndim: int) -> int | None:
    """The first leaf is mapped, along its last axis, and no other."""
    return ndim if number == 0 else None


TRANSFORMATIONS = [
    Transformation("grad", _grad),
    Transformation(
        "value_and_grad_with_aux",
        lambda s: jax.value_and_grad(loss_and_outputs(s.function), s.real, has_aux=True),
    ),
    Transformation("jvp", of_inexact(_jvp)),
    Transformation("jvp_with_aux", of_inexact(_jvp_with_aux)),
    Transformation("jvp_of_all", _jvp_of_all),
    Transformation("vjp", of_inexact(_vjp)),
    Transformation("vjp_with_aux", of_inexact(_vjp_with_aux)),
    Transformation("linearize", of_inexact(_linearize)),
    Transformation("jacfwd", lambda s: jax.jacfwd(real_outputs(s.function), s.real)),
    Transformation("jacrev", lambda s: jax.jacrev(real_outputs(s.function), s.real)),
    Transformation("hessian", lambda s: jax.hessian(loss(s.function), s.real), small=True),
    Transformation("vmap", _vmap, first),
    Transformation("vmap_axis_1", _vmap, second),
    Transformation("vmap_mixed", lambda s: jax.vmap(s.function, s.axes, -1), mixed),
    Transformation("vmap_of_one", _vmap, last_alone),
    Transformation("vmap_of_grad", lambda s: jax.vmap(_grad(s), s.axes), mixed),
    Transformation("grad_of_vmap", lambda s: _grad(s.with_function(_vmap(s))), first),
    Transformation("checkpoint", lambda s: jax.checkpoint(s.function, static_argnums=s.static)),
    Transformation(
        "grad_of_checkpoint",
        lambda s: _grad(s.with_function(jax.checkpoint(s.function, static_argnums=s.static))),
    ),
    Transformation("jit_of_grad", lambda s: _jit(s.with_function(_grad(s)))),
    Transformation("grad_of_jit", lambda s: _grad(s.with_function(_jit(s)))),
    Transformation("grad_of_scan", _grad_of_scan, first),
]


# ---- pairs ------------------------------------------------------------------------------------

SMALL = 16


def applies(transformation: Transformation, case: Case) -> bool:
    """Whether the pair exists at all: a Hessian has the square of the numbers of the arguments."""
    if not transformation.small:
        return True
    with case.entered():
        shapes = [leaf.shape for leaf in jax.tree.leaves(case.arguments()) if _is_array(leaf)]
    return all(isinstance(d, int) for shape in shapes for d in shape) and (
        sum(int(np.prod(shape)) for shape in shapes) <= SMALL
    )


def of_case(case: Case, one_in: int) -> list[Transformation]:
    """The transformations of a case: all, or one in so many, the next ones for the next case."""
    start = _NUMBERS[case.name]
    return [
        transformation
        for i, transformation in enumerate(TRANSFORMATIONS)
        if (start + i) % one_in == 0 and applies(transformation, case)
    ]


_NUMBERS = {case.name: number for number, case in enumerate(CASES)}


def unwrapped(function: Function) -> Function:
    """The function of the case that a transformed function is made of."""
    return inspect.unwrap(function)
