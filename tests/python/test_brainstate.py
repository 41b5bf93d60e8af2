"""`jaxide.brainstate.make_jaxpr` is brainstate's `make_jaxpr`, recorded by jaxide."""

import dataclasses
import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import brainstate
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brainstate import HiddenState, LongTermState, ParamState, ShortTermState, State, nn, random
from brainstate import transform as bst
from jax import lax
from jax._src import checkify as jax_checkify
from jax.sharding import PartitionSpec

import jaxide
import jaxide.brainstate
import oracle
from alone import run_alone
from jaxide import _compat
from test_errors import outcome, surroundings

# brainstate's own optimizer of jaxprs leaves out the debug info.
pytestmark = pytest.mark.filterwarnings("ignore:core.Jaxpr is missing a DebugInfo")

STOCK, OURS = MAKERS = (bst.make_jaxpr, jaxide.brainstate.make_jaxpr)
ORDERS = {"stock-first": (STOCK, OURS), "ours-first": (OURS, STOCK)}
ROUNDS = 3

VECTOR = np.arange(1.0, 4.0, dtype=np.float32)
MATRIX = np.arange(6.0, dtype=np.float32).reshape(2, 3)


class Program(NamedTuple):
    """A function, the states that it may use, and how it is traced."""

    function: Callable
    args: tuple = (VECTOR,)
    kwargs: Mapping[str, Any] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})
    states: Sequence[State] = ()


PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    """Registers a factory of programs: fresh states, fresh functions."""
    PROGRAMS[make.__name__] = make
    return make


def leaking(make_jaxpr: Callable) -> State:
    """A state made inside a trace that has ended."""
    made = []

    def f(x):
        made.append(State(x * 2))
        return x

    make_jaxpr(f)(VECTOR)
    return made[0]


# ---- programs: states -------------------------------------------------------------------------


@program
def stateless() -> Program:
    return Program(lambda x: jnp.sin(x) * 2)


@program
def read() -> Program:
    s = State(VECTOR)
    return Program(lambda x: x + s.value, states=[s])


@program
def write() -> Program:
    s = State(VECTOR)

    def f(x):
        s.value = jnp.cos(x)

    return Program(f, states=[s])


@program
def read_and_write() -> Program:
    s = State(VECTOR)

    def f(x):
        s.value = s.value + x
        return s.value * 2

    return Program(f, states=[s])


@program
def write_of_the_value_read() -> Program:
    s = State(VECTOR)

    def f(x):
        s.value = s.value
        return x

    return Program(f, states=[s])


@program
def write_of_an_argument() -> Program:
    s = State(VECTOR)

    def f(x):
        s.value = x
        return s.value, x

    return Program(f, states=[s])


@program
def write_of_a_constant() -> Program:
    s = State(VECTOR)

    def f(x):
        s.value = jnp.ones(3) * 2
        return x

    return Program(f, states=[s])


@program
def untouched() -> Program:
    s = State(VECTOR)
    return Program(lambda x: x if s is None else -x, states=[s])


def many_states(**options: Any) -> Program:
    """States used in another order than they were made in."""
    states = [State(VECTOR * i, name=f"s{i}") for i in range(6)]

    def f(x):
        states[4].value = x * 2  # written
        y = states[1].value + states[3].value  # read
        states[0].value = y + states[0].value  # both
        states[3].value = y  # written after it was read
        return y * states[5].value  # read; states[2] is not used

    return Program(f, states=states, options=options)


@program
def order_of_use() -> Program:
    return many_states()


@program
def only_written() -> Program:
    return many_states(return_only_write=True)


@program
def only_written_with_shapes() -> Program:
    return many_states(return_only_write=True, return_shape=True)


@program
def only_written_of_none() -> Program:
    s = State(VECTOR)
    return Program(lambda x: s.value * x, states=[s], options=dict(return_only_write=True))


@program
def kinds_of_states() -> Program:
    kinds = [ShortTermState, LongTermState, HiddenState, ParamState, brainstate.BatchState]
    states = [kind(VECTOR) for kind in kinds]

    def f(x):
        for s in states:
            x = x + s.value
            s.value = x
        return x

    return Program(f, states=states)


@program
def subclass_of_state() -> Program:
    class Counted(State):
        def __init__(self, value):
            super().__init__(value)
            self.reads = 0

        def _read_value(self):
            self.reads += 1
            return super()._read_value()

    s = Counted(VECTOR)
    return Program(lambda x: s.value + s.value * x, states=[s])


@program
def hooks_on_a_state() -> Program:
    s = State(VECTOR)
    s.register_hook("write_before", lambda context: setattr(context, "transformed_value", 0.0))
    s.register_hook("read", lambda context: None)

    def f(x):
        s.value = s.value * x
        return s.value

    return Program(f, states=[s])


@program
def pytree_states() -> Program:
    nested = State({"b": [VECTOR, (MATRIX, None)], "a": np.int32(3)})
    pair = State((VECTOR, 1.0))

    def f(x):
        value = nested.value
        pair.value = (x, pair.value[1] + value["a"])
        nested.value = {**value, "b": [x, (value["b"][1][0].T.reshape(2, 3), None)]}
        return pair.value

    return Program(f, states=[nested, pair])


@program
def types_of_values() -> Program:
    values = [
        1.5,
        2,
        True,
        3j,
        np.float32(1),
        np.arange(3, dtype=np.int8),
        jnp.arange(3.0, dtype=jnp.bfloat16),
        jnp.asarray(2.0),
        jax.random.key(0),
        jax.random.PRNGKey(0),
        jnp.zeros((0, 3)),
    ]
    states = [State(value) for value in values]

    def f(x):
        out = [s.value for s in states]
        out[0] = out[0] * x
        states[1].value = out[1] + 1
        return out

    return Program(f, states=states, options=dict(return_shape=True))


@program
def quantities() -> Program:
    import brainunit as u

    voltage = State(VECTOR * u.mV)
    current = State(2.0 * u.nA)

    def f(dt):
        voltage.value = voltage.value + current.value * (3.0 * u.ohm) * dt
        return voltage.value / current.value

    return Program(f, args=(0.1,), states=[voltage, current])


@program
def states_in_containers() -> Program:
    table = {name: [State(VECTOR), State(MATRIX)] for name in "zya"}

    def f(x):
        for name in sorted(table):
            vector, matrix = table[name]
            x = matrix.value @ (x + vector.value)
            vector.value = jnp.concatenate([x, x[:1]])
            x = vector.value
        return x

    return Program(f, states=jax.tree.leaves(table, is_leaf=lambda s: isinstance(s, State)))


@program
def created_inside() -> Program:
    s = State(VECTOR)

    def f(x):
        inner = State(x)
        inner.value = inner.value * 2 + s.value
        return inner.value

    return Program(f, states=[s])


