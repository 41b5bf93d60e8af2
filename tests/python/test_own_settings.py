"""Settings of jaxide: arguments, the environment, defaults."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxide
from alone import run_alone
from jaxide import _settings
from jaxide._settings import SETTINGS

ROOT = Path(__file__).parent.parent.parent

# For each setting values that are none, as arguments and as texts of the environment.
NONE: dict[str, tuple[tuple[Any, ...], tuple[str, ...]]] = {
    "disable": ((1, "yes", 0.0), ("maybe", "2")),
    "captured": (("sometimes", 3, b"auto"), ("sometimes",)),
    "audit": ((-1, 1.5, "3", True, 2**63), ("often", "-1", "1_000", "\u0663", "9" * 30)),
    "audit_dir": ((3, "", "a\0b"), ()),
    "cache_dir": ((3, "", b"folder"), ()),
    "cache_mode": (("append", 1), ("append", "WRITE")),
    "cache_max_bytes": ((-1, "many", 1e6), ("many", "1e6")),
    "cache_trust": ((1, "1"), ("perhaps",)),
    "log": (("no", ["retraces", 3], 5, ["no"]), ("no", "retraces,no")),
    "report": (("run.txt", 3, "", "run.HTML"), ("run.txt",)),
}
# For each setting a text of the environment, and the value that it means.
MEANT: dict[str, tuple[str, Any]] = {
    "disable": (" TRUE ", True),
    "captured": ("constants", "constants"),
    "audit": (" 12", 12),
    "audit_dir": ("/tmp/differences", "/tmp/differences"),
    "cache_dir": (":jax:", ":jax:"),
    "cache_mode": ("read", "read"),
    "cache_max_bytes": ("1000", 1000),
    "cache_trust": ("on", True),
    "log": ("retraces, retraces,", ("retraces",)),
    "report": ("run.json", "run.json"),
    "assume_known": ("traces, shapes", ("traces", "shapes")),
}
ARGUMENTS = [name for name, setting in SETTINGS.items() if setting.is_argument]


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is said by whoever runs the tests; nothing stays said."""
    for setting in SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)
    monkeypatch.setattr(_settings, "_said", set())
    monkeypatch.setattr(_settings, "_arguments", {})
    yield
    jaxide.uninstall()


def in_force(name: str) -> tuple[Any, str]:
    found = next(setting for setting in jaxide.settings() if setting.name == name)
    return found.value, found.source


def test_the_tables_here_are_complete() -> None:
    assert set(MEANT) == set(SETTINGS)
    assert set(NONE) == set(ARGUMENTS)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = MEANT[name]
    assert in_force(name) == (SETTINGS[name].default, "default")
    monkeypatch.setenv(SETTINGS[name].variable, text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert in_force(name) == (value, "environment")
    monkeypatch.setenv(SETTINGS[name].variable, "  ")
    assert in_force(name) == (SETTINGS[name].default, "default")


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, (_, texts) in NONE.items() for text in texts]
)
def test_a_variable_that_is_none(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is warned of once, and the value that risks least is in force."""
    setting = SETTINGS[name]
    monkeypatch.setenv(setting.variable, text)
    said = f"{setting.variable} is {setting.kind}, got {text!r}"
    with pytest.warns(UserWarning, match=re.escape(said)):
        assert in_force(name) == (setting.careful, "environment")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert in_force(name) == (setting.careful, "environment")


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, (values, _) in NONE.items() for value in values]
)
def test_an_argument_that_is_none(name: str, value: Any) -> None:
    """It is an error that names the argument, and nothing is changed."""
    said = f"{name} is {SETTINGS[name].kind}, got {value!r}"
    # Another argument, which is one, is not heeded either.
    other = {"captured": "constants"} if name != "captured" else {"audit": 5}
    with pytest.raises(ValueError, match=re.escape(said)):
        jaxide.install(**{name: value}, **other)
    assert all(setting.source == "default" for setting in jaxide.settings())
    assert jaxide.audit_report().every == 0


def test_an_argument_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXIDE_CAPTURED", "arguments")
    jaxide.install(captured="constants")
    assert in_force("captured") == ("constants", "argument")
    jaxide.install(audit=0)  # It does not name the other one.
    assert in_force("captured") == ("constants", "argument")
    jaxide.uninstall()
    assert in_force("captured") == ("arguments", "environment")


def test_the_environment_decides_how_arrays_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the argument: a jit that captures another array runs the same executable or not."""

    def shared(captured: str) -> int:
        jaxide.clear_caches()
        monkeypatch.setenv("JAXIDE_CAPTURED", captured)
        for factor in (jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])):
            jax.jit(lambda x, factor=factor: x + factor * 5)(jnp.array([5.0, 6.0]))
        return sum(row.shared for row in jaxide.retraces() if "<lambda>" in row.function)

    jaxide.install()
    assert (shared("constants"), shared("arguments")) == (0, 1)


