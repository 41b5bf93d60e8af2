"""Test configuration: what XLA has to know before jax is first imported.

It shows eight host devices, and optimises little: most of what it compiles runs once.
"""

import os

import pytest

os.environ["JAX_PLATFORMS"] = "cpu"
XLA_FLAGS = (
    "--xla_force_host_platform_device_count=8",
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
)
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *XLA_FLAGS]).strip()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Puts tests of what other tests have written at the end, whatever the order is."""
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


def pytest_terminal_summary(terminalreporter):
    """Prints what passed tests counted."""
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
