"""A copy of the installed jax in which one function or class has another source."""

from __future__ import annotations

import ast
from pathlib import Path

from jaxide._compat import sources

QUIET = "_of_another_jax = None"
# Adds an equation to whatever is being traced.
LOUD = "__import__('jax').lax.neg_p.bind(__import__('numpy').float32(1.5))"


def changed(path: str, statement: str) -> str:
    """The text of the file in which ``path`` is, with a statement put into it.

    A function begins with the statement, a class has it in a method.
    """
    module = path.partition(":")[0]
    text = sources.file_of(module).read_text("utf-8")
    node = sources.node_at(path)
    assert node is not None, path
    lines = text.splitlines(keepends=True)
    place = node
    if isinstance(node, ast.ClassDef):
        methods = [m for m in node.body if isinstance(m, ast.FunctionDef)]
        place = methods[-1] if methods else node
    if isinstance(place, (ast.FunctionDef, ast.ClassDef)):
        first = _first_statement(place)
        if first.lineno == place.lineno:
            # `def f(self): return self.x`
            line = lines[first.lineno - 1]
            lines[first.lineno - 1] = (
                f"{line[: first.col_offset]}{statement}; {line[first.col_offset :]}"
            )
        else:
            decorators = getattr(first, "decorator_list", [])
            at = min([first.lineno, *(d.lineno for d in decorators)])
            lines.insert(at - 1, f"{' ' * first.col_offset}{statement}\n")
    else:
        assert isinstance(place, (ast.Assign, ast.AnnAssign)), path
        value = place.value
        assert value is not None, path
        # The end first: both may be in one line.
        for line, column, text in (
            (value.end_lineno, value.end_col_offset, ",)[0]"),
            (value.lineno, value.col_offset, "("),
        ):
            old = lines[line - 1]
            lines[line - 1] = f"{old[:column]}{text}{old[column:]}"
    made = "".join(lines)
    compile(made, str(sources.file_of(module)), "exec")
    return made


def changed_path(path: str) -> str:
    """The innermost function that `changed` changes."""
    node = sources.node_at(path)
    methods = [m.name for m in getattr(node, "body", ()) if isinstance(m, ast.FunctionDef)]
    return f"{path}.{methods[-1]}" if isinstance(node, ast.ClassDef) and methods else path


def _first_statement(node: ast.FunctionDef | ast.ClassDef) -> ast.stmt:
    has_doc = ast.get_docstring(node, clean=False) is not None and len(node.body) > 1
    return node.body[1 if has_doc else 0]


def copy_of_jax(folder: Path, module: str, text: str) -> Path:
    """A folder with jax in it, one module of which has another text; the rest is linked."""
    jax = sources.FOLDER.parent
    changed_file = sources.file_of(module)
    target = folder / "jax"
    inside = [changed_file, *changed_file.parents]
    inside = inside[: inside.index(jax) + 1]
    for real in reversed(inside[1:]):
        made = target / real.relative_to(jax)
        made.mkdir(parents=True)
        for entry in real.iterdir():
            if entry not in inside and entry.name != "__pycache__":
                (made / entry.name).symlink_to(entry)
    (target / changed_file.relative_to(jax)).write_text(text, "utf-8")
    return folder
