"""What a replay rests on may change: jax itself, rules, classes, names.

A program is traced until its calls are replayed. Then something changes, and what jaxide records
has to be what stock jax does; so it has to be once the change is undone.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import enum
import functools
import gc
import inspect
import random
import signal
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import core, dtypes, pjit, tree_util, util
from jax._src.interpreters import partial_eval
from jax._src.interpreters.ad import fancy_transposes
from jax._src.lax import lax as lax_internal
from jax._src.numpy import array_methods, lax_numpy, tensor_contractions
from jax.extend.core import Primitive
from jax.interpreters import ad, batching
from jax.scipy import stats

import jaxide
from alarms import end_alarms
from jaxide import _core
from jaxide._native import module_code, roles, trust, world

ONE = np.float32(1.0)
X = np.ones(3, np.float32)
GAIN = 2.0


def text(make: Callable[..., Any], program: Callable[[Any], Any]) -> str:
    return make(lambda x: program(x))(X).pretty_print(source_info=True)


def assert_same(program: Callable[[Any], Any]) -> None:
    tracers = jax.make_jaxpr, jaxide.make_jaxpr
    stock, ours = (text(make, program) for make in tracers)
    assert ours == stock


def assert_noticed(program: Callable[[Any], Any], change: Any, is_seen: bool = True) -> None:
    """A change, a context, is noticed, and so is its end. ``is_seen``: stock jax differs in it."""
    for _ in range(3):
        text(jaxide.make_jaxpr, program)
    before = text(jax.make_jaxpr, program)
    with change:
        assert (text(jax.make_jaxpr, program) != before) == is_seen
        for _ in range(3):
            assert_same(program)
    assert_same(program)


def gained(x: Any) -> Any:
    return lax.mul(x, np.float32(GAIN))


def doubled(x: Any, *_: Any, **__: Any) -> Any:
    return lax.add(x, x)


def relu_of_a_sum(x: Any) -> Any:
    return jax.nn.relu(x + jnp.sin(x))


CHANGES = {
    "function of a module": (relu_of_a_sum, mock.patch("jax.nn.relu", gained)),
    "name in a dict": (relu_of_a_sum, mock.patch.dict(vars(jax.nn), relu=gained)),
    "primitive of a module": (jnp.sin, mock.patch.object(lax_internal, "sin_p", lax.cos_p)),
    "operator of tracers": (lambda x: x * x, mock.patch.object(core.Tracer, "__mul__", doubled)),
    "method of tracers": (lambda x: x.sum(), mock.patch.object(core.Tracer, "sum", doubled)),
    "method of types": (
        lambda x: x * x,
        mock.patch.object(core.ShapedArray, "_mul", staticmethod(lambda a, b: lax.add(a, b))),
    ),
    "text of types": (
        jnp.sin,
        mock.patch.object(core.ShapedArray, "str_short", lambda *_, **__: "a type"),
    ),
    "rule of a primitive": (
        lambda x: jax.jvp(jnp.sin, (x,), (x,)),
        mock.patch.dict(ad.primitive_jvps, {lax.sin_p: lambda p, t: (lax.cos(*p), t[0])}),
    ),
    "rule for folding": (
        lambda x: -x,
        mock.patch.dict(partial_eval.forwarding_rules, {lax.neg_p: lambda eqn: ([0], None)}),
    ),
    "function of another package": (
        lambda x: jnp.reshape(x, (-1,)),
        mock.patch.object(np, "prod", lambda *args, **kwargs: 3),
    ),
}


# Those that stock jax does not see either, since it remembers what it has traced.
UNSEEN = {
    "primitive of a module",
    "rule of a primitive",
    "rule for folding",
    "function of another package",
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_jax_are_noticed(name: str) -> None:
    program, change = CHANGES[name]
    before = _core.world_number()
    assert_noticed(program, change, is_seen=name not in UNSEEN)
    assert _core.world_number() == before


def within_vmap(run: Callable[[], object]) -> None:
    jax.vmap(lambda x: (run(), x)[1])(X)


def within_jvp(run: Callable[[], object]) -> None:
    jax.jvp(lambda x: (run(), x)[1], (X,), (X,))


def within_trace(run: Callable[[], object]) -> None:
    jax.make_jaxpr(lambda x: (run(), x)[1])(X)


def while_a_failed_trace_is_kept(run: Callable[[], object]) -> None:
    def fail(x: Any) -> None:
        raise ValueError

    with jaxide.accelerated():
        try:
            jax.make_jaxpr(fail)(X)
        except ValueError as error:
            kept = error
            run()
    del kept


@pytest.mark.parametrize(
    "within", [within_vmap, within_jvp, within_trace, while_a_failed_trace_is_kept]
)
def test_attributes_of_primitives_within_what_is_not_ours(within: Callable[..., None]) -> None:
    # They are compared where a trace begins; the one that this is part of is not ours.
    def program(x: Any) -> Any:
        return lax.sin(x)

    ours: list[str] = []
    stock: list[str] = []
    for _ in range(3):
        text(jaxide.make_jaxpr, program)

    def trace_both() -> None:
        # Ours within the activation, if there is one.
        with jaxide.accelerated():
            ours.append(text(jax.make_jaxpr, program))
        ours.append(text(jaxide.make_jaxpr, program))

    bind = lambda *args, **params: lax.cos_p.bind(*args, **params)
    with mock.patch.object(lax.sin_p, "bind", bind):
        within(trace_both)
        stock.append(text(jax.make_jaxpr, program))
    within(trace_both)
    stock.append(text(jax.make_jaxpr, program))
    assert ours == [each for each in stock for _ in range(2)]
    assert "cos" in stock[0]
    assert "sin" in stock[1]


def test_what_the_start_of_a_backend_assigns_is_state() -> None:
    found = {(module, name) for module, name in roles.STARTED if hasattr(sys.modules[module], name)}
    assert found
    for module, name in found:
        entries = vars(sys.modules[module])
        is_table = isinstance(entries[name], dict)
        find = module_code.filled if is_table else module_code.assigned
        assert name in find(module, entries)


def test_the_code_of_a_function_of_jax_is_looked_at() -> None:
    function = inspect.unwrap(jnp.flip)
    program, stock = lambda x: jnp.flip(x), function.__code__
    before = _core.world_number()
    for _ in range(3):
        text(jaxide.make_jaxpr, program)

    def flip(m: Any, axis: Any = None) -> Any:
        return m * m

    try:
        function.__code__ = flip.__code__
        assert_same(program)
    finally:
        function.__code__ = stock
    assert_same(program)
    assert _core.world_number() == before


def test_code_that_is_put_back_within_a_trace_is_looked_at() -> None:
    """There the function has a code of jaxide's."""
    function = inspect.unwrap(jnp.flip)
    numbers = []

    def program(x: Any) -> Any:
        with with_parts(function, __code__=gained.__code__):
            numbers.append(_core.world_number())
        numbers.append(_core.world_number())
        return jnp.flip(x)

    before = _core.world_number()
    for _ in range(3):
        assert_same(program)
    assert numbers[0::2] != numbers[1::2] == [before] * 6


