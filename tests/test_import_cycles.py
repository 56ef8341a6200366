"""No import cycle in any folder: a module can be read, tested and moved without those that use it.

An import below ``if TYPE_CHECKING`` counts, too: a type that is named there is a dependency in design, if not at run
time. One inside of a function counts for the same reason.
"""

import ast
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.trees import nodes_of

pytestmark = pytest.mark.check  # reads all sources: a change is looked at before it is sent

ROOT = Path(__file__).parents[1]
IN = {"framework": "grete", "protocol": "grete.protocol"}  # folder → the package that it is
PACKAGE = re.compile(rf"^({'|'.join(IN)})(?=\.)")
Imports = dict[str, set[str]]  # module → the modules of ours that it imports


def own_modules() -> dict[str, Path]:
    """Return all modules of the repository by name; the name of a package is its ``__init__``."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [Path(name) for name in listed.stdout.split() if (ROOT / name).is_file()]
    return {
        PACKAGE.sub(lambda at: IN[at[0]], ".".join(path.with_suffix("").parts)).removesuffix(".__init__"): ROOT / path
        for path in paths
    }


def imports_of(name: str, nodes: Iterable[ast.AST], modules: dict[str, Path]) -> set[str]:
    """Return the modules of ours that the nodes of a source name in their imports, wherever they are."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{name}: a relative import"
            assert not node.level, f"{name}: a relative import"
            found |= {
                inner if (inner := f"{node.module}.{alias.name}") in modules else node.module for alias in node.names
            }
    return (found & modules.keys()) - {name}


def cycles(imports: Imports) -> list[list[str]]:
    """Return the strongly connected components of more than one module, sorted (Tarjan)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = lowest[module] = len(index)
        stack.append(module)
        for other in sorted(imports[module]):
            if other not in index:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == index[module]:
            at = stack.index(module)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for module in imports:
        if module not in index:
            visit(module)
    return sorted(found)


def test_no_modules_import_each_other() -> None:
    """In no folder is there a cycle of imports: engine, wire format, examples, tests, proof and benchmarks."""
    modules = own_modules()
    assert {"grete", "tasks", "benchmarks", "tests"} <= {name.partition(".")[0] for name in modules}
    assert cycles({name: imports_of(name, nodes_of(path), modules) for name, path in modules.items()}) == []


def test_cycles_are_found() -> None:
    """The search finds a cycle through several modules, and tells it from a diamond and from a second cycle."""
    diamond: Imports = {"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}
    assert cycles(diamond) == []
    assert cycles(diamond | {"d": {"a"}}) == [["a", "b", "c", "d"]]
    assert cycles(diamond | {"d": {"b"}, "x": {"y", "a"}, "y": {"x"}}) == [["b", "d"], ["x", "y"]]


def test_imports_are_found_wherever_they_are() -> None:
    """Imports of modules, of names in them, for types only and inside of functions; none of what is not ours."""
    modules = dict.fromkeys(("p", "p.a", "p.b", "p.c", "p.d", "p.e"), Path())
    source = """
import os, p.a
from p import b, other
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from p.c import C
def late():
    from p.d import D
"""
    assert imports_of("p.e", ast.walk(ast.parse(source)), modules) == {"p", "p.a", "p.b", "p.c", "p.d"}
