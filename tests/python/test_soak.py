"""A short soak: the long one is `python benches/soak.py`."""

import dataclasses
import subprocess
import sys

import jax
import pytest

import covering
import jaxide
import soak


@pytest.mark.covering(times=1, each_value=False)
@pytest.mark.parametrize(
    "options",
    [
        "--traces 5000 --closures 100",
        f"--tracer jit --traces {covering.examples(700, 4000)} --closures 5",
    ],
    ids=["traced", "executed"],
)
def test_memory_stays_flat(options: str) -> None:
    """In a process of its own, since other tests fill caches of theirs."""
    command = [sys.executable, soak.__file__, *options.split(), "--tolerance", "2"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "flat" in made.stdout


def test_growth_is_noticed() -> None:
    kept = []
    samples = soak.soak("jaxide", 12, 2, lambda done: kept.append(bytes([done]) * (1 << 20)))
    assert soak.growth(samples) >= 4 << 20


def test_recipes_are_traced_as_by_stock() -> None:
    for recipe in (0, 1, 10, 100, 999, 0):
        function, args = soak.closure(recipe, recipe + 0.5)
        assert str(jaxide.make_jaxpr(function)(*args)) == str(jax.make_jaxpr(function)(*args))


def test_exceeded_bounds_are_named() -> None:
    info = jaxide.cache_info()
    exceeded = soak.bounds_exceeded(dataclasses.replace(info, max_entries=-1, max_bytes=-1))
    assert [bound.partition(":")[0] for bound in exceeded] == ["entries", "bytes"]
