"""``make times``: where the time of the last run goes, by folder, by tier, by what a test waits for; the longest tests.

It reads what ``tests/suite/measured.py`` wrote. ``WRITE=1`` keeps what each command took in docs/results/tests.json,
where the other commands' rows stay. Behind a `make test` it keeps the other tables, too, and what each module takes in
tests/suite/times.csv; ``tests/suite/test_times.py`` holds these against the bounds. The functions that took too much
for `make check` go to tests/suite/heavy.csv, which decides their tier.
"""

import argparse
import csv
import os
import platform
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Shown

from benchmarks import results
from benchmarks.results import Cell, Kept, Run, Table
from tests.suite.bounds import COMMANDS, TIMES, Command, Taken, floor_s, functions_in
from tests.suite.measured import FOLDER, Row, Session, computed_s
from tests.suite.tiers import HEAVY, TIERS, heavy_functions, is_heavy

ROOT = Path(__file__).parents[2]
LONGEST = 40
NAME = "tests"  # of the results
COMMANDS_TABLE = "The commands"
_SUMS = ["tests", "worker s", "computing s", "of that others s", "asleep s", "processes", "stores", "opening s"]
# What a test waits for is the first of these that it has. The marker, or what was counted.
WAITS: list[tuple[str, Callable[[Row], bool]]] = [
    ("Spark", lambda row: "spark" in row.needs),
    ("a broker", lambda row: "kafka" in row.needs),
    ("PostgreSQL", lambda row: "postgres" in row.needs),
    ("the browser", lambda row: "browser" in row.needs),
    ("the site", lambda row: "docs" in row.needs),
    ("processes that start", lambda row: row.started > 0),
    ("sleep", lambda row: row.slept_s > row.own_s),
    ("RocksDB", lambda row: row.stores > 0),
    ("nothing: it computes", lambda _: True),
]


def folder_of(row: Row) -> str:
    """Return the folder of the test, or the module where that is in none."""
    first, *rest = row.test.partition("::")[0].split("/")[1:]
    return f"tests/{first}" if rest else "tests/*.py"


def wait_of(row: Row) -> str:
    """Return the server or process that the test waits for."""
    return next(name for name, has in WAITS if has(row))


def tier_of(row: Row) -> str:
    """Return the tier of the test."""
    return row.tier


