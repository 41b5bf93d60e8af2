"""jax.image."""

import jax
import jax.numpy as jnp

from corpus.registry import call, f32, i32

for _method in ("nearest", "linear", "cubic", "lanczos3", "lanczos5"):
    call(
        f"image_resize_{_method}",
        lambda x, method=_method: jax.image.resize(x, (5, 3, 1), method),
        f32(3, 4, 1),
        tolerance=1e-4,
    )

call(
    "image_resize_down",
    lambda x: jax.image.resize(x, (2, 2), "bilinear", antialias=False),
    f32(4, 4),
)
call("image_resize_integers", lambda x: jax.image.resize(x, (2, 6), "nearest"), i32(4, 3))
call(
    "image_scale_and_translate",
    lambda x, s, t: jax.image.scale_and_translate(x, (4, 4), (0, 1), s, t, "linear"),
    f32(3, 3),
    f32(2, low=1.0, high=2.0),
    f32(2),
    tolerance=1e-4,
)
call(
    "image_resize_grad",
    lambda x: jax.grad(lambda v: (jax.image.resize(v, (5, 5), "cubic") ** 2).sum())(x),
    f32(3, 3),
    tolerance=1e-4,
)
call(
    "image_resize_vmap",
    lambda x: jax.vmap(lambda v: jax.image.resize(v, (4,), "linear"))(x),
    f32(2, 3),
)
call(
    "image_resize_float16",
    lambda x: jax.image.resize(x.astype(jnp.float16), (6, 6), "linear"),
    f32(3, 3),
    tolerance=1e-2,
)
