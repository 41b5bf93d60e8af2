"""Strategies of random programs that call jax's public functions.

A program is data: a list of steps, each a call of a public function, a method, an operator or an
index expression on values made before it, or a block: control flow, a transformation or a setting
around a smaller program. Arguments are drawn by the names of a function's parameters, from what
such a parameter takes and from what it refuses. A call that raises is noted, and the program goes
on.

Every function that the modules export is drawn, so that a new one cannot be forgotten.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import itertools
import operator
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np
from hypothesis import strategies as st
from jax import lax
from jax._src.compute_on import extend_compute_type
from jax.experimental.xla_metadata import set_xla_metadata

import oracle

# ---- programs as data -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Operand:
    """A value made before, named by its (wrapped) position."""

    position: int


@dataclasses.dataclass(frozen=True)
class Key:
    """The last random key among the values, or a new one."""


@dataclasses.dataclass(frozen=True)
class Of:
    """A constant that is made anew at each use, as a program that spells it would."""

    maker: Callable[..., Any]
    args: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Call:
    function: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()


@dataclasses.dataclass(frozen=True)
class Block:
    """A construct around a smaller program, whose values are the operand and the captured one."""

    kind: str
    operand: Operand
    captured: Operand
    body: Program


@dataclasses.dataclass(frozen=True)
class Program:
    steps: tuple[Call | Block, ...]
    # Whether an error of the last step ends the program.
    raises: bool = False


# ---- running a program ------------------------------------------------------------------------

Log = list[Any]


def run(program: Program, values: Sequence[Any], log: Log) -> list[Any]:
    """Runs the program on the values; what every step returned or raised goes to the log."""
    values = list(values)
    for position, step in enumerate(program.steps):
        try:
            if isinstance(step, Call):
                args = [resolve(arg, values) for arg in step.args]
                kwargs = {name: resolve(value, values) for name, value in step.kwargs}
                result = FUNCTIONS[step.function](*args, **kwargs)
            else:
                operand, captured = (resolve(o, values) for o in (step.operand, step.captured))
                result = BLOCKS[step.kind](step.body, operand, captured, log)
        except Exception as error:
            if program.raises and position == len(program.steps) - 1:
                raise
            log.append((type(error), oracle.scrub(str(error))))
            continue
        leaves, tree = jax.tree.flatten(result)
        log.append((str(tree), [described(leaf, values) for leaf in leaves]))
        values += leaves[:4]
    return values


def resolve(argument: Any, values: Sequence[Any]) -> Any:
    """The argument with its operands in place."""
    match argument:
        case Operand(position):
            return values[position % len(values)]
        case Key():
            keys = [v for v in values if isinstance(v, jax.Array) and is_key(v)]
            return keys[-1] if keys else jax.random.key(7)
        case Of(maker, args):
            return maker(*(resolve(arg, values) for arg in args))
        case list():
            return [resolve(item, values) for item in argument]
        case tuple() if type(argument) is tuple:
            return tuple(resolve(item, values) for item in argument)
        case dict():
            return {name: resolve(item, values) for name, item in argument.items()}
        case slice():
            parts = (argument.start, argument.stop, argument.step)
            return slice(*(resolve(part, values) for part in parts))
    return argument


def is_key(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def described(leaf: Any, values: Sequence[Any]) -> Any:
    """A result as plain data: which earlier value it is, or its type."""
    if isinstance(leaf, jax.core.Tracer):
        same = [position for position, value in enumerate(values) if value is leaf]
        return (same, leaf.aval.str_short(), getattr(leaf.aval, "weak_type", None))
    if callable(leaf):
        return (type(leaf), getattr(leaf, "__qualname__", None))
    return oracle.describe_value(leaf)


# ---- functions --------------------------------------------------------------------------------

MODULES = [
    "jax.numpy",
    "jax.numpy.linalg",
    "jax.numpy.fft",
    "jax.lax",
    "jax.lax.linalg",
    "jax.nn",
    "jax.nn.initializers",
    "jax.random",
    "jax.image",
    *(
        module.name
        for module in pkgutil.walk_packages(jax.scipy.__path__, "jax.scipy.")
        if "._" not in module.name
    ),
]

# Functions that read or write files, buffers or settings, or whose arguments are programs.
EXCLUDED = {
    "jax.numpy.from_dlpack",
    "jax.numpy.frombuffer",
    "jax.numpy.fromfile",
    "jax.numpy.fromiter",
    "jax.numpy.fromstring",
    "jax.numpy.get_printoptions",
    "jax.numpy.load",
    "jax.numpy.printoptions",
    "jax.numpy.save",
    "jax.numpy.savez",
    "jax.numpy.set_printoptions",
    "jax.numpy.frompyfunc",
    "jax.lax.composite",
    "jax.lax.custom_linear_solve",
    "jax.lax.custom_root",
    "jax.lax.platform_dependent",
    "jax.scipy.optimize.minimize",
    # The number of terms is a value: a large one takes minutes in stock jax.
    "jax.scipy.special.bernoulli",
}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name, value in vars(module).items():
            path = f"{module_name}.{name}"
            public = callable(value) and not isinstance(value, type) and not name.startswith("_")
            if public and path not in EXCLUDED:
                with contextlib.suppress(ValueError):  # an alias of a type has no signature
                    inspect.signature(value)
                    yield path, value


PUBLIC = dict(public_functions())

BINARY_OPERATORS = [
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("lshift", "rshift", "and_", "or_", "xor", "lt", "le", "eq", "ne", "gt", "ge"),
    *("iadd", "isub", "imul", "ipow"),
]
UNARY_OPERATORS = ["neg", "pos", "abs", "invert", "index", "truth"]
ARRAY_METHODS = sorted(
    name
    for name in dir(jax.Array)
    if not name.startswith("_")
    and callable(getattr(jax.Array, name))
    # These look at a buffer, or at where it is.
    and not name.startswith(("addressable", "block", "copy_to", "delete", "is_", "on_device"))
)
ARRAY_PROPERTIES = ["T", "mT", "dtype", "shape", "ndim", "size", "real", "imag", "itemsize", "aval"]
UPDATES = [
    *("get", "set", "add", "subtract", "multiply", "divide", "power", "min", "max"),
    "apply",
]


def method(name: str) -> Callable[..., Any]:
    return lambda array, *args, **kwargs: getattr(array, name)(*args, **kwargs)


def update(name: str) -> Callable[..., Any]:
    return lambda array, index, *args, **kwargs: getattr(array.at[index], name)(*args, **kwargs)


@functools.partial(jax.jit, static_argnames=("scale", "flag"))
def scaled(x: Any, scale: Any = 2, flag: bool = False) -> Any:
    return {"x": x * scale, "flag": jnp.where(flag, x, 0)}


@functools.partial(jax.jit, inline=True)
def inlined(x: Any, *more: Any) -> Any:
    return (jnp.cos(x), *more)


@jax.jit
def nested(x: Any, y: Any = 1.0) -> Any:
    return jax.nn.relu(scaled(x)["x"]) + y, x, jnp.arange(3)


@jax.jit
def with_constant(x: Any) -> Any:
    return x + TABLE


@jax.jit
def pairs(tree: Any) -> Any:
    return jax.tree.map(lambda x: (x, x), tree)


@jax.custom_jvp
def with_rule(x: Any) -> Any:
    return jnp.sin(x)


with_rule.defjvp(lambda x, t: (with_rule(*x), t[0] * jnp.cos(x[0])))

TABLE = np.arange(3, dtype=np.float32)

# The jits live as long as the process, so that calls of many programs meet in their caches.
USER_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "user.scaled": scaled,
    "user.inlined": inlined,
    "user.nested": nested,
    "user.with_constant": with_constant,
    "user.pairs": pairs,
    "user.with_rule": with_rule,
    "user.jit of jnp": jax.jit(jnp.sum, static_argnames=("axis", "keepdims")),
    "user.vectorize": jnp.vectorize(lambda x, y: jnp.dot(x, y), signature="(n),(n)->()"),
    "user.numpy ufunc": np.add,
    "user.numpy function": np.concatenate,
    "user.numpy sum": np.sum,
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **PUBLIC,
    **USER_FUNCTIONS,
    **{f"operator.{name}": getattr(operator, name) for name in BINARY_OPERATORS},
    **{f"operator.{name}": getattr(operator, name) for name in UNARY_OPERATORS},
    "operator.divmod": divmod,
    "operator.pow3": pow,
    "operator.round": round,
    "operator.len": len,
    "operator.float": float,
    "operator.iter": list,
    "operator.getitem": operator.getitem,
    **{f"Array.{name}": method(name) for name in ARRAY_METHODS},
    **{f"Array.{name}": operator.attrgetter(name) for name in ARRAY_PROPERTIES},
    **{f"at.{name}": update(name) for name in UPDATES},
    "jnp.ufunc.at": lambda name, *args, **kwargs: getattr(jnp, name).at(
        *args, inplace=False, **kwargs
    ),
    **{
        f"jnp.ufunc.{attribute}": functools.partial(
            lambda attribute, name, *args, **kwargs: getattr(getattr(jnp, name), attribute)(
                *args, **kwargs
            ),
            attribute,
        )
        for attribute in ("reduce", "accumulate", "reduceat", "outer")
    },
    "initializer": lambda name, options, *args: getattr(jax.nn.initializers, name)(**options)(
        *args
    ),
}


# ---- arguments --------------------------------------------------------------------------------

DTYPES = [
    *(jnp.float32, jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32, jnp.int8, jnp.uint8),
    *(jnp.uint32, jnp.complex64, jnp.bool_),
]
SHAPES: list[tuple[int, ...]] = [(), (3,), (3,), (2, 3), (3, 3), (2, 1), (0,), (1, 3, 2)]


def array(maker: Callable[..., Any], dtype: Any, shape: tuple[int, ...]) -> Any:
    """Small numbers of a type, by numpy or by jax."""
    numbers = np.linspace(0, 2, int(np.prod(shape))).reshape(shape)
    return maker(numbers.astype(dtype))


def some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


operands = st.builds(Operand, st.integers(0, 11))
python_scalars = some(
    *(0, 1, 2, -1, 7, 300, 2**31, 2**40, 2**70, True, False, 0.0, -0.0, 0.5, 2.0, -1.5, 1e-8),
    *(float("nan"), float("inf"), 1e300, 1j, 0.5 + 2j, complex(0.0, -0.0)),
)
numpy_scalars = st.builds(
    lambda dtype, value: np.dtype(dtype).type(value),
    some(*DTYPES, np.float64, np.int64, np.int16, np.complex128),
    some(0, 1, 2),
)
numpy_arrays = st.builds(
    lambda *args: Of(array, (np.asarray, *args)), some(*DTYPES, np.float64), some(*SHAPES)
)
jax_arrays = st.builds(lambda *args: Of(array, (jnp.asarray, *args)), some(*DTYPES), some(*SHAPES))
numbers = st.one_of(*[operands] * 8, python_scalars, numpy_scalars, numpy_arrays, jax_arrays)
booleans = some(True, False, True, False, True, False, None, 1, np.bool_(True))
small = some(0, 1, 2, 3, -1, np.int32(1), 1.0)
axes = some(
    *(None, 0, -1, 1, 0, -1, (0,), (0, 1), (), (-1, 0), [0], 2, np.int64(0), np.int32(-1), True)
)
dtypes = some(
    *(None, jnp.float32, float, int, bool, complex, "int8", np.dtype("float16"), jnp.bfloat16),
    *(jnp.int32, np.uint8, "float64", jnp.complex64, np.dtype("int32"), "bfloat16", "nonsense"),
)
shapes = some((), (3,), (2, 3), [3], 3, (3, 1), (0,), (-1,), (3, -1), (1, 3, 1), (np.int64(3),))
keys = st.one_of(*[st.builds(Key)] * 8, operands, st.builds(lambda: Of(jax.random.PRNGKey, (3,))))
several = st.one_of(
    st.lists(numbers, max_size=3), st.lists(operands, min_size=1, max_size=3).map(tuple), operands
)
functions = some(
    jnp.sin, jnp.add, jnp.sum, jnp.maximum, lax.add, lax.max, jax.nn.relu, scaled, abs, np.sin
)
precisions = some(
    *(None, "highest", "default", "float32", "bfloat16", lax.Precision.HIGH, 1),
    *((lax.Precision.HIGHEST, lax.Precision.DEFAULT), "TF32_TF32_F32", "nonsense"),
)
pairs_of_numbers = some(1, (1, 0), ((1, 1),), ((0, 1), (1, 0)), (2,), [(1, 2)], (0, 0))
modes = some(
    *(None, "clip", "fill", "wrap", "promise_in_bounds", "drop", "same", "valid", "full"),
    *("constant", "edge", "reflect", "reduced", "complete", "raise", "nearest", "linear"),
    *(lax.GatherScatterMode.CLIP, lax.RandomAlgorithm.RNG_DEFAULT, "nonsense"),
)

# What a parameter takes, by its name.
PARAMETERS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(
        [
            *("axis", "axes", "dimension", "dimensions", "axis1", "axis2", "axisa", "axisb"),
            *("source", "destination", "in_axis", "out_axis", "batch_axis", "start_dimension"),
            *("stop_dimension", "permutation", "broadcast_dimensions", "reduction_dimension"),
            *("column_axis", "split_axis", "concat_axis", "spatial_dims", "ind"),
        ],
        axes,
    ),
    **dict.fromkeys(
        [
            *("dtype", "preferred_element_type", "new_dtype", "index_dtype", "out_dtype"),
            *("arg1", "arg2", "from_", "to", "impl_spec"),
        ],
        dtypes,
    ),
    **dict.fromkeys(
        [
            *("shape", "newshape", "new_shape", "new_sizes", "sizes", "slice_sizes", "strides"),
            *("s", "reps", "window_strides", "window_dimensions", "base_dilation", "out_shape"),
            *("window_dilation", "lhs_dilation", "rhs_dilation", "dims", "lhs_shape", "rhs_shape"),
            *("fft_lengths", "filter_shape", "limit_indices", "operand_shape", "in_shape"),
            *("window_shape", "subset_by_index", "update_shape", "pads", "shapes"),
        ],
        shapes,
    ),
    **dict.fromkeys(
        [
            *("n", "k", "num", "N", "M", "ndmin", "offset", "rank", "num_classes", "num_keys"),
            *(
                "decimals",
                "deg",
                "ddof",
                "length",
                "minlength",
                "ndim",
                "edge_order",
                "limit_index",
            ),
            *("stride", "slice_size", "exponent_bits", "mantissa_bits", "n_iter", "n_max", "type"),
            *("total_repeat_length", "kth", "feature_group_count", "batch_group_count", "start"),
            *("series_order", "max_iterations", "maxiter", "blocksize", "max_squarings", "d"),
            *("nperseg", "noverlap", "nfft", "permutation_size", "correction", "order", "lwork"),
        ],
        st.one_of(small, small, operands),
    ),
    **dict.fromkeys(
        ["size", "repeats", "shift", "indices_or_sections", "obj", "bins", "reps", "pivots"],
        st.one_of(small, some((1, 2), [1], (0,), None), operands),
    ),
    **dict.fromkeys(
        [
            *("keepdims", "endpoint", "retstep", "sparse", "copy", "increasing", "unit_diagonal"),
            *("lower", "upper", "left_side", "transpose_a", "conjugate_a", "full_matrices"),
            *("compute_uv", "hermitian", "symmetrize_input", "is_stable", "stable", "descending"),
            *("reverse", "include_initial", "approximate", "return_sign", "replace", "rowvar"),
            *("bias", "density", "returned", "full", "right", "assume_unique", "equal_nan"),
            *("return_index", "return_inverse", "return_counts", "indices_are_sorted", "invert"),
            *("unique_indices", "independent", "antialias", "is_causal", "check_finite", "exact"),
            *("eigvals_only", "promote_integers", "tiled", "strip_zeros", "calc_q", "inplace"),
            *("assume_unique_indices", "allow_negative_indices", "permute_l", "return_indices"),
            *("transpose_kernel", "sort_eigenvalues", "trim_leading_zeros", "overwrite_a", "wrap"),
            *("sorted", "pivoting", "conjugate", "return_onesided", "padded", "is_hermitian"),
        ],
        booleans,
    ),
    **dict.fromkeys(
        ["arrays", "tup", "args", "operands", "xi", "arys", "arrs", "cases", "choices"], several
    ),
    **dict.fromkeys(["condlist", "choicelist", "multi_index", "coordinates", "indices"], several),
    **dict.fromkeys(
        ["func", "func1d", "f", "fun", "fn", "pyfunc", "function", "computation", "mask_func"],
        functions,
    ),
    **dict.fromkeys(["true_fun", "false_fun", "body_fun", "cond_fun", "branches"], functions),
    **dict.fromkeys(["key", "keys"], st.one_of(keys, operands)),
    **dict.fromkeys(["mode", "method", "boundary", "norm", "rounding_method"], modes),
    "norm": some(None, "ortho", "backward", "forward", "nonsense"),
    "method": some("linear", "nearest", "lanczos3", "sort", "scan", "svd", "cholesky", "nonsense"),
    "kind": some("numeric", "bool", "quicksort", "stable", ("integral", "bool"), None),
    "ord": some(None, 1, 2, "fro", "nuc", np.inf, -1, 0, 3.5),
    "precision": precisions,
    "accuracy": some(None, lax.AccuracyMode.HIGHEST, lax.AccuracyMode.DEFAULT),
    "indexing": some("ij", "xy"),
    "side": some("left", "right"),
    "UPLO": some("L", "U", None),
    "impl": some(None, "threefry2x32", "rbg", "unsafe_rbg"),
    "seed": st.one_of(small, numbers),
    "distribution": some("normal", "truncated_normal", "uniform"),
    "padding": some("SAME", "VALID", "SAME_LOWER", ((1, 1),), ((0, 1), (1, 0)), 1),
    "padding_config": some(((1, 0, 0),), ((0, 1, 1), (1, 0, 0)), [(1, 1, 0)], ((-1, 0, 0),), ()),
    "pad_width": pairs_of_numbers,
    "dimension_numbers": some(
        *(None, (((0,), (0,)), ((), ())), (((1,), (0,)), ((), ())), ("NCH", "OIH", "NCH"))
    ),
    "subscripts": some(
        *("i,i->", "ij,jk", "i,j->ij", "ij->ji", "...i,...i->...", "ii", "ij,j->i", "i->", "zz,")
    ),
    "axis_name": some("i", ("i", "j"), None),
    "where": st.one_of(operands, some(None, True)),
    "out": some(None, None, None, 0),
    "out_sharding": some(None),
    "sharding": some(None),
    "device": some(None),
    "wrap_negative_indices": booleans,
    "unroll": some(1, 2, True),
    "fft_type": some("fft", "rfft", lax.FftType.IFFT, "irfft"),
    "algorithm": some(*lax.RandomAlgorithm, "stdlib"),
    "casting": some("safe", "same_kind"),
    "window": some("hann", "boxcar", ("gaussian", 1.0)),
    "optimize": some("optimal", "auto", True, False, "greedy"),
    "trim": some("f", "b", "fb"),
    "bitorder": some("big", "little"),
    "signature": some(None, "(n)->()", "(n),(n)->()", "()->()"),
}

# Calls whose arguments have to fit each other to be accepted at all.
FITTING: dict[str, st.SearchStrategy[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "jax.lax.dot_general": st.tuples(
        st.tuples(operands, operands, PARAMETERS["dimension_numbers"]),
        st.fixed_dictionaries({}, optional={"precision": precisions}),
    ),
    "jax.lax.conv_general_dilated": st.tuples(
        st.tuples(
            some(Of(array, (jnp.asarray, jnp.float32, (1, 2, 5)))),
            some(Of(array, (jnp.asarray, jnp.float32, (3, 2, 2)))),
            some((1,), (2,), [1]),
            some("SAME", "VALID", ((1, 0),)),
        ),
        st.fixed_dictionaries(
            {}, optional={"rhs_dilation": some((1,), (2,)), "precision": precisions}
        ),
    ),
    "jax.lax.reduce_window": st.tuples(
        st.tuples(
            operands,
            python_scalars,
            some(lax.add, lax.max, jnp.add, lax.mul),
            some((1,), (2,), (1, 2)),
            some((1,), (1, 1)),
            some("SAME", "VALID"),
        ),
        st.just({}),
    ),
    "jax.lax.reduce": st.tuples(
        st.tuples(operands, python_scalars, some(lax.add, lax.max, jnp.add), some((0,), (0, 1))),
        st.just({}),
    ),
    "jax.lax.gather": st.tuples(
        st.tuples(
            operands,
            some(Of(array, (np.asarray, np.int32, (2, 1)))),
            some(
                lax.GatherDimensionNumbers(
                    offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,)
                )
            ),
            some((1,)),
        ),
        st.fixed_dictionaries({}, optional={"mode": modes, "fill_value": python_scalars}),
    ),
    "jax.lax.scatter_add": st.tuples(
        st.tuples(
            operands,
            some(Of(array, (np.asarray, np.int32, (2, 1)))),
            numbers,
            some(
                lax.ScatterDimensionNumbers(
                    update_window_dims=(),
                    inserted_window_dims=(0,),
                    scatter_dims_to_operand_dims=(0,),
                )
            ),
        ),
        st.fixed_dictionaries({}, optional={"mode": modes}),
    ),
}


@st.composite
def arguments_of(draw: st.DrawFn, path: str) -> tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]:
    """Arguments of a function, by the names of its parameters."""
    if path in FITTING and draw(st.booleans()):
        args, kwargs = draw(FITTING[path])
        return args, tuple(kwargs.items())
    args: list[Any] = []
    kwargs: list[tuple[str, Any]] = []
    by_position = True
    generous = draw(st.booleans())
    for parameter in inspect.signature(FUNCTIONS[path]).parameters.values():
        known = PARAMETERS.get(parameter.name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            if by_position:
                args += draw(st.lists(numbers, max_size=3))
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        optional = parameter.default is not parameter.empty
        if optional and draw(st.integers(0, 3)) >= (2 if generous else 1):
            by_position = False
            continue
        if known is None:
            known = st.one_of(numbers, numbers, some(parameter.default)) if optional else numbers
        value = draw(known)
        keyword_only = parameter.kind is parameter.KEYWORD_ONLY
        by_position = by_position and not keyword_only and draw(st.integers(0, 7)) > 0
        if by_position or parameter.kind is parameter.POSITIONAL_ONLY:
            args.append(value)
        else:
            kwargs.append((parameter.name, value))
    return tuple(args), tuple(kwargs)


@st.composite
def public_calls(draw: st.DrawFn) -> Call:
    path = draw(st.sampled_from(list(PUBLIC)))
    return Call(path, *draw(arguments_of(path)))


# Functions that programs are full of, drawn more often.
COMMON = [
    f"jax.{name}"
    for name in [
        *("numpy.sum", "numpy.mean", "numpy.max", "numpy.where", "numpy.dot", "numpy.einsum"),
        *("numpy.reshape", "numpy.transpose", "numpy.concatenate", "numpy.stack", "numpy.take"),
        *("numpy.zeros", "numpy.ones", "numpy.arange", "numpy.full", "numpy.asarray", "numpy.var"),
        *("numpy.array", "numpy.clip", "numpy.exp", "numpy.add", "numpy.power", "numpy.tile"),
        *("numpy.cumsum", "numpy.argmax", "numpy.sort", "numpy.split", "numpy.pad", "numpy.roll"),
        *("numpy.broadcast_to", "numpy.expand_dims", "numpy.squeeze", "numpy.zeros_like"),
        *("numpy.result_type", "numpy.shape", "numpy.linalg.norm", "numpy.matmul", "numpy.outer"),
        *("nn.softmax", "nn.gelu", "nn.relu", "nn.one_hot", "nn.silu", "nn.log_softmax"),
        *("nn.logsumexp", "random.normal", "random.uniform", "random.split", "random.fold_in"),
        *("random.randint", "random.bernoulli", "random.key", "random.permutation"),
        *("lax.convert_element_type", "lax.select", "lax.dynamic_slice", "lax.broadcast_in_dim"),
        *("lax.dot_general", "lax.conv_general_dilated", "lax.reduce_window", "lax.gather"),
        *("lax.scatter_add", "lax.reduce", "lax.full", "lax.iota", "lax.stop_gradient"),
    ]
]


@st.composite
def common_calls(draw: st.DrawFn) -> Call:
    path = draw(st.sampled_from(COMMON))
    return Call(path, *draw(arguments_of(path)))


index_parts = st.one_of(
    some(0, -1, 1, 5, None, Ellipsis, slice(None), slice(1), slice(None, None, -1), True),
    some(slice(0, 2), slice(-2, None), slice(None, None, 2), np.int32(1), [0, 1], slice(5, 1)),
    some(Of(array, (np.asarray, np.int32, (3,))), Of(array, (np.asarray, np.bool_, (3,)))),
    some(1.0, "a", slice(0.5), Of(array, (jnp.asarray, jnp.int32, (2, 1))), np.bool_(True)),
    operands,
    st.builds(slice, operands, st.none()),
)
indices = st.one_of(
    index_parts,
    index_parts,
    st.lists(index_parts, max_size=3).map(tuple),
    st.builds(lambda *parts: Of(slice, parts), some(None, 0, 1), some(None, 2, -1)),
)
index_options = st.fixed_dictionaries(
    {},
    optional={
        "mode": modes,
        "indices_are_sorted": booleans,
        "unique_indices": booleans,
    },
).map(lambda options: tuple(options.items()))

binary_calls = st.builds(
    lambda name, *args: Call(f"operator.{name}", args),
    some(*BINARY_OPERATORS, "divmod"),
    numbers,
    numbers,
)
unary_calls = st.builds(
    lambda name, x: Call(f"operator.{name}", (x,)),
    some(*UNARY_OPERATORS, "round", "len", "iter", "float"),
    operands,
)
index_calls = st.builds(lambda x, i: Call("operator.getitem", (x, i)), operands, indices)
update_calls = st.one_of(
    st.builds(
        lambda name, x, index, y, options: Call(f"at.{name}", (x, index, y), options),
        some(*(name for name in UPDATES if name not in ("get", "apply"))),
        operands,
        indices,
        numbers,
        index_options,
    ),
    st.builds(
        lambda x, index, options: Call("at.get", (x, index), options),
        operands,
        indices,
        index_options,
    ),
    st.builds(lambda x, index, f: Call("at.apply", (x, index, f)), operands, indices, functions),
)


@st.composite
def method_calls(draw: st.DrawFn) -> Call:
    name = draw(st.sampled_from([*ARRAY_METHODS, *ARRAY_PROPERTIES]))
    x = draw(operands)
    if name in ARRAY_PROPERTIES:
        return Call(f"Array.{name}", (x,))
    path = f"jax.numpy.{name}"
    if path not in PUBLIC:
        return Call(f"Array.{name}", (x, *draw(st.lists(st.one_of(dtypes, numbers), max_size=1))))
    args, kwargs = draw(arguments_of(path))
    return Call(f"Array.{name}", (x, *args[1:]), kwargs)


@st.composite
def ufunc_calls(draw: st.DrawFn) -> Call:
    name = draw(some("add", "multiply", "maximum", "logaddexp", "subtract", "sin", "logical_and"))
    attribute = draw(some("reduce", "accumulate", "reduceat", "outer", "at"))
    if attribute == "reduce":
        options = {"axis": axes, "keepdims": booleans, "dtype": dtypes, "initial": numbers}
        kwargs = draw(st.fixed_dictionaries({}, optional=options))
        return Call("jnp.ufunc.reduce", (name, draw(operands)), tuple(kwargs.items()))
    more = {
        "accumulate": [],
        "reduceat": [some((0, 1), np.array([0, 2]))],
        "outer": [numbers],
        "at": [indices, numbers],
    }[attribute]
    args = [draw(strategy) for strategy in more]
    return Call(f"jnp.ufunc.{attribute}", (name, draw(operands), *args))


user_calls = st.one_of(
    st.builds(
        lambda x, options: Call("user.scaled", (x,), tuple(options.items())),
        numbers,
        st.fixed_dictionaries(
            {}, optional={"scale": some(2, 2.0, True, np.float32(2), (1,)), "flag": booleans}
        ),
    ),
    st.builds(lambda args: Call("user.inlined", tuple(args)), st.lists(numbers, max_size=3)),
    st.builds(lambda args: Call("user.nested", tuple(args)), st.lists(numbers, max_size=2)),
    st.builds(lambda x, y: Call("user.nested", (x,), (("y", y),)), numbers, numbers),
    st.builds(lambda x: Call("user.with_constant", (x,)), numbers),
    st.builds(lambda x: Call("user.with_rule", (x,)), numbers),
    st.builds(
        lambda tree: Call("user.pairs", (tree,)),
        st.one_of(several, st.dictionaries(some("a", "b", 1, "c"), numbers, max_size=3)),
    ),
    st.builds(
        lambda x, axis, keepdims: Call(
            "user.jit of jnp", (x,), (("axis", axis), ("keepdims", keepdims))
        ),
        numbers,
        axes,
        booleans,
    ),
    st.builds(lambda x, y: Call("user.vectorize", (x, y)), operands, numbers),
    st.builds(lambda x, y: Call("user.numpy ufunc", (x, y)), numbers, operands),
    st.builds(lambda x: Call("user.numpy function", (x,)), several),
    st.builds(lambda x: Call("user.numpy sum", (x,)), operands),
)

initializer_calls = st.builds(
    lambda name, options, *args: Call("initializer", (name, options, *args)),
    some(*(name for name in dir(jax.nn.initializers) if not name.startswith("_"))),
    st.fixed_dictionaries(
        {}, optional={"dtype": dtypes, "in_axis": axes, "stddev": numbers, "scale": numbers}
    ),
    keys,
    shapes,
)

calls = st.one_of(
    *[public_calls()] * 6,
    *[common_calls()] * 4,
    *[binary_calls] * 3,
    *[index_calls] * 2,
    *[update_calls] * 2,
    method_calls(),
    user_calls,
    unary_calls,
    ufunc_calls(),
    initializer_calls,
)

# Values that are equal to Python, or nearly, and are not the same to jax.
LOOKALIKES: list[tuple[Any, ...]] = [
    (0, 0.0, -0.0, False, np.int32(0), np.float32(0), 0j, (), None),
    (1, 1.0, True, np.int32(1), np.int64(1), np.float32(1), np.float64(1), np.bool_(True), (1,)),
    (2, 2.0, np.uint8(2), 2 + 0j, np.float16(2), jnp.bfloat16(2)),
    (-1, -1.0, np.int32(-1), (-1,), [-1], 2**32 - 1, 2**64 - 1),
    ((0,), [0], (False,), (0.0,), (np.int64(0),), 0),
    ((0, 1), [0, 1], (0.0, 1.0), (False, True), slice(0, 1), (0, (1,))),
    (jnp.float32, np.float32, "float32", np.dtype("float32"), float, "f4", jnp.float64),
    (jnp.int32, np.int32, "int32", np.dtype("int32"), int, "i4", jnp.int64),
    (bool, jnp.bool_, np.bool_, "bool", np.dtype(bool)),
    ("highest", lax.Precision.HIGHEST, "float32"),
    ("default", lax.Precision.DEFAULT, "bfloat16", None),
    (slice(None), slice(0, None), slice(None, None, 1), Ellipsis, ()),
]


def is_lookalike(a: Any, b: Any) -> bool:
    return type(a) is type(b) and repr(a) == repr(b)


@st.composite
def resembling(draw: st.DrawFn, argument: Any) -> Any:
    """An argument that resembles another one: equal to it, or of another type, or another value."""
    for family in LOOKALIKES:
        if any(is_lookalike(argument, member) for member in family):
            return draw(st.sampled_from(family))
    if isinstance(argument, Operand):
        return draw(operands)
    if isinstance(argument, tuple | list) and argument:
        position = draw(st.integers(0, len(argument) - 1))
        items = list(argument)
        items[position] = draw(resembling(items[position]))
        return type(argument)(items) if type(argument) in (tuple, list) else argument
    return argument


@st.composite
def resembling_calls(draw: st.DrawFn) -> list[Call]:
    """A call, others that differ from it in one argument, and the first once more."""
    call = draw(calls)
    args, names = list(call.args), [name for name, _ in call.kwargs]
    values = [*args, *(value for _, value in call.kwargs)]
    family = [call]
    for _ in range(draw(st.integers(1, 3)) if values else 0):
        position = draw(st.integers(0, len(values) - 1))
        changed = list(values)
        changed[position] = draw(resembling(values[position]))
        kwargs = zip(names, changed[len(args) :], strict=True)
        family.append(Call(call.function, tuple(changed[: len(args)]), tuple(kwargs)))
    return [*family, call]


# ---- blocks -----------------------------------------------------------------------------------


def total(values: Sequence[Any]) -> Any:
    """One number of a fixed type that depends on all values that are numbers."""
    result = jnp.float32(0)
    for value in values:
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.number):
            result = result + lax.convert_element_type(jnp.sum(jnp.real(value)), jnp.float32)
    return result


def as_float(value: Any) -> Any:
    return jnp.real(jnp.asarray(value)).astype(jnp.float32)


def last(program: Program, captured: Any, log: Log) -> Callable[..., Any]:
    """The body as a function of any values: the last value that it makes."""
    return lambda *values: run(program, [*values, captured], log)[-1]


def number(program: Program, captured: Any, log: Log) -> Callable[..., Any]:
    """The body as a function of any values with a number as result."""
    return lambda *values: total(run(program, [*values, captured], log))


def within(entered: Callable[[], Any]) -> Callable[..., Any]:
    """A block that runs its body in a context."""

    def block(body: Program, x: Any, captured: Any, log: Log) -> Any:
        with entered():
            return run(body, [x, captured], log)[2:]

    return block


SETTINGS: dict[str, Callable[[], Any]] = {
    "named_scope": lambda: jax.named_scope("block"),
    "strict promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "rank promotion refused": lambda: jax.numpy_rank_promotion("raise"),
    "rank promotion warned of": lambda: jax.numpy_rank_promotion("warn"),
    "highest precision": lambda: jax.default_matmul_precision("highest"),
    "bfloat16 precision": lambda: jax.default_matmul_precision("bfloat16"),
    "x64": lambda: jax.enable_x64(True),
    "x32": lambda: jax.enable_x64(False),
    "rbg": lambda: jax.default_prng_impl("rbg"),
    "unsafe_rbg": lambda: jax.default_prng_impl("unsafe_rbg"),
    "threefry not partitionable": lambda: jax.threefry_partitionable(False),
    "no legacy keys": lambda: jax.legacy_prng_key("error"),
    "no jit": jax.disable_jit,
    "nans": lambda: jax.debug_nans(True),
    "checks": lambda: jax.enable_checks(True),
    "leaks": jax.checking_leaks,
    "device": lambda: jax.default_device(jax.devices()[1]),
    "metadata": lambda: set_xla_metadata(speed="fast"),
    "compute_on": lambda: extend_compute_type("device_host"),
}

BLOCKS: dict[str, Callable[[Program, Any, Any, Log], Any]] = {
    **{name: within(entered) for name, entered in SETTINGS.items()},
    "cond": lambda p, x, c, log: lax.cond(
        as_float(c).sum() > 0, number(p, c, log), lambda v: total([v]), x
    ),
    "cond of any type": lambda p, x, c, log: lax.cond(True, last(p, c, log), lambda v: v, x),
    "switch": lambda p, x, c, log: lax.switch(
        jnp.int32(1), [number(p, c, log), lambda v: total([v, v])], x
    ),
    "scan": lambda p, x, c, log: lax.scan(
        lambda carry, v: (number(p, c, log)(carry, v), v), jnp.float32(0), x
    ),
    "scan with a weak carry": lambda p, x, c, log: lax.scan(
        lambda carry, v: (carry + number(p, c, log)(v), carry), 0.0, x, length=3
    ),
    "while": lambda p, x, c, log: lax.while_loop(
        lambda s: s[0] < 3,
        lambda s: (s[0] + 1, number(p, c, log)(s[1], s[2]), s[2]),
        (0, jnp.float32(0), x),
    ),
    "fori_loop": lambda p, x, c, log: lax.fori_loop(
        0, 3, lambda i, v: number(p, c, log)(v, i), jnp.float32(1)
    ),
    "map": lambda p, x, c, log: lax.map(number(p, c, log), x),
    "jit": lambda p, x, c, log: jax.jit(last(p, c, log))(x),
    "jit of all": lambda p, x, c, log: jax.jit(
        lambda a, b: [v for v in run(p, [a, b], log) if isinstance(v, jax.Array)]
    )(x, c),
    "jit inline": lambda p, x, c, log: jax.jit(last(p, c, log), inline=True)(x),
    "jit twice": lambda p, x, c, log: (lambda f: (f(x), f(x)))(jax.jit(number(p, c, log))),
    "checkpoint": lambda p, x, c, log: jax.checkpoint(number(p, c, log))(x),
    "vmap": lambda p, x, c, log: jax.vmap(number(p, c, log))(x),
    "grad": lambda p, x, c, log: jax.grad(number(p, c, log))(as_float(x)),
    "jvp": lambda p, x, c, log: jax.jvp(number(p, c, log), (as_float(x),), (as_float(x),)),
    "eval_shape": lambda p, x, c, log: jax.eval_shape(number(p, c, log), x).shape,
}


# ---- whole programs ---------------------------------------------------------------------------


def programs(depth: int, most_steps: int = 7) -> st.SearchStrategy[Program]:
    step = calls.map(lambda call: [call])
    steps: list[st.SearchStrategy[Any]] = [step] * 5 + [resembling_calls()] * 2
    if depth:
        names = st.one_of(st.sampled_from(list(BLOCKS)), st.sampled_from(list(SETTINGS)))
        blocks = st.builds(Block, names, operands, operands, programs(depth - 1, 3))
        steps.append(blocks.map(lambda block: [block]))
    return st.builds(
        Program,
        st.lists(st.one_of(steps), min_size=1, max_size=most_steps).map(
            lambda parts: tuple(itertools.chain.from_iterable(parts))
        ),
        some(False, False, False, True),
    )


def random_key(typed: bool) -> jax.Array:
    return jax.random.key(1) if typed else jax.random.PRNGKey(1)


arguments = st.one_of(
    *[st.builds(lambda *args: array(jnp.asarray, *args), some(*DTYPES), some(*SHAPES))] * 6,
    some(1, 2.5, True, 1j, np.float32(1.5), np.int32(2), np.bool_(True)),
    st.builds(random_key, st.booleans()),
)
