"""Control flow whose parts do not fit together."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import bad_use, bad_uses

_vector = np.ones(3, np.float32)


@bad_use
def scan_carry_tree(make):
    make(lambda xs: lax.scan(lambda c, x: ((c, c), x), 0.0, xs))(_vector)


@bad_use
def scan_carry_names_the_component(make):
    def body(carry, x):
        return {"count": carry["count"] + 1.5, "sum": carry["sum"] + x}, x

    make(lambda xs: lax.scan(body, {"count": np.int32(0), "sum": 0.0}, xs))(_vector)


@bad_use
def while_body_tree(make):
    make(lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: c[0] + 1, (0, x)))(1.0)


@bad_use
def cond_branch_trees(make):
    make(lambda x: lax.cond(x > 0, lambda v: (v, v), lambda v: {"a": v}, x))(1.0)


@bad_use
def while_loop_reverse_mode(make):
    def loss(x):
        return lax.while_loop(lambda v: v < 10, lambda v: v * 2, x)

    make(jax.grad(loss))(1.0)


@bad_use
def fori_loop_with_traced_bound_reverse_mode(make):
    make(jax.grad(lambda x, n: lax.fori_loop(0, n, lambda i, v: v * 2, x)))(1.0, 3)


@bad_use
def error_in_the_second_branch(make):
    def second(v):
        raise ValueError("in the second branch")

    make(lambda x: lax.cond(x > 0, lambda v: v, second, x))(1.0)


@bad_use
def error_while_tracing_the_body_again(make):
    calls = []

    def body(carry, x):
        calls.append(carry)
        if len(calls) > 1:
            raise RuntimeError("traced again")
        return jnp.float32(carry), x

    make(lambda xs: lax.scan(body, 0.0, xs)[0] + lax.scan(body, 1, xs)[0])(_vector)


@bad_use
def custom_root_tree(make):
    make(
        lambda x: lax.custom_root(
            lambda v: (v, v), x, lambda f, v: v, lambda g, y: y / g(jnp.ones_like(y))
        )
    )(1.0)


@bad_use
def custom_linear_solve_tree(make):
    make(lambda b: lax.custom_linear_solve(lambda v: (v, v), b, lambda f, v: v))(_vector)


bad_uses(
    scan_carry_dtype=lambda make: make(
        lambda xs: lax.scan(lambda c, x: (c + x, x), np.int32(0), xs)
    )(_vector),
    scan_carry_shape=lambda make: make(
        lambda xs: lax.scan(lambda c, x: (jnp.stack([c, x]), x), jnp.float32(0), xs)
    )(_vector),
    scan_lengths=lambda make: make(lambda xs, ys: lax.scan(lambda c, xy: (c, xy), 0.0, (xs, ys)))(
        _vector, np.ones(4)
    ),
    scan_length_argument=lambda make: make(
        lambda xs: lax.scan(lambda c, x: (c, x), 0.0, xs, length=4)
    )(_vector),
    scan_without_length=lambda make: make(lambda x: lax.scan(lambda c, _: (c, None), x, None))(1.0),
    scan_traced_length=lambda make: make(
        lambda x, n: lax.scan(lambda c, _: (c, None), x, None, length=n)
    )(1.0, 3),
    scan_over_scalar=lambda make: make(lambda x: lax.scan(lambda c, v: (c, v), 0.0, x))(1.0),
    scan_result_not_a_pair=lambda make: make(lambda xs: lax.scan(lambda c, x: c, 0.0, xs))(_vector),
    scan_result_triple=lambda make: make(lambda xs: lax.scan(lambda c, x: (c, x, x), 0.0, xs))(
        _vector
    ),
    scan_body_not_callable=lambda make: make(lambda xs: lax.scan(None, 0.0, xs))(_vector),
    scan_body_arity=lambda make: make(lambda xs: lax.scan(lambda c: (c, c), 0.0, xs))(_vector),
    scan_unroll=lambda make: make(lambda xs: lax.scan(lambda c, x: (c, x), 0.0, xs, unroll=-1))(
        _vector
    ),
    while_condition_type=lambda make: make(lambda x: lax.while_loop(lambda c: c, lambda c: c, x))(
        1.0
    ),
    while_condition_shape=lambda make: make(
        lambda x: lax.while_loop(lambda c: c > 0, lambda c: c, x)
    )(_vector),
    while_condition_tree=lambda make: make(
        lambda x: lax.while_loop(lambda c: (c > 0, c), lambda c: c, x)
    )(1.0),
    while_body_dtype=lambda make: make(
        lambda x: lax.while_loop(lambda c: c < 3, lambda c: c + 0.5, x)
    )(np.int32(1)),
    while_body_shape=lambda make: make(
        lambda x: lax.while_loop(lambda c: c.sum() < 3, lambda c: jnp.concatenate([c, c]), x)
    )(_vector),
    while_condition_not_callable=lambda make: make(lambda x: lax.while_loop(True, lambda c: c, x))(
        1.0
    ),
    fori_loop_bound_types=lambda make: make(lambda x: lax.fori_loop(0, 2.5, lambda i, c: c, x))(
        1.0
    ),
    fori_loop_bound_dtypes=lambda make: make(lambda a, b: lax.fori_loop(a, b, lambda i, c: c, 0.0))(
        np.int32(0), np.int8(3)
    ),
    fori_loop_carry=lambda make: make(lambda x: lax.fori_loop(0, 3, lambda i, c: (c, i), x))(1.0),
    cond_predicate_shape=lambda make: make(lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x))(
        _vector > 0, 1.0
    ),
    cond_predicate_type=lambda make: make(lambda x: lax.cond("yes", jnp.sin, jnp.cos, x))(1.0),
    cond_predicate_complex=lambda make: make(lambda x: lax.cond(x, jnp.sin, jnp.cos, x))(1j),
    cond_branch_dtypes=lambda make: make(lambda x: lax.cond(x > 0, lambda v: v, lambda v: 1, x))(
        np.float32(1)
    ),
    cond_branch_shapes=lambda make: make(
        lambda x: lax.cond(x.sum() > 0, lambda v: v, lambda v: v[:1], x)
    )(_vector),
    cond_branch_arity=lambda make: make(lambda x: lax.cond(x > 0, lambda: 0.0, jnp.sin, x))(1.0),
    cond_branch_not_callable=lambda make: make(lambda x: lax.cond(x > 0, 1.0, 2.0))(1.0),
    switch_without_branches=lambda make: make(lambda i: lax.switch(i, []))(0),
    switch_index_type=lambda make: make(lambda x: lax.switch(x, [jnp.sin, jnp.cos], x))(1.0),
    switch_index_shape=lambda make: make(lambda i: lax.switch(i, [lambda: 0, lambda: 1]))(
        np.arange(3)
    ),
    switch_branch_trees=lambda make: make(
        lambda i: lax.switch(i, [lambda: 0, lambda: (1,), lambda: [2]])
    )(0),
    map_function=lambda make: make(lambda xs: lax.map(None, xs))(_vector),
    map_over_scalar=lambda make: make(lambda x: lax.map(jnp.sin, x))(1.0),
    map_lengths=lambda make: make(lambda xs, ys: lax.map(lambda p: p[0], (xs, ys)))(
        _vector, np.ones(2)
    ),
    associative_scan_lengths=lambda make: make(
        lambda xs, ys: lax.associative_scan(lambda a, b: a, (xs, ys))
    )(_vector, np.ones(4)),
    associative_scan_function=lambda make: make(lambda xs: lax.associative_scan(3, xs))(_vector),
)
