"""The syntax tree of a source, made once in a process: many rules look at the same ones."""

import ast
import functools
from pathlib import Path


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Return the tree of a source."""
    return ast.parse(path.read_text())
