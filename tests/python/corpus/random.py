"""Samplers of jax.random."""

import jax
import jax.numpy as jnp

from corpus.registry import call, case, f32, i32, key, spd, u32, unit

K = key()
random = jax.random

for _name in """
    bernoulli bits cauchy exponential gumbel laplace logistic maxwell normal rademacher
    uniform
""".split():
    call(f"random_{_name}", lambda k, sample=getattr(random, _name): sample(k, shape=(3,)), K)

call("random_rayleigh", random.rayleigh, K, unit(3))
call("random_key", lambda s: random.key(s), i32())
call("random_prng_key", lambda s: random.PRNGKey(s), i32())
call("random_raw_key", lambda k: random.normal(k, (2,)), u32(2))
call("random_raw_split", lambda k: random.split(k, 3), u32(2))
call("random_split", lambda k: (random.split(k), random.split(k, (2, 2))), K)
call("random_fold_in", random.fold_in, K, i32(low=0, high=9))
call("random_wrap_key_data", lambda d: random.uniform(random.wrap_key_data(d)), u32(2))
call("random_key_impl", lambda k: random.key_data(random.key(3, impl=random.key_impl(k))), K)
call("random_uniform_range", lambda k: random.uniform(k, (2, 3), minval=-1.0, maxval=2.0), K)
call("random_uniform_bfloat16", lambda k: random.uniform(k, (3,), jnp.bfloat16), K)
call("random_randint", lambda k: random.randint(k, (3,), 0, 10), K)
call(
    "random_randint_uint8",
    lambda k, n: random.randint(k, (3,), 0, n, "uint8"),
    K,
    i32(low=5, high=9),
)
call(
    "random_permutation",
    lambda k, x: (random.permutation(k, x), random.permutation(k, 5)),
    K,
    f32(4, 2),
)
call(
    "random_permutation_independent",
    lambda k, x: random.permutation(k, x, axis=1, independent=True),
    K,
    f32(2, 4),
)
call("random_choice", lambda k, x: random.choice(k, x, (3,)), K, f32(5))
call("random_choice_weights", lambda k, p: random.choice(k, 4, (3,), p=p), K, unit(4))
call(
    "random_choice_no_replacement",
    lambda k, p: random.choice(k, 4, (2,), replace=False, p=p),
    K,
    unit(4),
)
call("random_truncated_normal", lambda k: random.truncated_normal(k, -1.0, 1.0, (3,)), K)
call("random_categorical", lambda k, x: random.categorical(k, x, axis=0), K, f32(4, 2))
call(
    "random_categorical_no_replacement",
    lambda k, x: random.categorical(k, x, shape=(2,), replace=False),
    K,
    f32(4),
)
call("random_gamma", lambda k, a: random.gamma(k, a), K, unit(2))
call(
    "random_loggamma_grad",
    lambda k, a: jax.grad(lambda v: random.loggamma(k, v).sum())(a),
    K,
    unit(2),
)
call("random_beta", lambda k, a, b: random.beta(k, a, b), K, unit(2), unit(2))
call("random_dirichlet", lambda k, a: random.dirichlet(k, a), K, unit(3))
call("random_poisson", lambda k, r: random.poisson(k, r), K, unit(2))
call("random_binomial", lambda k, p: random.binomial(k, 5.0, p), K, unit(2))
call("random_multinomial", lambda k, p: random.multinomial(k, 5.0, p / p.sum()), K, unit(3))
call("random_geometric", lambda k, p: random.geometric(k, p), K, unit(2))
call(
    "random_chisquare_t_f",
    lambda k: (random.chisquare(k, 2.0, (2,)), random.t(k, 3.0, (2,)), random.f(k, 2.0, 3.0, (2,))),
    K,
)
call("random_pareto_lomax", lambda k, b: random.pareto(k, b), K, unit(2))
call("random_weibull", lambda k: random.weibull_min(k, 1.0, 2.0, (2,)), K)
call(
    "random_triangular_wald",
    lambda k: (random.triangular(k, 0.0, 0.3, 1.0, (2,)), random.wald(k, 1.0, (2,))),
    K,
)
call(
    "random_lognormal_double_sided",
    lambda k: (random.lognormal(k, shape=(2,)), random.double_sided_maxwell(k, 0.0, 1.0, (2,))),
    K,
)
call("random_generalized_normal", lambda k: random.generalized_normal(k, 2.0, (2,)), K)
call(
    "random_ball_orthogonal",
    lambda k: (random.ball(k, 2), random.orthogonal(k, 2)),
    K,
    tolerance=1e-3,
)
call(
    "random_multivariate_normal",
    lambda k, m, c: random.multivariate_normal(k, m, c),
    K,
    f32(3),
    spd(3),
    tolerance=1e-3,
)
call(
    "random_vmap_of_keys",
    lambda k: jax.vmap(lambda q: random.normal(q, (2,)))(random.split(k, 3)),
    K,
)
call(
    "random_threefry_partitionable_off",
    lambda k: random.normal(k, (3,)),
    K,
    context=lambda: jax.threefry_partitionable(False),
)


@case(K, f32(5, 2))
def random_dropout_in_scan():
    def f(k, xs):
        def step(k, x):
            k, sub = random.split(k)
            return k, jnp.where(random.bernoulli(sub, 0.5, x.shape), x, 0)

        return jax.lax.scan(step, k, xs)

    return f


@case(K, f32(3))
def random_reparameterised_grad():
    return lambda k, m: jax.grad(lambda v: (random.normal(k, (3,)) * v).sum())(m)