def test_codes_of_jaxides_for_other_functions_are_the_users() -> None:
    """Within a trace, a function of jax is given the code that another one has there."""
    density, distribution = (inspect.unwrap(f) for f in (stats.norm.logpdf, stats.norm.logcdf))

    def program(x: Any) -> Any:
        with with_parts(density, __code__=distribution.__code__):
            return stats.norm.pdf(x)

    before = _core.world_number()
    for is_known in (True, False):
        if is_known:
            for _ in range(3):
                assert_same(stats.norm.pdf)
        else:
            jaxide.clear_caches()
        for _ in range(3):
            assert_same(program)
        for _ in range(3):
            assert_same(stats.norm.pdf)
    assert _core.world_number() == before


@pytest.mark.parametrize(
    "name", ["new_arg", "default_process_primitive", "to_jaxpr_tracer", "emit_eqn", "make_eqn"]
)
def test_codes_of_functions_whose_work_is_done_natively(name: str) -> None:
    function = getattr(partial_eval.DynamicJaxprTrace, name)

    def refused(*_: Any, **__: Any) -> Any:
        raise RuntimeError("refused")

    program = lambda x: lax.sin(x) * 2.0
    for _ in range(2):
        assert_same(program)
    with with_parts(function, __code__=refused.__code__):
        for make in (jax.make_jaxpr, jaxide.make_jaxpr):
            with pytest.raises(RuntimeError, match="refused"):
                text(make, program)
    assert_same(program)


class CallableModule(types.ModuleType):
    def __call__(self, *_: Any) -> int:
        return 7


def test_modules_that_hide_builtins() -> None:
    program = jax.grad(lambda x: jnp.sum(jax.nn.softmax(x)))
    for _ in range(3):
        assert_same(program)
    with mock.patch.object(lax_internal, "len", CallableModule("len"), create=True):
        found = []
        for make in (jax.make_jaxpr, jaxide.make_jaxpr):
            with pytest.raises(TypeError) as raised:
                text(make, program)
            found.append(str(raised.value))
        assert found[0] == found[1]
    assert_same(program)


class Unreadable:
    """A rule of which nobody can read the attributes."""

    __dict__ = property(lambda _: (_ for _ in ()).throw(ValueError("unreadable")))  # type: ignore

    def __call__(self, *_: Any) -> Any:
        raise AssertionError("not called")


def test_nothing_stays_of_a_look_that_failed() -> None:
    before = _core.world_number()
    with mock.patch.dict(ad.primitive_jvps, {lax.sin_p: Unreadable()}):
        with mock.patch.object(lax, "exp", gained), pytest.raises(ValueError, match="unreadable"):
            _core.world_number()
    with mock.patch.object(lax, "exp", gained):
        assert _core.world_number() != before
    assert _core.world_number() == before
    assert not _core.is_jax_altered()


def test_texts_stay_native_where_no_text_depends_on_a_change() -> None:
    """Libraries add rules for primitives of jax."""
    rule = mock.patch.dict(ad.primitive_transposes, {lax.sin_p: gained})
    with mock.patch("jax.nn.relu", gained), rule:
        assert _core.world_number()
        assert _core.prints_as_ever()
    with mock.patch.object(core, "pp_eqn", gained):
        assert not _core.prints_as_ever()
    with mock.patch.dict(core.pp_eqn_rules, {lax.sin_p: gained}):
        assert not _core.prints_as_ever()
    assert _core.prints_as_ever()


@pytest.mark.unaudited
def test_what_does_not_reach_a_change_is_replayed() -> None:
    with mock.patch("jax.nn.relu", gained):
        for _ in range(3):
            text(jaxide.make_jaxpr, jnp.sin)
        before = jaxide.cache_info().hits
        text(jaxide.make_jaxpr, jnp.sin)
        assert jaxide.cache_info().hits > before


def handed_on(cotangent: Any, _: Any, dimensions: Any) -> Any:
    return [cotangent]


def given_twice(cotangent: Any, _: Any, dimensions: Any) -> Any:
    return [cotangent + cotangent]


def handed_on_or(cotangent: Any, _: Any, dimensions: Any, other: Any = None) -> Any:
    return [other]


@contextlib.contextmanager
def with_parts(function: Any, **parts: Any) -> Iterator[None]:
    """A function has another code or other defaults."""
    before = {name: getattr(function, name) for name in parts}
    try:
        for name, part in parts.items():
            setattr(function, name, part)
        yield
    finally:
        for name, part in before.items():
            setattr(function, name, part)


def of_rev(x: Any) -> Any:
    return jax.grad(lambda x: lax.rev(jnp.sin(x), (0,)).sum())(x)


RULE_OF_REV = mock.patch.dict(ad.primitive_transposes, {lax.rev_p: handed_on})


@pytest.mark.unaudited
def test_a_rule_that_hands_on_does_not_matter() -> None:
    with RULE_OF_REV:
        assert _core.world_number()
        for _ in range(3):
            assert_same(of_rev)
        before = jaxide.cache_info()
        assert_same(of_rev)
        assert jaxide.cache_info().hits > before.hits
        assert jaxide.cache_info().misses == before.misses
    assert_same(of_rev)