@program
def created_inside_with_a_constant() -> Program:
    def f(x):
        inner = State(jnp.zeros(3))
        for _ in range(2):
            inner.value += x
        return inner.value

    return Program(f)


@program
def written_in_jit_of_jax() -> Program:
    """jax does not notice that the tracer of one trace becomes a constant of another."""
    s = State(VECTOR)

    def inner(x):
        s.value = x * 2
        return x

    return Program(lambda x: (jax.jit(inner)(x), s.value + 1), states=[s])


@program
def written_in_scan_of_jax() -> Program:
    s = State(np.float32(1))

    def step(carry, x):
        s.value = carry + x
        return carry, x

    return Program(lambda xs: (lax.scan(step, 0.0, xs), s.value + 1), states=[s])


@program
def restored_inside() -> Program:
    s = State(VECTOR)

    def f(x):
        s.restore_value(x)
        return s.value

    return Program(f, states=[s])


# ---- programs: options and arguments ----------------------------------------------------------


def power(x, n, scale=1.0, *, mode="up"):
    return (x**n if mode == "up" else x / n) * scale


@program
def static_number() -> Program:
    s = State(VECTOR)
    f = lambda x, n: s.value * x**n
    return Program(f, (VECTOR, 2), options=dict(static_argnums=1), states=[s])


@program
def static_numbers() -> Program:
    f = lambda n, x, names: dict.fromkeys(names, x * n)
    return Program(f, (2, VECTOR, ("a", "b")), options=dict(static_argnums=(0, 2)))


@program
def static_list() -> Program:
    f = lambda x, n: x * n
    return Program(f, (VECTOR, 2), options=dict(static_argnums=[1]))


@program
def static_names() -> Program:
    f = functools.partial(power)
    kwargs = dict(n=3, mode="down", scale=2.0)
    return Program(f, kwargs=kwargs, options=dict(static_argnames=("n", "mode")))


@program
def static_name() -> Program:
    s = State(VECTOR)

    def f(x, *, activation="sin"):
        s.value = getattr(jnp, activation)(x)
        return s.value

    options = dict(static_argnames="activation")
    return Program(f, kwargs=dict(activation="tanh"), options=options, states=[s])


@program
def static_name_of_nothing() -> Program:
    return Program(lambda x: x * 2, options=dict(static_argnames="absent"))


@program
def static_name_passed_by_position() -> Program:
    return Program(lambda x, n: x * n, (VECTOR, 2), options=dict(static_argnames="n"))


@program
def static_number_and_name() -> Program:
    options = dict(static_argnums=(1,), static_argnames=("mode",))
    return Program(lambda *a, **k: power(*a, **k), (VECTOR, 2), dict(mode="down"), options)


@program
def keyword_arguments() -> Program:
    s = State(VECTOR)
    f = lambda x, *, b, a: s.value * x + a - b
    return Program(f, kwargs=dict(b=1.0, a=MATRIX), states=[s])


@program
def pytree_arguments() -> Program:
    s = State(VECTOR)

    def f(tree, *rest, **named):
        s.value = tree["x"][0]
        return [*rest, named, None, tree]

    args = ({"x": (VECTOR, 1), "y": None}, 2.0, np.int16(3))
    kwargs = dict(k={"z": MATRIX})
    return Program(f, args, kwargs, dict(return_shape=True), [s])


@program
def no_arguments() -> Program:
    s = State(0)

    def f():
        s.value += 1
        return s.value

    return Program(f, args=(), states=[s])


@program
def shapes_of_arguments() -> Program:
    args = (jax.ShapeDtypeStruct((2, 3), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32))
    return Program(lambda x, n: x.T * n, args, options=dict(return_shape=True))


@program
def shape_of_nothing() -> Program:
    return Program(lambda x: None, options=dict(return_shape=True))


@program
def axes() -> Program:
    s = State(VECTOR)

    def f(x):
        s.value = lax.psum(x, "i") + lax.axis_index("j")
        return lax.all_gather(s.value, "j")

    options = dict(axis_env=[("i", 4), ("j", 2)], return_shape=True)
    return Program(f, options=options, states=[s])


@program
def ufunc() -> Program:
    return Program(jnp.add, (VECTOR, 1.0))


@program
def bound_method() -> Program:
    class Cell:
        def __init__(self):
            self.h = HiddenState(VECTOR)

        def update(self, x):
            self.h.value = jnp.tanh(self.h.value + x)
            return self.h.value

    cell = Cell()
    return Program(cell.update, states=[cell.h])


@program
def callable_object() -> Program:
    class Unhashable:
        __hash__ = None

        def __init__(self):
            self.h = State(VECTOR)

        def __call__(self, x):
            return self.h.value + x

    model = Unhashable()
    return Program(model, states=[model.h])


# ---- programs: modules ------------------------------------------------------------------------


def states_of(module: nn.Module) -> list[State]:
    return [*module.states().values(), random.DEFAULT]


