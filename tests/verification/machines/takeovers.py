"""Partitions move between machines again and again; judged from outside: nothing lost, nothing twice.

python -m tests.verification.machines.takeovers --takeovers 1000 [--machines 3] [--mode aligned|deterministic]
                                                [--seed 1] [--directory DIR]

WRITE=1 keeps the run in docs/results, for docs/MACHINES.md. Machines are network namespaces with a real broker at
their switch (``tests/verification/machines/network.py``); root is needed. ``assigner.py`` says what is done to them.
The seed repeats the plan, not the timing. Exit code 1 if the checker objects.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.results import Cell, Kept, Run, read, with_row, write
from benchmarks.running import taken
from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from grete.spark.java import find_java
from grete.state.read.local_reader import LocalReader
from grete.testing.broker.jars import find_jars
from grete.testing.broker.settings import free_port
from tests.support.waiting import until
from tests.verification.chaos.chain import PARTITIONS, Chain, Mode, Spread, Tail, chain_job
from tests.verification.chaos.checker import Checker
from tests.verification.chaos.cluster import Cluster
from tests.verification.chaos.outside import KafkaOutside
from tests.verification.machines.assigner import SOON, Assigner
from tests.verification.machines.hosted import Hosted, Hosting
from tests.verification.machines.network import Network

AWAY_S = (1.0, 5.0, 5.0, 5.0, 30.0, 30.0, 120.0)


class Ran(NamedTuple):
    """The actions of a run, and the errors found."""

    assigner: Assigner
    seconds: float

    @property
    def violations(self) -> list[str]:
        """Return the violations that the checker has found."""
        return self.assigner.checker.violations


def run(
    directory: Path,
    mode: Mode,
    seed: int,
    takeovers: int,
    *,
    machines: int = 3,
    away_s: Sequence[float] = AWAY_S,
    console: Console,
) -> Ran:
    """Run until partitions have been taken over that many times, then compare outputs and stores. Raises NoNetwork."""
    rng, started = random.Random(seed), time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    find_java(), find_jars()  # where there is a way out to fetch them
    with contextlib.ExitStack() as held:
        network = held.enter_context(Network(directory, [f"machine{number}" for number in range(machines)]))
        (directory / "kafka").mkdir()
        line, names = free_port(), chain_job("", mode)  # the machines' way to the broker; the checker has its own
        broker = held.enter_context(Cluster(directory / "kafka", behind=[line], host=network.host))
        held.enter_context(network.proxy(line, broker.outside[0], seed))
        address = LogAddress(f"kafka://{broker.bootstrap}")
        outside = KafkaOutside(JobDirectory(directory / "outside", address=address), names)
        held.callback(outside.close)
        progress = held.enter_context(Progress(*columns, console=console, transient=True))
        hosting = Hosting(names, mode, f"kafka://{network.host}:{line}")
        note = lambda text: progress.console.print(text, markup=False)  # noqa: E731  # its one line
        assigner = Assigner(network, hosting, outside, rng, away_s, note)
        bar = progress.add_task("take-overs", total=takeovers)
        while assigner.takeovers < takeovers and assigner.checker.intact:
            assigner.step()
            progress.update(bar, completed=assigner.takeovers)
            time.sleep(0.002)
        assigner.settle()
        if assigner.checker.intact:
            _judge(assigner, directory / "restored")
    return Ran(assigner, time.monotonic() - started)


def _judge(assigner: Assigner, directory: Path) -> None:
    """Compare inputs, entries and stores in both directions."""
    hosting, outside, checker = assigner.hosting, assigner.outside, assigner.checker
    _stop(assigner, "as the workers left them")
    for row in outside.arrived():
        checker.entry(*row)
    for row in outside.all(hosting.names.given):
        checker.input(*row)
    checker.complete()
    again = Checker()
    for row in outside.all(hosting.names.entries):
        again.entry(*row)
    checker.same(again)
    for partition in range(PARTITIONS):  # the changelogs alone must say the same
        machine = assigner.machines[partition % len(assigner.machines)]
        hosting.start(machine, partition, SOON, directory / str(partition))

    def taken() -> bool:
        assigner.look()
        return assigner.all_taken()

    until(taken, "all partitions are taken")
    _stop(assigner, "restored from the changelogs")


def _stop(assigner: Assigner, how: str) -> None:
    """Stop the workers, one of each partition, and compare their stores with the entries."""
    hosting, checker = assigner.hosting, assigner.checker
    workers = {hosted.partition: hosted for hosted in hosting.living}
    for hosted in workers.values():
        hosting.ask_to_stop(hosted)

    def all_ended() -> bool:
        hosting.poll()  # a worker waits for a reader of its last report
        return not hosting.living

    until(all_ended, "all workers have stopped")
    codes = {partition: hosted.process.wait() for partition, hosted in workers.items()}
    if len(codes) != PARTITIONS or any(codes.values()):
        words = {partition: workers[partition].words() for partition, code in codes.items() if code}
        checker.violated(f"graceful stop, {how}: exit codes {codes}: {words}")
    sources, accounts = _stores(hosting, workers.values())
    checker.state(f"sources, {how}", checker.sources, sources)
    checker.state(f"accounts, {how}", checker.accounts, accounts)


def _stores(hosting: Hosting, workers: Iterable[Hosted]) -> tuple[list[tuple[str, Tail]], list[tuple[str, Tail]]]:
    sources: list[tuple[str, Tail]] = []
    accounts: list[tuple[str, Tail]] = []
    for hosted in workers:
        with LocalReader(hosted.state, hosting.names.job) as reader:
            sources += reader.all(Spread.sources, hosted.partition)
            accounts += reader.all(Chain.accounts, hosted.partition)
    return sources, accounts


def report(ran: Ran) -> list[str]:
    """Return the events of the run, line by line."""
    assigner = ran.assigner
    took = statistics.median(assigner.took_s) if assigner.took_s else 0.0
    return [
        f"{assigner.takeovers:,} take-overs in {ran.seconds:,.0f} s, {assigner.hosting.starts:,} worker starts",
        f"from a start until the worker takes input {took:.2f} s (median)",
        f"{assigner.checker.entries:,} entries checked",
        ", ".join(f"{count:,} {what}" for what, count in sorted(assigner.tally.items())),
    ]


def with_run(kept: Kept, run: Run, mode: Mode, seed: int, ran: Ran) -> Kept:
    """Return the results with this run beside those of other seeds."""
    assigner, tally = ran.assigner, ran.assigner.tally
    title = f"Take-overs by an assigner that is wrong, late or double: {mode} mode"
    columns = [
        "seed",
        "commit",
        "take-overs",
        "worker starts",
        "fenced",
        "machines killed or lost",
        "frozen",
        "cut off",
    ]
    columns += ["mute or deaf", "lossy, slow or far lines", "entries checked", "seconds"]
    row: list[Cell] = [
        seed,
        run.commit,
        assigner.takeovers,
        assigner.hosting.starts,
        tally["fenced"],
        tally["kill"] + tally["lose"],
    ]
    row += [
        tally["freeze"],
        tally["cut"],
        tally["mute"] + tally["deaf"],
        sum(tally[kind] for kind in ("lossy", "slow", "far")),
    ]
    row += [assigner.checker.entries, round(ran.seconds)]
    took_s = statistics.median(assigner.took_s)
    run.notes = [f"From the start of a worker until it took input, in the last run: {took_s:.1f} s (median)."]
    return with_row(kept, run, title, columns, row)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a report, return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.verification.machines.takeovers", description=__doc__)
    parser.add_argument("--takeovers", type=int, default=100)
    parser.add_argument("--machines", type=int, default=3)
    parser.add_argument("--mode", choices=["aligned", "deterministic"], default="aligned")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--directory", type=Path, help="for the broker and the machines; default: a temporary one")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the namespaces are to be removed
    console = Console(highlight=False, soft_wrap=True)
    directory = asked.directory or Path(tempfile.mkdtemp(prefix="grete-machines-"))
    command = f"--takeovers {asked.takeovers} --machines {asked.machines} --mode {asked.mode} --seed {asked.seed}"
    console.print(f"python -m tests.verification.machines.takeovers {command}\nin {directory}")
    ran = run(directory, asked.mode, asked.seed, asked.takeovers, machines=asked.machines, console=console)
    for line in report(ran):
        console.print(line, markup=False)
    if ran.violations:
        console.print("VIOLATED. The first:")
        for violation in ran.violations:
            console.print(f"  {violation}", markup=False)
        console.print(f"Look at: {directory}: a folder for each machine, with its workers' logs; the broker in kafka")
        return 1
    console.print("Nothing lost, nothing twice.")
    if os.environ.get("WRITE"):
        write("machines", with_run(read("machines"), taken(), asked.mode, asked.seed, ran))
    if asked.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
