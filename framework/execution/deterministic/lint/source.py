"""The modules of the user's project as trees, and the place of a function, class or variable in them."""

import ast
import inspect
import re
import sys
import sysconfig
from collections import defaultdict
from dataclasses import dataclass, field
from types import FunctionType, ModuleType

OURS = {"grete"}
SILENCED = re.compile(r"#\s*deterministic:\s*\S")
_LIBRARIES = tuple(path for key, path in sysconfig.get_paths().items() if key.endswith("lib"))

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass
class ModuleSource:
    """One module. ``values``: what is assigned to its variables; ``imports``: variable → (module, name there)."""

    module: ModuleType
    lines: list[str]
    functions: dict[tuple[str, int], Function] = field(default_factory=dict)  # by name and first line
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)  # by qualified name
    values: dict[str, list[ast.expr]] = field(default_factory=lambda: defaultdict(list))
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)

    def silenced(self, line: int) -> bool:
        """Tell whether a line says why it is deterministic: ``# deterministic: reason``."""
        return bool(SILENCED.search(self.lines[line - 1])) if 0 < line <= len(self.lines) else False


class Sources:
    """The project's modules, each read when it is needed."""

    def __init__(self, module_name: str) -> None:
        """``module_name`` is one of them: its package is the project's, even if it is installed as a library is."""
        self._package = module_name.partition(".")[0]
        self._known: dict[str, ModuleSource | None] = {}

    def of(self, module_name: str) -> ModuleSource | None:
        """Return a module of the project; None for one of a library, or without a source."""
        if module_name not in self._known:
            self._known[module_name] = _read(module_name) if self._is_own(module_name) else None
        return self._known[module_name]

    def _is_own(self, module_name: str) -> bool:
        package = module_name.partition(".")[0]
        file = getattr(sys.modules.get(module_name), "__file__", None)
        if file is None or package in OURS:
            return False
        return package == self._package or not file.startswith(_LIBRARIES)

    def function(self, value: FunctionType) -> tuple[ModuleSource, Function] | None:
        """Return the tree of a function of the project."""
        source = self.of(value.__module__) if isinstance(value.__module__, str) else None
        code = value.__code__
        node = None if source is None else source.functions.get((code.co_name, code.co_firstlineno))
        return None if source is None or node is None else (source, node)


def _read(module_name: str) -> ModuleSource | None:
    module = sys.modules[module_name]
    try:
        text = inspect.getsource(module)
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError):
        return None
    source = ModuleSource(module, text.splitlines())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            source.functions[node.name, first] = node
        elif isinstance(node, ast.Lambda):
            source.functions["<lambda>", node.lineno] = node
    _classes(source, tree, "")
    for statement in tree.body:
        _variables(source, statement)
    return source


def _classes(source: ModuleSource, node: ast.AST, prefix: str) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            source.classes[f"{prefix}{child.name}"] = child
            _classes(source, child, f"{prefix}{child.name}.")


def _variables(source: ModuleSource, statement: ast.stmt) -> None:
    for node in ast.walk(statement):
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for alias in names:
                    source.imports[alias.asname or alias.name] = module, alias.name
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef() if node is statement:
                return
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        source.values[target.id].append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                source.values[name].append(value)
            case _:
                pass
