"""What programs cost: against counts by hand, and against XLA where it counts the same thing."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.experimental import pallas as pl

import corpus
import covering
import jaxide
import oracle
from jaxide import Cost

X = jnp.ones((4, 8))


def cost_of(function: Callable[..., Any], *args: Any, **options: Any) -> jaxide.CostReport:
    return jaxide.trace(function)(*args).cost(**options)


def arithmetic(report: jaxide.CostReport) -> tuple[int, int]:
    return report.total.flops, report.total.transcendentals


def xla(function: Callable[..., Any], *args: Any) -> dict[str, float]:
    """What XLA counts in the program as it is lowered, before anything is optimised."""
    return jax.jit(function).lower(*args).cost_analysis() or {}


def assert_as_xla(function: Callable[..., Any], *args: Any) -> None:
    counted = xla(function, *args)
    expected = counted.get("flops", 0), counted.get("transcendentals", 0)
    assert arithmetic(cost_of(function, *args)) == expected


ELEMENTWISE = {
    **{name: getattr(lax, name) for name in "abs ceil floor neg sign round is_finite".split()},
    **{
        name: getattr(lax, name)
        for name in "cbrt cos erf exp expm1 log log1p rsqrt sin sqrt tan tanh".split()
    },
    "integer_pow": lambda x: x**5,
    "logistic": lax.logistic,
    "convert": lambda x: lax.convert_element_type(x, jnp.bfloat16),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_functions_of_elements(name: str) -> None:
    assert_as_xla(ELEMENTWISE[name], X)


@pytest.mark.parametrize("name", "add sub mul div max min rem pow atan2 eq lt nextafter".split())
def test_functions_of_two_arrays(name: str) -> None:
    report = cost_of(getattr(lax, name), X, X)
    expected = (0, 32) if name in ("pow", "atan2") else (32, 0)
    assert arithmetic(report) == expected
    out = 32 if name in ("eq", "lt") else 128
    assert report.total == Cost(*expected, 256, out)
    if name not in ("pow", "nextafter"):
        assert_as_xla(getattr(lax, name), X, X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.sum(x, 0),
        lambda x: jnp.max(x),
        lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID"),
        lambda x: jax.nn.softmax(x),
        lambda x: jax.nn.gelu(x),
        lambda x: jnp.where(x > 0, x, 2.0 * x),
    ],
)
def test_several(function: Callable[..., Any]) -> None:
    assert_as_xla(function, X)


# ---- contractions ------------------------------------------------------------------------------


@pytest.mark.parametrize("lhs_axis", range(3))
@pytest.mark.parametrize("rhs_axis", range(3))
@pytest.mark.parametrize("batched", [False, True])
def test_dot_general(lhs_axis: int, rhs_axis: int, batched: bool) -> None:
    lhs, rhs = np.array([3, 5, 7]), np.array([2, 11, 13])
    rhs[rhs_axis] = lhs[lhs_axis]
    batch: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    if batched:
        batch = ((lhs_axis + 1) % 3,), ((rhs_axis + 1) % 3,)
        rhs[batch[1][0]] = lhs[batch[0][0]]
    numbers = ((lhs_axis,), (rhs_axis,)), batch
    args = jnp.ones(lhs), jnp.ones(rhs)
    function = functools.partial(lax.dot_general, dimension_numbers=numbers)
    shared = lhs[lhs_axis] * math.prod(lhs[axis] for axis in batch[0])
    # Each element of the one with each of the other that it meets.
    assert arithmetic(cost_of(function, *args)) == (2 * lhs.prod() * rhs.prod() // shared, 0)
    assert_as_xla(function, *args)


LAYOUTS = [
    (lhs, rhs, out)
    for lhs, rhs, out in itertools.product(
        ("NCHW", "NHWC", "CHWN"), ("OIHW", "HWIO"), ("NCHW", "NHWC")
    )
]
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "valid": {"padding": "VALID"},
    "same": {"padding": "SAME"},
    "strides": {"padding": "SAME", "window_strides": (2, 3)},
    "uneven": {"padding": [(2, 0), (1, 4)]},
    "cut": {"padding": [(-1, 0), (0, -2)]},
    "transposed": {"padding": [(1, 1), (2, 2)], "lhs_dilation": (2, 3)},
    "dilated": {"padding": "VALID", "rhs_dilation": (2, 1)},
    "groups": {"padding": "SAME", "feature_group_count": 2},
    "batch_groups": {"padding": "SAME", "batch_group_count": 2},
}


def convolution(layout: tuple[str, str, str], options: dict[str, Any]) -> tuple[Any, Any, Any]:
    sizes = {"N": 2, "C": 4, "H": 9, "W": 10}
    kernel = {"O": 6, "I": 4 // options.get("feature_group_count", 1), "H": 3, "W": 2}
    function = functools.partial(
        lax.conv_general_dilated, dimension_numbers=layout, **{"window_strides": (1, 1), **options}
    )
    return (
        function,
        jnp.ones([sizes[name] for name in layout[0]]),
        jnp.ones([kernel[name] for name in layout[1]]),
    )


@pytest.mark.parametrize("layout", LAYOUTS, ids="-".join)
def test_layouts_of_convolutions(layout: tuple[str, str, str]) -> None:
    assert_as_xla(*convolution(layout, CONVOLUTIONS["strides"]))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    """Pairs of an input that is no padding and a weight: a sum of products of ones."""
    options = CONVOLUTIONS[name]
    function, image, kernel = convolution(LAYOUTS[0], options)
    flops, _ = arithmetic(cost_of(function, image, kernel))
    assert flops == 2 * int(function(image, kernel).sum())
    assert_as_xla(function, image, kernel)


# ---- nested programs ----------------------------------------------------------------------------


def body(x: Array) -> Array:
    return jnp.sin(x) * 2.0 + 1.0


EACH = Cost(64, 32, 3 * 128 + 8, 3 * 128)


def test_scan_counts_as_often_as_it_is_long() -> None:
    report = cost_of(lambda x: lax.scan(lambda c, _: (body(c), None), x, length=7)[0], X)
    assert (report.total.flops, report.total.transcendentals) == (7 * 64, 7 * 32)
    assert report.by_primitive["sin"].times == 7
    assert [(share.times, share.cost) for share in report.by_program] == [
        (1, report.total),
        (7, EACH),
    ]


def test_nested_scans_multiply() -> None:
    def outer(c: Array, _: None) -> tuple[Array, None]:
        return lax.scan(lambda c, _: (body(c), None), c, length=3)[0], None

    report = cost_of(lambda x: lax.scan(outer, x, length=5)[0], X)
    assert arithmetic(report) == (15 * 64, 15 * 32)


def test_while_loop() -> None:
    program = jaxide.trace(lambda x: lax.while_loop(lambda c: c[0, 0] < 9.0, body, x))(X)
    report = program.cost()
    assert len(report.loops) == 1
    assert "test_cost.py" in report.loops[0]
    # The condition is asked once more than the body runs.
    assert arithmetic(report) == (64 + 2, 32)
    assert arithmetic(program.cost(while_trips=10)) == (640 + 11, 320)
    assert arithmetic(program.cost(while_trips=0)) == (1, 0)
    assert "taken to run 10 times: the while loop at" in str(program.cost(while_trips=10))
    with pytest.raises(ValueError, match="while_trips must not be negative, got -1"):
        program.cost(while_trips=-1)


def test_branches() -> None:
    def traced(i: Array, x: Array) -> Array:
        return lax.switch(i, [lambda v: v, body, lambda v: v + 1.0], x)

    report = cost_of(traced, 1, X)
    ((line, costs),) = report.branches
    assert "test_cost.py" in line
    assert [(cost.flops, cost.transcendentals) for cost in costs] == [(0, 0), (64, 32), (32, 0)]
    assert report.by_primitive["sin"].times == 1
    assert report.by_primitive["add"].times == 1
    assert sorted(share.times for share in report.by_program) == [0, 0, 1, 1]


def with_jvp(function: Callable[..., Any]) -> Callable[..., Any]:
    own = jax.custom_jvp(function)
    own.defjvp(lambda primals, tangents: (own(*primals), tangents[0]))
    return own


def with_vjp(function: Callable[..., Any]) -> Callable[..., Any]:
    own = jax.custom_vjp(function)
    own.defvjp(lambda x: (own(x), None), lambda _, ct: (ct,))
    return own


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint, jax.named_call, with_jvp, with_vjp])
def test_calls(wrap: Callable[..., Any]) -> None:
    assert cost_of(wrap(body), X).total == EACH


def test_the_same_program_twice() -> None:
    inner = jax.jit(body)
    report = cost_of(lambda x: inner(inner(x)), X)
    assert report.total == EACH + EACH
    assert report.by_primitive["sin"].times == 2


def test_kernels_estimate_themselves() -> None:
    def copy(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    estimate = pl.CostEstimate(flops=123, transcendentals=45, bytes_accessed=678)
    options = {"out_shape": jax.ShapeDtypeStruct(X.shape, X.dtype), "interpret": True}
    report = cost_of(pl.pallas_call(copy, cost_estimate=estimate, **options), X)
    assert report.total == Cost(123, 45, 678, 0)
    assert not report.unknown
    assert cost_of(pl.pallas_call(copy, **options), X).unknown == {"pallas_call": 1}


# ---- reports -------------------------------------------------------------------------------------


def test_primitives_without_a_rule_are_listed() -> None:
    def function(x: Array) -> Array:
        return lax.fori_loop(0, 3, lambda _, v: jax.pure_callback(np.sin, v, v), x)

    report = cost_of(function, X)
    assert report.unknown == {"pure_callback": 3}
    assert "not counted: pure_callback, 3 times" in str(report)


def test_jits_in_linear_programs() -> None:
    """They are of another primitive from jax 0.12 on."""
    pullback = jax.vjp(jax.jit(lambda x: jnp.sin(x) * x), X)[1]
    report = jaxide.from_jaxpr(pullback.jaxpr).cost()
    assert not report.unknown
    # Three products and a sum: the tangents of both factors, and of the sine.
    assert arithmetic(report) == (4 * X.size, 0)


def test_lines() -> None:
    def function(x: Array) -> Array:
        y = jnp.sin(x)
        return y @ y.T

    program = jaxide.trace(function)(X)
    first, second = program.by_line()
    assert first.cost.flops == 2 * 4 * 4 * 8
    assert second.cost.transcendentals == 32
    lines = [int(share.name.split(":")[1].split()[0]) for share in (second, first)]
    start = function.__code__.co_firstlineno
    assert lines == [start + 1, start + 2]
    assert sum((share.cost for share in program.by_line()), Cost()) == program.cost().total


def test_intensity() -> None:
    assert Cost(6, 4, 3, 2).intensity == 2.0
    assert Cost().intensity == 0.0


def test_report_is_a_table() -> None:
    text = str(cost_of(lambda x: body(x) @ x.T, X))
    assert "dot_general" in text
    assert "total" in text
    assert "512" not in text.splitlines()[0]


def test_small_types_take_part_of_a_byte() -> None:
    report = cost_of(lambda x: lax.convert_element_type(x, jnp.int4), jnp.ones(7, jnp.int8))
    assert report.total == Cost(7, 0, 7, 4)


def test_slices_read_what_they_take() -> None:
    assert cost_of(lambda x: x[:2], X).total == Cost(0, 0, 64, 64)
    report = cost_of(lambda x: lax.dynamic_update_slice(x, x[:1], (0, 0)), X)
    assert report.by_primitive["dynamic_update_slice"].cost.bytes_written == 32


# Of these nothing is known: what they run is not in the program, or how often, or they have no
# estimate of themselves.
UNKNOWN = {
    "call_hi_primitive",
    "debug_callback",
    "debug_print",
    "io_callback",
    "pallas_call",
    "pure_callback",
    "random_gamma",
    "rng_uniform",
}


def test_primitives_of_the_corpus_have_rules() -> None:
    missing: dict[str, str] = {}
    for case in covering.one_in(4, corpus.CASES, start=1):
        with case.entered():
            (stock,) = oracle.trace_with([jax.make_jaxpr], case, cold=False, return_shape=False)
            report = jaxide.from_jaxpr(stock.jaxpr).cost()
            missing |= dict.fromkeys(report.unknown.keys() - UNKNOWN, str(case))
    assert not missing


# ---- by scope and by line ----------------------------------------------------------------------


def scoped(x: jax.Array) -> jax.Array:
    shared = jax.jit(lambda y: y * 2.0)
    with jax.named_scope("one"):
        x = shared(x)
        with jax.named_scope("two"):
            x = jax.lax.scan(lambda c, _: (shared(c) + 1.0, None), x, length=5)[0]
    with jax.named_scope("three"):
        x = jax.checkpoint(lambda y: jnp.sin(shared(y)))(x)
    return x - 1.0


def test_scopes_count_what_is_within() -> None:
    report = jaxide.trace(scoped)(jnp.ones(4)).cost()
    flops = {share.name: share.cost.flops for share in report.by_scope}
    # Once outside of the loop, and twice in each of five steps.
    assert flops == {"one": 4 + 40, "one/two": 40, "three": 4}
    assert report.total.flops == 4 + 40 + 4 + 4
    whole = jaxide.trace(lambda x: jax.grad(lambda y: scoped(y).sum())(x))(jnp.ones(4)).cost()
    # Forward and backward are in the same scopes.
    assert {share.name for share in whole.by_scope} == {"one", "one/two", "three"}
    assert sum(s.cost.flops for s in whole.by_scope if "/" not in s.name) < whole.total.flops
    assert str(report).count("one/two") == 1 and "share" in str(report)


def test_no_scope_is_no_table() -> None:
    report = jaxide.trace(lambda x: x + 1.0)(1.0).cost()
    assert report.by_scope == () and "\nscope" not in str(report)


def test_equations_from_nowhere_are_on_the_line_that_runs_them() -> None:
    relu = lambda x: jax.nn.relu(x) * 2.0
    (line,) = jaxide.trace(relu)(jnp.ones(4)).cost().lines
    assert line.name.startswith(__file__) and "<lambda>" in line.name
    both = jaxide.trace(lambda x: (relu(x), jax.nn.relu(x)))(jnp.ones(4)).cost()
    assert "unknown" not in {line.name for line in both.lines}
    assert sum(line.cost.flops for line in both.lines) == both.total.flops


def test_lines_are_those_of_the_users_code() -> None:
    from flax import linen

    model = linen.Dense(3)
    params = model.init(jax.random.key(0), jnp.ones((2, 4)))
    report = jaxide.trace(lambda x: model.apply(params, x))(jnp.ones((2, 4))).cost()
    assert all(line.name.startswith(__file__) for line in report.lines)
    assert [share.name for share in report.by_scope] == ["Dense"]
    assert report.by_scope[0].part_of(jaxide.Share("all", 1, report.total)) == 1.0
    # The weights are constants here.
    assert report.by_scope[0].parameters == 4 * 3 + 3


# ---- parameters ---------------------------------------------------------------------------------


def parameters_of(function: Callable[..., Any], *args: Any) -> dict[str, int | None]:
    return {share.name: share.parameters for share in cost_of(function, *args).by_scope}


def test_parameters_are_those_that_flax_counts() -> None:
    """In a whole training step, which reads all weights once more outside of all modules."""
    from flax import linen

    class Block(linen.Module):
        @linen.compact
        def __call__(self, x: Array) -> Array:
            return linen.Dense(6, name="down")(jnp.sin(linen.Dense(12, name="up")(x)))

    class Model(linen.Module):
        @linen.compact
        def __call__(self, x: Array) -> Array:
            for _ in range(2):
                x = linen.LayerNorm()(x + Block()(x))
            return x

    model, x = Model(), jnp.ones((2, 6))
    params = model.init(jax.random.key(0), x)

    def step(params: Any, momentum: Any, x: Array) -> Any:
        grads = jax.grad(lambda p: model.apply(p, x).sum())(params)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum

    found = parameters_of(step, params, jax.tree.map(jnp.zeros_like, params), x)

    def sizes(tree: Any, path: tuple[str, ...]) -> dict[str, int]:
        within = [key for key, value in tree.items() if isinstance(value, dict)]
        own = {"/".join(path): sum(leaf.size for leaf in jax.tree.leaves(tree))}
        return functools.reduce(lambda a, k: a | sizes(tree[k], (*path, k)), within, own)

    assert found == sizes(params["params"], ("Model",))


@pytest.mark.parametrize("wrapped", ["loop", "while", "branch", "jit", "checkpoint"])
def test_parameters_are_found_in_nested_programs(wrapped: str) -> None:
    def layer(w: Array, x: Array) -> Array:
        with jax.named_scope("inner"):
            return jnp.tanh(x @ w)

    def function(p: Any, x: Array) -> Any:
        with jax.named_scope("outer"):
            w, limit = p["w"], p["limit"]
            if wrapped == "loop":
                return lax.scan(lambda c, w: (layer(w, c), None), x, p["layers"])[0]
            if wrapped == "while":
                return lax.while_loop(lambda c: c.sum() < limit[0], lambda c: layer(w, c), x)
            if wrapped == "branch":
                return lax.cond(x.sum() > 0, lambda: layer(w, x), lambda: x)
            return getattr(jax, wrapped)(layer)(w, x)

    p = {"w": jnp.ones((8, 8)), "limit": jnp.ones(3), "layers": jnp.ones((5, 8, 8))}
    found = parameters_of(function, p, X)
    inner = 5 * 64 if wrapped == "loop" else 64
    outer = inner + (3 if wrapped == "while" else 0)
    assert {name: found[name] for name in ("outer", "outer/inner")} == {
        "outer": outer,
        "outer/inner": inner,
    }


def test_parameters_that_two_scopes_read_are_those_of_the_scope_around() -> None:
    def function(p: Any, ids: Array) -> Array:
        with jax.named_scope("model"):
            with jax.named_scope("embed"):
                x = p["table"][ids]
            with jax.named_scope("logits"):
                return x @ p["table"].T + p["bias"]

    p = {"table": jnp.ones((10, 4)), "bias": jnp.ones(10), "unused": jnp.ones(99)}
    found = parameters_of(function, p, jnp.zeros(3, jnp.int32))
    assert found == {"model": 50, "model/embed": 0, "model/logits": 10}


def test_parameters_are_followed_through_casts_outside_of_scopes() -> None:
    def function(p: Any, x: Array) -> Array:
        w = p[0].astype(jnp.bfloat16).reshape(8, 2)
        with jax.named_scope("dense"):
            return x.astype(jnp.bfloat16) @ w

    assert parameters_of(function, [jnp.ones((4, 4))], X) == {"dense": 16}


def test_arrays_are_parameters_where_there_is_nothing_else() -> None:
    def function(w: Array, n: Array) -> Array:
        with jax.named_scope("scale"):
            return w * n

    assert parameters_of(function, jnp.ones(3), jnp.arange(3)) == {"scale": 3}


MANY = (
    "abs ceil floor neg sign round is_finite cbrt cos erf exp expm1 log log1p rsqrt sin sqrt tan "
    "tanh sinh cosh asin acos atan"
).split()


def test_tables_of_one_kind_have_all_rows() -> None:
    report = cost_of(lambda x: [jnp.sin(x + n) for n in range(30)], X)
    assert report.shares("primitive") == tuple(report.by_primitive.values())
    texts = {by: str(report.table(by)).splitlines() for by in ("primitive", "line", "program")}
    assert [len(text) - 2 for text in texts.values()] == [2, 1, 1]
    many = cost_of(lambda x: [getattr(lax, name)(x) for name in MANY], X)
    assert len(str(many.table("primitive")).splitlines()) == len(MANY) + 2
    assert "more" in str(many) and "more" not in str(many.table("primitive"))
    assert "<pre" in many.table("primitive")._repr_html_()
    with pytest.raises(ValueError, match="by must be one of primitive, line, scope, program"):
        report.shares("nothing")  # type: ignore[arg-type]


def test_many_scopes_are_counted() -> None:
    """Nested jits under scopes, of which each is run twice: 2**12 scopes."""

    def nested(depth: int, x: jax.Array) -> jax.Array:
        if depth == 0:
            return x * 2.0
        inner = jax.jit(lambda y: nested(depth - 1, y))
        with jax.named_scope("a"):
            x = inner(x)
        with jax.named_scope("b"):
            return inner(x)

    report = jaxide.trace(lambda x: nested(12, x))(jnp.ones(2)).cost()
    assert len(report.by_scope) == 2**13 - 2
    assert report.total.flops == 2 * 2**12
    assert report.by_scope[0].cost.flops == 2**12