@program
def nested_modules() -> Program:
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 4), jax.nn.relu, nn.Linear(4, 3))
            self.count = ShortTermState(0)

        def update(self, x):
            self.count.value += 1
            return x + self.inner(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = [Block(), Block()]
            self.norm = nn.LayerNorm(3)

        def update(self, x):
            for block in reversed(self.blocks):
                x = block(x)
            return self.norm(x)

    model = Model()
    return Program(model, args=(MATRIX,), states=states_of(model))


@program
def recurrent_cell() -> Program:
    cell = nn.GRUCell(3, 2)
    cell.init_state()
    f = lambda xs: bst.for_loop(cell, xs)
    return Program(f, args=(MATRIX,), states=states_of(cell))


@program
def dropout_in_training() -> Program:
    layer = nn.Dropout(0.5)

    def f(x):
        with brainstate.environ.context(fit=True):
            return layer(x)

    return Program(f, states=[random.DEFAULT])


@program
def batch_norm() -> Program:
    norm = nn.BatchNorm0d(3)

    def f(x):
        with brainstate.environ.context(fit=True):
            return norm(x)

    return Program(f, args=(MATRIX,), states=states_of(norm))


@program
def training_step() -> Program:
    model = nn.Sequential(nn.Linear(3, 4), jnp.tanh, nn.Linear(4, 1))
    weights = model.states(ParamState)
    zeros = lambda w: ShortTermState(jax.tree.map(jnp.zeros_like, w.value))
    momentum = {k: zeros(w) for k, w in weights.items()}

    def step(x, y):
        loss = lambda: jnp.mean((model(x) - y) ** 2)
        grads, value = bst.grad(loss, weights, return_value=True)()
        for k, w in weights.items():
            momentum[k].value = jax.tree.map(lambda m, g: 0.9 * m + g, momentum[k].value, grads[k])
            w.value = jax.tree.map(lambda p, m: p - 0.1 * m, w.value, momentum[k].value)
        return value

    states = [*weights.values(), *momentum.values()]
    return Program(step, args=(MATRIX, np.ones((2, 1))), states=states)


# ---- programs: control flow -------------------------------------------------------------------


def with_counters(body: Callable[[State, State, Any], Any], **fields: Any) -> Program:
    """A program of a function of two states and the arguments."""
    total, last = State(VECTOR), State(np.float32(0))

    def f(*args):
        return body(total, last, *args)

    return Program(f, states=[total, last], **fields)


def add_to(state: State, value: Any) -> None:
    state.value = state.value + value


@program
def cond() -> Program:
    def body(total, last, x):
        def true(y):
            add_to(total, y)
            return last.value

        return bst.cond(x[0] > 1, true, lambda y: y.sum(), x)

    return with_counters(body)


@program
def switch() -> Program:
    def body(total, last, i):
        branches = [
            lambda: add_to(total, 1.0),
            lambda: add_to(last, total.value.sum()),
            lambda: None,
        ]
        bst.switch(i, branches)
        return total.value

    return with_counters(body, args=(1,))


@program
def ifelse() -> Program:
    def body(total, last, x):
        def middle():
            last.value = 2.0 * x
            return 1.0

        conditions = [x > 5, x <= 0]
        return bst.ifelse(
            [*conditions, ~(conditions[0] | conditions[1])],
            [lambda: 0.0, middle, lambda: total.value.sum()],
            check_cond=False,
        )

    return with_counters(body, args=(np.float32(1),))


@program
def ifelse_checked() -> Program:
    def body(total, last, x):
        return bst.ifelse([x > 1, x <= 1], [lambda: last.value, lambda: total.value[0]])

    return with_counters(body, args=(np.float32(1),))


@program
def while_loop() -> Program:
    def body(total, last, n):
        def step(i):
            add_to(total, i)
            add_to(last, 1.0)
            return i + 1

        return bst.while_loop(lambda i: (i < n) & (last.value < 10), step, 0)

    return with_counters(body, args=(5,))


@program
def bounded_while_loop() -> Program:
    def body(total, last, n):
        def step(i):
            add_to(last, total.value[0])
            return i + 1

        return bst.bounded_while_loop(lambda i: i < n, step, 0, max_steps=20, base=4)

    return with_counters(body, args=(5,))


@program
def for_loop() -> Program:
    def body(total, last, xs):
        def step(i, x):
            add_to(total, x)
            last.value = total.value.sum()
            return i * x

        return bst.for_loop(step, jnp.arange(2), xs, reverse=True, unroll=2)

    return with_counters(body, args=(MATRIX,))


@program
def scan() -> Program:
    def body(total, last, xs):
        def step(carry, x):
            add_to(total, carry)
            return carry + last.value, x * carry

        return bst.scan(step, jnp.float32(1), xs)

    return with_counters(body, args=(MATRIX,))


@program
def checkpointed_loops() -> Program:
    def body(total, last, xs):
        def step(carry, x):
            add_to(total, x)
            return carry + x.sum(), carry

        carry, ys = bst.checkpointed_scan(step, 0.0, xs, base=2)
        zs = bst.checkpointed_for_loop(lambda x: add_to(last, x.sum()) or x, xs, base=2)
        return carry, ys, zs

    return with_counters(body, args=(MATRIX,))


@program
def nested_control_flow() -> Program:
    def body(total, last, xs):
        def step(x):
            def inner(i):
                bst.cond(i > 1, lambda: add_to(total, x), lambda: add_to(last, 1.0))
                return i + 1

            return bst.while_loop(lambda i: i < 3, inner, 0)

        return bst.for_loop(step, xs)

    return with_counters(body, args=(MATRIX,))


@program
def control_flow_of_jax() -> Program:
    def body(total, last, xs):
        value = total.value
        carry, ys = lax.scan(lambda c, x: (c + x * value, c), xs[0], xs)
        add_to(last, carry.sum())
        return lax.cond(last.value > 0, lambda: ys, lambda: -ys)

    return with_counters(body, args=(MATRIX,))


# ---- programs: transformations ----------------------------------------------------------------


def loss_of(w: State, count: State) -> Callable:
    def loss(x):
        add_to(count, 1.0)
        return jnp.sum(jnp.tanh(w.value * x) ** 2)

    return loss


def transformed(transform: Callable[[Callable, State], Callable], **fields: Any) -> Program:
    """A program of a transformed loss that depends on one state and writes another."""
    w, count = ParamState(VECTOR), State(np.float32(0))
    f = transform(loss_of(w, count), w)
    return Program(lambda *args: f(*args), states=[w, count], **fields)


@program
def grad_of_arguments() -> Program:
    return transformed(lambda loss, w: bst.grad(loss, argnums=0))


@program
def grad_of_states() -> Program:
    return transformed(lambda loss, w: bst.grad(loss, {"w": w}, argnums=0, return_value=True))


@program
def grad_with_aux() -> Program:
    def transform(loss, w):
        with_aux = lambda x: (loss(x), {"x": x})
        return bst.grad(with_aux, [w], has_aux=True, return_value=True)

    return transformed(transform, options=dict(return_shape=True))


@program
def vector_grad() -> Program:
    return transformed(lambda loss, w: bst.vector_grad(lambda x: jnp.sin(x) * w.value, argnums=0))


@program
def forward_grad() -> Program:
    p = transformed(lambda loss, w: bst.fwd_grad(loss, argnums=0))
    return p._replace(states=[*p.states, random.DEFAULT])  # it draws a tangent


@program
def jacobians() -> Program:
    def transform(loss, w):
        f = lambda x: jnp.sin(x) * w.value
        forward, reverse = bst.jacfwd(f, argnums=0), bst.jacrev(f, w, argnums=0)
        return lambda x: (forward(x), reverse(x))

    return transformed(transform)


@program
def hessian() -> Program:
    return transformed(lambda loss, w: bst.hessian(loss, argnums=0))


@program
def hessian_of_states() -> Program:
    return transformed(lambda loss, w: bst.hessian(loss, w))


@program
def vjp() -> Program:
    def transform(loss, w):
        def f(x):
            out, pullback = bst.vjp(loss, x, grad_states=w)
            return out, pullback(jnp.ones_like(out))

        return f

    return transformed(transform)


@program
def jvp() -> Program:
    return transformed(lambda loss, w: lambda x: bst.jvp(loss, (x,), (jnp.ones_like(x),)))


@program
def grad_of_grad() -> Program:
    def transform(loss, w):
        inner = bst.grad(loss, argnums=0)
        return bst.grad(lambda x: jnp.sum(inner(x) ** 2), w)

    return transformed(transform)


@program
def grad_of_a_loop() -> Program:
    def transform(loss, w):
        return bst.grad(lambda xs: bst.for_loop(loss, xs).sum(), w)

    return transformed(transform, args=(MATRIX,))


@program
def grad_of_jax() -> Program:
    w = State(VECTOR)

    def f(x):
        value = w.value
        w.value = jax.grad(lambda v: jnp.sum(jnp.sin(v) * x))(value)
        return jax.hessian(lambda v: jnp.prod(v * value))(x)

    return Program(f, states=[w])


@program
def rematerialized() -> Program:
    return transformed(lambda loss, w: bst.grad(bst.checkpoint(loss), w))


@program
def jit() -> Program:
    return transformed(lambda loss, w: bst.jit(loss))


@program
def jit_twice() -> Program:
    def transform(loss, w):
        jitted = bst.jit(loss)
        return lambda x: jitted(x) + jitted(x * 2) + bst.jit(jitted)(x)

    return transformed(transform)


@program
def jit_with_statics() -> Program:
    s = State(VECTOR)

    @functools.partial(bst.jit, static_argnums=1, static_argnames="mode")
    def inner(x, n, mode="up"):
        add_to(s, n)
        return power(x, n, mode=mode)

    f = lambda x: inner(x, 2) + inner(x, 3, mode="down")
    return Program(f, states=[s])


@program
def jit_of_jax() -> Program:
    s = State(VECTOR)
    inner = jax.jit(lambda v, x: jnp.sin(v) * x)

    def f(x):
        s.value = inner(s.value, x)
        return inner(s.value, 2.0)

    return Program(f, states=[s])


@program
def vmap() -> Program:
    batched, shared = ShortTermState(MATRIX), ParamState(VECTOR)

    @bst.vmap(in_axes=(0, None), in_states=batched, out_states=batched)
    def inner(x, y):
        batched.value = batched.value * x + shared.value
        return batched.value @ y

    return Program(inner, args=(MATRIX, VECTOR), states=[batched, shared])


@program
def vmap2() -> Program:
    batched, shared = ShortTermState(MATRIX), ParamState(VECTOR)

    def inner(x):
        add_to(batched, shared.value * x)
        return lax.pmean(batched.value, "i")

    kind = ShortTermState
    f = bst.vmap2(inner, axis_name="i", state_in_axes=kind, state_out_axes=kind)
    return Program(lambda x: f(x), args=(MATRIX,), states=[batched, shared])


@program
def vmap_of_new_states() -> Program:
    def f(x):
        @bst.vmap_new_states(axis_size=4, state_tag="new")
        def init():
            return ShortTermState(random.normal(size=3)).value

        return init() + x

    return Program(f, states=[random.DEFAULT])


@program
def vmap_of_a_new_module() -> Program:
    def f(x):
        cell = nn.GRUCell(3, 2)
        bst.vmap2_new_states(cell, {}, axis_size=2)
        g = bst.vmap2(cell, state_in_axes=HiddenState, state_out_axes=HiddenState)
        return g(x)

    return Program(f, args=(MATRIX,), states=[random.DEFAULT])


@program
def vmap_of_grad() -> Program:
    def transform(loss, w):
        g = bst.grad(lambda x: jnp.sum(jnp.sin(w.value * x)), argnums=0)
        return bst.vmap(g)

    return transformed(transform, args=(MATRIX,))


@program
def vmap_of_jax() -> Program:
    s = State(VECTOR)
    f = lambda xs: jax.vmap(lambda x: x * s.value)(xs)
    return Program(f, args=(MATRIX,), states=[s])


@program
def sequential_map() -> Program:
    s = State(VECTOR)
    f = lambda xs: (bst.map(lambda x: x * s.value, xs), bst.map(jnp.sin, xs, batch_size=2))
    return Program(f, args=(MATRIX,), states=[s])


@program
def shard_map() -> Program:
    mesh = jax.make_mesh((2,), ("x",))
    s = State(np.float32(2))
    spec = PartitionSpec("x")

    def inner(x):
        add_to(s, 1.0)
        return lax.psum(x * s.value, "x")

    f = bst.shard_map(inner, mesh, (spec,), PartitionSpec())
    return Program(lambda x: f(x), args=(MATRIX,), states=[s])


@program
def unvmap() -> Program:
    f = lambda xs: jax.vmap(lambda x: jnp.where(bst.unvmap(x > 2, op="any"), x, -x))(xs)
    return Program(f)


@program
def names() -> Program:
    s = State(VECTOR)

    @bst.named_call(name="called")
    def inner(x):
        add_to(s, x)
        return jnp.sin(x)

    scoped = bst.named_scope(name="scoped")(inner)
    return Program(lambda x: inner(x) + scoped(x), states=[s])


@program
def checkify() -> Program:
    s = State(VECTOR)

    def inner(x):
        bst.check(jnp.all(x > 0), "not positive: {x}", x=x)
        add_to(s, jnp.log(x))
        return s.value

    def f(x):
        # Before 0.12, jax numbers the errors through the life of the process.
        numbers = itertools.count(1).__next__
        with mock.patch.object(jax_checkify, "next_code", numbers, create=True):
            return bst.checkify(inner)(x)[1]

    return Program(f, states=[s])


@program
def error_callback() -> Program:
    s = State(VECTOR)

    def f(x):
        bst.jit_error_if(jnp.any(s.value > x), "too large: {v}", v=x)
        return s.value

    return Program(f, states=[s])


@program
def states_found() -> Program:
    w, count = ParamState(VECTOR), State(np.float32(0))
    finder = bst.StateFinder(loss_of(w, count), filter=ParamState, usage="read")

    def f(x):
        return [s.value for s in finder(x).values()]

    return Program(f, states=[w, count])


@program
def eval_shape() -> Program:
    s = State(VECTOR)

    def f(x):
        return jnp.zeros(jax.eval_shape(lambda y: jnp.outer(y, s.value), x).shape)

    return Program(f, states=[s])


@program
def nested_make_jaxpr() -> Program:
    s = State(VECTOR)

    def f(x):
        jaxpr, states = STOCK(lambda y: s.value * y)(x)
        return jax.extend.core.jaxpr_as_fun(jaxpr)(x, *(state.value for state in states))

    return Program(f, states=[s])


@program
def optimized_inside() -> Program:
    w, count = ParamState(VECTOR), State(np.float32(0))
    inner = bst.StatefulFunction(loss_of(w, count), ir_optimizations=["dce", "cse"])
    return Program(lambda x: inner(x), states=[w, count])


# ---- programs: random states ------------------------------------------------------------------


@program
def default_random_state() -> Program:
    f = lambda x: random.normal(size=3) + x * random.uniform(size=(2, 1))
    return Program(f, states=[random.DEFAULT], options=dict(return_shape=True))


@program
def own_random_state() -> Program:
    rng = random.RandomState(3)

    def f(x):
        key = rng.split_key()
        return jax.random.bits(key, (2,)), rng.permutation(x), rng.choice(x, 2)

    return Program(f, states=[rng])


@program
def random_in_loops() -> Program:
    s = State(VECTOR)

    def step(x):
        add_to(s, random.rand(3))
        return bst.cond(x[0] > 0, lambda: random.gamma(2.0), lambda: 0.0)

    return Program(lambda xs: bst.for_loop(step, xs), (MATRIX,), states=[s, random.DEFAULT])


@program
def random_under_vmap() -> Program:
    f = lambda xs: bst.vmap2(lambda x: x * random.rand())(xs)
    return Program(f, states=[random.DEFAULT])


@program
def seeded_context() -> Program:
    def f(x):
        with random.seed_context(7):
            return random.randn(3) * x

    return Program(f, states=[random.DEFAULT])


# ---- comparison -------------------------------------------------------------------------------


@dataclasses.dataclass
class Result:
    """What a maker returned for a program."""

    returned: tuple
    program: Program

    @property
    def traced(self) -> oracle.Traced:
        jaxpr, _, *shapes = self.returned
        return oracle.Traced((jaxpr, *shapes) if shapes else jaxpr, self.program.function)

    @property
    def states(self) -> tuple[State, ...]:
        return self.returned[1]

    def places(self) -> list[int]:
        """Where in the program's states each returned state is."""
        return [place_of(state, self.program.states) for state in self.states]


def place_of(state: State, states: Sequence[State]) -> int:
    places = [i for i, other in enumerate(states) if other is state]
    assert len(places) == 1, "a state of another program"
    return places[0]


def values_of(states: Sequence[State]) -> list[Any]:
    return [leaf for state in states for leaf in jax.tree.leaves(state._value)]


def assert_untouched(states: Sequence[State], values: Sequence[Any]) -> None:
    """Tracing must leave in each state the very objects that were its value."""
    now = values_of(states)
    assert len(now) == len(values)
    assert all(new is old for new, old in zip(now, values, strict=True))


def trace(makers: Sequence[Callable], programs: Sequence[Program], *, cold: bool) -> list[Result]:
    """Traces each program with its maker, all from one line, as the source info has to be equal."""
    results = []
    for maker, p in zip(makers, programs, strict=True):
        if cold:
            jax.clear_caches()
        values = values_of(p.states)
        returned = maker(p.function, **p.options)(*p.args, **p.kwargs)
        assert_untouched(p.states, values)
        results.append(Result(returned, p))
    return results


def assert_same(expected: Result, actual: Result, again: Callable[[], tuple[Any, Any]]) -> None:
    """Fails unless two results are equal but for the objects that belong to their programs."""
    assert type(actual.returned) is type(expected.returned)
    assert len(actual.returned) == len(expected.returned)
    assert type(actual.states) is type(expected.states)
    assert actual.places() == expected.places()
    assert isinstance(actual.returned[0], jax.extend.core.ClosedJaxpr)
    oracle.assert_same_texts(expected.returned[0], actual.returned[0], again)
    oracle.assert_same_description(expected.traced, actual.traced)
    if len(expected.returned) == 3:
        assert actual.returned[2] == expected.returned[2]
        assert jax.tree.structure(actual.returned[2]) == jax.tree.structure(expected.returned[2])


def stock_twice(make: Callable[[], Program]) -> tuple[Any, Any]:
    first, second = trace([STOCK] * 2, [make(), make()], cold=False)
    return first.returned[0], second.returned[0]


def split(makers: Sequence[Callable], results: Sequence[Result]) -> tuple[list, list]:
    """The results of stock and ours, each in the order in which they were made."""
    pairs = list(zip(makers, results, strict=True))
    return [r for m, r in pairs if m is STOCK], [r for m, r in pairs if m is OURS]


@pytest.mark.covering(together=True)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_cold(name: str, order: str) -> None:
    """Every trace has states and functions of its own and finds nothing in any cache."""
    make = PROGRAMS[name]
    makers = [maker for maker in ORDERS[order] for _ in range(ROUNDS)]
    results = trace(makers, [make() for _ in makers], cold=True)
    for expected, actual in zip(*split(makers, results), strict=True):
        assert_same(expected, actual, functools.partial(stock_twice, make))


@pytest.mark.covering(together=True)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_warm(name: str, order: str) -> None:
    """All traces are of the same function, use the same states, and share the caches."""
    make = PROGRAMS[name]
    first, second = ORDERS[order]
    makers = [first] * ROUNDS + [second] * ROUNDS
    # The first trace of all fills the caches of brainstate, which changes what the next ones are.
    _, *results = trace([first, *makers], [make()] * (len(makers) + 1), cold=False)
    for expected, actual in zip(*split(makers, results), strict=True):
        assert_same(expected, actual, functools.partial(stock_twice, make))
        assert all(a is e for a, e in zip(actual.states, expected.states, strict=True))


def test_comparison_sees_a_difference() -> None:
    def compare(first: Callable[[], Program], second: Callable[[], Program]) -> None:
        expected, actual = trace(MAKERS, [first(), second()], cold=True)
        assert_same(expected, actual, functools.partial(stock_twice, first))

    compare(order_of_use, order_of_use)
    for other in (only_written, read, lambda: order_of_use()._replace(args=(VECTOR[:1],))):
        with pytest.raises(AssertionError):
            compare(order_of_use, other)
    with pytest.raises(AssertionError):  # the same program, its states in another order
        compare(order_of_use, lambda: order_of_use()._replace(states=order_of_use().states[::-1]))


# ---- who traces -------------------------------------------------------------------------------


def tracer_types(make_jaxpr: Callable) -> set[type]:
    """The types of all tracers that a program sees, in whatever starts a trace."""
    s = State(VECTOR)
    seen = []

    def note(x):
        seen.extend([type(x), type(s.value)])
        return x

    def f(x):
        bst.for_loop(note, x)
        bst.cond(x[0] > 0, note, lambda y: y, x)
        bst.jit(note)(x)
        bst.make_jaxpr(note)(x)
        jax.eval_shape(note, x)
        return lax.while_loop(lambda y: y[0] < 0, note, note(x))

    make_jaxpr(f)(VECTOR)
    return set(seen)


def test_every_trace_is_recorded_by_jaxide() -> None:
    jax.clear_caches()
    (stock,) = tracer_types(STOCK)
    jax.clear_caches()
    (ours,) = tracer_types(OURS)
    assert ours is not stock and issubclass(ours, stock)
    jax.clear_caches()
    assert tracer_types(STOCK) == {stock}  # nothing is left switched on


def test_without_the_native_trace_it_is_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compat, "native", lambda: False)
    jax.clear_caches()
    assert tracer_types(OURS) == tracer_types(STOCK)


