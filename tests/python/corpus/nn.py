"""jax.nn: activations, normalisation, attention and initialisers."""

import jax
import jax.numpy as jnp

from corpus.registry import bf16, boolean, call, f32, i32, key

nn = jax.nn

for _name in """
    celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu log_sigmoid log_softmax
    logmeanexp logsumexp mish relu relu6 selu sigmoid silu soft_sign softmax softplus sparse_plus
    sparse_sigmoid squareplus standardize swish tanh identity log1mexp
""".split():
    call(
        f"nn_{_name}",
        getattr(nn, _name),
        f32(2, 4) if _name != "log1mexp" else f32(3, low=0.1, high=2.0),
    )

call("nn_gelu_exact", lambda x: nn.gelu(x, approximate=False), f32(3))
call("nn_softmax_where", lambda x, m: nn.softmax(x, axis=0, where=m), f32(4, 3), boolean(4, 3))
call("nn_softmax_grad", lambda x: jax.grad(lambda v: nn.softmax(v)[0])(x), f32(4))
call("nn_softmax_bfloat16", lambda x: nn.softmax(x), bf16(4), tolerance=1e-2)
call("nn_logsumexp_axes", lambda x: nn.logsumexp(x, axis=(0, 2), keepdims=True), f32(2, 3, 2))
call("nn_one_hot", lambda i: nn.one_hot(i, 4, dtype=jnp.bfloat16), i32(3, low=0, high=4))
call("nn_relu_hessian", lambda x: jax.hessian(lambda v: nn.relu(v).sum())(x), f32(2))
call(
    "nn_attention",
    lambda q, k, v: nn.dot_product_attention(q, k, v),
    *[f32(1, 4, 2, 3)] * 3,
    tolerance=1e-4,
)
call(
    "nn_attention_causal",
    lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True, scale=0.5),
    *[f32(1, 4, 2, 3)] * 3,
    tolerance=1e-4,
)
call(
    "nn_attention_mask_bias",
    lambda q, b, m: nn.dot_product_attention(q, q, q, bias=b, mask=m),
    f32(1, 4, 2, 3),
    f32(1, 2, 4, 4),
    boolean(1, 2, 4, 4),
    tolerance=1e-4,
)
call(
    "nn_attention_grad",
    lambda q: jax.grad(lambda x: nn.dot_product_attention(x, x, x).sum())(q),
    f32(1, 3, 1, 2),
    tolerance=1e-4,
)

for _name in """
    constant delta_orthogonal glorot_normal glorot_uniform he_normal he_uniform kaiming_normal
    lecun_normal lecun_uniform normal ones orthogonal truncated_normal uniform variance_scaling
    xavier_uniform zeros
""".split():
    _initializer = getattr(nn.initializers, _name)
    _initializer = {
        "constant": lambda make=_initializer: make(3.0),
        "ones": lambda make=_initializer: make,
        "zeros": lambda make=_initializer: make,
        "variance_scaling": lambda make=_initializer: make(1.0, "fan_avg", "normal"),
    }.get(_name, _initializer)
    _shape = (3, 2, 2) if _name == "delta_orthogonal" else (3, 4)
    call(
        f"initializer_{_name}",
        lambda k, make=_initializer, shape=_shape: make()(k, shape),
        key(),
        tolerance=1e-3,
    )
