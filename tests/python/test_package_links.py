"""The links in the description of a package (`scripts/package_links.py`)."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from test_port import SCRIPTS

README = SCRIPTS.parent / "README.md"
REPOSITORY = "https://github.com/someone/project"
HEAD = f"Metadata-Version: 2.4\nVersion: 1.2.3\nProject-URL: Repository, {REPOSITORY}\n\n"


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import package_links

    return package_links


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](docs/jit.md)", f"[a]({REPOSITORY}/blob/v1.2.3/docs/jit.md)"),
        ("[a](LICENSE) b [c](d/)", f"[a]({REPOSITORY}/blob/v1.2.3/LICENSE) b "
         f"[c]({REPOSITORY}/blob/v1.2.3/d/)"),
        ("![a](i/x.svg)", "![a](https://raw.githubusercontent.com/someone/project/v1.2.3/i/x.svg)"),
        ("[a](https://x.org/b.md), [c](#part)", "[a](https://x.org/b.md), [c](#part)"),
        ("f[0](x, y)", "f[0](x, y)"),
    ],
)  # fmt: skip
def test_a_link(links: ModuleType, text: str, expected: str) -> None:
    assert links.in_metadata(HEAD + text) == HEAD + expected


def test_readme_has_no_relative_link_afterwards(links: ModuleType) -> None:
    text = README.read_text("utf-8")
    made = links.absolute(text, REPOSITORY, "main")
    assert len(links.RELATIVE.findall(text)) > 20
    assert not links.RELATIVE.findall(made)
    for path in re.findall(rf"{REPOSITORY}/blob/main/([^)#]+)", made):
        assert (README.parent / path).exists()


def test_files(links: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "project-1.2.3.dist-info").mkdir()
    metadata = tmp_path / "project-1.2.3.dist-info" / "METADATA"
    metadata.write_text(HEAD + "[a](b.md)")
    links.in_wheel(tmp_path)
    assert metadata.read_text() == links.in_metadata(HEAD + "[a](b.md)")

    archive = tmp_path / "project-1.2.3.tar.gz"
    files = {"PKG-INFO": HEAD + "[a](b.md)", "README.md": "[a](b.md)", "docs/PKG-INFO": "[a](b.md)"}
    with tarfile.open(archive, "w:gz") as packed:
        for name, content in files.items():
            member = tarfile.TarInfo(f"project-1.2.3/{name}")
            member.size, member.mode = len(content), 0o755
            packed.addfile(member, io.BytesIO(content.encode()))
    links.in_source_distribution(archive)
    files["PKG-INFO"] = metadata.read_text()
    with tarfile.open(archive) as packed:
        found = {
            member.name.removeprefix("project-1.2.3/"): packed.extractfile(member).read().decode()
            for member in packed
        }
        assert {member.mode for member in packed} == {0o755}
    assert found == files
