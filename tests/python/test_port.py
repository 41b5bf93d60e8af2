"""The port kit: what has changed in a jax, and what is recorded of it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jaxide._compat import capabilities, sources

SCRIPTS = Path(__file__).parent.parent.parent / "scripts"


def script(name: str) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(name, str(SCRIPTS / name))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return script("port")


KNOWN = {
    "paths": {"core:a": {"1": "0.11.2 0.12.0", "0": "0.10.2"}, "core:b": {"2": "0.11.2"}},
    "files": {"core": {"f": "0.11.2"}},
}


def said(a: str, b: str) -> dict[str, Any]:
    return {
        "paths": {"core:a": a, "core:b": b},
        "files": {"core": "g"},
        "capabilities": {"one": [[], ["core:a"]], "two": [["one"], ["core:a", "core:b"]]},
    }


def test_what_has_changed_is_listed_by_capability(port: ModuleType) -> None:
    assert port.changes(said("1", "2"), KNOWN) == {}
    assert port.changes(said("9", "2"), KNOWN) == {"one": ["core:a"], "two": ["core:a"]}
    assert port.changes(said("0", "9"), KNOWN) == {"two": ["core:b"]}


@pytest.mark.parametrize(
    ("version", "before"), [("0.12.1", "0.12.0"), ("0.11.3", "0.11.2"), ("0.9.2", "0.10.2")]
)
def test_the_nearest_known_version(port: ModuleType, version: str, before: str) -> None:
    assert port.nearest(KNOWN, version) == before


def test_what_is_equal_is_recorded(
    port: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "known.json"
    monkeypatch.setattr(port, "KNOWN", target)
    monkeypatch.setattr(port, "PROJECT", tmp_path)
    known = json.loads(json.dumps(KNOWN))
    port.record("0.12.1", said("9", "8"), known, left=["two"])
    # Nothing of what "two" rests on and is new, nor a file that has it.
    assert json.loads(target.read_text()) == KNOWN
    port.record("0.12.1", said("9", "2"), known, left=[])
    found = json.loads(target.read_text())
    assert found["paths"]["core:a"]["9"] == "0.12.1"
    assert found["paths"]["core:b"]["2"] == "0.11.2 0.12.1"
    assert found["files"]["core"]["g"] == "0.12.1"


@pytest.mark.usefixtures("port")
def test_the_versions_that_are_tested_are_recorded() -> None:
    versions = script("versions")
    for capability in capabilities.CAPABILITIES:
        for path in capability.rests_on:
            recorded = {v for of in sources.known().paths[path].values() for v in of.split()}
            assert recorded == set(versions.VERSIONS), path
