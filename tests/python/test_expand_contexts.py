"""Whatever jax's tracing reads besides the arguments of a call is part of the key of the call.

Each setting is changed between traces, and inside a trace between equal calls, of programs whose
calls are replayed by then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import config, core, error_check, layout
from jax._src.compute_on import extend_compute_type
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import AxisType, Mesh

import covering
import expansion
import jaxide

# ---- the programs -----------------------------------------------------------------------------


@jax.jit
def jitted(x):
    return jnp.tanh(x @ x.T) * 2 + jax.random.uniform(jax.random.key(1), (3, 3))


def scanned(x):
    def body(carry, row):
        return carry + jnp.sum(row * 2.0), jax.nn.relu(row)

    return lax.scan(body, jnp.zeros((), x.dtype), x)


def branches(x):
    return lax.cond(jnp.sum(x) > 0, lambda v: jnp.sin(v) + 1, lambda v: jnp.dot(v, v.T) @ v, x)


def many_axes(x):
    return jnp.concatenate([x, x]).reshape(-1, 2).transpose()[..., None].squeeze()


# Programs of a (3, 4) float array, small ones: a setting may make any call an error.
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "operators": lambda x: (x + 1, 2 * x, x - 1.5, x**2, -x, x / 3, x // 2, x > 0, x == x),
    "scalars": lambda x: (jnp.add(x, 1), jnp.multiply(x, 2.0), jnp.where(x > 0, x, 0), x + True),
    "float64": lambda x: (x + np.float64(2), jnp.asarray(x, float), jnp.float32(3) * x),
    "integers": lambda x: (x.astype(int) + 7, jnp.arange(3) * 2, jnp.round(x).astype("int8") + 1),
    "mixed_dtypes": lambda x: (x * jnp.arange(4), jnp.add(x, x.astype(jnp.bfloat16))),
    "rank_promotion": lambda x: (x + x[0], jnp.multiply(x, x[:, :1]), x * jnp.ones(4)),
    "products": lambda x: (x @ x.T, jnp.dot(x, x.T), jnp.einsum("ij,kj->ik", x, x)),
    "dot_general": lambda x: (lax.dot(x, x.T), jnp.vdot(x, x), jnp.tensordot(x, x.T, 1)),
    "convolutions": lambda x: jnp.convolve(x[0], x[1]),
    "reductions": lambda x: (x.sum(), x.mean(0), jnp.std(x, axis=1), jnp.argmax(x), x.cumsum(0)),
    "narrow_reductions": lambda x: jnp.sum(x.astype(jnp.float16), axis=0),
    "indices": lambda x: (x[0], x[1:, ::2], x[-1, 2], x[jnp.argmin(x[:, 0])], x.at[0].set(1)),
    "static_gather": lambda x: (x.at[2, 3].get(), jnp.take(x, 1, axis=0), x.at[1].add(2.0)),
    "shapes": many_axes,
    "constants": lambda x: (
        jnp.zeros(3),
        jnp.ones((2, 2)),
        jnp.full((2,), 2.0),
        jnp.eye(2) + x[0, 0],
    ),
    "array": lambda x: x + jnp.array([1.0, 2.0, 3.0, 4.0]),
    "softmax": lambda x: (jax.nn.softmax(x), jax.nn.log_softmax(x, axis=0)),
    "activations": lambda x: (jax.nn.gelu(x), jax.nn.relu(x), jax.nn.silu(x), jax.nn.one_hot(2, 4)),
    "logistic": lambda x: (jax.nn.sigmoid(x), lax.logistic(x), jax.scipy.special.erfinv(x)),
    "logsumexp": lambda x: jax.scipy.special.logsumexp(x, axis=1),
    "linalg": lambda x: (jnp.linalg.norm(x), jnp.linalg.inv(x @ x.T), jnp.linalg.det(x @ x.T)),
    "fft": lambda x: jnp.fft.rfft(x),
    "initializers": lambda x: jax.nn.initializers.glorot_normal()(jax.random.key(0), (3, 4)) + x,
    "new_key": lambda x: jax.random.key(3),
    "legacy_key": lambda x: jax.random.split(jax.random.PRNGKey(3), 3),
    "random": lambda x: (
        jax.random.normal(jax.random.key(0), (3,)),
        jax.random.bits(jax.random.key(2)),
    ),
    "legacy_random": lambda x: (
        jax.random.uniform(jax.random.PRNGKey(0)),
        jax.random.permutation(jax.random.PRNGKey(1), x),
    ),
    "gumbel": lambda x: (
        jax.random.gumbel(jax.random.key(0), (2,)),
        jax.random.categorical(jax.random.key(1), x),
    ),
    "gumbel_mode": lambda x: jax.random.gumbel(jax.random.key(0), (2,), mode="high"),
    "jitted": jitted,
    "scan": scanned,
    "branches": branches,
    "loop": lambda x: lax.while_loop(lambda v: jnp.sum(v) < 9, lambda v: v * 2 + jnp.sum(v), x),
    "vmap": lambda x: jax.vmap(lambda row: jnp.dot(row, row) + row[0])(x),
    "gradient": jax.grad(lambda x: jnp.sum(jax.nn.softmax(jnp.sin(x) * 2 + x @ x.T @ x))),
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(jnp.sum(x * 3))),
    "integer_division": lambda x: (x.astype(int) // 2, jnp.divmod(x, 2.0)),
    "sorting": lambda x: (jnp.sort(x), jnp.argsort(x, axis=0), lax.top_k(x, 2)),
    "image": lambda x: jax.image.resize(x, (6, 8), "linear"),
    "types": lambda x: (
        x * (jnp.result_type(float) == jnp.float64) + jnp.finfo(jnp.result_type(float)).eps
    ),
}


def argument() -> np.ndarray:
    return np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def entered(
    context: Callable[[], contextlib.AbstractContextManager], function: Callable[..., Any]
) -> Callable[..., Any]:
    """The function under a context that it enters itself."""

    @functools.wraps(function)
    def enter(*args: Any) -> Any:
        with context():
            return function(*args)

    return enter


# ---- the settings -----------------------------------------------------------------------------


@contextlib.contextmanager
def updated(name: str, value: Any) -> Iterator[None]:
    """A setting changed for all threads."""
    before = jax.config.values[name]
    jax.config.update(name, value)
    try:
        yield
    finally:
        jax.config.update(name, before)


def states() -> dict[str, config.State]:
    """All settings that jax defines, those by context manager only included."""
    found = {s._name: s for s in vars(config).values() if isinstance(s, config.State)}
    return {**config.config_states, **found}


# Values other than the default ones. Every setting of jax is here or in `WITHOUT_INFLUENCE`.
SETTINGS: dict[str, tuple[Any, ...]] = {
    "check_vma": (True,),
    "eager_constant_folding": (True,),
    "jax_accurate_erf_inv": (True, False),
    "jax_allow_f16_reductions": (True, False),
    "jax_auto_pcast": (False,),
    "jax_check_static_indices": (True,),
    "jax_check_tracer_leaks": (True,),
    "jax_custom_jvp3": (True, False),
    "jax_custom_vjp3": (True, False),
    "jax_debug_infs": (True,),
    "jax_debug_key_reuse": (True,),
    "jax_debug_nans": (True,),
    "jax_default_matmul_precision": ("highest", "bfloat16", "tensorfloat32"),
    "jax_default_prng_impl": ("rbg", "unsafe_rbg"),
    "jax_disable_bwd_checks": (True,),
    "jax_disable_jit": (True,),
    "jax_disable_vmap_shmap_error": (True,),
    "jax_embedded_constants_max_bytes": (0, 1 << 20),
    "jax_enable_checks": (True,),
    "jax_enable_custom_prng": (True,),
    "jax_enable_x64": (True,),
    "jax_error_checking_behavior_divide": ("raise",),
    "jax_error_checking_behavior_nan": ("raise",),
    "jax_error_checking_behavior_oob": ("raise",),
    "jax_explicit_x64_dtypes": tuple(config.ExplicitX64Mode),
    "jax_high_dynamic_range_gumbel": (True,),
    "jax_legacy_prng_key": ("warn", "error"),
    "jax_mutable_array_checks": (False, True),
    "jax_no_collectives": (frozenset({"i"}),),
    "jax_no_tracing": (True,),
    "jax_numpy_dtype_promotion": ("strict",),
    "jax_numpy_rank_promotion": ("raise", "warn"),
    "jax_random_seed_offset": (17,),
    "jax_refs_to_pins": (True,),
    "jax_remat3": (True, False),
    "jax_remat_barrier_no_cotangents": (True, False),
    "jax_remove_size_one_mesh_axis_from_type": (True,),
    "jax_scan3": (True, False),
    "jax_softmax_custom_jvp": (False,),
    "jax_threefry_partitionable": (False,),
    "jax_traceback_filtering": ("off",),
    "jax_use_direct_linearize": (False, True),
    "jax_use_hlo_logistic_lowering": (True, False),
    "jax_use_rgv3": (True, False),
    "jax_use_simplified_jaxpr_constants": (True,),
}

_LOWERING = "read when a program is lowered or compiled, after its jaxpr is made"
_RUNTIME = "read when a compiled program or a transfer runs"
_PROCESS = "read once, when jax connects to devices or other processes"
_PALLAS = "read when a pallas kernel is lowered or run"
_EXPORT = "read when a program is exported"

WITHOUT_INFLUENCE: dict[str, str] = {
    **dict.fromkeys(
        (
            "jax_bcoo_cusparse_lowering",
            "jax_captured_constants_report_frames",
            "jax_captured_constants_warn_bytes",
            "jax_compilation_cache_check_contents",
            "jax_compilation_cache_dir",
            "jax_compilation_cache_expect_pgle",
            "jax_compilation_cache_include_metadata_in_key",
            "jax_compilation_cache_max_size",
            "jax_compiler_enable_remat_pass",
            "jax_enable_compilation_cache",
            "jax_enable_pgle",
            "jax_exec_time_optimization_effort",
            "jax_hlo_source_file_canonicalization_regex",
            "jax_include_full_tracebacks_in_locations",
            "jax_memory_fitting_effort",
            "jax_memory_fitting_level",
            "jax_optimization_level",
            "jax_persistent_cache_enable_xla_caches",
            "jax_persistent_cache_min_compile_time_secs",
            "jax_persistent_cache_min_entry_size_bytes",
            "jax_pgle_aggregation_percentile",
            "jax_pgle_profiling_runs",
            "jax_ragged_dot_use_gpu_pallas_triton_lowering",
            "jax_ragged_dot_use_ragged_dot_instruction",
            "jax_raise_on_ppermute_sort_diff",
            "jax_raise_persistent_cache_errors",
            "jax_remove_custom_partitioning_ptr_from_cache_key",
            "jax_share_binary_between_hosts",
            "jax_share_binary_between_hosts_timeout_ms",
            "jax_source_url_schema",
            "jax_threefry_gpu_kernel_lowering",
            "jax_traceback_in_locations_limit",
            "jax_use_magma",
            "jax_use_shardy_partitioner",
            "jax_xla_profile_version",
        ),
        _LOWERING,
    ),
    **dict.fromkeys(
        (
            "jax_array_garbage_collection_guard",
            "jax_experimental_unsafe_xla_runtime_errors",
            "jax_no_execution",
            "jax_send_traceback_to_runtime",
            "jax_thread_guard",
            "jax_transfer_guard",
            "jax_transfer_guard_device_to_device",
            "jax_transfer_guard_device_to_host",
            "jax_transfer_guard_host_to_device",
            "jax_use_cpp_shard_args",
        ),
        _RUNTIME,
    ),
    **dict.fromkeys(
        (
            "jax_cpu_collectives_implementation",
            "jax_cpu_get_global_topology_timeout_minutes",
            "jax_cpu_get_local_topology_timeout_minutes",
            "jax_debug_leaked_clients_on_clear_backends",
            "jax_distributed_debug",
            "jax_distributed_verify_secure_credentials",
            "jax_enable_preemption_service",
            "jax_enable_recoverability",
            "jax_mtls_ca_file",
            "jax_mtls_cert_file",
            "jax_mtls_key_file",
            "jax_mtls_peer_uri_prefix",
            "jax_num_cpu_devices",
            "jax_pjrt_client_create_options",
            "jax_platforms",
        ),
        _PROCESS,
    ),
    **dict.fromkeys(
        (
            "jax_mosaic_allow_hlo",
            "jax_mosaic_unzip_debug_locations",
            "jax_pallas_auto_assign_collective_ids",
            "jax_pallas_auto_assign_collective_ids_limit",
            "jax_pallas_enable_debug_checks",
            "jax_pallas_poison_buffers",
            "jax_pallas_use_mosaic_gpu",
            "jax_use_emit_pipeline_primitive",
            "pallas_dynamic_shapes_export",
            "pallas_fuser_disable_nested_fuse",
            "pallas_grid_context",
            "pallas_tpu_interpret_mode_context_manager",
        ),
        _PALLAS,
    ),
    **dict.fromkeys(
        (
            "jax2tf_associative_scan_reductions",
            "jax2tf_default_native_serialization",
            "jax_export_calling_convention_version",
            "jax_export_deserialize_expired_versions",
            "jax_export_ignore_forward_compatibility",
            "jax_serialization_version",
        ),
        _EXPORT,
    ),
    "jax_disallow_mesh_context_manager": "makes entering a mesh an error, not tracing under it",
    "jax_debug_log_modules": "logs",
    "jax_explain_cache_misses": "logs",
    "jax_log_checkpoint_residuals": "logs",
    "jax_log_compiles": "logs",
    "jax_logging_level": "logs",
    "jax_pprint_use_color": "read when a program is printed",
}


@dataclasses.dataclass(frozen=True)
class Change:
    """A change of what jax's tracing context holds."""

    name: str
    """As `trace_context_names` has it, where it does."""
    label: str
    enter: Callable[[], contextlib.AbstractContextManager]

    def __str__(self) -> str:
        return f"{self.name}={self.label}"