def test_what_uninstall_ends(tmp_path: Path) -> None:
    jaxide.install(audit=3, audit_dir=tmp_path, cache_trust=None, log="retraces")
    assert in_force("audit") == (3, "argument")
    assert in_force("audit_dir") == (str(tmp_path), "argument")
    jaxide.uninstall()
    assert in_force("audit") == (0, "default")
    assert in_force("audit_dir") == (None, "default")
    assert in_force("log") == (("retraces",), "argument")


def test_nothing_is_left_of_what_fails(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(jaxide.StoreError, match="JAXIDE_CACHE_TRUST=1 uses it"):
        jaxide.install(cache_dir=folder, audit=5, report=tmp_path / "run.html")
    assert all(setting.source == "default" for setting in jaxide.settings())
    assert jaxide.audit_report().every == 0
    missing = tmp_path / "missing" / "run.html"
    with pytest.raises(ValueError, match="report names a file in a folder"):
        jaxide.install(report=missing, audit=5)
    assert all(setting.source == "default" for setting in jaxide.settings())


@pytest.mark.unaudited
def test_disabled_and_enabled_again() -> None:
    """With ``disable`` all is left to jax, jits of jaxide's that are there too."""
    jitted = jaxide.jit(lambda x: x * 3)
    jaxide.install(disable=True)
    try:
        jaxide.clear_caches()
        assert jitted(1.0) == 3 and jaxide.jit(lambda x: x * 2)(2.0) == 4
        assert jax.jit(lambda x: jnp.clip(x, 0, 1))(2.0) == 1
        jaxide.make_jaxpr(lambda x: jnp.sin(x))(1.0)
        info = jaxide.cache_info()
        assert (info.hits, info.misses, info.programs, len(jaxide.retraces())) == (0, 0, 0, 0)
        with pytest.raises(NotImplementedError, match="switched off by install"):
            _ = jaxide.trace(lambda x: x)(1.0).structural_hash
        assert {c.why for c in jaxide.status().capabilities} == {
            "install(disable=...) leaves all to jax"
        }
        jaxide.install()
        assert jaxide.make_jaxpr(lambda x: jnp.sin(x))(1.0) and jaxide.cache_info().misses == 0
        jaxide.install(disable=False)
        jax.jit(lambda x: jnp.clip(x, 0, 1))(jnp.ones(3))
        assert jaxide.cache_info().misses > 0
    finally:
        jaxide.uninstall()
    assert in_force("disable") == (False, "default")


ENABLED = """
import jax, jax.numpy as jnp, jaxide
assert not any(c.is_native for c in jaxide.status().capabilities)
jaxide.install(disable=False)
jax.jit(lambda x: jnp.clip(x, 0, 1))(jnp.ones(3))
info = jaxide.cache_info()
print(info.misses > 0, jaxide.audit_report().every, info.store.mode)
jaxide.uninstall()
print(any(c.is_native for c in jaxide.status().capabilities))
"""


def test_an_argument_enables_what_the_environment_disables(tmp_path: Path) -> None:
    """What else the environment says holds from then on."""
    said = run_alone(
        ENABLED,
        JAXIDE_DISABLE="1",
        JAXIDE_AUDIT="50",
        JAXIDE_CACHE_DIR=str(tmp_path / "store"),
        JAXIDE_CACHE_MODE="read",
    )
    assert said.stdout == "True 50 read\nFalse\n"


def test_variables_that_are_no_settings() -> None:
    """One warning names them all, with the nearest names; the tests' own are none of them."""
    unknown = {"JAXIDE_AUDT": "3", "JAXIDE_CACHEDIR": "x", "JAXIDE_ZQXJ": "", "JAXIDE_TEST_X": "1"}
    said = run_alone("import jaxide; jaxide.status()", **unknown).stderr
    assert said.count("UserWarning") == 1
    assert (
        "no setting of jaxide: JAXIDE_AUDT (is JAXIDE_AUDIT meant?), "
        "JAXIDE_CACHEDIR (is JAXIDE_CACHE_DIR meant?), JAXIDE_ZQXJ\n"
    ) in said
    assert run_alone("import jaxide; jaxide.status()", JAXIDE_AUDIT="0").stderr == ""


def test_bad_variables_are_no_errors() -> None:
    """Whatever they are: jaxide is imported, and works."""
    bad = {SETTINGS[name].variable: texts[0] for name, (_, texts) in NONE.items() if texts}
    bad["JAXIDE_CACHE_DIR"] = "/dev/null/store"
    script = "import jaxide; jaxide.install(disable=False); print(jaxide.make_jaxpr(abs)(1.0))"
    done = run_alone(script, **bad)
    assert "abs a" in done.stdout
    for variable in bad.keys() - {"JAXIDE_CACHE_DIR"}:
        assert f"{variable} is " in done.stderr, variable
    assert "the store is not used" in done.stderr and "Traceback" not in done.stderr


def test_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXIDE_AUDIT_DIR", "[/red]<b>")
    settings = jaxide.settings()
    lines = str(settings).splitlines()
    assert len(lines) == 1 + len(SETTINGS)
    for setting, line in zip(settings, lines[1:], strict=True):
        assert line.split()[0] == setting.name and setting.variable in line
    assert "[/red]<b>  environment  JAXIDE_AUDIT_DIR" in str(settings)
    assert "[/red]&lt;b&gt;" in settings._repr_html_()
    assert repr(settings) == "<jaxide.Settings: audit_dir='[/red]<b>' (environment)>"


def test_the_command_line_shows_them() -> None:
    script = "import sys; from jaxide._cli import main; sys.exit(main(['doctor', *{}]))"
    assert "JAXIDE_AUDIT" in run_alone(script.format([]), JAXIDE_AUDIT="7").stdout
    found = json.loads(run_alone(script.format(["--json"]), JAXIDE_AUDIT="7").stdout)["settings"]
    audit = next(setting for setting in found if setting["name"] == "audit")
    assert (audit["value"], audit["source"]) == (7, "environment")


def table() -> str:
    """The table of the document."""
    lines = ["| argument | variable | value | default | what it does |", "|" + " :-- |" * 5]
    for setting in SETTINGS.values():
        argument = f"`{setting.name}`" if setting.is_argument else ""
        default = _settings.shown(setting.default)
        cells = argument, f"`{setting.variable}`", setting.kind, default, setting.means
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_document_has_them() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    assert table() in text, f"docs/settings.md needs this table:\n{table()}"
    for setting in SETTINGS.values():
        if setting.is_argument:
            assert f"\n  {setting.name}: " in (inspect.getdoc(jaxide.install) or "")


@pytest.mark.parametrize("file", ["~nosuchuser/x.html", "a" * 300 + ".html", "a" * 300 + "/b.html"])
def test_a_report_that_cannot_be_written(file: str) -> None:
    with pytest.raises(ValueError, match="report names a file"):
        jaxide.install(report=file)
    code = "import jaxide; print(jaxide.trace(lambda x: x + 1)(1.0)(1.0))"
    done = run_alone(code, JAXIDE_REPORT=file)
    assert done.stdout == "2.0\n" and "JAXIDE_REPORT names a file" in done.stderr