# ---- one maker, several calls -----------------------------------------------------------------


def remembers(make_jaxpr: Callable, calls: Sequence[Callable[[State, Callable], Any]]) -> list[Any]:
    """What each call returned: its text and shapes, whether the states are the program's, and the
    earlier calls that returned the same jaxpr object. Last, how often the function ran."""
    s, other = State(VECTOR), State(2.0)
    runs = []

    def f(x, n=1):
        runs.append(n)
        other.value = other.value * n
        s.value = jax.tree.map(lambda v: v * 2, s.value)
        return x

    made = make_jaxpr(f, static_argnames="n", return_shape=True)
    results = [call(s, made) for call in calls]
    described = [
        (str(jaxpr), shape, [[state is known for known in (other, s)] for state in states])
        for jaxpr, states, shape in results
    ]
    repeats = [[i for i, r in enumerate(results) if r[0] is jaxpr] for jaxpr, *_ in results]
    return [described, repeats, len(runs)]


def with_value(value: Any) -> Callable[[State, Callable], Any]:
    def call(s: State, made: Callable) -> Any:
        with brainstate.check_state_value_tree(False):
            s.value = value
        return made(VECTOR)

    return call


def test_traces_again_when_the_type_of_a_state_changes() -> None:
    values = [
        VECTOR,
        VECTOR * 2,  # the same type
        MATRIX,
        MATRIX.astype(np.float16),
        2.0,
        np.float32(2),  # weakly typed no more
        {"a": VECTOR},
        {"b": VECTOR},
        VECTOR,
    ]
    calls = [with_value(value) for value in values]
    expected = remembers(STOCK, calls)
    assert remembers(OURS, calls) == expected
    _, repeats, runs = expected
    assert repeats[:2] == [[0, 1]] * 2
    assert runs >= len(values) - 2


