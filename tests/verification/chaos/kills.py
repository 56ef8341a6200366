"""Kills workers of the chain job again and again, and judges from outside what came of it: nothing lost, nothing twice.

python -m tests.verification.chaos.kills --log embedded|kafka|kafka://host:port|postgres --kills 10000 [--seed 1]
                                         [--directory DIR]

WRITE=1 keeps the run in docs/results, for docs/CHAOS.md.

Real processes die by SIGKILL: at moments that the seed draws, one, two or all at once, when all run or in mid start;
and at named points, between two steps of the protocol. Besides, some are frozen beside their successors, some are
killed in a graceful stop, some come back without their state or with an old one. The seed repeats the plan, not the
machine's timing. Exit code 1 if the checker objects.
"""

import argparse
import contextlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.results import Kept, Run, Table, read, write
from benchmarks.running import taken
from grete.job.directory import JobDirectory
from grete.testing.broker import find_broker
from tasks.external.postgres_log import PostgresLog
from tests.support.postgres import find_postgres
from tests.verification.chaos.campaign import Campaign
from tests.verification.chaos.crew import JOB, Crew
from tests.verification.chaos.outside import Outside, outside_of, place_of
from tests.verification.chaos.tally import Tally
from tests.verification.chaos.worker import PHASES
from tests.verification.chaos.zygote import Zygote

NAMES = {"embedded": "the embedded log", "postgres": "PostgreSQL"}
INTERVAL_MS = 60
EARLY = ["early_memory_bytes_max=2000", "early_memory_bytes_max=2000 early_bytes_max=6000", "early_bytes_max=0"]
EARLY_SHARE = 0.3  # of starts: with little room for early records, so that they are spilled, or skipped and read again


def drawn_settings(rng: random.Random, checkpoint_interval_ms: int) -> list[str]:
    """Return the settings of one start."""
    settings = [
        f"checkpoint_interval_ms={checkpoint_interval_ms}",
        "changelog_retention_ms=2000",
        "shutdown_timeout_ms=3000",
        "rocksdb_bytes=16777216",
    ]
    if rng.random() < EARLY_SHARE:
        settings += rng.choice(EARLY).split()
    return settings


def run(
    outside: Outside, job_directory: JobDirectory, seed: int, kills: int, console: Console
) -> tuple[Tally, int, list[str]]:
    """Run until that many kills are done; return what was done, how many entries were checked, and the violations."""
    rng = random.Random(seed)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Zygote(JOB) as zygote, Progress(*columns, console=console, transient=True) as progress:
        crew = Crew(job_directory, zygote, lambda: drawn_settings(rng, INTERVAL_MS))
        campaign = Campaign(outside, crew, rng, INTERVAL_MS, lambda text: progress.console.print(text, markup=False))
        tally, checker = campaign.tally, campaign.checker
        bar = progress.add_task("", total=kills)
        while tally.kills < kills and checker.intact:
            campaign.step()
            said = f"kills; {tally.rolled_back:,} records rolled back, {checker.entries:,} entries checked"
            progress.update(bar, completed=tally.kills, description=said)
            time.sleep(0.001)
        campaign.finish()
        said = (
            f"{checker.entries:,} entries, {len(checker.accounts)} accounts and {len(checker.sources)} sources checked"
        )
        console.print(said, highlight=False)
        return tally, checker.entries, checker.violations


def with_run(kept: Kept, run: Run, log: str, seed: int, tally: Tally, entries: int, seconds: float) -> Kept:
    """Return the results with this run in place of those on the same log."""
    title = f"Kills of real workers on {NAMES.get(log, 'Kafka')}"
    columns = ["seed", "kills", "rolled something back", "records rolled back", "entries checked", "seconds"]
    row = [seed, tally.kills, tally.rollbacks, tally.rolled_back, entries, round(seconds)]
    run.tables = [Table(title, columns, [list(row)])]
    hits = ", ".join(f"{phase} {100 * tally.phases[phase] / max(tally.kills, 1):.0f} %" for phase in PHASES)
    run.notes = [f"Hit: {hits}."]
    others = [each for each in kept.runs if each.tables[0].title != title]
    return Kept(sorted([*others, run], key=lambda each: each.tables[0].title, reverse=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a report, return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.verification.chaos.kills", description=__doc__)
    parser.add_argument(
        "--log",
        default="embedded",
        help="embedded; kafka (a broker of its own); kafka://host:port; postgres (a server of its own)",
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--directory", type=Path, help="for log, state and the workers' logs; default: a temporary one")
    asked = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    directory = Path(tempfile.mkdtemp(prefix="grete-chaos-")) if asked.directory is None else asked.directory
    command = f"python -m tests.verification.chaos.kills --log {asked.log} --kills {asked.kills} --seed {asked.seed}"
    console.print(f"{command}\nin {directory}")
    started, versions = time.monotonic(), dict[str, str]()
    with contextlib.ExitStack() as held:
        log = asked.log
        if log == "kafka":
            log = f"kafka://{held.enter_context(find_broker()).bootstrap}"
        elif log == "postgres":
            database = held.enter_context(find_postgres()).database()
            log = f"{PostgresLog.__module__}:{PostgresLog.__name__}:{database}"
            with psycopg.connect(database) as connection:
                versions["PostgreSQL"] = connection.info.parameter_status("server_version") or "unknown"
        job_directory = place_of(directory / "job", log)
        outside = outside_of(job_directory)
        held.callback(outside.close)
        tally, entries, violations = run(outside, job_directory, asked.seed, asked.kills, console)
    seconds = time.monotonic() - started
    for line in tally.report(seconds):
        console.print(line, markup=False)
    if violations:
        console.print("VIOLATED. The first:")
        for violation in violations:
            console.print(f"  {violation}", markup=False)
        console.print(f"Again: {command}\nLook at: {directory}/job: logs of the workers, states, all topics in log.db")
        return 1
    console.print("Nothing lost, nothing twice.")
    if os.environ.get("WRITE"):
        kept = taken()
        kept.command, kept.versions = command, kept.versions | versions
        write("chaos", with_run(read("chaos"), kept, asked.log, asked.seed, tally, entries, seconds))
    if asked.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
