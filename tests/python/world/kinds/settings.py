"""Settings of jax: its configuration, contexts, meshes, devices."""

from __future__ import annotations

import functools
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import config
from jax.experimental.compute_on import compute_on
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from world.world import KINDS, Kind, World, array, attribute, context, item, kind

CONFIG = "configuration of jax"


def broad(x):
    """Calls that look at many settings."""
    y = jnp.dot(jnp.outer(x, x), x) + jnp.arange(3) + np.float64(2)
    y = y + jnp.zeros(3, int) + jax.nn.relu(jnp.where(x > 0, x, 2)) + x[None][0] * np.int8(2)
    return lax.convert_element_type(jnp.asarray(y), jnp.float32)


def capturing(x):
    return broad(x) + CAPTURED[0] + jax.jit(lambda v: v * CAPTURED[0])(x)


CAPTURED: list = []


def _captured(name):
    """With an array of jax's where the setting may concern it; to make one takes long."""
    of_jax = re.search("constant|device|guard|debug|x64|key", name)
    CAPTURED[:] = [array(2.0) if of_jax else np.full(3, 2, np.float32)]
    return capturing


def _others(name: str, value):
    """Other values of a setting."""
    if isinstance(value, bool):
        return [not value]
    holder = config.config._value_holders[name]
    choices = getattr(holder, "_enum_values", None) or getattr(holder, "enum_values", None)
    if choices is not None:
        return [choice for choice in choices if choice != value][:3]
    return KNOWN_VALUES.get(name, [])


KNOWN_VALUES = {
    "jax_default_matmul_precision": ["highest", "bfloat16", "F32_F32_F32"],
    "jax_default_prng_impl": ["rbg", "unsafe_rbg"],
    "jax_numpy_rank_promotion": ["warn", "raise"],
    "jax_numpy_dtype_promotion": ["strict"],
    "jax_remove_custom_partitioning_ptr_from_cache_key": [True],
    "jax_debug_log_modules": ["jax._src.interpreters.partial_eval"],
    "jax_transfer_guard": ["log"],
    "jax_hlo_source_file_canonicalization_regex": [".*/"],
    "jax_traceback_in_locations_limit": [2],
    "jax_random_seed_offset": [3],
    "jax_default_dtype_bits": ["32"],
    "jax_mutable_array_checks": [False],
    "jax_pprint_use_color": [True],
    "jax_logging_level": ["DEBUG"],
}

# Settings that concern the process as a whole, or have to be set before jax is used.
NOT_CHANGED = {
    "jax_platforms",
    "jax_platform_name",
    "jax_num_cpu_devices",
    "jax_cpu_collectives_implementation",
    "jax_rocm_visible_devices",
    "jax_cuda_visible_devices",
    "jax_distributed_debug",
    "jax_compilation_cache_dir",
    "jax_raise_persistent_cache_errors",
    "jax_dump_ir_to",
    "jax_mock_gpu_topology",
    "jax_xla_backend",
    "jax_backend_target",
    "jax_enable_recoverability",
}


# Those kinds that are a setting of jax's configuration each.
SETTINGS: set[str] = set()


def _declare_settings() -> None:
    for name in sorted(config.config._value_holders):
        if name in NOT_CHANGED:
            continue
        try:
            value = getattr(config.config, name)
        except AttributeError:
            continue
        for other in _others(name, value):
            label = f"setting_{name}_{other}".replace(" ", "_").replace(".", "_")
            make = functools.partial(_setting, name, value, other)
            SETTINGS.add(label)
            KINDS[label] = Kind(label, CONFIG, make, tells=False, witness="direct")


def _setting(name, value, other) -> World:
    def change(on):
        config.config.update(name, other if on else value)

    return World(_captured(name), change)


_declare_settings()


def _context(name, enter):
    make = lambda: World(_captured(name), context(enter))
    KINDS[name] = Kind(name, CONFIG, make, tells=False, witness="direct")


