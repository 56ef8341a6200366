"""The site: it builds strictly, needs no network, and its reference says what the code says."""

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mkdocs.exceptions import PluginError
from pymdownx.superfences import SuperFencesException

import grete
import grete.errors
from docs.hooks import (
    commands,
    diagrams,
    events,
    exits,
    fill,
    links,
    markdown,
    metadata_keys,
    public_api,
    settings_page,
    twins,
    verification,
)
from grete.errors import ExitCode
from grete.logs.embedded import EmbeddedReader
from grete.settings import Settings, from_environment
from tests.verification.simulation.faults import FAULTS
from tests.verification.simulation.mutants import MUTANTS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site once, as `make docs` does."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.mark.docs
@pytest.mark.timeout(600)
def test_the_site_is_whole(site: Path) -> None:
    """Each page of docs/ and each page from elsewhere is there, every part is filled in, every diagram is drawn."""
    pages = {path: path.read_text("utf-8") for path in site.rglob("index.html")}
    sources = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "0000-template.md"]
    assert len(pages) == len(sources) + len(links.OUTSIDE)
    assert [path for path, text in pages.items() if re.search("<!-- generate: ", text)] == []
    texts = [path.read_text("utf-8") for path in (*sources, *(ROOT / name for name in links.OUTSIDE))]
    fences = [each for text in texts for each in re.findall(r"^```mermaid", text, re.MULTILINE)]
    assert len(fences) == sum(text.count('<div class="diagram"') for text in pages.values()) > 0
    assert [path for path, text in pages.items() if 'class="mermaid"' in text] == []


@pytest.mark.docs
@pytest.mark.timeout(600)
def test_each_page_has_a_twin_in_markdown_that_the_list_names(site: Path) -> None:
    """A program reads them: nothing in them waits for the site to be made, and their links lead to one another."""
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): .", (site / twins.LIST).read_text("utf-8"), re.MULTILINE)
    texts = {str(path.relative_to(site)): path.read_text("utf-8") for path in site.rglob("*.md")}
    assert len(listed) == len(set(listed))
    assert texts.keys() == {*listed}
    assert [page for page, text in texts.items() if re.search(r"^(:::|<!-- generate:) \w", text, re.MULTILINE)] == []
    led = {(page, to) for page, text in texts.items() for to in re.findall(r"\]\(([\w./-]+\.md)[#)]", text)}
    assert [(page, to) for page, to in led if not ((site / page).parent / to).is_file()] == []
    assert "`Client(job: Job, *, log: str = 'embedded'" in texts["reference/api.md"]


@pytest.mark.docs
@pytest.mark.timeout(600)
def test_the_site_needs_no_network(site: Path) -> None:
    """No page loads a script, a style, a picture or a font from another host."""
    loads = re.compile(
        r'<(?:script|img|iframe|source)\b[^>]*\bsrc="?(?:https?:)?//[^">]+|<link\b(?=[^>]*stylesheet)[^>]*//[^>]+'
    )
    found = {str(path): loads.findall(path.read_text("utf-8")) for path in site.rglob("*.html")}
    assert {path: each for path, each in found.items() if each} == {}
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert styles
    assert [style for style in styles if re.search(r"url\(\"?(https?:)?//", style)] == []


def test_a_page_has_the_title_that_the_navigation_gives_it() -> None:
    """A search for the words of the navigation finds the page; the guides are in groups, each in one."""
    entries = re.findall(r"^ +- \"?(.+?)\"?: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    titles = {page: (ROOT / links.source_of(page)).read_text("utf-8").partition("\n")[0] for _, page in entries}
    assert [(page, titles[page]) for title, page in entries if titles[page] != f"# {title}"] == []
    guides = [f"guides/{path.name}" for path in (ROOT / "docs/guides").glob("*.md")]
    assert sorted(guides) == sorted(page for _, page in entries if page.startswith("guides/"))


def test_each_setting_can_be_given_as_its_page_says() -> None:
    """The page has a section for each setting, and its variable sets it."""
    sections = re.findall(r"^### (\w+)\n\n(.+)\n\n(.*`GRETE_(\w+)`)$", settings_page.part(), re.MULTILINE)
    assert {name for name, *_ in sections} == set(Settings.__struct_fields__)
    assert len(sections) == len(Settings.__struct_fields__)
    for name, _, _, variable in sections:
        value = getattr(Settings(), name)
        changed = value + 1 if isinstance(value, int) else value
        assert getattr(from_environment({f"GRETE_{variable}": str(changed)}), name) == changed


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("checkpoint_interval_ms", "ms"),
        ("restart_backoff_ms_max", "ms"),
        ("rocksdb_bytes", "bytes"),
        ("restarts_max", "restarts"),
        ("misplaced_keys", ""),
    ],
)
def test_the_unit_of_a_setting_is_in_its_name(name: str, unit: str) -> None:
    """The reference shows the unit that the name ends with."""
    assert settings_page.unit(name) == unit


def test_every_command_is_in_the_reference() -> None:
    """Each command has a section; hidden options are left out, exit codes are linked."""
    page = commands.part()
    names = re.findall(r"^## grete (.*)$", page, re.MULTILINE)
    assert {"run", "up", "worker", "new", "state get", "changelog verify", "topic read"} <= set(names)
    assert "--status-fd" not in page
    assert "errors.md#exit-codes" in page


