"""Programs of real size, by the libraries that they are written with.

A module is that of a library; `BY_LIBRARY` names its functions, each of which makes a program.

- ``flax``: a language model in linen, a convolutional network in nnx
- ``equinox``: an MLP-mixer
- ``optax``: a chain of transformations over a deep tree of parameters
- ``diffrax``: the gradient of a neural differential equation, and a stochastic one
- ``optimistix``: a least-squares fit, and a minimisation with BFGS
- ``lineax``: solutions of linear systems by four solvers
- ``numpyro``: steps of variational inference and of NUTS
- ``blackjax``: steps of NUTS and of HMC
- ``haiku``: a residual network and a transformer
- ``brainstate``: a recurrent network
- ``distrax``: a normalizing flow
- ``tfp``: log densities of a joint distribution
- ``brax``: a step of an environment
- ``mjx``: steps of physics
- ``keras``: training steps of a convolutional network
- ``orbax``: a train state that is saved and restored
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple


class Program(NamedTuple):
    """A function and example arguments; `run` computes what is compared, where that is not one
    call of the jitted function."""

    step: Callable[..., Any]
    args: tuple[Any, ...]
    run: Callable[[], Any] | None = None


# By the name of the distribution: functions of a module here.
BY_LIBRARY: dict[str, tuple[str, ...]] = {
    "flax": ("flax:linen_transformer", "flax:nnx_cnn"),
    "equinox": ("equinox:mixer",),
    "optax": ("optax:deep_tree",),
    "diffrax": ("diffrax:neural_ode", "diffrax:sde"),
    "optimistix": ("optimistix:least_squares", "optimistix:bfgs"),
    "lineax": ("lineax:solvers",),
    "numpyro": ("numpyro:svi", "numpyro:nuts"),
    "blackjax": ("blackjax:nuts", "blackjax:hmc"),
    "dm-haiku": ("haiku:resnet", "haiku:transformer"),
    "brainstate": ("brainstate:rnn",),
    "distrax": ("distrax:flow",),
    "tensorflow-probability": ("tfp:joint_distribution",),
    "brax": ("brax:ant",),
    "mujoco-mjx": ("mjx:walker",),
    "keras": ("keras:cnn",),
    "orbax-checkpoint": ("orbax:train_state",),
}


def make(name: str) -> Program:
    """The program of a name, such as ``optax:deep_tree``."""
    module, _, function = name.partition(":")
    made: Program = getattr(importlib.import_module(f"libraries.{module}"), function)()
    return made