def test_a_rule_that_hands_on_may_be_put_in_and_changed() -> None:
    assert_noticed(of_rev, RULE_OF_REV)
    with RULE_OF_REV:
        assert_noticed(of_rev, with_parts(handed_on, __code__=given_twice.__code__))
        other = with_parts(handed_on, __code__=handed_on_or.__code__, __defaults__=(X * 5,))
        assert_noticed(of_rev, other)
    assert_same(of_rev)


def nothing_handed_on(cotangent: Any, _: Any, dimensions: Any) -> Any:
    return [None]


def test_another_rule_that_hands_on_is_another_one() -> None:
    assert trust.hands_on(nothing_handed_on)
    with RULE_OF_REV:
        rule = mock.patch.dict(ad.primitive_transposes, {lax.rev_p: nothing_handed_on})
        assert_noticed(of_rev, rule)
    assert_same(of_rev)


@pytest.mark.parametrize("rule", [given_twice, handed_on_or, lambda cotangent, _: [cotangent]])
def test_other_rules_do_not_hand_on(rule: Any) -> None:
    assert trust.hands_on(handed_on)
    assert not trust.hands_on(rule)


def test_rules_of_the_users_primitives_run() -> None:
    scale = [2.0]
    primitive = Primitive("scaled")
    primitive.def_abstract_eval(lambda x: x)
    ad.deflinear(primitive, lambda cotangent: [cotangent * scale[0]])
    program = lambda x: jax.grad(lambda x: primitive.bind(jnp.sin(x)).sum())(x)
    for _ in range(3):
        text(jaxide.make_jaxpr, program)
    scale[0] = 7.0
    assert_same(program)
    ad.deflinear(primitive, lambda cotangent: [cotangent * 11.0])
    assert_same(program)


@pytest.mark.parametrize(
    "rule", [lambda ct, a, b: (ct,), lambda ct, a, b: (), lambda ct, a, b: (ct, ct, ct)]
)
def test_rules_that_return_the_wrong_number_of_cotangents(rule: Any) -> None:
    primitive = Primitive("two_operands")
    primitive.def_abstract_eval(lambda a, b: a)
    ad.primitive_jvps[primitive] = lambda primals, tangents: (
        primitive.bind(*primals),
        primitive.bind(*map(ad.instantiate_zeros, tangents)),
    )
    ad.primitive_transposes[primitive] = rule
    program = jax.grad(lambda x: primitive.bind(x, x * 5.0).sum())
    messages = []
    for make in (jax.make_jaxpr, jaxide.make_jaxpr, jaxide.make_jaxpr):
        with pytest.raises(ValueError, match="length") as raised:
            text(make, program)
        messages.append(str(raised.value))
    assert len(set(messages)) == 1


@pytest.mark.skipif(jax.__version_info__ >= (0, 11, 2), reason="such rules return logs there")
def test_what_an_accumulating_rule_returns_does_not_matter() -> None:
    primitive = Primitive("accumulated")
    primitive.def_abstract_eval(lambda x: x)
    ad.primitive_jvps[primitive] = lambda primals, tangents: (
        primitive.bind(*primals),
        primitive.bind(*tangents),
    )
    fancy_transposes[primitive] = lambda ct, *sums: [total.accum(ct) for total in sums]
    for _ in range(3):
        assert_same(jax.grad(lambda x: primitive.bind(x).sum()))


@pytest.mark.parametrize("make_answer", [list, tuple, lambda pair: pair[0], lambda pair: pair[:1]])
def test_what_an_abstract_evaluation_returns_is_unpacked(make_answer: Any) -> None:
    primitive = Primitive("effectful")
    primitive.def_effectful_abstract_eval(lambda x: make_answer((x, core.no_effects)))
    assert_same_outcome(primitive.bind)


