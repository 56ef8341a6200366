"""``make prove HOURS=N``: searches by turns until the time is over; a table of what they covered, and what they found.

It goes on where it was ended, as long as the commit is the same: what was covered is in ``.prove``, with what each turn
that found something printed. ``WRITE=1`` puts the table into docs/results/prove.json.
"""

import argparse
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Shown

from benchmarks import results
from benchmarks.results import Cell, Kept, Table
from benchmarks.running import taken
from tests.suite.turns import PARTS, Part

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".prove"
NAME = "prove"  # of the results
FIRST_MAX = 1 << 40  # of the numbers that seeds begin with: two runs hardly meet
END_S_MAX = 60.0  # for a turn that is interrupted: workers and namespaces are to be gone
LAST_LINES = 30  # shown of a turn that found something


class Covered(msgspec.Struct):
    """The turns of one part."""

    turns: int = 0  # that came to their end
    cut: int = 0  # by the end of the time
    seconds: float = 0.0
    found: list[str] = []  # commands that repeat it
    lacks: str = ""


class State(msgspec.Struct):
    """All of one commit."""

    first: int
    parts: dict[str, Covered]


def path_of(commit: str) -> Path:
    """Return the file of a commit."""
    return FOLDER / f"{commit}.json"


def state_of(commit: str) -> State:
    """Return the coverage of that commit."""
    path = path_of(commit)
    return (
        msgspec.json.decode(path.read_bytes(), type=State) if path.exists() else State(secrets.randbelow(FIRST_MAX), {})
    )


def next_of(parts: Sequence[Part], state: State) -> Part:
    """Return the part that is the furthest behind its share."""
    return min(parts, key=lambda part: state.parts[part.name].seconds / part.share)


def run(command: Sequence[str], log: Path, most_s: float) -> int | None:
    """Run a turn and return its exit code; None if the time was over before it came to its end."""
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "WRITE"}}
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            return process.wait(max(most_s, 0.0))
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End it, if it has not, and what it left behind in its group."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # nothing is left of it


def turn(part: Part, state: State, commit: str, most_s: float) -> None:
    """Do the next turn of a part and keep what came of it."""
    covered = state.parts[part.name]
    command = part.turn(state.first + (covered.turns + covered.cut) * part.size)
    text, began = shlex.join(["python", *command[1:]]), time.monotonic()
    log = FOLDER / f"{part.name.replace(' ', '-').replace(':', '')}-{commit}-{covered.turns + covered.cut}.log"
    code = run(command, log, most_s)
    seconds = time.monotonic() - began
    covered.seconds += seconds
    if code is None:
        covered.cut += 1
    else:
        covered.turns += 1
    print(f"{part.name}, {seconds:.0f} s, {'cut by the end' if code is None else f'exit {code}'}: {text}", flush=True)
    if code:
        covered.found.append(text)
        lines = log.read_text("utf-8", "replace").splitlines()[-LAST_LINES:]
        print("\n".join([f"found; all that it printed is in {log}", *(f"  {line}" for line in lines)]), flush=True)
    else:
        log.unlink()
    path_of(commit).write_bytes(msgspec.json.format(msgspec.json.encode(state)))


def table(parts: Sequence[Part], state: State) -> Table:
    """Return the coverage, a row for each part."""
    rows: list[list[Cell]] = []
    for part in parts:
        covered = state.parts.get(part.name, Covered())
        note = f"not tried here: {covered.lacks}" if covered.lacks else part.counts
        rows.append(
            [part.name, covered.turns * part.size, note, round(covered.seconds), covered.cut, len(covered.found)]
        )
    return Table("What make prove covered", ["part", "covered", "what", "seconds", "turns cut", "found"], rows)


def show(covered: Table) -> None:
    """Print the table."""
    shown = Shown(*covered.columns, title=covered.title)
    for row in covered.rows:
        shown.add_row(*(escape(f"{cell:,}" if isinstance(cell, int | float) else cell or "") for cell in row))
    Console(width=None if sys.stdout.isatty() else 160).print(shown)


def main(arguments: Sequence[str] | None = None, parts: Sequence[Part] = PARTS) -> int:
    """Search until the time is over; return 1 if something was found at this commit."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite.prove", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup and "&" hand on that it is ignored
    until, where = time.monotonic() + 3600 * asked.hours, taken()
    FOLDER.mkdir(exist_ok=True)
    state = state_of(where.commit)
    for part in parts:
        state.parts.setdefault(part.name, Covered()).lacks = part.lacks()
    able = [part for part in parts if not state.parts[part.name].lacks]
    while (left_s := until - time.monotonic()) > 0:
        turn(next_of(able, state), state, where.commit, left_s)
    covered = table(parts, state)
    show(covered)
    found = [command for each in state.parts.values() for command in each.found]
    print("\n".join(["Repeat what was found:", *found] if found else ["Nothing was found."]))
    if os.environ.get("WRITE"):
        where.command, where.tables = f"make prove HOURS={asked.hours:g} WRITE=1", [covered]
        where.notes = [f"Repeat it: `{command}`." for command in found]
        results.write(NAME, Kept([where]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
