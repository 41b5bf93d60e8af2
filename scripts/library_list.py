"""The libraries of `scripts/libraries`: versions, what tests need, and where the tests are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

JAX = "0.10.2"


class Library(NamedTuple):
    """A library with its tests.

    `tests` are patterns of files or folders with tests, below what was unpacked. `excluded` has
    patterns of files that are not run, each with the reason. Without `repository`, the tests are in
    the source distribution, or beside the modules of the wheel where `in_wheel` is set.
    """

    version: str
    tests: tuple[str, ...]
    needs: tuple[str, ...] = ()
    repository: str | None = None
    tag: str | None = None
    in_wheel: bool = False
    excluded: Mapping[str, str] = MappingProxyType({})
    options: tuple[str, ...] = ()
    package: str | None = None


KIDGER = "https://github.com/patrick-kidger"
TYPES = "beartype"

LIBRARIES: dict[str, Library] = {
    "optax": Library(
        "0.2.8", ("optax",), ("chex", "flax==0.12.8", "scipy", "scikit-learn", "dm-tree")
    ),
    "lineax": Library("0.1.1", ("tests",), (TYPES,), repository=f"{KIDGER}/lineax", tag="v0.1.1"),
    "optimistix": Library(
        "0.1.0",
        ("tests",),
        (TYPES, "diffrax==0.7.2", "optax==0.2.8", "pytest-benchmark", "sif2jax"),
        repository=f"{KIDGER}/optimistix",
        tag="v0.1.0",
    ),
    "diffrax": Library(
        "0.7.2",
        ("test",),
        (TYPES, "optax==0.2.8", "scipy", "tqdm"),
        repository=f"{KIDGER}/diffrax",
        tag="v0.7.2",
    ),
    "equinox": Library(
        "0.13.8",
        ("tests",),
        (TYPES, "optax==0.2.8", "tqdm"),
        repository=f"{KIDGER}/equinox",
        tag="v0.13.8",
        excluded={"tests/test_onnx.py": "needs TensorFlow and tf2onnx"},
    ),
    "flax": Library(
        "0.12.8",
        ("tests",),
        ("optax==0.2.8", "einops", "cloudpickle", "ml-collections", "jaxtyping", "dm-haiku"),
        excluded={
            "tests/tensorboard_test.py": "needs TensorFlow",
            "tests/io_test.py": "needs TensorFlow",
        },
    ),
    "dm-haiku": Library(
        "0.0.17",
        ("haiku",),
        ("chex", "cloudpickle", "dill", "mock", "dm-tree", "optax==0.2.8", "flax==0.12.8"),
        excluded={
            "haiku/_src/integration/jax2tf_test.py": "needs TensorFlow",
            "haiku/_src/integration/doctest_test.py": "needs TensorFlow",
        },
    ),
    "numpyro": Library(
        "0.22.0",
        ("test",),
        (
            "optax==0.2.8",
            "flax==0.12.8",
            "equinox==0.13.8",
            "dm-haiku",
            "pyro-api",
            "scikit-learn",
            "scipy",
            "funsor",
            "tfp-nightly==0.26.0.dev20261027",
        ),
        excluded={
            "test/test_example_utils.py": "downloads data sets",
            "test/test_examples.py": "runs examples that download data sets",
        },
    ),
    "blackjax": Library("1.7.1", ("tests",), ("chex", "pytest-benchmark", "tqdm", "jax-tap")),
    "distrax": Library(
        "0.1.9",
        ("distrax",),
        ("chex", "mock", "dm-haiku", "flax==0.12.8", "tfp-nightly==0.26.0.dev20261027"),
    ),
    "tensorflow-probability": Library(
        "0.26.0.dev20261027",
        ("tensorflow_probability/substrates/jax",),
        ("dm-tree", "tf-keras"),
        package="tfp-nightly",
        in_wheel=True,
    ),
    "brainstate": Library("0.5.4", ("brainstate",), ("absl-py",), in_wheel=True),
    "brax": Library(
        "0.14.2",
        ("brax",),
        ("mujoco==3.17.0", "mujoco-mjx==3.17.0", "transforms3d", "gym", "dm_env"),
    ),
    "mujoco-mjx": Library(
        "3.17.0",
        ("mujoco/mjx",),
        ("mujoco==3.17.0",),
        in_wheel=True,
        excluded={"mujoco/mjx/warp/**": "needs a GPU"},
    ),
    "keras": Library(
        "3.15.1",
        ("keras/src",),
        ("pandas", "scipy", "scikit-learn", "dm-tree", "pillow", "einops"),
        excluded={
            "keras/src/backend/tensorflow/**": "needs TensorFlow",
            "keras/src/backend/torch/**": "needs PyTorch",
            "keras/src/applications/**": "downloads weights",
            "keras/src/datasets/**": "downloads data sets",
            "keras/src/export/**": "needs TensorFlow",
            "keras/src/layers/preprocessing/image_preprocessing/**": "needs TensorFlow",
        },
    ),
    "orbax-checkpoint": Library(
        "0.12.8",
        ("checkpoint/orbax",),
        (
            *("flax==0.12.8", "chex", "mock", "aiofiles", "safetensors", "portpicker"),
            "google-cloud-logging",
        ),
        # The source distribution has helpers of tests alone.
        repository="https://github.com/google/orbax",
        tag="v0.12.8",
    ),
}
