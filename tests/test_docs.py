"""The documents name nothing that is not there: modules, tests, invariants, mutants, links; the map is complete."""

import re
from pathlib import Path

import pytest

from docs.hooks import modules
from tests.test_hacking import defined
from tests.verification.model.counterexamples import COUNTEREXAMPLES
from tests.verification.outside.mutants import mutants as outside_mutants
from tests.verification.simulation.counters import SOMETIMES
from tests.verification.simulation.mutants import MUTANTS
from tests.verification.simulation.rules import INVARIANTS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINE_MAX = 120
CHAPTER_LINES_MAX = 45  # one screen
FILES_MAX = 5  # of a row of the map: more is a list, and no answer
NAMES = ("PROTOCOL.md", "TRACEABILITY.md", "SIMULATION.md", "guides/kafka.md")
PAGES = {name: (DOCS / name).read_text("utf-8") for name in NAMES}
KINDS = {"inv.": set(INVARIANTS), "mut.": set(MUTANTS), "counterexample": set(COUNTEREXAMPLES)}


def known_tests() -> set[str]:
    """Return the names of all test functions, those of the shipped contracts included."""
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "framework" / "testing" / "contracts").glob("*.py")]
    return {name for path in files for name in re.findall(r"^ *def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)}


def named(page: str, kind: str) -> set[str]:
    """Return the names that follow a kind: ``kind `one`, `two` ``."""
    lists = re.findall(rf"\b{re.escape(kind)} (`[^`]+`(?:, `[^`]+`)*)", page)
    return {name for each in lists for name in re.findall(r"`([^`]+)`", each)}


@pytest.mark.parametrize("name", PAGES)
def test_paths_are_there(name: str) -> None:
    """Every file or folder that a page names, or links to, exists."""
    paths = re.findall(r"`((?:framework|protocol|tests|tasks|docs|benchmarks)/[^` ]*)`", PAGES[name])
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", PAGES[name])]
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [link for link in links if link and not ((DOCS / name).parent / link).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_tests_are_there(name: str) -> None:
    """Every test that a page names exists, and it names several."""
    tests = set(re.findall(r"`(test_\w+)`", PAGES[name]))
    assert len(tests) > (2 if name == "SIMULATION.md" else 20)
    assert tests - known_tests() == set()


@pytest.mark.parametrize("kind", KINDS)
def test_invariants_mutants_and_counterexamples_are_there(kind: str) -> None:
    """Every invariant, mutant and counterexample that the pages name exists under this name."""
    names = set().union(*(named(page, kind) for page in PAGES.values()))
    assert names
    assert names - KINDS[kind] == set()


def test_what_a_seed_became_is_on_the_page_that_its_row_links_to() -> None:
    """The text of each link of a row is found on the page itself, so no row points to a page that does not hold it."""
    rows = re.findall(r"^\|(?! section|---)(.*)\|$", PAGES["TRACEABILITY.md"], re.MULTILINE)
    links = [link for row in rows for link in re.findall(r"\[([^]]+)\]\(([^)#]+)", row)]
    pages = {page: " ".join((DOCS / page).read_text("utf-8").lower().split()) for _, page in links}
    assert len(links) > 15
    assert [f"{text}: {page}" for text, page in links if text.lower() not in pages[page]] == []


def test_each_row_of_a_seed_says_what_holds_it() -> None:
    """A test, an invariant, a mutant, a page, or in words why there is none: no row is empty but for related work."""
    rows = re.findall(r"^\|(?! section|---)(.*)\|$", PAGES["TRACEABILITY.md"], re.MULTILINE)
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    assert len(rows) > 70
    assert {len(each) for each in cells} == {3}
    assert [section for section, _, held in cells if not held] == ["VII, VIII: related work, conclusion"]
    shown = re.compile(r"`test_|inv\. `|mut\. `|counterexample `|\]\(|^not |^as |contracts/|replays|shows in every")
    assert [section for section, module, held in cells if held and not (module or shown.search(held))] == []


def test_every_rule_is_told() -> None:
    """Each rule of the protocol has a row, and each counterexample is closed by one."""
    page = PAGES["PROTOCOL.md"]
    rules = [
        *(f"C{n}" for n in range(1, 7)),
        *(f"A{n}" for n in range(1, 10)),
        "A2b",
        "A2c",
        "A2d",
        *(f"R{n}" for n in range(1, 7)),
    ]
    rules += [
        *(f"E{n}" for n in range(1, 8)),
        "K1",
        "K2",
        "K3",
        "B1",
        "S1",
        "S2",
        "S3",
        "1.5",
        *(f"D{n}" for n in range(1, 7)),
    ]
    assert [rule for rule in rules if f"\n| {rule} |" not in page] == []
    assert set(COUNTEREXAMPLES) - named(page, "counterexample") == set()


def test_each_row_of_the_border_with_kafka_is_held() -> None:
    """Each has a rule of the page, a test, an event of the simulator and a mistake that dies, or says why it has none.

    A row without tests holds nothing, so each has some.
    """
    page = PAGES["PROTOCOL.md"]
    section = page.partition("## The border with Kafka\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    assert {len(row) for row in rows} == {6}
    held = {3: known_tests(), 4: set(SOMETIMES), 5: {*MUTANTS, *outside_mutants()}}
    assert [row[1] for row in rows if f"\n| {row[1]} | " not in page.replace(section, "")] == []
    for cells in rows:
        for column, there in held.items():
            named_here = {each for each in re.findall(r"`([^`]+)`", cells[column]) if "/" not in each}
            assert named_here <= there, (cells[0], named_here - there)
            assert named_here or (column > 3 and cells[column].startswith("none: ")), cells[0]


def test_the_table_of_counterexamples_is_that_of_the_code() -> None:
    """The page tells each counterexample in the words of the code.

    The words are the literal rule, the rule that closes it, and the invariant that notices it.
    """
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGES["PROTOCOL.md"], re.MULTILINE))
    assert set(rows) == set(COUNTEREXAMPLES)
    for name, counterexample in COUNTEREXAMPLES.items():
        cells = rows[name].split(" | ")
        assert (cells[0], cells[2]) == (counterexample.says, counterexample.missing)
        assert cells[1].endswith(f"(`{counterexample.invariant}`)")


def documents() -> list[Path]:
    """Return the Markdown files that people read: those of the root, of docs/ and its folders, protocol/, tasks/."""
    folders = (ROOT, ROOT / "protocol", ROOT / "tasks")
    return sorted([*DOCS.rglob("*.md"), *(path for folder in folders for path in folder.glob("*.md"))])


def test_all_links_lead_somewhere() -> None:
    """Every relative link of every document names a file or folder."""
    links = [
        (path, link.partition("#")[0])
        for path in documents()
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8"))
        if "://" not in link
    ]
    assert len(links) > 100
    assert [f"{path.relative_to(ROOT)}: {to}" for path, to in links if to and not (path.parent / to).exists()] == []


def headings(path: Path) -> set[str]:
    """Return the headings of a document as the site and code hosts name them in links."""
    titles = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_all_links_into_a_page_lead_to_a_heading() -> None:
    """Those of the rows of a seed, too: no row points to a page that does not hold it."""
    links = [
        (path, to, heading)
        for path in documents()
        for to, heading in re.findall(r"\]\(([^)\s#]*\.md|)#([^)\s]+)\)", path.read_text("utf-8"))
        if "://" not in to
    ]
    assert len(links) > 50
    assert [
        f"{path.relative_to(ROOT)}: {to}#{heading}"
        for path, to, heading in links
        if heading not in headings(path.parent / to if to else path)
    ] == []


def test_lines_fit_on_a_screen() -> None:
    """No line of a document is longer than 120 characters; tables, which cannot be broken, are left out."""
    lines = [
        (f"{path.relative_to(ROOT)}:{number}", line)
        for path in documents()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
    ]
    assert [at for at, line in lines if len(line) > LINE_MAX and not line.lstrip().startswith("|")] == []


def test_the_map_has_every_module() -> None:
    """docs/MODULES.md names each module of the wheel once, by its file, with the first line of its docstring."""
    named = re.findall(r"^\| `([^`]+)` \| .+ \|$", modules.PAGE.read_text("utf-8"), re.MULTILINE)
    files = [path for package in ("framework", "protocol") for path in (ROOT / package).rglob("*.py")]
    wheel = sorted(str(path.relative_to(ROOT)) for path in files if path.name != "__init__.py")
    assert sorted(named) == wheel, "name new modules in docs/hooks/modules.py, then: python -m docs.hooks.modules"
    assert modules.PAGE.read_text("utf-8") == modules.page(), "run: python -m docs.hooks.modules"


def test_the_map_names_files_that_are_there() -> None:
    """Each file in a row of the map exists; a bare name is in the folder of the path before it."""
    wrong = []
    for row in re.findall(r"^\| .* \|$", (ROOT / "docs/ARCHITECTURE.md").read_text("utf-8"), re.MULTILINE):
        folder = ROOT
        for name in re.findall(r"`([\w/]+(?:\.py|\.md|/))`", row):
            path = ROOT / name if "/" in name or not (folder / name).exists() else folder / name
            wrong += [] if path.exists() else [name]
            folder = path if name.endswith("/") else path.parent
    assert wrong == []


def test_a_row_of_the_map_is_a_place_to_begin() -> None:
    """A question has at most five files, and a page or a decision that gives the reasons: the rest is in MODULES.md."""
    table = (ROOT / "docs/ARCHITECTURE.md").read_text("utf-8").partition("## Where to look")[2].partition("\n## ")[0]
    rows = [row.split(" | ") for row in re.findall(r"^\| (?!Question)(.*) \|$", table, re.MULTILINE)]
    assert len(rows) > 40
    assert [row[0] for row in rows if len(re.findall(r"`[\w/]+(?:\.py|/)`", row[1])) > FILES_MAX or len(row) != 3] == []


def test_each_chapter_fits_on_a_screen_and_names_what_is_there() -> None:
    """A life in the architecture has at most 45 lines; each file is there, and defines the name that follows it."""
    page = (ROOT / "docs/ARCHITECTURE.md").read_text("utf-8")
    chapters = re.findall(r"^## (Life of .*|Life after .*)\n((?:(?!## ).*\n)*)", page, re.MULTILINE)
    assert len(chapters) == 6
    assert {title: n for title, text in chapters if (n := len(text.splitlines()) + 1) > CHAPTER_LINES_MAX} == {}
    named = [each for _, text in chapters for each in re.findall(r"`([\w/]+/\w+\.py)`(?:\s+`([\w.]+)`)?", text)]
    files = {file: next(filter(Path.is_file, (ROOT / "framework" / file, ROOT / file)), None) for file, _ in named}
    assert [file for file, path in files.items() if path is None] == []
    assert len(named) > 30
    assert [f"{file}: {name}" for file, name in named if name and name not in defined(files[file] or ROOT)] == []


def test_every_decision_is_in_the_index() -> None:
    """docs/decisions/README.md lists each record once, with its title."""
    index = (ROOT / "docs/decisions/README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(\d{4})\]\(([^)]+)\) \| (.*) \| [\w ]+ \| [\d-]+ \|$", index, re.MULTILINE)
    records = [path for path in sorted((ROOT / "docs/decisions").glob("0*.md")) if path.name != "0000-template.md"]
    titles = [(path.name[:4], path.name, path.read_text("utf-8").splitlines()[0][8:]) for path in records]
    assert rows == titles