def test_traces_again_for_other_arguments() -> None:
    calls = [
        lambda s, made: made(VECTOR),
        lambda s, made: made(-VECTOR),
        lambda s, made: made(MATRIX),
        lambda s, made: made(VECTOR, n=2),
        lambda s, made: made(VECTOR, n=1),
        lambda s, made: made(x=VECTOR),
        lambda s, made: made((VECTOR,)),
        lambda s, made: made(VECTOR),
    ]
    expected = remembers(STOCK, calls)
    assert remembers(OURS, calls) == expected
    assert expected[1][-1] == [0, 1, 7]


def test_traces_again_after_an_error() -> None:
    def fail(s: State, made: Callable) -> Any:
        with pytest.raises(TypeError) as caught:
            made("text")
        return str(caught.value), (s,), None

    calls = [with_value(VECTOR), fail, with_value(MATRIX), fail, with_value(VECTOR)]
    assert remembers(OURS, calls) == remembers(STOCK, calls)


# ---- inside other traces ----------------------------------------------------------------------


def enclosed(make_jaxpr: Callable) -> Callable:
    """A function that traces another with its own tracers and then runs the jaxpr."""
    s = State(VECTOR)

    def f(x):
        jaxpr, states = make_jaxpr(lambda y: s.value * y + x.sum())(x * 2)
        assert states == (s,)
        return jax.extend.core.jaxpr_as_fun(jaxpr)(x, s.value)

    return f


