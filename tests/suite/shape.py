"""The shape of the code in figures: ``make shape`` prints them; a table of docs/hacking.md says what they may be.

``--write`` puts what is measured into the table, and lowers the bounds of what is better. A test fails when a figure is
beyond its bound; ``--list`` says what it counts.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple, TypeVar

from tests.support.trees import nodes_of
from tests.test_import_cycles import imports_of, own_modules

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "hacking.md"
BEGIN = "| figure | now | bound | goal |"
ATTRIBUTES_MAX, ARGUMENTS_MAX = 12, 7  # of a class, of a constructor: more are several things in one
MODULES_MAX, FLOORS_MAX = 15, 6  # of a folder: more, and a reader finds nothing by its names
SMALL_LINES = 60  # a module below that, with one importer, is a part of that one
COMMITS = 200  # the newest, whose messages are looked at
ENGINE = re.compile(r"grete\.(worker|logs|sinks|api)\b")  # and all that these import: a process with tasks may load it
DECLARED = ("framework/api/", "framework/errors.py", "framework/settings.py")  # arguments there are a user's options
CHECKED = ("framework/core/", "framework/execution/")  # where assertions are counted
_UNTYPED = re.compile(r"\b(dict|Mapping)\[str, (Any|object)\]")
_OF_TUPLES = {"_asdict", "_replace", "_fields", "_make"}  # public, though they begin so
Function = ast.FunctionDef | ast.AsyncFunctionDef
T = TypeVar("T", bound=ast.AST)


class Figure(NamedTuple):
    """One figure. ``offenders``: what it counts. ``at_least``: less is worse. ``room``: a bound is a multiple of it."""

    name: str
    value: float
    goal: str
    offenders: Sequence[str] = ()
    at_least: bool = False
    room: int = 1

    @property
    def text(self) -> str:
        """The value as the table has it."""
        return _text(self.value)

    def bound(self, before: float) -> float:
        """The bound from now on: it only gets narrower."""
        return max(before, self.value) if self.at_least else min(before, -(-self.value // self.room) * self.room)


class Sources:
    """The modules of the wheel, read and walked once."""

    def __init__(self) -> None:
        modules = own_modules()
        self.paths = {
            name: path.relative_to(ROOT).as_posix()
            for name, path in modules.items()
            if path.is_relative_to(ROOT / "framework") or path.is_relative_to(ROOT / "protocol")
        }
        self.text = {name: modules[name].read_text() for name in self.paths}
        self._nodes = {name: nodes_of(modules[name]) for name in self.paths}
        self.imports = {name: imports_of(name, nodes, modules) for name, nodes in self._nodes.items()}
        self.real = [name for name, path in self.paths.items() if not path.endswith("__init__.py")]

    def lines(self, name: str) -> int:
        """Return the number of lines of a module."""
        return self.text[name].count("\n")

    def nodes(self, kind: type[T]) -> Iterator[tuple[str, T]]:
        """Yield (module, node) of a kind."""
        for name, nodes in self._nodes.items():
            yield from ((name, node) for node in nodes if isinstance(node, kind))

    def attributes(self) -> Iterator[tuple[str, ast.ClassDef, int]]:
        """Yield (path, class, how many attributes its objects have), of what is no declaration of the public API."""
        for name, node in self.nodes(ast.ClassDef):
            if not self.paths[name].startswith(DECLARED):
                yield self.paths[name], node, len(attributes(node))


def figures() -> list[Figure]:
    """Measure all."""
    sources = Sources()
    engine = engine_of(sources)
    return [
        Figure("lines of the wheel", sum(map(sources.lines, sources.real)), "no more", room=1_000),
        Figure("lines of the engine", sum(map(sources.lines, engine)), "≤ 45,000", room=1_000),
        Figure("modules of the engine", len(engine), "≤ 400", room=10),
        _listed("options declared at commands", options(sources), "≤ 90"),
        _listed("lines with `dict[str, Any]` or its like", untyped(sources), "≤ 60", room=5),
        _listed(f"classes of more than {ATTRIBUTES_MAX} attributes", large_classes(sources), "0"),
        _listed(f"constructors of more than {ARGUMENTS_MAX} arguments", long_constructors(sources), "0"),
        _listed(f"folders of more than {MODULES_MAX} modules or {FLOORS_MAX} floors", full_folders(sources), "0"),
        _listed(
            f"modules below {SMALL_LINES} lines with one importer", small_modules(sources), "interfaces only", room=5
        ),
        _listed("private members used across files", private_uses(sources), "0"),
        Figure("assertions a function in core and execution", assertions(sources), "≥ 0.15", at_least=True),
        Figure(f"per cent of the last {COMMITS} commits with a body", bodies(), "≥ 90", at_least=True),
    ]


def _listed(name: str, offenders: list[str], goal: str, *, room: int = 1) -> Figure:
    return Figure(name, len(offenders), goal, sorted(offenders), room=room)


def engine_of(sources: Sources) -> list[str]:
    """Return the modules that a process with tasks, its supervisor or a member may load. The rest is built on them."""
    found, ahead = set[str](), [name for name in sources.real if ENGINE.match(name)]
    while ahead:
        if (name := ahead.pop()) not in found:
            found.add(name)
            ahead += sources.imports[name] & sources.paths.keys()
    return [name for name in sources.real if name in found]


def options(sources: Sources) -> list[str]:
    """Return each parameter of a command that is an option, declared there, by a name, or in a group of them."""
    named = {
        target.id
        for _, node in sources.nodes(ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and "typer.Option" in ast.unparse(node.value)
    }
    grouped = [
        f"{name}.{group.name} {ast.unparse(field.target)}"
        for name, group in sources.nodes(ast.ClassDef)
        for field in group.body
        if isinstance(field, ast.AnnAssign) and ast.unparse(field.annotation) in named
    ]
    return grouped + [
        f"{name}.{function.name} {each.arg}"
        for name, function in sources.nodes(ast.FunctionDef)
        if any("command(" in ast.unparse(decorator) for decorator in function.decorator_list)
        for each in (*function.args.args, *function.args.kwonlyargs)
        if each.annotation is not None and ("typer.Option" in (how := ast.unparse(each.annotation)) or how in named)
    ]


def untyped(sources: Sources) -> list[str]:
    """Return the lines in which a dictionary stands for a type."""
    return [
        f"{sources.paths[name]}:{number}"
        for name, text in sources.text.items()
        for number, line in enumerate(text.splitlines(), 1)
        if _UNTYPED.search(line)
    ]


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the names that an object has of its class: assigned to ``self``, or fields of a dataclass."""
    own = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        if isinstance(each.value, ast.Name) and each.value.id == "self"
    }
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        own |= {
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign)
            and isinstance(each.target, ast.Name)
            and "ClassVar" not in ast.unparse(each.annotation)
        }
    return own