def _sums(rows: Iterable[Row], of: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups = defaultdict[str, list[Row]](list)
    for row in rows:
        groups[of(row)].append(row)
    return groups


def table_of(title: str, first: str, rows: Sequence[Row], of: Callable[[Row], str]) -> Table:
    """Return the sums of each group, the longest first, and of all."""
    groups = sorted(_sums(rows, of).items(), key=lambda each: -sum(row.seconds for row in each[1]))
    return Table(title, [first, *_SUMS], [[name, *_figures(each)] for name, each in [*groups, ("all", [*rows])]])


def _figures(rows: Sequence[Row]) -> list[Cell]:
    others_s = sum(row.others_s for row in rows)
    return [
        len(rows),
        round(sum(row.seconds for row in rows)),
        round(sum(row.own_s for row in rows) + others_s),
        round(others_s),
        round(sum(row.slept_s for row in rows)),
        sum(row.started for row in rows),
        sum(row.stores for row in rows),
        round(sum(row.stores_s for row in rows)),
    ]


def longest(rows: Sequence[Row]) -> Table:
    """Return the LONGEST tests, each with what it takes and waits for."""
    ordered = sorted(rows, key=lambda row: -row.seconds)[:LONGEST]
    cells: list[list[Cell]] = [
        [
            row.test.removeprefix("tests/"),
            row.tier,
            wait_of(row),
            round(row.seconds, 1),
            round(row.setup_s, 1),
            round(row.own_s + row.others_s, 1),
        ]
        for row in ordered
    ]
    columns = ["test", "tier", "waits for", "worker s", "of that set-up s", "computing s"]
    return Table(f"The {LONGEST} longest tests", columns, cells)


def commands(taken: Sequence[Taken]) -> Table:
    """Return the times of the whole commands, beside their bounds."""
    cells: list[list[Cell]] = [
        [
            f"make {each.command}",
            each.commit,
            round(each.seconds),
            round(each.cpu_s),
            round(floor_s(each)),
            round(each.bound_s),
        ]
        for each in taken
    ]
    columns = ["command", "commit", "seconds", "computing s", "floor: computing by cores", "bound"]
    return Table(COMMANDS_TABLE, columns, cells)


def rows_since(began_s: float, folder: Path) -> list[Row]:
    """Return each test's newest row of the runs that began then or later. ``began_s``: seconds since 1970."""
    rows: dict[str, Row] = {}
    for path in sorted(folder.glob("*.json")):
        session = msgspec.json.decode(path.read_bytes(), type=Session)
        if session.began_s >= began_s:
            rows |= {row.test: row for row in session.rows}
    return [*rows.values()]


def read(folder: Path = ROOT / FOLDER) -> tuple[list[Row], list[Taken]]:
    """Return each test's newest row, and what the commands took that have ended well."""
    taken = [msgspec.json.decode(path.read_bytes(), type=Taken) for path in sorted(folder.glob("*.taken"))]
    return rows_since(0.0, folder), taken


def kept(rows: Sequence[Row], taken: Sequence[Taken], run: Run) -> Kept:
    """Return the results, with the tables of this run."""
    run.tables = [
        *([commands(taken)] if taken else []),
        table_of("By tier", "tier", rows, tier_of),
        table_of("By what a test waits for", "waits for", rows, wait_of),
        table_of("By folder", "folder", rows, folder_of),
        longest(rows),
    ]
    return Kept([run], [msgspec.to_builtins(each) for each in taken])


def merged(before: Kept, now: Kept) -> Kept:
    """Return the results with what was kept before: a row of each command, and all other tables of a `make test`."""
    cells = {cell["command"]: cell for cell in [*before.cells, *now.cells]}
    taken = msgspec.convert([cells[command] for command in COMMANDS if command in cells], list[Taken])
    (whole,) = now.runs if _is_whole(now) or not before.runs else before.runs
    tables = [table for table in whole.tables if table.title != COMMANDS_TABLE]
    whole = msgspec.structs.replace(whole, tables=[*([commands(taken)] if taken else []), *tables])
    return Kept([whole], [msgspec.to_builtins(each) for each in taken])


def _is_whole(now: Kept) -> bool:
    return "test" in {cell["command"] for cell in now.cells}


def modules(rows: Iterable[Row]) -> list[tuple[str, int, int, float, float]]:
    """Return a line for each module: test functions, tests, worker seconds, seconds of computing."""
    groups = _sums(rows, lambda row: row.test.partition("::")[0])
    return [
        (
            module,
            functions_in((ROOT / module).read_text("utf-8")),
            len(each),
            round(sum(row.seconds for row in each), 1),
            round(sum(row.own_s + row.others_s for row in each), 1),
        )
        for module, each in sorted(groups.items())
    ]


def heavy(rows: Iterable[Row], before: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Return the functions that are too much for `make check`; those without a row are as they were ``before``."""
    groups = _sums((row for row in rows if not row.needs), lambda row: row.test.partition("[")[0])
    found = {name: figures for name, figures in before.items() if name not in groups}
    for name, each in groups.items():
        processes = round(sum(row.started for row in each) / len(each), 1)
        computing_s = round(sum(row.own_s + row.others_s for row in each), 1)
        if is_heavy(processes, computing_s):
            found[name] = processes, computing_s
    return dict(sorted(found.items()))


def _ended(command: Command, began_s: int, make: int) -> None:
    """Keep what a command took: all that make waited for is in the computing of its children."""
    folder = ROOT / FOLDER
    folder.mkdir(exist_ok=True)
    sessions = [msgspec.json.decode(path.read_bytes(), type=Session) for path in folder.glob("*.json")]
    cpu_s = computed_s(make) + sum(each.left_s for each in sessions)
    taken = Taken(command, time.time() - began_s, cpu_s, os.cpu_count() or 1, _commit())
    (folder / f"{command}.taken").write_bytes(msgspec.json.encode(taken))


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def _write(rows: Sequence[Row], taken: Sequence[Taken]) -> None:
    load = os.getloadavg()[2]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, load {load:.1f} in the last 15 minutes"
    run = Run("make test && make times WRITE=1", _commit(), results.today(), machine, _versions(), [])
    now = kept(rows, taken, run)
    results.write(NAME, merged(results.read(NAME), now))
    if _is_whole(now):
        with TIMES.open("w", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(["module", "functions", "tests", "worker_s", "computing_s"])
            lines.writerows(modules(rows))
    here = {name: figures for name, figures in heavy_functions().items() if (ROOT / name.partition("::")[0]).exists()}
    with HEAVY.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["function", "processes", "computing_s"])
        lines.writerows([name, *figures] for name, figures in heavy(rows, here).items())


def _versions() -> dict[str, str]:
    return {"Python": platform.python_version()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; return 1 if there is no run to tell of."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite.times", description=__doc__)
    parser.add_argument("--ended", choices=COMMANDS, help="a command has ended well: keep what it took")
    parser.add_argument("--began", type=int, help="with --ended: when it began, in seconds since 1970")
    parser.add_argument("--make", type=int, help="with --ended: the process id of make")
    asked = parser.parse_args(arguments)
    if asked.ended:
        _ended(asked.ended, asked.began, asked.make)
        return 0
    rows, taken = read()
    if not rows:
        sys.stderr.write(f"{ROOT / FOLDER} has no run: `make test` writes one, and so does `pytest -n 2`\n")
        return 1
    assert {row.tier for row in rows} <= {*TIERS}
    console = Console(width=None if sys.stdout.isatty() else 180)
    run = Run("", "", "", "", {}, [])
    kept(rows, taken, run)
    for table in run.tables:
        shown = Shown(*table.columns, title=table.title)
        for line in table.rows:
            shown.add_row(*(f"{cell:,}" if isinstance(cell, int | float) else escape(cell or "") for cell in line))
        console.print(shown)
    if os.environ.get("WRITE"):
        _write(rows, taken)
    return 0


if __name__ == "__main__":
    sys.exit(main())