OUTER = {"jax": jax.make_jaxpr, "jaxide": jaxide.make_jaxpr, "stock": STOCK, "ours": OURS}


@pytest.mark.parametrize("outer", OUTER.values(), ids=OUTER)
def test_inside_another_trace(outer: Callable) -> None:
    texts = []
    for maker in MAKERS:
        jax.clear_caches()
        made = outer(enclosed(maker))(VECTOR)
        texts.append(str(made[0] if isinstance(made, tuple) else made))
    assert texts[0] == texts[1]


def test_inside_a_compiled_function() -> None:
    stock, ours = (bst.jit(enclosed(maker))(VECTOR) for maker in MAKERS)
    np.testing.assert_array_equal(np.asarray(stock), np.asarray(ours))


def test_states_of_threads() -> None:
    """Each thread has states of its own; all trace at once."""
    names = ["training_step", "nested_control_flow", "own_random_state", "vmap2"] * 2
    programs = [PROGRAMS[name]() for name in names]
    for _ in range(2):  # the second trace finds brainstate's caches filled, as the third will
        results = trace([STOCK] * len(programs), programs, cold=False)
    expected = [str(result.returned[0]) for result in results]
    barrier = threading.Barrier(len(programs))

    def work(p: Program) -> str:
        barrier.wait()
        return str(OURS(p.function, **p.options)(*p.args, **p.kwargs)[0])

    with ThreadPoolExecutor(len(programs)) as pool:
        assert list(pool.map(work, programs)) == expected


# ---- errors -----------------------------------------------------------------------------------

MISUSES: dict[str, Callable[[Callable], Any]] = {}


def misuse(use: Callable[[Callable], Any]) -> Callable[[Callable], Any]:
    """Registers a use of `make_jaxpr` that raises."""
    MISUSES[use.__name__] = use
    return use


@misuse
def static_number_out_of_range(make_jaxpr):
    make_jaxpr(lambda x: x, static_argnums=(0, 3))(2)


@misuse
def static_number_of_a_keyword(make_jaxpr):
    make_jaxpr(lambda x: x, static_argnums=0)(x=2)


@misuse
def static_number_out_of_range_below(make_jaxpr):
    make_jaxpr(lambda x: x, static_argnums=-4)(2)


@misuse
def static_number_that_is_text(make_jaxpr):
    make_jaxpr(lambda x: x, static_argnums="x")


@misuse
def static_number_that_is_a_float(make_jaxpr):
    make_jaxpr(lambda x: x, static_argnums=1.5)


@misuse
def static_name_that_is_a_number(make_jaxpr):
    make_jaxpr(lambda x: x, static_argnames=(1,))


@misuse
def static_names_that_are_a_number(make_jaxpr):
    make_jaxpr(lambda x: x, static_argnames=1)


@misuse
def static_array(make_jaxpr):
    make_jaxpr(lambda n, x: x, static_argnums=0)(jnp.ones(2), VECTOR)


@misuse
def static_list_argument(make_jaxpr):
    make_jaxpr(lambda n, x: x, static_argnums=0)([1, 2], VECTOR)


@misuse
def static_unhashable_object(make_jaxpr):
    class Unhashable:
        __hash__ = None

    make_jaxpr(lambda x, n: x, static_argnames="n")(VECTOR, n=Unhashable())