def large_classes(sources: Sources) -> list[str]:
    """Return the classes with too many attributes. Values (msgspec, named tuples) and declarations are none of them."""
    return [f"{path} {node.name} {count}" for path, node, count in sources.attributes() if count > ATTRIBUTES_MAX]


def long_constructors(sources: Sources) -> list[str]:
    """Return the classes whose ``__init__`` takes too many arguments."""
    return [
        f"{sources.paths[name]} {node.name} {count}"
        for name, node in sources.nodes(ast.ClassDef)
        if not sources.paths[name].startswith(DECLARED)
        for each in node.body
        if isinstance(each, ast.FunctionDef) and each.name == "__init__"
        if (count := len(each.args.args) + len(each.args.kwonlyargs) - 1) > ARGUMENTS_MAX
    ]


def full_folders(sources: Sources) -> list[str]:
    """Return the folders with too many modules, or with a chain of too many that import the next one."""
    folders: dict[str, list[str]] = {}
    for name in sources.real:
        folders.setdefault(name.rpartition(".")[0], []).append(name)
    found = []
    for folder, names in folders.items():
        height = floors({name: sources.imports[name] & set(names) for name in names})
        if len(names) > MODULES_MAX or height > FLOORS_MAX:
            found.append(f"{folder}: {len(names)} modules, {height} floors")
    return found