def outcome(make: Callable[..., Any], program: Callable[..., Any]) -> str:
    """The text of a program, or the error that tracing it ends with."""
    try:
        return text(make, program)
    except (IndexError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def assert_same_outcome(program: Callable[..., Any]) -> None:
    makers = (jax.make_jaxpr, jaxide.make_jaxpr, jaxide.make_jaxpr)
    assert len({outcome(make, program) for make in makers}) == 1


SHAPE = [3]


def set_precision(precision: str | None) -> None:
    jax.config.update("jax_default_matmul_precision", precision)


def set_wide(is_wide: bool) -> None:
    jax.config.update("jax_enable_x64", is_wide)


def set_shape(shape: list[int]) -> None:
    SHAPE[:] = shape


# A program, the function of jax within which something changes, how, from what, and to what.
CHANGED_WITHIN: dict[str, tuple[Callable[[Any], Any], str, Callable[[Any], None], Any, Any]] = {
    "precision": (lambda x: lax.dot(x, x), "dot", set_precision, None, "highest"),
    "no precision": (
        lambda x: lax.dot(x, x),
        "dot",
        set_precision,
        "highest",
        None,
    ),
    "width": (lambda x: x + lax.iota(int, 3), "iota", set_wide, False, True),
    "width of zeros": (
        lambda x: x + lax.full((3,), 1.0, dtype=float),
        "full",
        set_wide,
        True,
        False,
    ),
    "list": (lambda x: lax.reshape(x, SHAPE), "reshape", set_shape, [3], [1, 3]),
    "list of a size": (lambda x: lax.full(SHAPE, 2.0) * x[0], "full", set_shape, [3], [4]),
}


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("name", CHANGED_WITHIN)
def test_what_changes_while_a_call_is_recorded(name: str, stays: bool) -> None:
    program, within, change, before, meanwhile = CHANGED_WITHIN[name]
    if change is set_shape and not stays:
        pytest.skip("docs/limits.md: a list that is changed back")
    frames: list[Any] = []

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == within:
            # The first frame is of the code that asks jaxide.
            frames.append(frame)
            if len(frames) == 2:
                change(meanwhile)
        elif event == "return" and not stays and frame in frames[1:2]:
            change(before)

    change(before)
    jaxide.clear_caches()
    try:
        sys.setprofile(profile)
        try:
            text(jaxide.make_jaxpr, program)
        finally:
            sys.setprofile(None)
        assert len(frames) == 2
        change(before)
        for _ in range(3):
            assert_same(program)
    finally:
        set_precision(None)
        set_wide(False)
        set_shape([3])


@pytest.mark.parametrize(
    "make_answer", [list, tuple, iter, lambda pair: None, lambda pair: pair[:1]]
)
def test_what_a_rule_for_dead_code_returns_is_unpacked(make_answer: Any) -> None:
    primitive = Primitive("without_dead_code")
    primitive.def_abstract_eval(lambda x: x)
    ad.deflinear2(primitive, lambda ct, x: [ct * 2.0])
    rule = lambda used, eqn: make_answer(([True], eqn))
    with mock.patch.dict(partial_eval.dce_rules, {primitive: rule}):
        assert_same_outcome(jax.grad(lambda x: jax.jit(lambda y: primitive.bind(y) * 2)(x).sum()))


@pytest.mark.parametrize(
    "rule",
    [
        lambda eqn: ([0], None),
        lambda eqn: ([0], eqn),
        lambda eqn: [[1], None],
        lambda eqn: ([-1], None),
        lambda eqn: ([True], None),
        lambda eqn: (iter([None]), eqn),
        lambda eqn: ([], eqn),
        lambda eqn: ([2], None),
        lambda eqn: ([0, 1], None),
        lambda eqn: (["first"], None),
        lambda eqn: ([0],),
        lambda eqn: None,
    ],
)
def test_what_a_forwarding_rule_returns_is_used_as_jax_does(rule: Any) -> None:
    primitive = Primitive("forwarding")
    primitive.def_abstract_eval(lambda a, b: a)
    with mock.patch.dict(partial_eval.forwarding_rules, {primitive: rule}):
        assert_same_outcome(lambda x: primitive.bind(x, x * 2.0))


@pytest.mark.parametrize("values", [[], [ONE], [ONE, ONE], (ONE,), ONE, None])
def test_what_a_folding_rule_returns_is_used_as_jax_does(values: Any) -> None:
    primitive = Primitive("folding")
    primitive.def_abstract_eval(lambda a, b: core.ShapedArray((), np.float32))
    rule = lambda consts, params, avals: values
    with mock.patch.dict(partial_eval.const_fold_rules, {primitive: rule}):
        assert_same_outcome(lambda x: primitive.bind(x, np.float32(2.0)) + x)
        assert_same_outcome(lambda x: jax.jit(primitive.bind, inline=True)(x, np.float32(2.0)))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_as_many_results_as_variables(count: int) -> None:
    """What is not linear is evaluated while a program is transposed."""
    primitive = Primitive("several")
    primitive.multiple_results = True
    primitive.def_abstract_eval(lambda: [core.ShapedArray((), np.float32)])
    primitive.def_impl(lambda: [np.float32(3.0)] * count)
    linear = lambda x: x * primitive.bind()[0]
    assert_same_outcome(lambda x: jax.linear_transpose(linear, x[0])(x[0])[0])


def test_the_rule_of_a_function_of_jax_is_looked_at() -> None:
    relu, rule = jax.nn.relu, jax.nn.relu.jvp
    program = lambda x: jax.jvp(relu, (x,), (x,))
    for _ in range(3):
        text(jaxide.make_jaxpr, program)
    try:
        relu.defjvp(lambda p, t: (relu(*p), t[0] * 3))
        assert_same(program)
    finally:
        relu.defjvp(rule)
    assert_same(program)


class Scaled(NamedTuple):
    by: float

    @property
    def twice(self) -> float:
        return self.by * GAIN


class Mode(enum.Enum):
    LOUD = 2.0

    def gain(self) -> float:
        return self.value * GAIN


SCALED, MODE, COUNTS = Scaled(2.0), Mode.LOUD, np.zeros(1, np.int32)


@jax.custom_jvp
def by_a_property(x: Any) -> Any:
    return x * SCALED.twice


@jax.custom_jvp
def by_a_method(x: Any) -> Any:
    return x * MODE.gain()


@jax.custom_jvp
def counting(x: Any) -> Any:
    COUNTS[0] += 1
    return jnp.sin(x)


for function in (by_a_property, by_a_method, counting):
    function.defjvp(lambda p, t, function=function: (function(*p), t[0]))


@pytest.mark.parametrize("function", [by_a_property, by_a_method])
def test_methods_of_the_users_classes_run(function: Any) -> None:
    assert_noticed(lambda x: function(x), mock.patch(f"{__name__}.GAIN", 5.0))


def test_functions_that_write_to_arrays_run() -> None:
    for _ in range(5):
        COUNTS[0] = 0
        jaxide.make_jaxpr(lambda x: counting(x))(X)
        assert COUNTS[0] == 1


@jax.custom_vjp
def ruled(x: Any) -> Any:
    return x * 2


def backward(residual: Any, cotangent: Any) -> Any:
    return (cotangent * residual,)


ruled.defvjp(lambda x: (ruled(x), x), backward)


def test_names_of_rules_are_printed() -> None:
    for _ in range(3):
        text(jaxide.make_jaxpr, ruled)
    try:
        backward.__name__ = "renamed"
        assert_same(ruled)
    finally:
        backward.__name__ = "backward"
    assert_same(ruled)


def test_a_class_that_is_registered_later() -> None:
    class Both(NamedTuple):
        a: Any
        b: Any

    difference = jax.jit(lambda both: both.a - both.b)
    program = lambda x: difference(Both(x * 2, x * 3))
    for _ in range(3):
        text(jaxide.make_jaxpr, program)
    jax.tree_util.register_pytree_node(
        Both, lambda both: ((both.b, both.a), None), lambda _, parts: Both(parts[1], parts[0])
    )
    assert_same(program)


@pytest.fixture
def simplified_constants() -> Iterator[None]:
    name = "jax_use_simplified_jaxpr_constants"
    before = jax.config.values[name]
    jax.config.update(name, True)
    yield
    jax.config.update(name, before)


def test_every_setting_is_part_of_the_key(simplified_constants: None) -> None:
    array = jnp.ones((3, 3))
    program = lambda x: jax.checkpoint(lambda x: x * array)(x)
    for _ in range(3):
        assert_same(program)


def test_closures_are_let_go() -> None:
    def step(number: int) -> None:
        big = jnp.full(100, float(number))
        read = lambda y: y + big.sum()
        jaxide.make_jaxpr(lambda x: x * jax.eval_shape(lambda y: read(y), x).shape[0])(X)

    step(0)
    gc.collect()
    before = len(jax.live_arrays())
    for number in range(50):
        step(number)
    gc.collect()
    assert len(jax.live_arrays()) <= before + 4


class Rule:
    """An object that stands in for a rule, and looks like one."""

    def __init__(self, stock: Any) -> None:
        functools.update_wrapper(self, stock)
        self.factor = 2.0

    def __call__(self, primals: Any, tangents: Any, **_: Any) -> Any:
        out = lax.sin(*primals)
        return out, lax.mul(tangents[0], np.float32(self.factor))


RULE_OF_SIN = ad.primitive_jvps[lax.sin_p]


@pytest.mark.parametrize("wrap", [lambda rule: rule, functools.partial])
def test_rules_that_are_objects_run(wrap: Any) -> None:
    rule = Rule(RULE_OF_SIN)
    program = lambda x: jax.jvp(lax.sin, (x,), (x,))
    with mock.patch.dict(ad.primitive_jvps, {lax.sin_p: wrap(rule)}):
        for factor in (2.0, 3.0, 5.0):
            rule.factor = factor
            for _ in range(3):
                assert_same(program)
    assert_same(program)


def test_what_is_taken_back_while_a_call_is_recorded() -> None:
    """A signal handler changes jax for a moment, mostly while a call is recorded."""
    stock, toggled = tensor_contractions.vdot, [False]
    program = lambda x: jnp.vecdot(x, x)
    draw = random.Random(0).random

    def toggle(*_: Any) -> None:
        toggled[0] = not toggled[0]
        tensor_contractions.vdot = (lambda a, b, **_: a[0] * 5) if toggled[0] else stock

    before = signal.getsignal(signal.SIGALRM)
    try:
        for size in range(1, 200):
            x = np.ones(size, np.float32)
            signal.signal(signal.SIGALRM, toggle)
            signal.setitimer(signal.ITIMER_REAL, draw() * 0.001, draw() * 0.0004 + 5e-5)
            jaxide.make_jaxpr(lambda x: program(x))(x)
            end_alarms()
            toggled[0], tensor_contractions.vdot = False, stock
            expected = str(jax.make_jaxpr(lambda x: program(x))(x))
            for _ in range(2):
                assert str(jaxide.make_jaxpr(lambda x: program(x))(x)) == expected
    finally:
        end_alarms()
        tensor_contractions.vdot = stock
        signal.signal(signal.SIGALRM, before)


def test_changes_that_do_not_end() -> None:
    """Each look at what has changed comes upon the next change."""
    program, stock, looks = lambda x: jnp.sin(x) * 2, world.World.look, [0]

    def look(self: Any, *args: Any) -> Any:
        looks[0] += 1
        assert looks[0] < 1000
        core.Primitive.noted_by_a_test = looks[0]
        return stock(self, *args)

    core.Primitive.noted_by_a_test = 0
    try:
        with mock.patch.object(world.World, "look", look):
            assert_same(program)
        assert looks[0] > 1
    finally:
        del core.Primitive.noted_by_a_test
    assert_same(program)


def test_a_call_during_which_jax_changes_is_remembered_the_next_time() -> None:
    """jax registers rules of its own while it traces, too."""

    def change(frame: types.FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "dot_general":
            sys.setprofile(None)
            with mock.patch.object(tensor_contractions, "vdot", doubled):
                pass

    jaxide.clear_caches()
    hits = []
    for is_changed in (True, False, False, False):
        sys.setprofile(change if is_changed else None)
        text(jaxide.make_jaxpr, lambda x: jnp.vecdot(x, x))
        hits.append(jaxide.cache_info().callables["jax.numpy.vecdot"].hits)
    assert hits[-1] > 0


def test_what_is_taken_back_is_noticed_by_jits_alone() -> None:
    jaxide.install()
    try:
        program = lambda x: jnp.vecdot(x, x)
        trace = lambda: jax.jit(lambda x: program(x)).trace(X)
        for _ in range(3):
            trace()
        with mock.patch.object(np, "shape", lambda x: x.shape):
            trace()
        hits = jaxide.cache_info().hits
        for _ in range(3):
            trace()
        assert jaxide.cache_info().hits > hits
    finally:
        jaxide.uninstall()


@pytest.mark.parametrize("module", ["jax._src.test_util", "jax.experimental.array_serialization"])
def test_modules_for_tests_and_files_do_not_count(module: str) -> None:
    code = f"""
import jax, jaxide, {module}
from jaxide import _core
jaxide.make_jaxpr(lambda x: x)(1.0)
assert _core.world_number() == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_defaults_of_keywords_are_changed_where_they_are() -> None:
    own_number = _core.world_number()  # libraries may have changed jax
    function = inspect.unwrap(array_methods._std)
    program = lambda x: x.std()

    @contextlib.contextmanager
    def corrected() -> Iterator[None]:
        defaults = function.__kwdefaults__
        before = defaults["correction"]
        defaults["correction"] = 1
        try:
            yield
        finally:
            defaults["correction"] = before

    for _ in range(2):
        assert_noticed(program, corrected())
    assert _core.world_number() == own_number


def test_the_name_and_the_bases_of_a_class() -> None:
    own_number = _core.world_number()  # libraries may have changed jax
    mode = lax.GatherScatterMode
    name = lambda: with_parts(mode, __name__="Another", __qualname__="Another")
    assert_noticed(lambda x: x.at[np.array([0, 2])].get(mode="clip"), name())

    class Mixed:
        pass

    class_ = type(jax._src.custom_derivatives.custom_jvp_call_p)
    with with_parts(class_, __bases__=(*class_.__bases__, Mixed)):
        assert _core.is_jax_altered()
    assert _core.world_number() == own_number


def test_hooks_of_imports() -> None:
    """As a console of an IDE has one."""
    own_number = _core.world_number()  # libraries may have changed jax
    stock, instead = builtins.__import__, [False]
    other = types.ModuleType("other")
    vars(other).update(vars(lax_numpy))
    vars(other)["moveaxis"] = lambda a, *_: lax_numpy.moveaxis(a, *_) * 2

    def hook(name: str, *args: Any, **kwargs: Any) -> Any:
        found = stock(name, *args, **kwargs)
        return other if instead[0] and found is lax_numpy else found

    importing = lambda x: jnp.vecdot(x, x)
    with mock.patch.object(builtins, "__import__", hook):
        for is_other in (False, True, False):
            instead[0] = is_other
            for _ in range(3):
                assert_same(importing)
    assert_same(importing)
    assert _core.world_number() == own_number


def test_what_notebooks_replace_does_not_count() -> None:
    own_number = _core.world_number()  # libraries may have changed jax
    with (
        mock.patch.object(builtins, "input", gained),
        mock.patch.object(builtins, "runfile", gained, create=True),
    ):
        assert _core.world_number() == own_number
        assert jaxide.trace(jnp.sin)(1.0).pretty(max_eqns=0)


@pytest.mark.parametrize(
    "path",
    [
        "jax._src.api_util.fun_sourceinfo",
        "jax._src.api._vjp3_bwd",
        "itertools.chain",
        "numpy.integer",
    ],
)
def test_what_the_core_does_is_stock_jaxs_where_that_is_replaced(path: str) -> None:
    def raising(*_: Any, **__: Any) -> Any:
        raise ValueError("replaced")

    program = lambda x: jax.grad(lambda x: jnp.sin(x).sum())(x)
    for _ in range(3):
        text(jaxide.make_jaxpr, program)
    with mock.patch(path, raising):
        results = []
        for make in (jax.make_jaxpr, jaxide.make_jaxpr):
            try:
                results.append(text(make, program))
            except Exception as error:
                results.append(f"{type(error).__name__}: {error}")
    assert results[0] == results[1]
    assert_same(program)


class Unbound:
    """As a proxy that stands for nothing yet."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("nothing is bound")


class Closed(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError("closed")


@pytest.mark.parametrize("make_value", [Unbound, lambda: Closed("C", (), {})], ids="ab")
def test_values_that_say_nothing_of_themselves(make_value: Any) -> None:
    value = make_value()
    for of in (vars(builtins), vars(np), vars(jnp)):
        with mock.patch.dict(of, {"a_value_of_a_user": value}):
            assert_same(jnp.sin)
    with mock.patch.dict(ad.primitive_jvps, {value: gained}):
        assert_same(jnp.sin)
    assert_same(jnp.sin)


@pytest.mark.parametrize("key", [5, (1, 2)])
def test_keys_that_are_no_names(key: Any) -> None:
    for module in (jnp, np):
        with mock.patch.dict(vars(module), {key: 1}):
            assert_same(jnp.sin)
    assert_same(jnp.sin)


BEFORE_THE_IMPORT = {
    "partial": "batching.primitive_batchers[lax.sin_p] = functools.partial(rule)",
    "object": "batching.primitive_batchers[lax.sin_p] = Rule()",
    "method": "batching.primitive_batchers[lax.sin_p] = Rule().method",
    "namespace": "windows.ufuncs = types.SimpleNamespace(cos=cos)",
    "module": "windows.ufuncs = types.ModuleType('mine'); windows.ufuncs.cos = cos",
    "dispatch": "tensors.vdot = functools.singledispatch(tensors.vdot);"
    "tensors.vdot.register(object, lambda a, b, **_: state[0](a)[0])",
}
PROGRAM_BEFORE_THE_IMPORT = """
import functools, types
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax._src.interpreters import batching
import jax._src.numpy.window_functions as windows, jax._src.numpy.tensor_contractions as tensors

state = [jnp.sin]

def cos(x):
    return state[0](x)

def rule(args, dims, **_):
    return state[0](args[0]), dims[0]

class Rule:
    def __call__(self, args, dims, **_):
        return rule(args, dims)

    def method(self, args, dims, **_):
        return rule(args, dims)

stock = lax.sin
{change}
import jaxide
X = np.ones(3, np.float32)
programs = [
    lambda x: jax.vmap(lax.sin)(x),
    lambda x: jnp.hamming(5) * x[0],
    lambda x: jnp.vecdot(x, x),
]
if {how!r} in ("partial", "object", "method"):
    state[0] = lax.cos
for step in (None, lax.exp, lax.tan):
    state[0] = step or state[0]
    for program in programs:
        for _ in range(4):
            stock_text, text = (
                str(make(lambda x: program(x))(X)) for make in (jax.make_jaxpr, jaxide.make_jaxpr)
            )
            assert text == stock_text, (text, stock_text)
"""


@pytest.mark.parametrize("how", BEFORE_THE_IMPORT)
def test_what_was_there_before_the_import(how: str) -> None:
    script = PROGRAM_BEFORE_THE_IMPORT.format(change=BEFORE_THE_IMPORT[how], how=how)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


class ByGlobal(core.Primitive):
    """A primitive that has several results where a global says so."""

    SEVERAL = False

    multiple_results = property(lambda self: self.SEVERAL, lambda self, value: None)


def bind_otherwise(primitive: Any) -> None:
    primitive.bind_with_trace = lambda trace, args, params: args[0] * 7


CHANGES_OF_A_PRIMITIVE: dict[str, tuple[type, Callable[[Any], None]]] = {
    "assigned": (core.Primitive, lambda made: setattr(made, "multiple_results", True)),
    "in the dict": (core.Primitive, lambda made: made.__dict__.update(multiple_results=True)),
    "by a global": (ByGlobal, lambda made: setattr(ByGlobal, "SEVERAL", True)),
    "bound otherwise": (core.Primitive, bind_otherwise),
}


@pytest.mark.parametrize("around", ["itself", "jit", "vmap"])
@pytest.mark.parametrize("how", CHANGES_OF_A_PRIMITIVE)
def test_attributes_of_the_users_primitives_may_change(how: str, around: str) -> None:
    class_, change = CHANGES_OF_A_PRIMITIVE[how]
    wrap = {"itself": lambda f: f, "jit": jax.jit, "vmap": jax.vmap}[around]

    def made() -> Any:
        primitive = class_("up")
        primitive.def_abstract_eval(lambda x: core.ShapedArray(x.shape, x.dtype))
        batching.primitive_batchers[primitive] = lambda args, dims: (
            primitive.bind(*args),
            dims[0],
        )
        return primitive

    outcomes = []
    for make_jaxpr in (jax.make_jaxpr, jaxide.make_jaxpr):
        ByGlobal.SEVERAL = False
        primitive = made()
        # A function of its own each time, which no jit has seen.
        fresh = lambda primitive=primitive: wrap(lambda x: primitive.bind(x))
        found = [outcome(make_jaxpr, fresh()) for _ in range(3)]
        change(primitive)
        outcomes.append(found + [outcome(make_jaxpr, fresh()) for _ in range(2)])
    ByGlobal.SEVERAL = False
    assert outcomes[0] == outcomes[1]


def test_ufuncs_that_are_called_back_are_let_go() -> None:
    def step(number: int) -> None:
        big = jnp.full(777, float(number))
        called = np.frompyfunc(lambda v: v + big.shape[0], 1, 1)
        jaxide.jit(lambda x: (jax.debug.callback(called, x), x)[1])(X)
        jax.effects_barrier()

    for number in range(5):
        step(number)
    jax.clear_caches()
    gc.collect()
    assert not [array for array in jax.live_arrays() if array.shape == (777,)]


def test_filters_of_warnings_can_be_copied_within_a_trace() -> None:
    def program(x: Any) -> Any:
        copies = copy.deepcopy(warnings.filters)
        assert len(copies) == len(warnings.filters)
        return x * 2

    assert_same(lambda x: jax.jit(lambda v: program(v))(x))


def tripled(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    primal, tangent = jax.nn.relu(args[0][0]), args[1][0]
    return primal, tangent * 3.0


def gradient_of_relu(x: Any) -> Any:
    return jax.grad(lambda x: jax.nn.softplus(jax.nn.relu(x)).sum())(x)


def patched_in_the_middle(x: Any) -> Any:
    before = gradient_of_relu(x)
    with mock.patch.object(jax.nn.relu, "jvp", tripled):
        between = gradient_of_relu(x)
    return before, between, gradient_of_relu(x)


def test_rules_of_jax_change_within_a_trace() -> None:
    for _ in range(3):
        text(jaxide.make_jaxpr, gradient_of_relu)
    for _ in range(3):
        assert_same(patched_in_the_middle)
    assert_same(gradient_of_relu)


def test_what_is_taken_back_of_a_primitive_is_noticed() -> None:
    text(jaxide.make_jaxpr, jnp.sin)
    with mock.patch.object(lax.sin_p, "multiple_results", 0):
        text(jaxide.make_jaxpr, jnp.sin)
        assert _core.is_jax_altered()
    text(jaxide.make_jaxpr, jnp.sin)
    assert not _core.is_jax_altered()


def test_nothing_is_learnt_while_a_primitive_is_another() -> None:
    def program(x: Any) -> Any:
        return lax.neg(x)

    def learning(x: Any) -> Any:
        with mock.patch.object(lax.neg_p, "bind", lambda x: lax.cos_p.bind(x, accuracy=None)):
            return [program(x) for _ in range(4)]

    for _ in range(3):
        jaxide.clear_caches()
        assert_same(learning)
        assert_same(program)
    assert_same(lambda x: [program(x) for _ in range(4)])


def test_what_was_learnt_stays_when_a_module_is_imported() -> None:
    def program(x: Any) -> Any:
        return jnp.tanh(x) * 2 + x

    jaxide.clear_caches()
    for _ in range(2):
        text(jaxide.make_jaxpr, program)
    sys.modules["jax_is_not_in_here"] = types.ModuleType("jax_is_not_in_here")
    try:
        before = jaxide.cache_info()
        text(jaxide.make_jaxpr, program)
        after = jaxide.cache_info()
    finally:
        del sys.modules["jax_is_not_in_here"]
    assert after.hits > before.hits
    assert after.misses == before.misses


def test_what_is_learnt_between_many_changes() -> None:
    """Most of what is learnt here is learnt while a primitive is another, and used later."""

    def another(x: Any) -> Any:
        return lax.cos_p.bind(x, accuracy=None)

    def learning(size: int, is_patched: bool) -> str:
        aval = jax.ShapeDtypeStruct((size,), jnp.float32)

        def program(x: Any) -> Any:
            if not is_patched:
                return lax.neg(x)
            with mock.patch.object(lax.neg_p, "bind", another):
                return lax.neg(x) + jnp.negative(x)

        return str(jaxide.make_jaxpr(program)(aval))

    jaxide.clear_caches()
    for size in range(1, 600):
        learning(size, is_patched=bool(size % 2))
    for size in (*range(1, 8), 257, 258, 511, 512, 598, 599):
        assert learning(size, is_patched=False).count("cos") == 0


def test_a_module_changes_after_calls_that_are_not_replayed() -> None:
    def three_times(x: Any) -> Any:
        return lax.mul(x, 3.0)

    def changing(x: Any) -> Any:
        x = jnp.square(jnp.sinh(x))
        with (
            mock.patch.object(lax, "tanh", three_times),
            mock.patch.object(jnp, "exp", three_times),
        ):
            x = lax.tanh(x) + jnp.exp(x)
            x = jax.nn.sigmoid(x) + jnp.square(jnp.sinh(x))
        return lax.tanh(x) + jnp.exp(x) + jax.nn.sigmoid(x)

    for _ in range(3):
        jaxide.clear_caches()
        assert_same(changing)
        assert_same(changing)
        assert_same(lambda x: jnp.square(jnp.sinh(lax.tanh(x))))


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("every", [1, 3, 100])
@pytest.mark.parametrize("module", ["users", "abc"])
def test_changes_that_matter_to_nobody(is_known: bool, every: int, module: str) -> None:
    """Each trace registers trees, a change of registries by which jax does not differ. A class that
    a metaclass is called for says that it is of the metaclass's module."""

    def program(x: Any, registers: bool = True) -> Any:
        x = lax.cos(x)
        for index, fun in enumerate((jnp.sin, jnp.tanh, lax.neg, jnp.square, lax.exp, jnp.sinh)):
            if registers and index % every == 0:
                tree = type("Tree", (), {"__module__": module})
                unflatten = functools.partial(lambda *_: None, tree)
                jax.tree_util.register_pytree_node(tree, lambda _: ((), None), unflatten)
            x = fun(x)
        return x

    def misses(*args: Any) -> int:
        before = jaxide.cache_info().misses
        text(jaxide.make_jaxpr, lambda x: program(x, *args))
        return jaxide.cache_info().misses - before

    jaxide.clear_caches()
    if is_known:
        for _ in range(3):
            misses(False)
        assert misses() == 0
    for _ in range(3):
        misses()
    assert misses() == 0


def doubled_values(pairs: Any) -> Any:
    left, right = [], []
    for one, other in pairs:
        left.append(one)
        right.append(other * 2 if hasattr(other, "dtype") else other)
    return tuple(left), tuple(right)


def failing(*args: Any, **kwargs: Any) -> Any:
    raise ValueError("not as it was")


def squaring(name: str) -> Callable[..., Any]:
    """What a tracer's operator or method may be made to do. It has the globals of that one."""

    def op(self: Any, *args: Any, **kwargs: Any) -> Any:
        from jax import lax

        forwarded = getattr(self.aval, f"_{name}", None) or getattr(self.aval, name).fun
        value = forwarded(self, *args, **kwargs)
        return lax.mul(value, value)

    return op


NATIVE_WORK: list[tuple[Any, str, Any, Callable[[Any], Any]]] = [
    (
        dtypes,
        "canonicalize_value",
        lambda value, stock=dtypes.canonicalize_value: stock(
            value * np.float32(2) if isinstance(value, np.generic) else value
        ),
        lambda x: lax.mul(x, np.float32(3)),
    ),
    (util.unzip2, "__code__", doubled_values.__code__, lambda x, many=jnp.arange(3.0): x + many),
    (
        tree_util.tree_flatten_with_path,
        "__code__",
        failing.__code__,
        lambda x: jax.jit(lambda y: y * 2)(x),
    ),
    # Rules for staging, and an attribute of a primitive.
    (
        lax_internal._reshape_staging_rule,
        "__code__",
        failing.__code__,
        lambda x: x.reshape(3, 1),
    ),
    (
        lax_internal._convert_element_type_bind_with_trace,
        "__code__",
        failing.__code__,
        lambda x: x.astype(np.int32),
    ),
    # Operators and methods of tracers.
    (core.Tracer.__add__, "__code__", squaring("add").__code__, lambda x: x + 1),
    (core.Tracer.sum, "__code__", squaring("sum").__code__, lambda x: x.sum()),
]


@pytest.mark.parametrize(
    ("owner", "name", "value", "program"),
    NATIVE_WORK,
    ids=[f"{owner.__name__}.{name}" for owner, name, _, _ in NATIVE_WORK],
)
def test_functions_of_which_the_core_does_the_work_are_looked_at(
    owner: Any, name: str, value: Any, program: Callable[[Any], Any]
) -> None:
    def found(make: Callable[..., Any]) -> str:
        try:
            jaxpr = make(lambda x: program(x))(X)
        except ValueError as error:
            return repr(error)
        return f"{jaxpr} {jaxpr.consts}"

    as_ever = found(jax.make_jaxpr)
    for _ in range(2):
        assert found(jaxide.make_jaxpr) == as_ever
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(owner, name, value)
            changed = found(jax.make_jaxpr)
            assert [found(jaxide.make_jaxpr) for _ in range(2)] == [changed] * 2
        assert changed != as_ever


def test_a_rule_of_jax_for_another_primitive_of_jax_counts() -> None:
    def found(make: Callable[..., Any]) -> str:
        try:
            return str(make(lambda x: lax.neg(x))(X))
        except KeyError as error:
            return repr(error)

    as_ever = found(jax.make_jaxpr)
    rule = next(iter(partial_eval.custom_staging_rules.values()))
    for _ in range(2):
        assert found(jaxide.make_jaxpr) == as_ever
        with mock.patch.dict(partial_eval.custom_staging_rules, {lax.neg_p: rule}):
            changed = found(jax.make_jaxpr)
            assert found(jaxide.make_jaxpr) == changed != as_ever


OUTERMOST: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "jit": lambda f: jax.jit(f)(X),
    "make_jaxpr": lambda f: jax.make_jaxpr(f)(X),
    "eval_shape": lambda f: jax.eval_shape(f, X),
    "vmap": lambda f: jax.make_jaxpr(jax.vmap(f))(X),
    "grad": lambda f: jax.make_jaxpr(jax.grad(lambda x: f(x).sum()))(X),
}
NAMES_OF_TRACES = [
    (partial_eval, "map"),
    (partial_eval, "trace_to_jaxpr"),
    (pjit, "tree_flatten"),
    (tree_util, "tree_flatten"),
    (core, "set_current_trace"),
]


@pytest.mark.parametrize("outermost", OUTERMOST)
@pytest.mark.parametrize(
    ("module", "name"), NAMES_OF_TRACES, ids=lambda part: getattr(part, "__name__", part)
)
def test_the_first_trace_after_a_change_is_left_to_jax(
    module: Any, name: str, outermost: str
) -> None:
    def found() -> str:
        try:
            return str(OUTERMOST[outermost](lambda x: lax.sin(x) - 3.0 * x))
        except Exception as error:
            return repr(error)

    with mock.patch.object(module, name, failing):
        expected = found()
    with jaxide.accelerated():
        as_ever = found()
        with mock.patch.object(module, name, failing):
            assert found() == expected
        assert found() == as_ever