def setting_changes() -> Iterator[Change]:
    known = states()
    for name, values in SETTINGS.items():
        if name in known:
            for value in values:
                yield Change(name, str(value), functools.partial(known[name], value))
    for name, value in (
        ("jax_default_matmul_precision", "high"),
        ("jax_default_prng_impl", "rbg"),
        ("jax_enable_x64", True),
        ("jax_numpy_dtype_promotion", "strict"),
        ("jax_numpy_rank_promotion", "raise"),
        ("jax_random_seed_offset", 3),
        ("jax_softmax_custom_jvp", False),
        ("jax_threefry_partitionable", False),
    ):
        yield Change(name, f"{value}, of all threads", functools.partial(updated, name, value))


def mesh(size: int = 2, kind: AxisType = AxisType.Auto, name: str = "x") -> Mesh:
    return jax.make_mesh((size,), (name,), axis_types=(kind,), devices=jax.devices()[:size])


user_context = jax.make_user_context(default_value=None)

OTHER_CHANGES = [
    Change("jax_default_device", "cpu:3", lambda: jax.default_device(jax.devices()[3])),
    Change("jax_default_device", "cpu", lambda: jax.default_device("cpu")),
    Change("mesh_context_manager", "physical", mesh),
    Change("mesh_context_manager", "larger", lambda: mesh(4)),
    Change("abstract_mesh_context_manager", "set", lambda: jax.set_mesh(mesh())),
    Change(
        "abstract_mesh_context_manager",
        "explicit",
        lambda: jax.set_mesh(mesh(1, AxisType.Explicit)),
    ),
    Change(
        "abstract_mesh_context_manager",
        "explicit of two",
        lambda: jax.set_mesh(mesh(2, AxisType.Explicit)),
    ),
    Change(
        "abstract_mesh_context_manager",
        "abstract",
        lambda: jax.sharding.use_abstract_mesh(mesh(2, AxisType.Manual).abstract_mesh),
    ),
    Change(
        "abstract_mesh_context_manager",
        "other name",
        lambda: jax.sharding.use_abstract_mesh(mesh(2, AxisType.Explicit, "y").abstract_mesh),
    ),
    Change("compute_on_context_manager", "host", lambda: extend_compute_type("device_host")),
    Change("xla_metadata_context_manager", "a", lambda: set_xla_metadata(a="b")),
    Change("xla_metadata_context_manager", "c", lambda: set_xla_metadata(a="b", c=3)),
    Change("axis_env_state", "i", lambda: core.extend_axis_env_nd([("i", 2)])),
    Change("axis_env_state", "j", lambda: core.extend_axis_env_nd([("i", 3), ("j", 2)])),
    Change("user_context", "1", lambda: user_context(1)),
    Change("user_context", "text", lambda: user_context("text")),
    Change("name scope", "scope", lambda: jax.named_scope("scope")),
    Change("name scope", "nested", lambda: jax.named_scope("outer/inner")),
    Change("evaluation", "at compile time", jax.ensure_compile_time_eval),
]


