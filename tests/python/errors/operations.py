"""Operations on the wrong shapes, dtypes or parameters."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import bad_use, bad_uses


@bad_use
def shape_mismatch_deep_in_nested_calls(make):
    @jax.jit
    def layer(w, x):
        return jnp.tanh(x @ w)

    @jax.jit
    def model(params, x):
        for w in params:
            x = layer(w, x)
        return x

    make(model)([jnp.ones((3, 4)), jnp.ones((5, 2))], jnp.ones((2, 3)))


@bad_use
def inconclusive_symbolic_comparison(make):
    (n,) = jax.export.symbolic_shape("n")
    x = jax.ShapeDtypeStruct((n,), jnp.float32)
    make(lambda x: x if x.shape[0] > 4 else -x)(x)


@bad_use
def symbolic_shapes_of_two_scopes(make):
    (n,) = jax.export.symbolic_shape("n")
    (m,) = jax.export.symbolic_shape("n")
    x = jax.ShapeDtypeStruct((n,), jnp.float32)
    y = jax.ShapeDtypeStruct((m,), jnp.float32)
    make(lambda x, y: x + y)(x, y)


@bad_use
def symbolic_reshape(make):
    (n,) = jax.export.symbolic_shape("n")
    make(lambda x: x.reshape(2, -1))(jax.ShapeDtypeStruct((n,), jnp.float32))


_vector, _matrix, _ints = np.ones(3, np.float32), np.ones((2, 3), np.float32), np.arange(3)
_key = jax.random.key(0)

bad_uses(
    add_shapes=lambda make: make(lambda x, y: x + y)(np.ones(3), np.ones(4)),
    lax_add_shapes=lambda make: make(lax.add)(np.ones(3), np.ones(4)),
    lax_add_ranks=lambda make: make(lax.add)(_vector, _matrix),
    lax_add_dtypes=lambda make: make(lax.add)(np.float32(1), np.int32(1)),
    lax_sin_of_int=lambda make: make(lax.sin)(1),
    lax_not_of_float=lambda make: make(lax.bitwise_not)(1.0),
    lax_and_of_floats=lambda make: make(lax.bitwise_and)(1.0, 2.0),
    lax_shift_dtypes=lambda make: make(lax.shift_left)(np.int32(1), np.int8(1)),
    lax_erf_of_complex=lambda make: make(lax.erf)(1j),
    lax_max_of_complex=lambda make: make(lax.max)(np.float32(1), np.complex64(1j)),
    lax_real_of_float=lambda make: make(lax.real)(1.0),
    lax_complex_of_ints=lambda make: make(lax.complex)(1, 2),
    lax_nextafter_dtypes=lambda make: make(lax.nextafter)(1.0, 2),
    lax_integer_pow_of_float=lambda make: make(lambda x: lax.integer_pow(x, "two"))(1.0),
    lax_population_count=lambda make: make(lax.population_count)(1.0),
    lax_select_predicate=lambda make: make(lax.select)(1.0, _vector, _vector),
    lax_select_shapes=lambda make: make(lax.select)(_vector > 0, _vector, np.ones(4)),
    lax_select_dtypes=lambda make: make(lax.select)(True, 1.0, 1),
    lax_select_n_many_bool=lambda make: make(lax.select_n)(True, 1.0, 2.0, 3.0),
    lax_clamp_shapes=lambda make: make(lax.clamp)(np.zeros(2), _vector, np.ones(3)),
    lax_reshape_negative=lambda make: make(lambda x: lax.reshape(x, (-1,)))(_matrix),
    lax_broadcast_in_dim=lambda make: make(lambda x: lax.broadcast_in_dim(x, (2, 4), (1,)))(
        _vector
    ),
    lax_broadcast_in_dim_order=lambda make: make(lambda x: lax.broadcast_in_dim(x, (2, 3), (0, 0)))(
        _matrix
    ),
    lax_broadcast_shapes=lambda make: make(lambda x: lax.broadcast_shapes((2,), (3,)))(1.0),
    lax_transpose_rank=lambda make: make(lambda x: lax.transpose(x, (0,)))(_matrix),
    lax_transpose_permutation=lambda make: make(lambda x: lax.transpose(x, (0, 2)))(_matrix),
    lax_squeeze=lambda make: make(lambda x: lax.squeeze(x, (0,)))(_vector),
    lax_expand_dims=lambda make: make(lambda x: lax.expand_dims(x, (0, 0)))(_vector),
    lax_concatenate_shapes=lambda make: make(lambda x, y: lax.concatenate([x, y], 0))(
        _matrix, np.ones((2, 4), np.float32)
    ),
    lax_concatenate_dtypes=lambda make: make(lambda x, y: lax.concatenate([x, y], 0))(
        _vector, _ints
    ),
    lax_concatenate_nothing=lambda make: make(lambda x: lax.concatenate([], 0))(1.0),
    lax_concatenate_dimension=lambda make: make(lambda x: lax.concatenate([x, x], 1))(_vector),
    lax_pad_rank=lambda make: make(lambda x: lax.pad(x, 0.0, [(1, 1, 0)]))(_matrix),
    lax_pad_interior=lambda make: make(lambda x: lax.pad(x, 0.0, [(1, 1, -1)]))(_vector),
    lax_pad_dtype=lambda make: make(lambda x: lax.pad(x, 0, [(1, 1, 0)]))(_vector),
    lax_slice_bounds=lambda make: make(lambda x: lax.slice(x, (0,), (5,)))(_vector),
    lax_slice_rank=lambda make: make(lambda x: lax.slice(x, (0,), (2,)))(_matrix),
    lax_slice_order=lambda make: make(lambda x: lax.slice(x, (2,), (1,)))(_vector),
    lax_slice_strides=lambda make: make(lambda x: lax.slice(x, (0,), (2,), (0,)))(_vector),
    lax_dynamic_slice_rank=lambda make: make(lambda x: lax.dynamic_slice(x, (0,), (1, 1)))(_matrix),
    lax_dynamic_slice_size=lambda make: make(lambda x: lax.dynamic_slice(x, (0,), (4,)))(_vector),
    lax_dynamic_slice_index=lambda make: make(lambda x: lax.dynamic_slice(x, (0.5,), (1,)))(
        _vector
    ),
    lax_dynamic_update_slice=lambda make: make(
        lambda x: lax.dynamic_update_slice(x, jnp.ones(4), (0,))
    )(_vector),
    lax_gather=lambda make: make(
        lambda x, i: lax.gather(
            x,
            i,
            lax.GatherDimensionNumbers(
                offset_dims=(0,), collapsed_slice_dims=(0,), start_index_map=(0,)
            ),
            (1,),
        )
    )(_vector, np.zeros((2, 1), np.int32)),
    lax_scatter=lambda make: make(
        lambda x, i: lax.scatter_add(
            x,
            i,
            jnp.ones((2, 2)),
            lax.ScatterDimensionNumbers((), (0,), (0,)),
        )
    )(_vector, np.zeros((2, 1), np.int32)),
    lax_dot_general_contracting=lambda make: make(
        lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())))
    )(_matrix, _matrix),
    lax_dot_general_batch=lambda make: make(
        lambda x, y: lax.dot_general(x, y, (((1,), (1,)), ((0,), (1,))))
    )(_matrix, _matrix),
    lax_dot=lambda make: make(lax.dot)(_matrix, _matrix),
    lax_conv_channels=lambda make: make(lambda x, k: lax.conv(x, k, (1, 1), "SAME"))(
        np.ones((1, 2, 4, 4), np.float32), np.ones((1, 3, 2, 2), np.float32)
    ),
    lax_conv_padding=lambda make: make(lambda x, k: lax.conv(x, k, (1, 1), "NONE"))(
        np.ones((1, 2, 4, 4), np.float32), np.ones((1, 2, 2, 2), np.float32)
    ),
    lax_reduce_axis=lambda make: make(lambda x: lax.reduce_sum(x, (3,)))(_matrix),
    lax_reduce_axis_twice=lambda make: make(lambda x: lax.reduce_sum(x, (0, 0)))(_matrix),
    lax_reduce_init=lambda make: make(
        lambda x: lax.reduce(x, np.int32(0), lambda a, b: a * b, (0,))
    )(_vector),
    lax_reduce_shapes=lambda make: make(
        lambda x, y: lax.reduce((x, y), (0.0, 0.0), lambda a, b: lax.add(a, b), (0,))
    )(_vector, np.ones(4, np.float32)),
    lax_reduce_window=lambda make: make(
        lambda x: lax.reduce_window(x, 0.0, lax.add, (2,), (1,), "SAME")
    )(_matrix),
    lax_argmax_dtype=lambda make: make(lambda x: lax.argmax(x, 0, jnp.float32))(_vector),
    lax_argmax_axis=lambda make: make(lambda x: lax.argmax(x, 4, jnp.int32))(_vector),
    lax_argmax_empty=lambda make: make(lambda x: jnp.argmax(x))(np.ones(0)),
    lax_cumsum_axis=lambda make: make(lambda x: lax.cumsum(x, axis=2))(_vector),
    lax_sort_dimension=lambda make: make(lambda x: lax.sort(x, dimension=2))(_vector),
    lax_sort_operands=lambda make: make(lambda x, y: lax.sort((x, y)))(_vector, _matrix),
    lax_top_k=lambda make: make(lambda x: lax.top_k(x, 5))(_vector),
    lax_top_k_of_scalar=lambda make: make(lambda x: lax.top_k(x, 1))(1.0),
    lax_iota_dtype=lambda make: make(lambda x: lax.iota(bool, 3) + x)(1),
    lax_iota_dimension=lambda make: make(lambda x: lax.broadcasted_iota(int, (2,), 1) + x)(1),
    lax_bitcast=lambda make: make(lambda x: lax.bitcast_convert_type(x, jnp.int8))(np.bool_(True)),
    lax_convert_key=lambda make: make(lambda k: lax.convert_element_type(k, jnp.int32))(_key),
    lax_reduce_precision=lambda make: make(lambda x: lax.reduce_precision(x, -1, 2))(1.0),
    lax_rev=lambda make: make(lambda x: lax.rev(x, (0, 0)))(_vector),
    lax_collapse=lambda make: make(lambda x: lax.collapse(x, 2, 1))(_matrix),
    lax_fft=lambda make: make(lambda x: lax.fft(x, "FFT", (4, 3)))(_vector),
    lax_rng_bit_generator=lambda make: make(lambda k: lax.rng_bit_generator(k, (2,), dtype=float))(
        np.zeros(4, np.uint32)
    ),
    lax_optimization_barrier=lambda make: make(lambda x: lax.optimization_barrier("text"))(1.0),
    jnp_matmul=lambda make: make(jnp.matmul)(_matrix, _matrix),
    jnp_dot=lambda make: make(jnp.dot)(_vector, np.ones(4)),
    jnp_einsum_shape=lambda make: make(lambda x: jnp.einsum("ij,jk->ik", x, x))(_matrix),
    jnp_einsum_subscripts=lambda make: make(lambda x: jnp.einsum("ij,jk->il", x, x))(_matrix),
    jnp_einsum_rank=lambda make: make(lambda x: jnp.einsum("ijk->k", x))(_matrix),
    jnp_stack_shapes=lambda make: make(lambda x, y: jnp.stack([x, y]))(_vector, np.ones(4)),
    jnp_stack_nothing=lambda make: make(lambda x: jnp.stack([]))(1.0),
    jnp_concatenate_scalars=lambda make: make(lambda x: jnp.concatenate([x, x]))(1.0),
    jnp_concatenate_array=lambda make: make(lambda x: jnp.concatenate(1.0))(1.0),
    jnp_broadcast_to=lambda make: make(lambda x: jnp.broadcast_to(x, (2, 2)))(_vector),
    jnp_split=lambda make: make(lambda x: jnp.split(x, 2))(_vector),
    jnp_where_shapes=lambda make: make(jnp.where)(_vector > 0, _matrix, np.ones((2, 2))),
    jnp_take_along_axis=lambda make: make(lambda x: jnp.take_along_axis(x, x, axis=0))(_vector),
    jnp_take_mode=lambda make: make(lambda x: jnp.take(x, 0, mode="raise"))(_vector),
    jnp_sum_where=lambda make: make(lambda x: jnp.max(x, where=x > 0))(_vector),
    jnp_max_of_empty=lambda make: make(jnp.max)(np.ones(0)),
    jnp_moveaxis=lambda make: make(lambda x: jnp.moveaxis(x, 3, 0))(_vector),
    jnp_tril=lambda make: make(jnp.tril)(1.0),
    jnp_cross=lambda make: make(jnp.cross)(np.ones(4), np.ones(4)),
    jnp_interp=lambda make: make(jnp.interp)(1.0, _vector, np.ones(4)),
    jnp_out_argument=lambda make: make(lambda x: jnp.mean(x, out=x))(_vector),
    jnp_pad_mode=lambda make: make(lambda x: jnp.pad(x, 1, mode="no such mode"))(_vector),
    jnp_ufunc_arity=lambda make: make(lambda x: jnp.add(x))(1.0),
    jnp_ufunc_reduce=lambda make: make(lambda x: jnp.add.reduce(x, axis=3))(_vector),
    jnp_vectorize_signature=lambda make: make(
        jnp.vectorize(lambda a, b: a + b, signature="(n),(n)->(n)")
    )(_vector, np.ones(4)),
    jnp_set_shape=lambda make: make(lambda x: x.at[0].set(jnp.ones(2)))(_vector),
    jnp_float_indices=lambda make: make(lambda x, i: x[i])(_vector, np.ones(2)),
    jnp_bool_index_shape=lambda make: make(lambda x: x[np.array([True, False])])(_vector),
    linalg_cholesky=lambda make: make(jnp.linalg.cholesky)(_matrix),
    linalg_inverse=lambda make: make(jnp.linalg.inv)(_vector),
    linalg_solve=lambda make: make(jnp.linalg.solve)(_matrix, _vector),
    linalg_norm_order=lambda make: make(lambda x: jnp.linalg.norm(x, ord="no such norm"))(_matrix),
    fft_norm=lambda make: make(lambda x: jnp.fft.fft(x, norm="no such norm"))(_vector),
    image_resize=lambda make: make(lambda x: jax.image.resize(x, (4, 4), "no such way"))(_matrix),
    nn_one_hot_dtype=lambda make: make(lambda x: jax.nn.one_hot(x, 3, dtype="float99"))(1),
    nn_attention=lambda make: make(
        lambda q: jax.nn.dot_product_attention(q, q, jnp.ones((1, 2, 3, 5)))
    )(np.ones((1, 2, 3, 4), np.float32)),
    random_key_type=lambda make: make(lambda k: jax.random.normal(k))(1.0),
    random_dtype=lambda make: make(lambda k: jax.random.normal(k, dtype=int))(_key),
    random_batched_key=lambda make: make(lambda k: jax.random.normal(jax.random.split(k)))(_key),
    random_arithmetic=lambda make: make(lambda k: k + 1)(_key),
    random_shape=lambda make: make(lambda k, m: jax.random.normal(k, (1.5,)))(_key, 1.0),
    random_permutation=lambda make: make(lambda k: jax.random.choice(k, 2, (3,), replace=False))(
        _key
    ),
    random_key_implementation=lambda make: make(lambda x: jax.random.key(x, impl="no such"))(1),
    random_seed_shape=lambda make: make(lambda x: jax.random.key(x))(np.arange(3)),
    scan_associative_axis=lambda make: make(lambda x: lax.associative_scan(lax.add, x, axis=3))(
        _vector
    ),
    dtype_int4_arithmetic=lambda make: make(lambda x: x + np.float32(1) @ x)(1.0),
    promotion_of_float8=lambda make: make(lambda x, y: x + y)(
        jnp.zeros(2, jnp.float8_e4m3fn), jnp.zeros(2, jnp.float8_e5m2)
    ),
    bfloat16_and_key=lambda make: make(lambda x, k: x * k)(jnp.bfloat16(1), _key),
)
