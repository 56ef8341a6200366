"""The figures of the last runs: docs/results/*.json, and the tables of the pages, which are made from them.

``WRITE=1 make bench`` writes both. ``python -m benchmarks.results`` makes the tables again from the files.
"""

import re
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
Cell = int | float | str | None
_LINE_MAX = 120
_BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


class Table(msgspec.Struct, forbid_unknown_fields=True):
    """One table of a run."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]

    def __post_init__(self) -> None:
        """Raise ValueError for a row that does not fit."""
        odd = [row for row in self.rows if len(row) != len(self.columns)]
        if odd:
            raise ValueError(f"{self.title}: {len(self.columns)} columns, and a row {odd[0]}")


class Run(msgspec.Struct, forbid_unknown_fields=True):
    """One run of a command: all that belongs beside its figures, and the figures."""

    command: str
    commit: str
    date: str
    machine: str
    versions: dict[str, str]
    tables: list[Table]
    notes: list[str] = []


class Kept(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A file of results. ``cells``: every figure of the run, where the tables are a choice of them."""

    runs: list[Run]
    cells: list[dict[str, Any]] = []


def today() -> str:
    """Return the date of a run that ends now."""
    return datetime.now(UTC).date().isoformat()


def read(name: str) -> Kept:
    """Return the last results of that name. Raises msgspec.ValidationError for a file that lacks something."""
    return msgspec.json.decode((RESULTS / f"{name}.json").read_bytes(), type=Kept)


def write(name: str, kept: Kept) -> None:
    """Keep results, and put their tables into the pages that show them."""
    (RESULTS / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    for page in pages():
        page.write_text(filled(page.read_text("utf-8")), "utf-8")


def with_row(kept: Kept, run: Run, title: str, columns: list[str], row: list[Cell]) -> Kept:
    """Return results in which the run has the table ``title``, with this row beside those of other first cells."""
    earlier = [old for each in kept.runs for old in each.tables[0].rows if each.tables[0].title == title]
    run.tables = [Table(title, columns, [*(old for old in earlier if old[0] != row[0]), row])]
    others = [each for each in kept.runs if each.tables[0].title != title]
    return Kept(sorted([*others, run], key=lambda each: each.tables[0].title))


def pages() -> list[Path]:
    """Return the pages that show results."""
    return [path for path in sorted((ROOT / "docs").rglob("*.md")) if _BLOCK.search(path.read_text("utf-8"))]


def filled(page: str) -> str:
    """Return the text of a page with its tables as the files have them now."""
    return _BLOCK.sub(lambda block: f"{block[1]}{markdown(read(block[2]))}\n{block[3]}", page)


def markdown(kept: Kept) -> str:
    """Return all runs: where each was taken, then its tables."""
    return "\n\n".join(part for run in kept.runs for part in (_where(run), *map(_table, run.tables)))


def _where(run: Run) -> str:
    versions = [f"{name} {number}" for name, number in run.versions.items()]
    place = ", ".join([run.date, f"commit {run.commit}", run.machine, *versions])
    lines = [f"{place}: `{run.command}`.", *run.notes]
    return textwrap.fill(" ".join(lines), _LINE_MAX, break_on_hyphens=False, break_long_words=False)


def _table(table: Table) -> str:
    numbers = [all(isinstance(row[at], int | float | None) for row in table.rows) for at in range(len(table.columns))]
    marks = ["---:" if number and table.rows else "---" for number in numbers]
    lines = [table.columns, marks, *([_shown(cell) for cell in row] for row in table.rows)]
    title = textwrap.fill(f"**{table.title}**", _LINE_MAX, break_on_hyphens=False)
    return "\n".join([title, "", *(f"| {' | '.join(line)} |" for line in lines)])


def _shown(cell: Cell) -> str:
    if cell is None:
        return "–"
    return f"{cell:,}" if isinstance(cell, int | float) else cell


def main() -> None:
    """Make the tables of all pages again."""
    for page in pages():
        page.write_text(filled(page.read_text("utf-8")), "utf-8")
        sys.stdout.write(f"{page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