def test_every_error_and_exit_code_is_in_the_reference() -> None:
    """The page follows framework/errors.py."""
    page = exits.part()
    kinds = [name for name, each in vars(grete.errors).items() if isinstance(each, type) and name.endswith("Error")]
    assert len(kinds) > 5
    assert [name for name in kinds if f"| `{name}` |" not in page] == []
    assert [code for code in ExitCode if f"| {code.value} | `{code.name}` | {code.meaning} |" not in page] == []


def test_every_public_name_is_in_the_reference() -> None:
    """The page has a section for each name of `grete`, and an undocumented one is found."""
    sections = re.findall(r"^::: (\S+)$", public_api.part(), re.MULTILINE)
    assert {f"grete.{name}" for name in grete.__all__} <= set(sections)
    assert [each for name in grete.__all__ for each in public_api.undocumented(name, "grete")] == []
    assert list(public_api.undocumented("bare", __name__)) == [f"{__name__}.bare"]


def bare() -> None:  # the test above finds that it has no docstring
    return


def test_the_lines_of_a_log_are_found() -> None:
    """Log lines come with their level, text and fields."""
    found = events.events()
    started = events.Event("info", "worker started", ("tasks",), "framework/worker/life/lifetime.py", "worker started")
    assert started in found
    assert "| `worker-done` | info | worker done | `code` |" in events.part()


def test_a_line_of_a_log_is_shown_as_it_is_logged() -> None:
    """Not as Python writes it: each text of a condition is a row, and values have names."""
    texts = [each.text for each in events.events()]
    assert [text for text in texts if re.search(r"%[sd]|\bif\b.*\belse\b|['\"]$", text)] == []
    assert [text[:21] for text in texts if text.startswith("job NAME")] == ["job NAME has run with"]
    assert [text[:25] for text in texts if text.startswith("trim")] == ["trimming PARTITION failed"]


def test_every_key_that_a_job_writes_is_in_the_reference(tmp_path: Path) -> None:
    """The first start of a job writes no key into its metadata that the page does not have."""
    command = [sys.executable, "-m", "grete.cli", "run", "tasks.word_count", "--directory", str(tmp_path)]
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one").write_text("to be")
    done = subprocess.run(
        [*command, "--input-dir", str(tmp_path / "texts")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with contextlib.closing(EmbeddedReader(tmp_path / "log.db")) as log:
        keys = [key for key, _ in log.meta_items("")]
    shapes = [re.sub(r"TOPIC|PATH", ".+", re.escape(shape)) for shape in metadata_keys.KEYS]
    assert len(keys) > 3
    assert [key for key in keys if not any(re.fullmatch(shape, key) for shape in shapes)] == []


def test_the_tables_of_the_simulation_are_those_of_its_code() -> None:
    """Faults and mutants each have a row."""
    assert [name for name in FAULTS if f"| {name} |" not in verification.faults()] == []
    assert [name for name in MUTANTS if f"| `{name}` |" not in verification.mutants()] == []


def test_a_bar_does_not_end_a_cell() -> None:
    """Outside of code it is written with a backslash; in code a backslash would be shown."""
    assert markdown.table(("a", "b"), [("one|two", "`one|two`")]).endswith("| one\\|two | `one|two` |")


def test_a_part_that_nothing_makes_fails_the_build() -> None:
    """A marker with a wrong name is not left in the page."""
    with pytest.raises(PluginError, match="nothing generates nonsense"):
        fill.filled("text\n<!-- generate: nonsense -->\n")


def test_a_diagram_that_is_not_mermaid_fails_the_build() -> None:
    """The error has the parser's words and the text."""
    with pytest.raises(SuperFencesException, match=r"Parse error on line 3(.|\n)*A -->"):
        diagrams.drawn("flowchart LR\n    A -->", "mermaid", "mermaid", None, None)


@pytest.mark.parametrize(
    ("page", "text", "site"),
    [
        ("hacking.md", "[a](../protocol/README.md#streams)", "[a](reference/formats.md#streams)"),
        ("guides/kafka.md", "[a](../decisions/)", "[a](../decisions/README.md)"),
        ("guides/kafka.md", "[`a`](../../README.md)", "[`a`](../index.md)"),
        ("explanation/scenarios.md", "[a](../../../docs/PROTOCOL.md)", "[a](../PROTOCOL.md)"),
        ("explanation/scenarios.md", "[a](01_first_start.txt)", "a"),
        ("hacking.md", "[a](https://example.org/b.md)", "[a](https://example.org/b.md)"),
        ("hacking.md", "[a](gone.md)", "[a](gone.md)"),
        ("index.md", "[your own\n  Kafka](docs/guides/kafka.md)", "[your own\n  Kafka](guides/kafka.md)"),
        ("guides/kafka.md", "[GLOSSARY.md](../GLOSSARY.md)", "[Glossary](../GLOSSARY.md)"),
        ("hacking.md", "```\n[a](../README.md)\n```", "```\n[a](../README.md)\n```"),
        ("hacking.md", "text:\n- one\n- two", "text:\n\n- one\n- two"),
    ],
)
def test_links_and_lists_are_led_to_the_site(page: str, text: str, site: str) -> None:
    """A link in the repository leads to the same place on the site."""
    assert links.for_site(text, page) == site
