"""Test configuration: jax must see eight host devices before it is first imported."""

import gc
import os

import pytest

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
).strip()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Puts tests of what other tests have written at the end, whatever the order is."""
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


def pytest_collection_finish():
    """Keeps the garbage collector from looking through all that was collected, whenever a test has
    it run."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Prints what passed tests counted."""
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
