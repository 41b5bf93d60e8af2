"""Programs around a function whose world changes."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from world.world import Body


@dataclasses.dataclass(frozen=True)
class Program:
    """A construct around a function."""

    name: str
    around: Callable[[Body], Body]
    """Given the function, what is traced."""
    has: frozenset[str]
    """What it does with the function: `tangent`, `derivative`, `batch`, ...."""


PROGRAMS: dict[str, Program] = {}


def program(has: str = "") -> Callable[[Callable[[Body], Body]], Callable[[Body], Body]]:
    """Declares a program."""

    def declare(around: Callable[[Body], Body]) -> Callable[[Body], Body]:
        name = around.__name__
        assert name not in PROGRAMS, name
        PROGRAMS[name] = Program(name, around, frozenset(has.split()))
        return around

    return declare


def total(body: Body) -> Body:
    return lambda x: jnp.sum(body(x))


@program()
def simplest(body):
    """All ways in which a function may be replayed that does not run."""
    global _jvp_of_simplest, _vjp_of_simplest
    _jvp_of_simplest, _vjp_of_simplest = jax.custom_jvp(body), _with_vjp(body)
    _jvp_of_simplest.defjvp(lambda p, t: (_jvp_of_simplest(*p), t[0] * 2))

    def f(x):
        shape = jax.eval_shape(lambda v: body(v), x).shape
        gradients = [jax.grad(total(g))(x) for g in (_jvp_of_simplest, _vjp_of_simplest)]
        return body(x), _jvp_of_simplest(x), gradients, x * len(shape)

    return f


# ---- calls ------------------------------------------------------------------------------------


@program()
def direct(body):
    return body


@program()
def called_twice(body):
    return lambda x: body(body(x))


@program()
def between_calls(body):
    return lambda x: jnp.cos(body(jnp.sin(x)))


@program()
def operators(body):
    return lambda x: (body(x) * 2 + x) / (1 + x**2) - body(x)[::-1]


@program()
def made_anew(body):
    """A function that nobody holds, with the code of another."""
    if not isinstance(body, types.FunctionType):
        return lambda x: (lambda y: body(y))(x)

    def f(x):
        new = types.FunctionType(
            body.__code__, body.__globals__, body.__name__, body.__defaults__, body.__closure__
        )
        new.__kwdefaults__ = body.__kwdefaults__
        new.__dict__.update(body.__dict__)
        return jax.eval_shape(new, x).dtype.type(1) * new(x)

    return f


@program()
def updated(body):
    return lambda x: x.at[:2].set(body(x)[1:]).at[0].add(1)


@program()
def contracted(body):
    return lambda x: jnp.einsum("i,j->ij", body(x), x) @ body(x)


@program()
def activated(body):
    return lambda x: jax.nn.relu(jax.nn.softmax(body(x)) + jax.nn.gelu(x))


@program()
def with_random_numbers(body):
    return lambda x: body(x) + jax.random.normal(jax.random.key(0), (3,))


@program()
def with_linear_algebra(body):
    return lambda x: jnp.linalg.solve(jnp.outer(body(x), x) + jnp.eye(3), x)


@program()
def with_a_tree(body):
    return lambda x: jax.tree.map(lambda v: body(v), {"a": x, "b": [x * 2]})["b"][0]


@program()
def with_a_closure(body):
    w = jnp.arange(3.0)
    h = np.arange(3.0, dtype=np.float32)
    return lambda x: body(x * w) + h


@program()
def of_partial(body):
    return lambda x: functools.partial(lambda a, v: body(v) * a, 2.0)(x)


# ---- derivatives ------------------------------------------------------------------------------


@program("derivative")
def gradient(body):
    return lambda x: jax.grad(total(body))(x)


@program("derivative")
def value_and_gradient(body):
    return lambda x: jax.value_and_grad(lambda v: total(body)(jnp.sin(v)))(x)


@program("derivative")
def second_gradient(body):
    return lambda x: jax.grad(total(jax.grad(total(body))))(x)


@program()
def tangent(body):
    return lambda x: jax.jvp(body, (x,), (x,))


@program("derivative")
def linearized(body):
    def f(x):
        y, linear = jax.linearize(body, x)
        return y, linear(x), linear(x * 2)

    return f


@program("derivative")
def pulled_back(body):
    def f(x):
        y, back = jax.vjp(body, x)
        return y, back(y), back(x)

    return f


@program("tangent derivative batch")
def hessian(body):
    return lambda x: jax.hessian(total(body))(x)


@program("tangent derivative batch")
def jacobians(body):
    return lambda x: (jax.jacfwd(body)(x), jax.jacrev(body)(x))


@program("derivative")
def gradient_of_jnp_around(body):
    return lambda x: jax.grad(lambda v: jnp.sum(jax.nn.softplus(body(jnp.exp(v))) * v))(x)


# ---- batching ---------------------------------------------------------------------------------


@program("batch")
def mapped(body):
    return lambda x: jax.vmap(body)(jnp.stack([x, x]))


@program("derivative batch")
def mapped_gradient(body):
    return lambda x: jax.vmap(jax.grad(total(body)))(jnp.stack([x, x]))


@program("derivative batch")
def gradient_of_mapped(body):
    return lambda x: jax.grad(lambda v: jnp.sum(jax.vmap(body)(jnp.stack([v, v]))))(x)


@program("batch")
def vectorized(body):
    return lambda x: jnp.vectorize(body, signature="(n)->(n)")(jnp.stack([x, x]))


# ---- jit --------------------------------------------------------------------------------------


@program()
def jit_made_anew(body):
    return lambda x: jax.jit(lambda v: body(v))(x)


@program()
def jit_of_the_function(body):
    return lambda x: jax.jit(body)(x)


@program()
def jit_that_stays(body):
    stays = jax.jit(body)
    return lambda x: stays(stays(x))


@program()
def jit_in_jit(body):
    inner = jax.jit(lambda v: body(v) * 2)
    return lambda x: jax.jit(lambda v: inner(v) + inner(v * 2))(x)


@program()
def jit_with_static(body):
    return lambda x: jax.jit(lambda v, f: f(v), static_argnums=1)(x, body)


@program("derivative")
def gradient_of_jit(body):
    return lambda x: jax.grad(lambda v: jnp.sum(jax.jit(lambda u: body(u))(v)))(x)


@program("derivative")
def jit_of_gradient(body):
    return lambda x: jax.jit(jax.grad(total(body)))(x)


@program("batch")
def mapped_jit(body):
    return lambda x: jax.vmap(jax.jit(lambda u: body(u)))(jnp.stack([x, x]))


@program()
def jit_of_sum(body):
    return lambda x: jax.jit(lambda *xs: body(sum(xs)))(x, 2.0, x)


# ---- derivative rules -------------------------------------------------------------------------


def _with_jvp(body):
    f = jax.custom_jvp(lambda v: body(v))
    f.defjvp(lambda p, t: (body(*p), t[0] * body(p[0])))
    return f


def _with_vjp(body):
    f = jax.custom_vjp(lambda v: body(v))
    f.defvjp(lambda v: (body(v), v), lambda r, ct: (ct * body(r),))
    return f


@program()
def custom_jvp(body):
    return lambda x: _with_jvp(body)(x)


@program()
def custom_vjp(body):
    return lambda x: _with_vjp(body)(x)


@program()
def custom_jvp_of_a_module(body):
    globals()["_jvp_of_module"] = _with_jvp(body)
    return lambda x: (_jvp_of_module(x), jax.grad(total(_jvp_of_module))(x))  # noqa: F821


@program()
def custom_vjp_of_a_module(body):
    globals()["_vjp_of_module"] = _with_vjp(body)
    return lambda x: (_vjp_of_module(x), jax.grad(total(_vjp_of_module))(x))  # noqa: F821


@program("derivative")
def gradient_of_custom_jvp(body):
    f = _with_jvp(body)
    return lambda x: (jax.grad(total(f))(x), jax.vmap(f)(jnp.stack([x, x])))


@program()
def gradient_of_custom_vjp(body):
    f = _with_vjp(body)
    return lambda x: (jax.grad(total(f))(x), jax.vmap(f)(jnp.stack([x, x])))


@program()
def custom_rules_in_a_loop(body):
    f, g = _with_jvp(body), _with_vjp(body)
    return lambda x: jax.grad(
        lambda v: jnp.sum(lax.scan(lambda c, _: (f(g(c)), None), v, None, length=2)[0])
    )(x)


# ---- control flow -----------------------------------------------------------------------------


@program()
def scanned(body):
    return lambda x: lax.scan(lambda c, v: (body(c), v), x, x)


@program()
def scanned_function(body):
    return lambda x: lax.map(body, jnp.stack([x, x]))


@program("derivative")
def gradient_of_scan(body):
    return lambda x: jax.grad(
        lambda v: jnp.sum(lax.scan(lambda c, _: (body(c), None), v, None, length=2)[0])
    )(x)


@program()
def branches(body):
    return lambda x: lax.cond(x[0] > 0, body, lambda v: v * 2, x)


@program("derivative")
def gradient_of_branches(body):
    return lambda x: jax.grad(
        lambda v: jnp.sum(lax.switch(1, [lambda u: u, lambda u: body(u), jnp.sin], v))
    )(x)


@program()
def while_loop(body):
    # It ends whatever the body comes to.
    goes_on = lambda s: (s[0] < 5) & (body(s[1])[0] < 1)
    return lambda x: lax.while_loop(goes_on, lambda s: (s[0] + 1, body(s[1]) + 1), (0, x))[1]


@program()
def counted_loop(body):
    return lambda x: lax.fori_loop(0, 3, lambda i, c: body(c), x)


@program("batch")
def mapped_loop(body):
    return lambda x: jax.vmap(lambda s: lax.scan(lambda c, _: (body(c), s), x, None, length=2))(x)


@program()
def checkpointed(body):
    return lambda x: jax.checkpoint(lambda v: body(jnp.sin(v)))(x)


@program("checkpoint derivative")
def gradient_of_checkpoint(body):
    return lambda x: jax.grad(lambda v: jnp.sum(jax.checkpoint(lambda u: body(jnp.sin(u)))(v)))(x)


# ---- others -----------------------------------------------------------------------------------


@program()
def shape_only(body):
    return lambda x: x * len(jax.eval_shape(lambda v: body(v), x).shape)


@program()
def shape_of_the_function(body):
    return lambda x: x + jnp.zeros(jax.eval_shape(body, x).shape) * 2


@program()
def nested_jaxpr(body):
    return lambda x: x * len(str(jax.make_jaxpr(lambda v: body(v))(x)))


@program()
def evaluated_jaxpr(body):
    return lambda x: jax.extend.core.jaxpr_as_fun(jax.make_jaxpr(lambda v: body(v))(x))(x)


@program("eager")
def computed_while_tracing(body):
    def f(x):
        with jax.ensure_compile_time_eval():
            scale = body(np.ones(3, np.float32))
        return x * scale

    return f


@program()
def of_constants(body):
    return lambda x: x * body(jnp.ones(3, jnp.float32))


@program()
def linear_solve(body):
    return lambda x: lax.custom_linear_solve(
        lambda v: v * 2, x, lambda _, b: body(b) / 2, symmetric=True
    )


@program()
def with_callback(body):
    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    return lambda x: body(jax.pure_callback(np.sin, shape, x, vmap_method="sequential"))


@program()
def in_scope(body):
    return lambda x: jax.named_scope("scope")(body)(x) + jax.named_call(body, name="named")(x)


@program()
def transposed(body):
    return lambda x: jax.linear_transpose(lambda v: v * body(np.ones(3, np.float32)), x)(x)


@program()
def over_devices(body):
    mesh = jax.make_mesh((1,), ("i",), devices=jax.devices()[:1])
    spec = jax.sharding.PartitionSpec()
    return lambda x: jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec)(x)


@program("derivative")
def gradient_over_devices(body):
    mesh = jax.make_mesh((1,), ("i",), devices=jax.devices()[:1])
    spec = jax.sharding.PartitionSpec()
    mapped = jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec)
    return lambda x: jax.grad(total(mapped))(x)
