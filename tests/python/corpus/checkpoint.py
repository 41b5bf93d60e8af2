"""Rematerialisation with every policy."""

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from corpus.registry import call, case, f32

POLICIES = jax.checkpoint_policies


def block(w, x):
    x = checkpoint_name(jnp.tanh(x @ w), "hidden")
    return jnp.sin(x @ w)


call("checkpoint", lambda x: jax.checkpoint(jnp.sin)(x), f32(3))
call(
    "checkpoint_grad",
    lambda w, x: jax.grad(lambda v: jax.checkpoint(block)(v, x).sum())(w),
    f32(3, 3),
    f32(3),
)

for _name in """
    everything_saveable nothing_saveable dots_saveable checkpoint_dots
    dots_with_no_batch_dims_saveable checkpoint_dots_with_no_batch_dims
""".split():
    call(
        f"checkpoint_{_name}",
        lambda w, x, policy=getattr(POLICIES, _name): jax.grad(
            lambda v: jax.checkpoint(block, policy=policy)(v, x).sum()
        )(w),
        f32(3, 3),
        f32(3),
    )

for _name, _policy in {
    "only_names": POLICIES.save_only_these_names("hidden"),
    "any_names_but": POLICIES.save_any_names_but_these("hidden"),
    "anything_except_names": POLICIES.save_anything_except_these_names("hidden"),
    "from_both": POLICIES.save_from_both_policies(
        POLICIES.dots_saveable, POLICIES.save_only_these_names("hidden")
    ),
    "offload": POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["hidden"],
        offload_src="device",
        offload_dst="pinned_host",
    ),
}.items():
    call(
        f"checkpoint_{_name}",
        lambda w, x, policy=_policy: jax.value_and_grad(
            lambda v: jax.checkpoint(block, policy=policy)(v, x).sum()
        )(w),
        f32(3, 3),
        f32(3),
    )

call(
    "checkpoint_without_cse",
    lambda x: jax.grad(lambda v: jax.checkpoint(jnp.sin, prevent_cse=False)(v).sum())(x),
    f32(3),
)
call(
    "checkpoint_static_argnums",
    lambda x: jax.checkpoint(lambda v, n: v**n, static_argnums=1)(x, 3),
    f32(3),
)
call(
    "checkpoint_vmap",
    lambda x: jax.vmap(jax.grad(lambda v: jax.checkpoint(jnp.sin)(v) * v))(x),
    f32(3),
)
call(
    "checkpoint_jvp",
    lambda x: jax.jvp(jax.checkpoint(lambda v: jnp.sin(v) * v), (x,), (x,)),
    f32(3),
)
call("checkpoint_linearize", lambda x: jax.linearize(jax.checkpoint(jnp.sin), x)[1](x), f32(3))
call(
    "checkpoint_nested",
    lambda x: jax.grad(lambda v: jax.checkpoint(lambda u: jax.checkpoint(jnp.sin)(u) * u)(v).sum())(
        x
    ),
    f32(3),
)
call(
    "checkpoint_in_jit",
    lambda x: jax.grad(jax.jit(lambda v: jax.checkpoint(jnp.sin)(v).sum()))(x),
    f32(3),
)
call("checkpoint_name_alone", lambda x: checkpoint_name(x, "kept") * 2, f32(3))
call(
    "closure_saved_residuals",
    lambda x, y: jax.grad(lambda v: jax.checkpoint(lambda u: jnp.sin(u * y))(v).sum())(x),
    f32(3),
    f32(3),
)


@case(f32(3, 3), f32(4, 3))
def checkpoint_scan_over_layers():
    def f(w, xs):
        def loss(v):
            step = jax.checkpoint(lambda c, x: (jnp.tanh(c @ v) + x, None))
            return jax.lax.scan(step, xs[0], xs)[0].sum()

        return jax.grad(loss)(w)

    return f
