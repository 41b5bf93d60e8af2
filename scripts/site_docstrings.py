"""An extension of griffe: docstrings as Markdown, with links to what they name."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:func|class|meth|attr|exc|data):`(~?)([\w.]+)`")
DOCUMENT = re.compile(r"``docs/([\w/]+\.md)``")
EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)
# The folder of the pages, as seen from those of the reference.
PAGES = ".."


class Docstrings(griffe.Extension):
    """Writes the roles of Sphinx as links, and examples as the section that griffe knows."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrites the docstring of an object."""
        if obj.docstring is None:
            return
        text = ROLE.sub(lambda found: _link(found[2], bool(found[1]), obj), obj.docstring.value)
        text = DOCUMENT.sub(rf"[\1]({PAGES}/\1)", text)
        obj.docstring.value = EXAMPLE.sub(r"\1Examples:", text)


def _link(name: str, last: bool, obj: griffe.Object) -> str:
    """A link to what a docstring names: of its own class, of jaxide, or of jax."""
    shown = name.rpartition(".")[2] if last else name
    if name.startswith("jax."):
        return f"`{shown}`"
    parent = obj if obj.is_class else obj.parent
    if parent is not None and parent.is_class and name in parent.members:
        return f"[`{shown}`][{_public(parent)}.{name}]"
    return f"[`{shown}`][jaxide.{name.removeprefix('jaxide.')}]"


def _public(of: griffe.Object) -> str:
    return of.path if of.path.startswith("jaxide.brainstate") else f"jaxide.{of.name}"
