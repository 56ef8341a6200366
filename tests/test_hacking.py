"""docs/hacking.md and CONTRIBUTING.md lead where they say: pages, files, definitions, markers and targets are there."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.suite.tiers import NEEDS, TIERS
from tests.test_tidy import tracked

ROOT = Path(__file__).parents[1]
HACKING = (ROOT / "docs" / "hacking.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
SINK_FILES_MAX = 8  # more would be dear: the sink to HTTP touched 36
WHEEL_FILES_MAX = 5  # of one more of a kind; protobuf, compared and in a registry, has the most
# question, thread, page, file, definition: from a question to a line in three steps
ROW = re.compile(r"^\| ([^|]+\?) \| ([^|]+#\d[^|]*)? ?\| \[[^]]+\]\(([^)]+)\) \| `([^`]+)` `([^`]+)` \|$", re.MULTILINE)
QUESTIONS = ROW.findall(HACKING)


def defined(path: Path) -> dict[str, int]:
    """Return each function, class and method (as Class.method), and each name that is assigned, with its line."""
    found: dict[str, int] = {}

    def add(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found[prefix + node.name] = node.lineno
            if isinstance(node, ast.ClassDef):
                add(node.body, f"{prefix}{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets += [node.target] if isinstance(node, ast.AnnAssign) else []
            found.update({prefix + each.id: node.lineno for each in targets if isinstance(each, ast.Name)})

    add(ast.parse(path.read_text("utf-8")).body, "")
    return found


def test_there_are_twenty_questions() -> None:
    """Each row of the table is one that the other tests read; the first ten name their threads."""
    table = HACKING.split("\n## ")[2]
    assert len(QUESTIONS) == 20 == table.count("\n| ") - 1
    assert [bool(thread) for _, thread, *_ in QUESTIONS] == [True] * 10 + [False] * 10


@pytest.mark.parametrize(("question", "thread", "page", "file", "name"), QUESTIONS)
def test_a_question_leads_to_a_line(question: str, thread: str, page: str, file: str, name: str) -> None:
    """The page is there, and the file defines the name in one place, with a docstring to read."""
    assert re.fullmatch(r"(\w[\w.-]*/[\w.-]+#\d+( \(.*\))?(, \w[\w.-]*/[\w.-]+#\d+)*)?", thread.strip()), question
    path, _, anchor = page.partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / "docs" / path).read_text("utf-8"), re.MULTILINE)
    assert not anchor or anchor in {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}
    line = defined(ROOT / file)[name]
    following = (ROOT / file).read_text("utf-8").splitlines()[line - 1 : line + 20]
    assert any(text.strip().startswith('"""') for text in following)


def test_each_point_has_its_evidence() -> None:
    """Thirty-one points, in order; each row names a file, a page or a command, and all of them are there."""
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \| (.+) \|$", HACKING, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 32))
    pages = "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml"
    for _, point, evidence in rows:
        names = re.findall(r"`([^`]+)`", evidence)
        links = re.findall(r"\]\(([^)]+)\)", evidence)
        files = [name for name in names if "/" in name and " " not in name] + [name for name in names if name in pages]
        commands = [name for name in names if name.startswith(("make ", "git "))]
        assert files or links or commands, point
        assert [name for name in files if not (ROOT / name).exists()] == [], point
        assert [link for link in links if not (ROOT / "docs" / link).is_file()] == [], point


def test_each_definition_that_is_named_is_there() -> None:
    """`file.py` `name` anywhere in the page: the file defines the name."""
    named = re.findall(r"`([\w/]+\.py)`\s+`(\w[\w.]*)`", HACKING)
    assert len(named) > len(QUESTIONS)
    assert [f"{file}: {name}" for file, name in named if name not in defined(ROOT / file)] == []


def test_a_new_sink_touches_eight_files_at_most() -> None:
    """The worked example: the table of docs/hacking.md is complete, for no other file has the name of its system."""
    listed = re.findall(r"^\| `([^`]+)` \|", HACKING.split("### A sink\n")[1].split("\n### ")[0], re.MULTILINE)
    system = Path(listed[0]).stem.partition("_")[0]
    queries = {f"framework/{path}" for path in ("cli/commands/sql.py", "spark/export/job_tables.py")}  # run on it, too
    queries |= {"docs/guides/read-state.md", "docs/MODULES.md", "tests/cli/test_sql.py", "tests/test_hacking.py"}
    tables = {"docs/TESTS.md", *(str(path.relative_to(ROOT)) for path in tracked("tests/suite/*.csv"))}  # measured
    naming = [path for path in tracked() if system.encode() in path.name.encode() + path.read_bytes().lower()]
    assert {str(path.relative_to(ROOT)) for path in naming} - tables - queries <= set(listed)
    assert len(naming) > 5
    assert len(listed) <= SINK_FILES_MAX


def test_what_is_added_touches_the_files_that_are_listed() -> None:
    """A window kind, a serde, a setting, a command: no other file of the wheel has the name of the example."""
    table = HACKING.split("### What they touch in the wheel\n")[1].split("\n### ")[0]
    rows = re.findall(r"^\| [\w ]+ \| `([^`]+)` \| (`.+`) \|$", table, re.MULTILINE)
    assert len(rows) == 4
    texts = {
        str(path.relative_to(ROOT)): path.read_text("utf-8") for path in tracked("framework/**.py", "protocol/**.py")
    }
    for name, files in rows:
        own = f"/commands/{name[1:-1]}.py" if name.startswith('"') else f"/{name}.py"
        knowing = {path for path, text in texts.items() if name in text or path.endswith(own)}
        assert knowing == set(re.findall(r"`([^`]+)`", files)), name
        assert len(knowing) <= WHEEL_FILES_MAX


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/hacking.md"])
def test_paths_links_and_targets_are_there(page: str) -> None:
    """Each file, link and make target of the page exists."""
    text = (ROOT / page).read_text("utf-8")
    paths = re.findall(r"`((?:framework|protocol|tests|tasks|docs|benchmarks)/[^` ]*)`", text)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)]
    targets = re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE)
    assert paths or page == "CONTRIBUTING.md"
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
    assert [name for name in targets if f"\n{name}:" not in MAKEFILE] == []


def test_the_markers_are_those_of_the_tests() -> None:
    """The page names each marker, and each is a tier or puts a test into one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    markers = [line.partition(":")[0] for line in project["tool"]["pytest"]["ini_options"]["markers"]]
    assert [name for name in markers if f"`{name}`" not in HACKING] == []
    assert sorted(markers) == sorted({*TIERS, *NEEDS})


def test_what_the_images_are_made_of_is_there() -> None:
    """The Dockerfile, its list of files and docker-compose.yml name files and tasks that exist."""
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")]
    assert [name for name in kept if not (ROOT / name).exists()] == []
    compose = (ROOT / "docker-compose.yml").read_text("utf-8")
    mounted = re.findall(r"- (\./[^:]+):", compose)
    tasks = set(re.findall(r"command: worker ([\w.]+) ", compose))
    assert mounted
    assert tasks
    modules = [f"{name.replace('.', '/')}.py" for name in tasks]
    assert [name for name in (*mounted, *modules) if not (ROOT / name).is_file()] == []
