"""Test configuration: jax must see eight host devices before it is first imported."""

import functools
import gc
import os

import pytest

import covering
import jaxide

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
).strip()

# Tests find nothing of earlier runs.
if not os.environ.get("JAXIDE_TEST_STORE"):
    os.environ.pop("JAXIDE_CACHE_DIR", None)

# Tests look into parts of jaxide, which are loaded with its first name.
_ = jaxide.__version__

# For each error jax compares the file of each frame with its own files, by the file system: that is
# half the time of a test that compares errors.
common_path = functools.cache(lambda paths, of=os.path.commonpath: of(paths))
os.path.commonpath = lambda paths: common_path(tuple(paths))
os.path.samefile = functools.cache(os.path.samefile)

# Of how many replays and shared executables one is audited.
AUDIT = int(os.environ.get("JAXIDE_AUDIT", "0") or 0)

# So many tests after each other: tests have the collector run often, and it would look through all
# that jax, pytest and jaxide keep from those before.
FEW = 200
FINISHED = pytest.StashKey[int]()


def pytest_addoption(parser):
    parser.addoption(
        "--long", action="store_true", help="run all combinations, not a covering choice of them"
    )


def pytest_configure(config):
    covering.configure(config)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leaves out what the short run leaves out; puts tests of what other tests have written at the
    end, whatever the order is; skips those that say nothing where replays are audited.
    """
    left_out = covering.deselected(config, items)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)
    skip = pytest.mark.skip(reason="says nothing where replays are audited")
    for item in items if AUDIT else ():
        if item.get_closest_marker("unaudited"):
            item.add_marker(skip)


def pytest_collection_finish():
    """Keeps the garbage collector from looking through all the tests."""
    set_aside()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    """Keeps the garbage collector from looking through what is left of the tests before."""
    item.config.stash[FINISHED] = item.config.stash.get(FINISHED, 0) + 1
    if item.config.stash[FINISHED] % FEW == 0:
        set_aside()


@pytest.fixture(autouse=True)
def audited(request):
    """Fails a test in which an audit finds a difference, where auditing is on."""
    if not AUDIT or request.node.get_closest_marker("plants"):
        yield
        return
    import jaxide

    before = len(jaxide.audit_report().differences)
    yield
    found = jaxide.audit_report().differences[before:]
    assert not found, "\n".join(map(str, found))


@pytest.fixture(autouse=True)
def jax_is_left_as_it_was():
    """Fails a test that leaves changed what texts of programs depend on: after it, jax prints."""
    from jaxide import _core

    before = _core.prints_as_ever()
    yield
    assert _core.prints_as_ever() or not before, "jax is not as it was"


def set_aside():
    """Has the garbage collector look through all that there is now for the last time."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Prints what passed tests counted, and what was audited."""
    if AUDIT:
        import jaxide

        terminalreporter.write_line(str(jaxide.audit_report()))
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