def newer_changes() -> Iterator[Change]:
    """Of contexts that jax 0.10 has not."""
    if hasattr(layout, "use_layout_mode"):
        for mode in layout.LayoutMode:
            enter = functools.partial(layout.use_layout_mode, mode)
            yield Change("layout_tracing_mode", mode.name, enter)


CHANGES = [*setting_changes(), *OTHER_CHANGES, *newer_changes()]


CHANGES_BY_NAME: dict[str, list[Change]] = {}
for change in CHANGES:
    CHANGES_BY_NAME.setdefault(change.name, []).append(change)

every_name = pytest.mark.parametrize("name", CHANGES_BY_NAME)


def under(change: Change, step: expansion.Step) -> expansion.Step:
    """The step under the change; entering it may be the error."""

    def run(make: expansion.Maker) -> Any:
        with change.enter():
            return step(make)

    return run


# Under these, what has no traced argument is computed at once, which compiles every operation.
COMPUTING = {"eager_constant_folding", "evaluation"}
CHEAP_PROGRAMS = ("operators", "scalars", "constants", "array", "softmax", "new_key", "jitted")


def each_program(
    names: Iterable[str],
    change: Callable[[Callable[..., Any]], Callable[..., Any]],
    *,
    full: bool,
) -> expansion.Step:
    """A step that traces each named program by itself, changed in some way."""

    def step(make: expansion.Maker) -> dict[str, Any]:
        return {
            name: expansion.observe(make, change(PROGRAMS[name]), argument(), full=full)
            for name in names
        }

    return step