@misuse
def static_name_given_twice(make_jaxpr):
    make_jaxpr(power, static_argnames="n")(VECTOR, 2, n=3)


@misuse
def static_value_is_not_static(make_jaxpr):
    make_jaxpr(lambda x, mode: x, static_argnames="mode")(VECTOR, "up")


@misuse
def missing_argument(make_jaxpr):
    make_jaxpr(power)(VECTOR)


@misuse
def unknown_keyword(make_jaxpr):
    make_jaxpr(power)(VECTOR, 2.0, power=3)


@misuse
def unknown_option(make_jaxpr):
    make_jaxpr(power, abstracted_axes=None)


@misuse
def text_as_an_argument(make_jaxpr):
    make_jaxpr(lambda x: x)("text")


@misuse
def text_in_a_state(make_jaxpr):
    s = State("text")
    make_jaxpr(lambda x: s.value)(VECTOR)


@misuse
def text_as_a_result(make_jaxpr):
    make_jaxpr(lambda x: (x, "text"))(VECTOR)


@misuse
def not_a_function(make_jaxpr):
    make_jaxpr(3)(VECTOR)


@misuse
def state_as_an_argument(make_jaxpr):
    make_jaxpr(lambda s: s.value)(State(VECTOR))


@misuse
def state_in_an_argument(make_jaxpr):
    make_jaxpr(lambda x, tree: x)(VECTOR, {"a": [State(VECTOR)]})


@misuse
def state_as_a_keyword_argument(make_jaxpr):
    make_jaxpr(lambda x, s: x)(VECTOR, s=(State(VECTOR),))


@misuse
def state_as_a_result(make_jaxpr):
    s = State(VECTOR)
    make_jaxpr(lambda x: {"s": s})(VECTOR)


@misuse
def new_state_as_a_result(make_jaxpr):
    make_jaxpr(lambda x: State(x))(VECTOR)


@misuse
def state_as_a_value(make_jaxpr):
    s = State(VECTOR)

    def f(x):
        s.value = State(x)

    make_jaxpr(f)(VECTOR)


@misuse
def another_tree_as_a_value(make_jaxpr):
    s = State({"a": VECTOR})

    def f(x):
        s.value = [x]

    make_jaxpr(f)(VECTOR)


@misuse
def leaked_state_is_read(make_jaxpr):
    leaking(make_jaxpr).value


@misuse
def leaked_state_is_read_in_a_trace(make_jaxpr):
    s = leaking(make_jaxpr)
    make_jaxpr(lambda x: x + s.value)(VECTOR)


@misuse
def leaked_state_is_written_in_a_trace(make_jaxpr):
    """A write revives it, but what it then holds is a tracer again."""
    s = leaking(make_jaxpr)

    def f(x):
        s.value = x * 2
        return s.value

    make_jaxpr(f)(VECTOR)
    s.value + 1


@misuse
def leaked_tracer_of_an_argument(make_jaxpr):
    leaked = []
    make_jaxpr(lambda x: leaked.append(x) or x)(VECTOR)
    leaked[0] + 1


@misuse
def leaked_tracer_of_a_state(make_jaxpr):
    s = State(VECTOR)
    leaked = []
    make_jaxpr(lambda x: leaked.append(s.value * x) or x)(VECTOR)
    leaked[0] + 1


@misuse
def leaked_tracer_is_found(make_jaxpr):
    leaked = []
    with jax.checking_leaks():
        make_jaxpr(lambda x: leaked.append(x * 2) or x)(VECTOR)


@misuse
def tracer_of_raw_vmap_written(make_jaxpr):
    s = State(VECTOR)

    def inner(x):
        s.value = s.value * x
        return x

    def f(x):
        jax.vmap(inner)(x)
        return s.value + 1

    make_jaxpr(f)(VECTOR)


@misuse
def value_of_a_state_is_needed(make_jaxpr):
    s = State(np.float32(1))
    make_jaxpr(lambda x: x if s.value > 0 else -x)(VECTOR)


@misuse
def shape_from_a_state(make_jaxpr):
    s = State(3)
    make_jaxpr(lambda x: jnp.zeros(s.value))(VECTOR)


@misuse
def array_of_a_state(make_jaxpr):
    s = State(VECTOR)
    make_jaxpr(lambda x: np.asarray(s.value))(VECTOR)


@misuse
def item_of_a_loop(make_jaxpr):
    s = State(VECTOR)
    make_jaxpr(lambda xs: bst.for_loop(lambda x: float(s.value[0] * x), xs))(VECTOR)


@misuse
def shapes_do_not_match(make_jaxpr):
    s = State(np.ones(4))
    make_jaxpr(lambda x: x + s.value)(VECTOR)


@misuse
def error_of_the_user(make_jaxpr):
    s = State(VECTOR)

    def f(x):
        s.value = x

        def body(y):
            raise RuntimeError("from the user") from KeyError("cause")

        bst.for_loop(body, x)

    make_jaxpr(f)(VECTOR)


@misuse
def interrupted(make_jaxpr):
    def f(x):
        raise KeyboardInterrupt

    make_jaxpr(f)(VECTOR)


@misuse
def unbound_axis(make_jaxpr):
    make_jaxpr(lambda x: lax.psum(x, "i"), axis_env=[("j", 2)])(VECTOR)


@misuse
def malformed_axes(make_jaxpr):
    make_jaxpr(lambda x: x, axis_env=["axis"])(VECTOR)


@misuse
def branches_differ(make_jaxpr):
    s = State(VECTOR)
    make_jaxpr(lambda x: bst.cond(x[0] > 0, lambda: s.value, lambda: 1))(VECTOR)


@misuse
def branches_write_different_types(make_jaxpr):
    s = State(VECTOR)

    def true():
        s.value = jnp.ones(5)

    make_jaxpr(lambda x: bst.cond(x[0] > 0, true, lambda: None))(VECTOR)


@misuse
def switch_without_branches(make_jaxpr):
    make_jaxpr(lambda i: bst.switch(i, []))(1)


@misuse
def condition_is_no_scalar(make_jaxpr):
    make_jaxpr(lambda x: bst.cond(x > 0, lambda: 1, lambda: 2))(VECTOR)


@misuse
def carry_changes(make_jaxpr):
    make_jaxpr(lambda xs: bst.scan(lambda c, x: (jnp.stack([c, c]), x), xs[0], xs))(VECTOR)


@misuse
def state_changes_in_a_loop(make_jaxpr):
    s = State(VECTOR)

    def step(x):
        s.value = jnp.concatenate([s.value, s.value])

    make_jaxpr(lambda xs: bst.for_loop(step, xs))(VECTOR)


@misuse
def lengths_differ(make_jaxpr):
    make_jaxpr(lambda xs, ys: bst.for_loop(lambda x, y: x * y, xs, ys))(VECTOR, np.ones(4))


