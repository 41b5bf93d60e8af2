"""The documents name files, tests, links and Python names that exist, and their examples run."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import pages
import picture
import report

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
FOLDERS = ("src", "python", "tests", "docs", "benches", "examples", "fuzz", "scripts")
FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and "target" not in path.parts
]
DEFINITION = re.compile(r"^\s*(?:def|fn) (\w+)\(", re.MULTILINE)
# A section that names files and tests of jax.
OF_JAX = "### Tests of jax that count"


def text_of(document: Path) -> str:
    """A document without the section that is about jax's own tests."""
    before, _, after = document.read_text().partition(OF_JAX)
    return before + after[after.find("\n## ") :] if after else before


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def spans(document: Path) -> list[str]:
    """What stands in backticks, outside of code blocks."""
    return re.findall(r"`([^`\n]+)`", without_blocks(text_of(document)))


def in_repository(path: str) -> bool:
    """Whether a path, or the end of one (``world/mod.rs``), is that of a file or folder."""
    if path.split("/")[0] in FOLDERS or path.startswith("."):
        return (ROOT / path).exists()
    if path.endswith("/"):
        return any(f"/{path}" in f"/{file}" for file in FILES)
    return any(f"/{file}".endswith(f"/{path}") for file in FILES)


def is_path(span: str) -> bool:
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", span):
        return False
    if span.startswith(("target/", "dist/", "__")):  # What a build or a test suite makes.
        return False
    if span == pages.EXAMPLE or re.fullmatch(r"\.\w+", span):  # The code of a page; a suffix.
        return False
    begins = tuple(f"{folder}/" for folder in FOLDERS)
    return span.startswith(begins) or span.endswith((".rs", ".py", "/"))


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def names_of(document: Path) -> set[str]:
    """The dotted names of jaxide that a document mentions."""
    blocks = re.findall(r"^```python\n(.*?)^```", text_of(document), re.DOTALL | re.MULTILINE)
    return {
        name
        for text in [*blocks, *spans(document)]
        for name in re.findall(r"(?<![\w./\"'])(jaxide(?:\.[A-Za-z_]\w*)+)", text)
    }


def resolves(name: str) -> bool:
    found: object = importlib.import_module("jaxide")
    for position, part in enumerate(name.split(".")[1:], 2):
        if not hasattr(found, part) and isinstance(found, ModuleType):
            try:
                importlib.import_module(".".join(name.split(".")[:position]))
            except ModuleNotFoundError:
                return False
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_exist(document: Path) -> None:
    assert not [span for span in spans(document) if is_path(span) and not in_repository(span)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_blocks(document.read_text())):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_site_has_every_page() -> None:
    """The navigation names the documents, and pages from the root of the repository."""
    named = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
    documents = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    outside = [path.name.lower() for path in ROOT.glob("*.md") if path.name != "README.md"]
    assert sorted(named) == sorted([*documents, *outside])


def test_reference_has_every_public_name() -> None:
    named = {
        name
        for page in ROOT.glob("docs/reference/*.md")
        for name in re.findall(r"^::: (jaxide\.\w+)$", page.read_text(), re.MULTILINE)
    }
    jaxide = importlib.import_module("jaxide")
    names = [name for name in dir(jaxide) if not isinstance(getattr(jaxide, name), ModuleType)]
    assert named == {f"jaxide.{name}" for name in names}


def test_picture_is_made_of_the_tables() -> None:
    assert picture.PICTURE.read_text() == picture.picture(report.PERFORMANCE.read_text())


def test_internals_name_every_file() -> None:
    """Tables of the internals have each file of the Rust sources, or its folder."""
    named = {
        span
        for path in ROOT.glob("docs/internals/*.md")
        for cell in re.findall(r"^\| ([^|]*) \|", path.read_text(), re.MULTILINE)
        for span in re.findall(r"`([^`]+)`", cell)
    }
    sources = [file for file in FILES if file.startswith("src/") and file.endswith(".rs")]
    missing = {
        file
        for file in sources
        if Path(file).name not in ("mod.rs", "lib.rs")
        and file not in named
        and not any(f"{parent}/" in named for parent in Path(file).parents)
    }
    assert len(sources) > 100
    assert not missing


def definitions() -> dict[str, set[str]]:
    """The functions of the tests, by file."""
    return {
        file: set(DEFINITION.findall((ROOT / file).read_text()))
        for file in FILES
        if file.startswith("tests/") and file.endswith((".py", ".rs"))
    }


def test_tests_exist() -> None:
    """Both ``test_name`` and ``tests/python/test_file.py::test_name``."""
    defined = definitions()
    named = {
        span
        for document in DOCUMENTS
        for span in spans(document)
        if re.fullmatch(r"test_\w+|[\w./]+\.(py|rs)::\w+", span)
    }
    missing = set()
    for name in named:
        file, _, function = name.rpartition("::")
        if function not in (defined.get(file, set()) if file else set().union(*defined.values())):
            missing.add(name)
    assert named  # Otherwise nothing was looked for.
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_names_of_jaxide_exist(document: Path) -> None:
    assert not {name for name in names_of(document) if not resolves(name)}


PAGES = [
    ROOT / "README.md",
    ROOT / "examples" / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]


# Blocks that are not executed, by the reason why.
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_section_is_there_twice(document: Path) -> None:
    if document.name == "CHANGELOG.md":
        return  # Each version has the same sections.
    sections = re.findall(r"^## (.*)$", without_blocks(document.read_text()), re.MULTILINE)
    assert not [section for section, count in Counter(sections).items() if count > 1]


NOT_RUN = {
    "needs a network": 4,
    "builds the project": 1,
    "builds an image": 2,
    "takes hours": 1,
    "of a shell's own": 1,
    "needs several processes": 1,
    "by tests of their own": 1,
    "a program of the reader's": 3,
}


def test_every_block_is_run_or_says_why_not() -> None:
    found = [block for page in PAGES for block in pages.blocks(page)]
    reasons = Counter(block.not_run for block in found if block.not_run)
    assert reasons == NOT_RUN
    others = {block.language for block in found if not block.not_run}
    assert others == {"python", "console", "text"}
    fences = sum(page.read_text().count("```") for page in PAGES)
    outputs = sum(block.output is not None for block in found)
    assert fences == 2 * (len(found) + outputs)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.is_run for block in pages.blocks(page))],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_code_runs(page: Path, tmp_path: Path) -> None:
    """Blocks run in order and print what the page says; see ``pages.py``."""
    failures = pages.run(page, tmp_path)
    assert not failures, "\n".join(failures)


DOCSTRINGS = """
import doctest, sys
import jax, jax.numpy as jnp
import jaxide

finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
for name in filter(lambda name: not name.startswith("_"), dir(jaxide)):
    public = getattr(jaxide, name)
    if callable(public):
        globs = {"jax": jax, "jnp": jnp, "jaxide": jaxide}
        for test in finder.find(public, name, module=False, globs=globs):
            runner.run(test)
assert runner.tries > 20, runner.tries
sys.exit(bool(runner.failures))
"""


def test_examples_of_docstrings_run() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DOCSTRINGS], capture_output=True, text=True, check=False, timeout=300
    )
    assert not done.returncode, done.stdout + done.stderr