def floors(imports: dict[str, set[str]]) -> int:
    """Return the length of the longest chain of modules of which each imports the next. There is no cycle."""
    known: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in known:
            known[name] = 1 + max(map(height, imports[name]), default=0)
        return known[name]

    return max(map(height, imports), default=0)


def small_modules(sources: Sources) -> list[str]:
    """Return the small modules that one other module imports."""
    importers = Counter(other for imported in sources.imports.values() for other in imported)
    return [sources.paths[name] for name in sources.real if importers[name] == 1 and sources.lines(name) < SMALL_LINES]


def private_uses(sources: Sources) -> list[str]:
    """Return (file, member) for each private member that is used where it is not defined, and is one of ours."""
    defined: dict[str, set[str]] = {name: set() for name in sources.paths}
    for name, owner in sources.nodes(ast.ClassDef):
        defined[name] |= attributes(owner).union(*map(_defined, owner.body))
    modules = {(name, alias.name) for name, node in sources.nodes(ast.Import) for alias in node.names}
    private = {name for names in defined.values() for name in names if re.match("_[^_]", name)} - _OF_TUPLES
    foreign = {name: private - names for name, names in defined.items()}
    return list(
        {
            f"{sources.paths[name]} {node.attr}"
            for name, node in sources.nodes(ast.Attribute)
            if node.attr in foreign[name] and (name, ast.unparse(node.value)) not in modules
        }
    )


def _defined(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement in the body of a class gives it."""
    if isinstance(node, Function):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


def assertions(sources: Sources) -> float:
    """Return the number of assertions a function where tasks decide and act."""
    counts = Counter(
        kind
        for kind in (ast.Assert, ast.FunctionDef, ast.AsyncFunctionDef)
        for name, _ in sources.nodes(kind)
        if sources.paths[name].startswith(CHECKED)
    )
    return round(counts[ast.Assert] / (counts[ast.FunctionDef] + counts[ast.AsyncFunctionDef]), 2)


def bodies() -> int:
    """Return the number of commits with a body, of a hundred."""
    command = ["git", "log", "--no-merges", f"-{COMMITS}", "--format=%b%x00"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    return round(100 * sum(bool(body.strip()) for body in said) / len(said))


def rows() -> dict[str, list[str]]:
    """Return the rows of the table by their figure: name, value, bound, goal."""
    lines = PAGE.read_text().partition(BEGIN)[2].splitlines()[2:]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in takewhile(str.strip, lines)]
    return {row[0]: row for row in table}


def number(text: str) -> float:
    """Return the number that a cell of the table has."""
    return float(text.replace(",", ""))


def _text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


def worse(measured: Sequence[Figure]) -> list[str]:
    """Return the figures that are beyond their bound, each with all that it counts."""
    table, found = rows(), []
    for each in measured:
        bound = number(table[each.name][2])
        if (each.value < bound) if each.at_least else (each.value > bound):
            found.append("\n  ".join([f"{each.name}: {each.text}, the bound is {_text(bound)}", *each.offenders]))
    return found


def write(measured: Sequence[Figure]) -> None:
    """Put what is measured into the table, and let bounds follow what has become better."""
    table, text = rows(), PAGE.read_text()
    for each in measured:
        row = table[each.name]
        new = [each.name, each.text, _text(each.bound(number(row[2]))), each.goal]
        text = text.replace(f"| {' | '.join(row)} |", f"| {' | '.join(new)} |")
    PAGE.write_text(text)


def main(arguments: list[str]) -> int:
    """Print the figures, with ``--list`` what they count; write them with ``--write``."""
    measured = figures()
    for each in measured:
        print(f"{each.text:>8}  {each.name}  (goal {each.goal})")
        for offender in each.offenders if "--list" in arguments else ():
            print(f"          {offender}")
    if "--write" in arguments:
        write(measured)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