@misuse
def while_loop_changes_type(make_jaxpr):
    make_jaxpr(lambda n: bst.while_loop(lambda i: i < n, lambda i: jnp.stack([i, i]), 0))(3)


@misuse
def condition_writes(make_jaxpr):
    s = State(np.float32(0))

    def condition(i):
        add_to(s, 1.0)
        return i < 3

    make_jaxpr(lambda n: bst.while_loop(condition, lambda i: i + 1, n))(0)


@misuse
def grad_of_a_vector(make_jaxpr):
    w = ParamState(VECTOR)
    make_jaxpr(bst.grad(lambda x: w.value * x, w))(VECTOR)


@misuse
def grad_of_integers(make_jaxpr):
    w = ParamState(np.arange(3))
    make_jaxpr(bst.grad(lambda: jnp.sum(w.value), w))()


@misuse
def grad_of_an_unused_state(make_jaxpr):
    w = ParamState(VECTOR)
    make_jaxpr(bst.grad(lambda x: jnp.sum(x), w))(VECTOR)


@misuse
def grad_of_no_state(make_jaxpr):
    make_jaxpr(bst.grad(lambda x: jnp.sum(x), grad_states=[VECTOR]))(VECTOR)


@misuse
def grad_without_aux(make_jaxpr):
    make_jaxpr(bst.grad(lambda x: jnp.sum(x), argnums=0, has_aux=True))(VECTOR)


@misuse
def vmap_of_different_sizes(make_jaxpr):
    make_jaxpr(bst.vmap(lambda x, y: x * y))(VECTOR, np.ones(4))


@misuse
def vmap_writes_an_undeclared_state(make_jaxpr):
    s = State(np.float32(0))

    def inner(x):
        s.value = x

    make_jaxpr(lambda xs: bst.vmap(inner)(xs))(VECTOR)


@misuse
def statics_of_jit(make_jaxpr):
    inner = bst.jit(lambda x, n: x * n, static_argnums=1)
    make_jaxpr(lambda x: inner(x, x))(VECTOR)


@misuse
def distribution_of_text(make_jaxpr):
    make_jaxpr(lambda x: random.normal(size="three"))(VECTOR)


@pytest.mark.parametrize("name", MISUSES)
def test_raises_as_stock(name: str) -> None:
    use = MISUSES[name]
    before = surroundings()
    # All from one line: some texts tell who called.
    expected, *others = [outcome(use, maker) for maker in (STOCK, OURS, OURS, STOCK)]
    assert expected is not None, "brainstate allows this use"
    assert others == [expected] * 3
    assert surroundings() == before
    stock, ours = trace(MAKERS, [order_of_use()] * 2, cold=True)
    assert_same(stock, ours, functools.partial(stock_twice, order_of_use))


@pytest.mark.parametrize("made_inside", [False, True])
def test_states_in_a_trace_of_jax(made_inside: bool) -> None:
    """A trace of jax itself refuses writes to states that it cannot track."""

    def use(make_jaxpr: Callable) -> Any:
        outside = State(VECTOR)

        def f(x):
            s = State(x) if made_inside else outside
            s.value = s.value + x
            return s.value

        return make_jaxpr(f)(VECTOR)

    stock, ours = [outcome(use, maker) for maker in (jax.make_jaxpr, jaxide.make_jaxpr)]
    assert stock == ours
    assert (stock is None) == made_inside


def test_states_have_their_values_after_an_error() -> None:
    states = [State(VECTOR), State({"a": MATRIX})]
    values = values_of(states)

    def f(x):
        states[0].value = x
        states[1].value = {"a": x}
        bst.for_loop(lambda y: states[1].value["b"], x)

    with pytest.raises(KeyError):
        OURS(f)(VECTOR)
    assert_untouched(states, values)


# ---- the module and its functions -------------------------------------------------------------


def test_signature() -> None:
    stock, ours = (inspect.signature(maker).parameters.values() for maker in MAKERS)
    assert [(p.name, p.kind, p.default) for p in ours] == [
        (p.name, p.kind, p.default) for p in stock
    ]
    assert inspect.getdoc(OURS)


@pytest.mark.parametrize("options", [(1,), (1, "mode"), (1, "mode", [("i", 2)], True, True)])
def test_options_by_position(options: tuple) -> None:
    s = State(VECTOR)
    f = lambda x, n, mode: s.value * x * n
    results = [maker(f, *options)(VECTOR, 2, mode=1) for maker in MAKERS]
    stock, ours = ([str(result[0]), *result[1:]] for result in results)
    assert ours == stock
    assert len(ours) == (2 if len(options) < 4 else 3)


def named(x: int, *, n=3) -> float:
    """Documented."""
    return x * n


named.extra = 1


class Named:
    def __call__(self, x):
        return x


CALLABLES = {
    "function": named,
    "lambda": lambda x: x,
    "partial": functools.partial(named, n=2),
    "object": Named(),
    "method": Named().__call__,
    "builtin": len,
    "jitted": jnp.sin,
}


@pytest.mark.parametrize("fun", CALLABLES.values(), ids=CALLABLES)
def test_metadata(fun: Callable) -> None:
    stock, ours = (maker(fun) for maker in MAKERS)
    for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
        assert getattr(ours, name) == getattr(stock, name)
    assert vars(ours) == vars(stock)
    assert ours.__wrapped__ is fun
    assert inspect.signature(ours) == inspect.signature(stock)


def test_as_a_decorator() -> None:
    s = State(VECTOR)

    @OURS
    def f(x):
        return s.value * x

    jaxpr, states = f(VECTOR)
    assert states == (s,)
    assert str(jaxpr) == str(STOCK(f.__wrapped__)(VECTOR)[0])


def test_brainstate_is_imported_only_when_asked_for() -> None:
    assert run_alone("""
        import sys, jaxide
        print("brainstate" in sys.modules)
        import jaxide.brainstate
        print("brainstate" in sys.modules)
    """).stdout.split() == ["False", "True"]


def test_missing_brainstate() -> None:
    assert run_alone("""
        import sys
        sys.modules["brainstate"] = None  # no such module
        import jaxide
        try:
            import jaxide.brainstate
        except ImportError as error:
            print(error)
            print(error.name)
    """).stdout.splitlines() == [
        "jaxide.brainstate needs brainstate: pip install jaxide[brainstate]",
        "brainstate",
    ]


def test_broken_brainstate() -> None:
    """What brainstate itself misses is not called a missing brainstate."""
    assert run_alone("""
        import sys
        sys.modules["saiunit"] = None
        try:
            import jaxide.brainstate
        except ModuleNotFoundError as error:
            print(error.name)
    """).stdout.split() == ["saiunit"]
