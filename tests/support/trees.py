"""The syntax tree of a source, made and walked once in a process: many rules look at the same ones."""

import ast
import functools
import gc
from pathlib import Path


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Return the tree of a source."""
    source = path.read_text()
    gc.disable()  # a tree lives until the end: to look for garbage among all of them was a sixth of the time
    try:
        return ast.parse(source)
    finally:
        gc.enable()


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return all nodes of the tree of a source."""
    return list(ast.walk(tree_of(path)))
