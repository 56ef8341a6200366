"""The house rules that no linter knows. Each failure lists every offender with file and line."""

import ast
import functools
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.suite import shape
from tests.support.trees import nodes_of, tree_of

pytestmark = pytest.mark.check  # reads all sources: a change is looked at before it is sent

ROOT = Path(__file__).parents[1]
MODULE_LINES_MAX = 350
FUNCTION_LINES_MAX = 60
REASON_WORDS_MIN = 4
NUMBER = {ast.Constant, ast.BinOp, ast.UnaryOp, ast.USub, ast.LShift, ast.Mult, ast.Sub, ast.Add, ast.Name, ast.Load}

UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")  # in pieces: this file is searched, too
PRIVATE = re.compile(
    r"(?<![\w.])/(root|home|Users|work)/"  # a machine's folders
    r"|\w+://[^/\s:@'\"]+:[^/\s@'\"]+@\w"  # a URL with a password
    r"|--(extra-)?index-[u]rl|--find-[l]inks|[p]ypi\.org|[p]ythonhosted|[a]rtifactory"  # where packages come from
)
SHOUTED = re.compile(r"^[A-Z_][A-Z0-9_]* = ", re.MULTILINE)
CORES = re.compile(r"\b(TaskCore|DeterministicCore)\b")
IGNORE = re.compile(r"# ?(noqa|type: ignore)")
IGNORE_REASON = re.compile(r"# ?(noqa: [A-Z0-9, ]+|type: ignore\[[^]]+\]) *(#|-) ?\w+")


def tracked(*patterns: str) -> list[Path]:
    """Return the files under version control that match, as absolute paths."""
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


@functools.cache
def lines(path: Path) -> list[str]:
    """Return the lines of a file, read once: many patterns search it."""
    return path.read_text(errors="replace").splitlines()


