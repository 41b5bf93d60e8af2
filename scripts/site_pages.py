"""Hooks of mkdocs: pages from the root of the repository, and anchors as GitHub makes them."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).parent.parent
OUTSIDE = ("CHANGELOG", "CONTRIBUTING", "SECURITY")
TO_OUTSIDE = re.compile(rf"\]\(((?:\.\./)*)\.\./({'|'.join(OUTSIDE)})\.md")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Links with anchors lead to the same place on GitHub and here."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in the folder of the documents."""
    for name in OUTSIDE:
        text = (ROOT / f"{name}.md").read_text("utf-8").replace("](docs/", "](")
        for other in OUTSIDE:
            text = text.replace(f"]({other}.md", f"]({other.lower()}.md")
        files.append(File.generated(config, f"{name.lower()}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links from the documents to these pages."""
    return TO_OUTSIDE.sub(lambda found: f"]({found[1]}{found[2].lower()}.md", markdown)
