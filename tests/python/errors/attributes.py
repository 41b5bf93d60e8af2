"""Attributes and protocols that concrete arrays have and tracers lack."""

import asyncio
import operator

import jax
import jax.numpy as jnp

from . import bad_use, bad_uses


@bad_use
def item_assignment(make):
    def f(x):
        x[0] = 1.0
        return x

    make(f)(jnp.ones(3))


@bad_use
def item_increment(make):
    def f(x):
        x[0] += 1.0
        return x

    make(f)(jnp.ones(3))


@bad_use
def item_deletion(make):
    def f(x):
        del x[0]
        return x

    make(f)(jnp.ones(3))


@bad_use
def attribute_assignment(make):
    def f(x):
        x.label = "input"
        return x

    make(f)(jnp.ones(3))


@bad_use
def unpacking_too_many(make):
    def f(x):
        a, b = x
        return a + b

    make(f)(jnp.ones(3))


@bad_use
def unpacking_a_scalar(make):
    def f(x):
        a, b = x
        return a + b

    make(f)(1.0)


@bad_use
def with_statement(make):
    def f(x):
        with x:
            return x

    make(f)(1.0)


@bad_use
def awaiting_a_tracer(make):
    def f(x):
        async def wait():
            return await x

        return asyncio.run(wait())

    make(f)(1.0)


@bad_use
def attribute_of_derived_value(make):
    def f(x, y):
        z = jnp.sin(x) + y
        return z.sharding

    make(f)(jnp.ones(3), 1.0)


@bad_use
def sharding_inside_scan(make):
    make(lambda xs: jax.lax.scan(lambda c, x: (c, x.sharding), 0.0, xs))(jnp.ones(3))


bad_uses(
    sharding=lambda make: make(lambda x: x.sharding)(jnp.ones(3)),
    device=lambda make: make(lambda x: x.device)(jnp.ones(3)),
    committed=lambda make: make(lambda x: x.committed)(jnp.ones(3)),
    devices=lambda make: make(lambda x: x.devices())(jnp.ones(3)),
    addressable_shards=lambda make: make(lambda x: x.addressable_shards)(jnp.ones(3)),
    addressable_data=lambda make: make(lambda x: x.addressable_data(0))(jnp.ones(3)),
    global_shards=lambda make: make(lambda x: x.global_shards)(jnp.ones(3)),
    is_fully_addressable=lambda make: make(lambda x: x.is_fully_addressable)(jnp.ones(3)),
    is_fully_replicated=lambda make: make(lambda x: x.is_fully_replicated)(jnp.ones(3)),
    on_device_size=lambda make: make(lambda x: x.on_device_size_in_bytes())(jnp.ones(3)),
    unsafe_buffer_pointer=lambda make: make(lambda x: x.unsafe_buffer_pointer())(jnp.ones(3)),
    traceback_attribute=lambda make: make(lambda x: x.traceback)(jnp.ones(3)),
    delete=lambda make: make(lambda x: x.delete())(jnp.ones(3)),
    is_deleted=lambda make: make(lambda x: x.is_deleted())(jnp.ones(3)),
    block_until_ready=lambda make: make(lambda x: x.block_until_ready())(jnp.ones(3)),
    copy_to_host_async=lambda make: make(lambda x: x.copy_to_host_async())(jnp.ones(3)),
    unknown_attribute=lambda make: make(lambda x: x.no_such_attribute)(jnp.ones(3)),
    unknown_method=lambda make: make(lambda x: x.relu())(jnp.ones(3)),
    attribute_deletion=lambda make: make(lambda x: delattr(x, "aval2"))(1.0),
    property_assignment=lambda make: make(lambda x: setattr(x, "shape", (3, 1)))(jnp.ones(3)),
    hashing=lambda make: make(lambda x: hash(x))(1.0),
    dictionary_key=lambda make: make(lambda x: {x: 1})(1.0),
    set_member=lambda make: make(lambda x: {x})(1.0),
    calling_a_tracer=lambda make: make(lambda x: x(1))(1.0),
    length_of_scalar=lambda make: make(lambda x: len(x))(1.0),
    iterating_a_scalar=lambda make: make(lambda x: list(x))(1.0),
    reversing_a_scalar=lambda make: make(lambda x: list(reversed(x)))(1.0),
    indexing_a_scalar=lambda make: make(lambda x: x[0])(1.0),
    too_many_indices=lambda make: make(lambda x: x[0, 0])(jnp.ones(3)),
    string_index=lambda make: make(lambda x: x["a"])(jnp.ones(3)),
    float_index=lambda make: make(lambda x: x[1.5])(jnp.ones(3)),
    list_index=lambda make: make(lambda x: x[[0, 1]])(jnp.ones(3)),
    static_index_out_of_bounds=lambda make: make(lambda x: x.at[5].get(mode="raise"))(jnp.ones(3)),
    at_without_index=lambda make: make(lambda x: x.at.set(1))(jnp.ones(3)),
    at_unknown_method=lambda make: make(lambda x: x.at[0].replace(1))(jnp.ones(3)),
    operand_string=lambda make: make(lambda x: x + "a")(1.0),
    operand_string_on_the_left=lambda make: make(lambda x: "a" + x)(1.0),
    operand_none=lambda make: make(lambda x: x * None)(1.0),
    operand_list=lambda make: make(lambda x: operator.add(x, [1.0]))(1.0),
    operand_object=lambda make: make(lambda x: x - object())(1.0),
    matmul_scalar=lambda make: make(lambda x: x @ x)(1.0),
    invert_float=lambda make: make(lambda x: ~x)(1.0),
    shift_float=lambda make: make(lambda x: x << 1)(1.0),
    compare_with_string=lambda make: make(lambda x: x < "a")(1.0),
    integer_negative_power=lambda make: make(lambda x: x**-1)(2),
    pow_modulo=lambda make: make(lambda x: pow(x, 2, 3))(2),
    python_int_overflow=lambda make: make(lambda x: x + 2**70)(1),
    reduction_axis=lambda make: make(lambda x: x.sum(axis=2))(jnp.ones((2, 2))),
    astype_unknown=lambda make: make(lambda x: x.astype("float99"))(1.0),
    astype_object=lambda make: make(lambda x: x.astype(object))(1.0),
    transpose_axes=lambda make: make(lambda x: x.transpose(0, 0))(jnp.ones((2, 2))),
    reshape_size=lambda make: make(lambda x: x.reshape(4))(jnp.ones(3)),
    squeeze_axis=lambda make: make(lambda x: x.squeeze(0))(jnp.ones(3)),
)
