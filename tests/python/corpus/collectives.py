"""Named axes: collectives under vmap, and traced alone with `axis_env`."""

import jax
import jax.numpy as jnp
from jax import lax

from corpus.registry import call, f32

ENV = {
    "options": {"axis_env": [("i", 4)]},
    "unevaluated": "its axis is bound only while it is traced",
}

for _name in "psum pmax pmin pmean".split():
    _collective = getattr(lax, _name)
    call(f"axis_env_{_name}", lambda x, reduce=_collective: reduce(x, "i"), f32(3), **ENV)
    call(
        f"vmap_{_name}",
        lambda x, reduce=_collective: jax.vmap(lambda v: v - reduce(v, "i"), axis_name="i")(x),
        f32(4, 2),
    )

call("axis_env_index", lambda x: x * lax.axis_index("i") + lax.axis_size("i"), f32(3), **ENV)
call("axis_env_all_gather", lambda x: lax.all_gather(x, "i"), f32(3), **ENV)
call("axis_env_ppermute", lambda x: lax.ppermute(x, "i", [(0, 1), (1, 0)]), f32(3), **ENV)
call("axis_env_all_to_all", lambda x: lax.all_to_all(x, "i", 0, 1), f32(4, 2), **ENV)
call("axis_env_psum_of_constant", lambda x: x + lax.psum(1, "i"), f32(3), **ENV)
call(
    "axis_env_two_axes",
    lambda x: lax.psum(x, ("i", "j")),
    f32(3),
    options={"axis_env": [("i", 4), ("j", 2)]},
    unevaluated=ENV["unevaluated"],
)
call(
    "axis_env_psum_groups",
    lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1], [2, 3]]),
    f32(3),
    **ENV,
)
call("axis_env_grad", lambda x: jax.grad(lambda v: lax.psum(v**2, "i").sum())(x), f32(3), **ENV)
call("axis_env_in_jit", lambda x: jax.jit(lambda v: lax.pmean(v, "i"))(x), f32(3), **ENV)
call(
    "axis_env_in_scan",
    lambda x: lax.scan(lambda c, v: (c + lax.psum(v, "i"), c), 0.0, x),
    f32(3),
    **ENV,
)
call(
    "vmap_all_gather",
    lambda x: jax.vmap(lambda v: lax.all_gather(v, "i"), axis_name="i")(x),
    f32(4, 2),
)
call(
    "vmap_ppermute",
    lambda x: jax.vmap(
        lambda v: lax.ppermute(v, "i", [(0, 1), (1, 2), (2, 3), (3, 0)]), axis_name="i"
    )(x),
    f32(4),
)
call(
    "vmap_all_to_all",
    lambda x: jax.vmap(lambda v: lax.all_to_all(v, "i", 0, 0), axis_name="i")(x),
    f32(4, 4),
)
call(
    "vmap_axis_index",
    lambda x: jax.vmap(lambda v: v * lax.axis_index("i"), axis_name="i")(x),
    f32(4),
)
call(
    "vmap_two_axes",
    lambda x: jax.vmap(jax.vmap(lambda v: lax.psum(v, ("i", "j")), axis_name="i"), axis_name="j")(
        x
    ),
    f32(2, 3),
)
call(
    "vmap_pshuffle",
    lambda x: jax.vmap(lambda v: lax.pshuffle(v, "i", [2, 0, 1]), axis_name="i")(x),
    f32(3),
)
call(
    "vmap_pswapaxes",
    lambda x: jax.vmap(lambda v: lax.pswapaxes(v, "i", 0), axis_name="i")(x),
    f32(3, 3),
)
call(
    "vmap_spmd_axis_name",
    lambda x: jax.vmap(jnp.sin, axis_name="i", spmd_axis_name="i")(x),
    f32(3, 2),
)
call(
    "vmap_collective_grad",
    lambda x: jax.grad(lambda u: jax.vmap(lambda v: v * lax.psum(v, "i"), axis_name="i")(u).sum())(
        x
    ),
    f32(4),
)
