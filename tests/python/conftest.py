"""Test configuration: jax must see eight host devices before it is first imported."""

import gc
import os

import pytest

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
).strip()

# So many tests after each other: tests have the collector run often, and it would look through all
# that jax, pytest and jaxide keep from those before.
FEW = 200
FINISHED = pytest.StashKey[int]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Puts tests of what other tests have written at the end, whatever the order is."""
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


def pytest_collection_finish():
    """Keeps the garbage collector from looking through all the tests."""
    set_aside()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    """Keeps the garbage collector from looking through what is left of the tests before."""
    item.config.stash[FINISHED] = item.config.stash.get(FINISHED, 0) + 1
    if item.config.stash[FINISHED] % FEW == 0:
        set_aside()


def set_aside():
    """Has the garbage collector look through all that there is now for the last time."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Prints what passed tests counted."""
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
