"""Makes the links of a package's description lead to the repository: an index of packages has no
other files beside the description.
"""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

IMAGES = (".png", ".svg")
# What is between the brackets of an inline link or picture: no address, no anchor of the page.
RELATIVE = re.compile(r"(?<=\]\()(?!https?://|mailto:|#)([^)\s]+)(?=\))")


def absolute(text: str, repository: str, revision: str) -> str:
    """A text in Markdown, with links to files of a revision on GitHub."""
    raw = repository.replace("github.com", "raw.githubusercontent.com")

    def link(found: re.Match[str]) -> str:
        if found[1].endswith(IMAGES):
            return f"{raw}/{revision}/{found[1]}"
        return f"{repository}/blob/{revision}/{found[1]}"

    return RELATIVE.sub(link, text)


def in_metadata(text: str) -> str:
    """The metadata of a package (PKG-INFO), with such links in its description."""
    head, blank, description = text.partition("\n\n")
    fields = dict(line.partition(": ")[::2] for line in head.splitlines())
    (repository,) = re.findall(r"^Project-URL: Repository, (\S+)$", head, re.MULTILINE)
    return head + blank + absolute(description, repository, f"v{fields['Version']}")


def in_wheel(folder: Path) -> None:
    """Does so in a wheel that is unpacked."""
    (path,) = folder.glob("*.dist-info/METADATA")
    path.write_text(in_metadata(path.read_text("utf-8")), "utf-8")


def in_source_distribution(archive: Path) -> None:
    """Does so in a source distribution."""
    with tarfile.open(archive) as packed:
        members = [(m, packed.extractfile(m).read() if m.isfile() else b"") for m in packed]
    with tarfile.open(archive, "w:gz") as packed:
        for member, content in members:
            if member.name.count("/") == 1 and member.name.endswith("/PKG-INFO"):
                content = in_metadata(content.decode()).encode()
                member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
