"""Whoever comes in between finds everything as it is: see ``docs/reentrance.md``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import covering
from alone import run_alone

SCRIPT = Path(__file__).with_name("reentrance.py")
IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
SECONDS = 600.0 if IS_LONG else covering.examples(1, 8)
SCENARIOS = (
    "profiled",
    "collected",
    "interrupted",
    "interrupted_for_good",
    "interrupted_reading",
    "threaded",
)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_whoever_comes_in_between(scenario: str) -> None:
    seed = int.from_bytes(os.urandom(4)) if IS_LONG else 1
    command = [sys.executable, str(SCRIPT), scenario, str(SECONDS), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 300)
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"


FINALIZERS = """
import gc, sys
import jax, jax.numpy as jnp
from jax import lax
import jaxide

AVAL = jax.ShapeDtypeStruct((), jnp.float32)

def traced(x, depth=40):
    if depth:
        return traced(x, depth - 1)
    Dying()
    return lax.sin_p.bind(x)

def finalized(x):
    return lax.cos_p.bind(x)

class Dying:
    def __init__(self):
        self.itself = self
    def __del__(self):
        jaxide.make_jaxpr(lambda x: finalized(x))(AVAL)

def counts():
    jaxide.clear_caches()
    gc.collect()
    return [sys.getrefcount(fun.__code__) for fun in (traced, finalized)]

for fun in (traced, finalized):
    jaxide.make_jaxpr(fun)(AVAL)
before = counts()
for threshold in (1, 5, 20, 60):
    gc.set_threshold(threshold, 1000, 1000)
    for _ in range(50):
        jaxide.make_jaxpr(lambda x: traced(x))(AVAL)
    gc.set_threshold(700, 10, 10)
assert counts() == before, (counts(), before)
"""


def test_finalizers_that_trace_while_the_stack_is_read() -> None:
    """A finalizer runs where an object is made, so also while jaxlib collects the frames of a
    traceback: the code of a user's function was freed while it was in use."""
    run_alone(FINALIZERS)