def matches(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    """Return "file:line: text" for each line in which the pattern is found; binary files are passed over."""
    found = []
    for path in paths:
        for number, line in enumerate(lines(path), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    return found


def functions(paths: list[Path]) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield ("file:line", function) for each function and method."""
    for path in paths:
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def skips_quietly(node: ast.AST) -> bool:
    """Whether the node skips a test, or expects it to fail, without a reason of some words beside it."""
    names = {"skip", "skipif", "xfail"}
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names | {"importorskip"}
    ):
        first = node.args[:1] if node.func.attr in ("skip", "xfail") else []
        reasons = [keyword.value for keyword in node.keywords if keyword.arg == "reason"] or first
        return not any(
            len(ast.unparse(reason).split()) >= REASON_WORDS_MIN
            for reason in reasons
            if isinstance(reason, ast.JoinedStr) or (isinstance(reason, ast.Constant) and isinstance(reason.value, str))
        )
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and any(
        isinstance(decorator, ast.Attribute) and decorator.attr in names for decorator in node.decorator_list
    )


def test_modules_fit_in_a_reading() -> None:
    """No module is longer than 350 lines."""
    lengths = {str(path.relative_to(ROOT)): len(lines(path)) for path in tracked("*.py")}
    assert {name: n for name, n in lengths.items() if n > MODULE_LINES_MAX} == {}


def test_functions_fit_on_a_screen() -> None:
    """No function is longer than 60 lines, docstring included."""
    lengths = [
        (at, node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for at, node in functions(tracked("*.py"))
    ]
    assert [f"{at}: {name} has {n} lines" for at, name, n in lengths if n > FUNCTION_LINES_MAX] == []


def numbers_without_reason(text: str, tree: ast.Module) -> list[int]:
    """Return the lines of a module's NUMBERS with no comment on their last line or on the line above."""
    rows, found = text.splitlines(), []
    for node in tree.body if SHOUTED.search(text) else ():
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        is_number = {type(part) for part in ast.walk(node.value)} <= NUMBER and any(
            isinstance(part, ast.Constant) and isinstance(part.value, int | float) for part in ast.walk(node.value)
        )
        above = rows[node.lineno - 2].lstrip() if node.lineno > 1 else ""
        if is_number and node.targets[0].id.isupper() and "#" not in (rows[(node.end_lineno or 1) - 1] + above[:1]):
            found.append(node.lineno)
    return found


def test_each_number_has_its_reason() -> None:
    """A bound, a time, a size: its reason is beside it. The numbers of formats have theirs in protocol/README.md."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "framework").rglob("*.py"))
        for line in numbers_without_reason(path.read_text(), tree_of(path))
    ]
    assert found == []
    text = "A = 1 << 20\nB = 2  # two\n# three\nC = -3\n\nD = 4 * A\nE = ()\n"
    assert numbers_without_reason(text, ast.parse(text)) == [1, 6]


def cores_asked_for(text: str) -> list[int]:
    """Return the lines of a module that ask an object whether it is the core of one mode."""
    if not CORES.search(text):  # syntax trees take long
        return []
    asked = [
        (node.lineno, ast.unparse(node.args[1]))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass")
    ]
    asked += [
        (node.cls.lineno, ast.unparse(node.cls))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.MatchClass)
    ]
    return [line for line, kinds in asked if CORES.search(kinds)]


def test_no_code_asks_which_core_it_has() -> None:
    """Drivers and workers use a core's port, framework/core/ports.py, whatever its mode."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in tracked("framework/*.py", "tasks/*.py")
        for line in cores_asked_for(path.read_text())
    ]
    assert found == []
    asks = "isinstance(a, int | TaskCore)\nisinstance(a, Core)\nmatch a:\n    case task.TaskCore():\n        pass\n"
    assert cores_asked_for(asks) == [1, 4]


def test_tests_say_what_they_hold() -> None:
    """Each test function has a docstring: the property that would be lost."""
    tests = [(at, node) for at, node in functions(tracked("tests/*.py")) if node.name.startswith("test_")]
    assert [f"{at}: {node.name}" for at, node in tests if not ast.get_docstring(node)] == []


def test_nothing_is_left_unfinished() -> None:
    """No file carries a mark of unfinished work: an issue does."""
    written = [path for path in tracked() if path.suffix not in (".svg", ".png")]  # scripts of flame graphs; pixels
    assert matches(UNFINISHED, written) == []


def test_no_test_is_skipped_quietly() -> None:
    """Each skip and each expected failure gives its reason in words, where it is made."""
    offenders = []
    for path in tracked("tests/*.py"):
        quiet = [node for node in nodes_of(path) if skips_quietly(node)]
        offenders += [f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}" for node in quiet]
    assert offenders == []


def ignores_without_reason(text: str) -> list[int]:
    """Return the lines of a module on which a check is switched off and no comment says why."""
    if not IGNORE.search(text):  # tokens take long
        return []
    comments = [each for each in tokenize.generate_tokens(io.StringIO(text).readline) if each.type == tokenize.COMMENT]
    return [each.start[0] for each in comments if IGNORE.search(each.string) and not IGNORE_REASON.search(each.string)]


def test_each_ignore_has_its_reason() -> None:
    """A check of ruff or mypy that is switched off, on a line or for files, has its reason beside it."""
    found = [f"{p.relative_to(ROOT)}:{line}" for p in tracked("*.py") for line in ignores_without_reason(p.read_text())]
    assert found == []
    assert ignores_without_reason("a = 1  # noqa: E501\nb = 2  # type: ignore[misc]  # untyped there\n") == [1]
    table = (ROOT / "pyproject.toml").read_text().partition("[tool.ruff.lint.per-file-ignores]")[2].partition("\n\n")[0]
    above = ""
    bare = []
    for row in table.splitlines()[1:]:
        if not row.startswith("#") and "#" not in row + above[:1]:
            bare.append(row)
        above = row
    assert bare == []


def test_no_machine_is_named() -> None:
    """No file names a folder of one machine, a password in a URL or a package registry."""
    assert matches(PRIVATE, tracked()) == []


def test_each_document_has_one_title() -> None:
    """Each Markdown file has exactly one first-level heading (code blocks aside)."""
    titles = {
        path: re.findall(
            r"^# ",
            re.sub(r"^(```|~~~).*?^\1", "", path.read_text(), flags=re.MULTILINE | re.DOTALL),
            flags=re.MULTILINE,
        )
        for path in tracked("*.md")
    }
    assert [f"{path.relative_to(ROOT)}: {len(found)} titles" for path, found in titles.items() if len(found) != 1] == []


@pytest.mark.parametrize(
    ("source", "quiet"),
    [
        ("pytest.skip()", True),
        ("pytest.skip('no broker')", True),
        ("pytest.importorskip('pyspark')", True),
        ("pytest.mark.skipif(True, reason='later')", True),
        ("@pytest.mark.skip\ndef test_x(): pass", True),
        ("pytest.skip(f'no Kafka broker answers at {address}')", False),
        ("pytest.importorskip('pyspark', reason='the extra spark is not installed')", False),
    ],
)
def test_quiet_skips_are_found(source: str, quiet: bool) -> None:
    """The search for quiet skips finds them, and only them."""
    assert any(skips_quietly(node) for node in ast.walk(ast.parse(source))) is quiet


@pytest.mark.parametrize(
    ("pattern", "bad", "good"),
    [
        (UNFINISHED, "# TO" + "DO: later", "# to do is not to be"),
        (PRIVATE, "cd /ro" + "ot/project", "https://example.org/home/page"),
        (PRIVATE, "https://user:pw" + "@registry.example/simple", "kafka://host:9092"),
        (PRIVATE, "--index-" + "url=x", "the index of the url"),
    ],
)
def test_patterns_find_what_they_forbid(pattern: re.Pattern[str], bad: str, good: str) -> None:
    """A search for forbidden text that finds nothing has been seen to find something."""
    assert pattern.search(bad)
    assert not pattern.search(good)


def test_no_class_reaches_into_another() -> None:
    """No method of a class in another module is overridden if its name is private; nor is another's member used.

    Modes, clocks and accounts are put into a class instead (``framework/execution/engine/modes.py``). Names that Python
    and the Kafka client have made public with an underscore are no private members.
    """
    sources = {path: nodes_of(path) for path in tracked("framework/*.py", "protocol/*.py")}
    classes: dict[str, list[tuple[Path, ast.ClassDef]]] = {}
    for path, nodes in sources.items():
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append((path, node))

    def private(name: str) -> bool:
        return name.startswith("_") and not name.startswith("__")

    def bases(node: ast.ClassDef) -> Iterator[tuple[Path, ast.ClassDef]]:
        for base in node.bases:
            for found in classes.get(ast.unparse(base).partition("[")[0].rpartition(".")[2], ()):
                yield found
                yield from bases(found[1])

    def methods(node: ast.ClassDef) -> set[str]:
        return {each.name for each in node.body if isinstance(each, ast.FunctionDef) and private(each.name)}

    overridden = [
        f"{path.relative_to(ROOT)}: {node.name}.{name} of {base.name}"
        for path, node in (each for several in classes.values() for each in several)
        for base_path, base in bases(node)
        for name in sorted(methods(node) & methods(base))
        if base_path != path
    ]
    used = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path, nodes in sources.items()
        for node in nodes
        if isinstance(node, ast.Attribute) and private(node.attr)
        if ast.unparse(node.value) not in {"self", "cls", "super()", "KafkaError"}
        if node.attr not in {"_replace", "_asdict", "_fields", "_make", "_value_", "_exit", "_current_frames"}
    ]
    assert overridden + used == []


def test_the_shape_of_the_code_gets_no_worse() -> None:
    """Each figure is within its bound in docs/hacking.md; what is better lowers the bound: make shape WRITE=1."""
    assert "\n".join(shape.worse(shape.figures())) == ""
