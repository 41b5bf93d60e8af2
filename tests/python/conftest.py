"""Test configuration: jax must see eight host devices before it is first imported."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
).strip()


def pytest_terminal_summary(terminalreporter):
    """Prints what passed tests counted."""
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
