"""A fragment of Python: it need not run by itself, but it must be Python, and what it imports must be there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.docs.running import DJANGO, run

YOURS = {"app", "billing", "myapp", "mysite", "shop"}
"""The reader's own modules."""


def check_fragment(code: str, folder: Path) -> None:
    """Parses it, with `await` wherever it likes, and carries out its imports."""
    tree = compile(code, "fragment", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(tree, ast.Module)
    found = sorted(set(imports(tree)))
    if found:
        before = DJANGO if any("django" in each for each in found) else ""
        run("\n".join([before, *found]), folder)


def imports(tree: ast.Module) -> Iterator[str]:
    """Its imports, but those of the reader's own modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [each for each in node.names if not _own(each.name)]
            if names:
                yield ast.unparse(ast.Import(names))
        elif isinstance(node, ast.ImportFrom) and not node.level and not _own(node.module or ""):
            yield ast.unparse(node)


def _own(module: str) -> bool:
    return module.partition(".")[0] in YOURS or module == "__future__"