_context("context_matmul_precision", lambda: jax.default_matmul_precision("highest"))
_context("context_enable_x64", lambda: jax.enable_x64(True))
_context("context_dtype_promotion", lambda: jax.numpy_dtype_promotion("strict"))
_context("context_rank_promotion", lambda: jax.numpy_rank_promotion("raise"))
_context("context_rank_promotion_warns", lambda: jax.numpy_rank_promotion("warn"))
_context("context_debug_nans", lambda: jax.debug_nans(True))
_context("context_debug_infs", lambda: jax.debug_infs(True))
_context("context_default_device", lambda: jax.default_device(jax.devices()[1]))
_context("context_prng_impl", lambda: jax.default_prng_impl("rbg"))
_context("context_named_scope", lambda: jax.named_scope("around"))
_context("context_checking_leaks", lambda: jax.checking_leaks())
_context("context_disable_jit", lambda: jax.disable_jit())
_context("context_transfer_guard", lambda: jax.transfer_guard("log"))
_context("context_log_compiles", lambda: jax.log_compiles())
_context("context_threefry_partitionable", lambda: jax.threefry_partitionable(False))
_context("context_legacy_prng_key", lambda: jax.legacy_prng_key("error"))
_context("context_compile_time_eval", lambda: jax.ensure_compile_time_eval())
_context("context_softmax_custom_jvp", lambda: config.softmax_custom_jvp(False))
_context("context_mutable_array_checks", lambda: config.mutable_array_checks(False))
_context("context_enable_checks", lambda: config.enable_checks(True))
_context("context_simplified_constants", lambda: config.use_simplified_jaxpr_constants(True))
_context("context_eager_constant_folding", lambda: config.eager_constant_folding(True))


def _mesh(types=AxisType.Auto, size=2, name="i"):
    return jax.make_mesh((size,), (name,), axis_types=(types,))


_context("context_mesh_auto", lambda: jax.set_mesh(_mesh()))
_context("context_mesh_explicit", lambda: jax.set_mesh(_mesh(AxisType.Explicit)))
_context("context_mesh_abstract", lambda: jax.sharding.use_abstract_mesh(_mesh().abstract_mesh))
_context("context_mesh_old", lambda: _mesh())


def _metadata():
    from jax.experimental.xla_metadata import set_xla_metadata

    return set_xla_metadata(key="value")


_context("context_xla_metadata", _metadata)
if "out_memory_spaces" not in inspect.signature(compute_on).parameters:
    # Before jax 0.12; there it makes a function of a function.
    _context("context_compute_on", lambda: compute_on("device_host"))


@kind(CONFIG)
def sharding_within_a_mesh():
    mesh = _mesh(AxisType.Explicit, 1)

    def f(x):
        return jnp.sin(x) * lax.with_sharding_constraint(jnp.ones(3), NamedSharding(mesh, P()))

    return f, context(lambda: jax.set_mesh(mesh))


@kind(CONFIG)
def implementation_of_random_keys():
    return (
        lambda x: x + jax.random.normal(jax.random.key(0), (3,)),
        context(lambda: jax.default_prng_impl("rbg")),
    )


@kind(CONFIG)
def implementation_of_old_random_keys():
    return (
        lambda x: x + jax.random.normal(jax.random.PRNGKey(0), (3,)),
        context(lambda: jax.default_prng_impl("unsafe_rbg")),
    )


@kind(CONFIG)
def implementation_of_a_captured_key():
    holder = [jax.random.key(0)]

    def change(on):
        holder[0] = jax.random.key(0, impl="rbg" if on else "threefry2x32")

    return lambda x: x + jax.random.normal(holder[0], (3,)), change


@kind(CONFIG, tells=False)
def generator_of_one_name():
    from jax.extend.random import define_prng_impl

    def impl(c):
        return define_prng_impl(
            key_shape=(2,),
            seed=lambda s: jnp.zeros(2, jnp.uint32),
            split=lambda k, s: jnp.zeros((*s, 2), jnp.uint32),
            fold_in=lambda k, d: k,
            random_bits=lambda k, w, s: jnp.full(s, c, jnp.uint32),
            name="mine",
            tag="mine",
        )

    data = np.zeros(2, np.uint32)
    holder = [jax.random.wrap_key_data(data, impl=impl(1))]
    other = jax.random.wrap_key_data(data, impl=impl(2))

    def change(on):
        holder[0], holder[1:] = (other, [holder[0]]) if on else (holder[-1], [])

    def f(x):
        bits = jax.random.bits(holder[0], (3,))
        return x * bits.astype(jnp.float32)

    return f, change


@kind(CONFIG)
def setting_read_by_the_function():
    return (
        lambda x: x * (2 if jax.config.jax_enable_x64 else 7),
        context(lambda: jax.enable_x64(True)),
    )


@kind(CONFIG)
def mesh_read_by_the_function():
    return (
        lambda x: x * (2 + jax.sharding.get_abstract_mesh().size),
        context(lambda: jax.set_mesh(_mesh())),
    )


@kind(CONFIG)
def devices_read_by_the_function():
    real = jax.device_count
    return lambda x: x * jax.device_count(), attribute(jax, "device_count", lambda: real() + 5)


@kind(CONFIG)
def axis_environment():
    """A collective under another size of an axis."""
    size = [2]

    def f(x):
        return jax.vmap(lambda v: v / lax.psum(1, "b"), axis_name="b")(jnp.stack([x] * size[0]))[0]

    return f, item(size, 0, 3)