def rounds(
    name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> list[expansion.Step]:
    """Traces until calls are replayed; only the last one is looked at closely."""
    names = list(CHEAP_PROGRAMS if name in COMPUTING else PROGRAMS)
    names = covering.one_in(8, names, list(CHANGES_BY_NAME).index(name))
    first = each_program(names, change, full=False)
    return [first] * (expansion.ROUNDS - 1) + [each_program(names, change, full=True)]


def renewed(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A new function, which jax has not traced."""
    return lambda x: program(x)


def forget_errors(make: expansion.Maker) -> None:
    """A step that empties jax's list of the errors that traced functions may meet.

    The numbers in it are in the programs, and it is not among what `jax.clear_caches()` clears.
    """
    error_check._error_list.clear()
    error_check._error_storage.ref = None


@pytest.fixture(autouse=True)
def no_errors_left() -> Iterator[None]:
    yield
    forget_errors(jax.make_jaxpr)


@pytest.mark.covering(kinds=lambda name: [])
@every_name
def test_changed_between_traces(name: str) -> None:
    plain = rounds(name, renewed)
    changed = [under(change, step) for change in CHANGES_BY_NAME[name] for step in plain]
    # Last, a single trace: what was known before the changes is still right.
    expansion.assert_history([forget_errors, *plain, *changed, plain[-1]])


@pytest.mark.covering(kinds=lambda name: [])
@every_name
def test_changed_inside_a_trace(name: str) -> None:
    """Between equal calls of one trace, whose results go on into one program."""
    changes = CHANGES_BY_NAME[name][:2]

    def changing(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: (
            program(x),
            [entered(change.enter, program)(x) for change in changes],
            program(x),
        )

    expansion.assert_history([forget_errors, *rounds(name, changing)])


# ---- nothing is forgotten ---------------------------------------------------------------------


def trace_context_names() -> tuple[str, ...]:
    names = config.trace_context_names
    return tuple(names() if callable(names) else names)


def test_every_setting_is_exercised_or_has_a_reason() -> None:
    names = {*trace_context_names(), *states()}
    exercised = {change.name for change in CHANGES}
    assert names - exercised - WITHOUT_INFLUENCE.keys() == set()
    assert exercised & WITHOUT_INFLUENCE.keys() == set()
    assert all(WITHOUT_INFLUENCE.values())


def test_every_program_is_replayed() -> None:
    """Otherwise nothing above could fail."""
    never = {"types"}  # `jnp.finfo` is no function of a trace
    for name, program in PROGRAMS.items():
        with expansion.empty_cache():
            expansion.warm_up(program, argument())
            assert jaxide.cache_info().hits or name in never, name
