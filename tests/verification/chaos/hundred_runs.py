"""The demonstration's job over a small folder, again and again, killed at random moments: always the same index?

python -m tests.verification.chaos.hundred_runs --runs 100 [--seed 1] [--kills 6]

Each run is a new job directory. Workers die by SIGKILL at moments that the seed draws, wherever they are: importing,
claiming, restoring, processing, committing, stopping. About every fourth loses its state, too. At the end the index is
compared with a plain pass over the recorded documents, and with the index of the first run.
"""

import argparse
import hashlib
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from grete.feeds.folder import FolderFeed
from grete.job.directory import JobDirectory
from grete.settings import Settings
from grete.state.read.local_reader import LocalReader
from grete.worker.supervisor.local_job import LocalJob
from tasks.demo.kills import is_running, kill_worker, wipe_state
from tasks.demo.recount import audit
from tasks.inverted_index import Index, documents, job

FILES = 150
WORDS_PER_FILE = 60
VOCABULARY = 400
RUN_S_MAX = 120.0  # a run that is not done by then has stalled
FEED_S_MAX = 0.04  # between two files, so that records are on their way at each moment
WIPED_SHARE = 0.25
HASTE_SHARE = 0.25  # of kills that do not wait for the workers to be back
HASTE_S_MAX, ALIVE_S_MAX = 1.2, 0.5  # from one kill to the next; from all workers running to the next kill


class Run(NamedTuple):
    """The result of one run."""

    seed: int
    kills: int
    early: int  # kills of workers that were starting or restoring
    wiped: int
    rolled_back: int
    seconds: float
    differences: int
    digest: str


def write_folder(folder: Path) -> None:
    """Write the same small folder each time: few words that occur often, so that every count is contended."""
    rng = random.Random(1)
    words = [f"w{number}" for number in range(VOCABULARY)]
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number:03d}.txt").write_text(" ".join(rng.choices(words, k=WORDS_PER_FILE)))


def one_run(folder: Path, directory: Path, seed: int, kills: int) -> Run:
    """Run the job once; feeding goes on as kills are done, so that none comes after the work."""
    rng = random.Random(seed)
    settings = Settings(
        checkpoint_interval_ms=rng.choice([50, 100, 200]),
        restarts_max=1000,
        restart_backoff_ms=20,
        restart_backoff_ms_max=200,
    )
    job_directory = JobDirectory(directory)
    started = time.monotonic()
    counts = {"kills": 0, "early": 0, "wiped": 0, "rolled_back": 0}
    with LocalJob(job, "tasks.inverted_index", job_directory, settings) as local:
        feed = FolderFeed(local.metadata, documents.name, folder)
        feed.batch_files_max = 1
        scan = feed.scan()
        feeding = True
        next_feed = 0.0
        next_kill: float | None = None  # None: when all workers run
        while True:
            now = time.monotonic()
            if now > started + RUN_S_MAX:
                raise SystemExit(f"seed {seed}: stalled: {counts}; worker logs are in {directory}/logs")
            if next_kill is None and all(is_running(local, partition) for partition in local.supervisor.workers):
                next_kill = now + rng.uniform(0.0, ALIVE_S_MAX)
            allowed = FILES * (counts["kills"] + 1) / (kills + 1)
            if feeding and next_kill is not None and now >= next_feed and feed.report.done <= allowed:
                feeding = next(scan, None) is not None
                next_feed = now + rng.uniform(0.0, FEED_S_MAX)
            local.poll(5)
            if counts["kills"] < kills and next_kill is not None and now >= next_kill:
                _kill(local, rng, counts)
                next_kill = now + rng.uniform(0.0, HASTE_S_MAX) if rng.random() < HASTE_SHARE else None
            elif counts["kills"] == kills and not feeding and local.drained(local.ends()):
                break
        local.stop()
        with LocalReader(job_directory.state_directory, job) as reader:
            result = audit(local.log, reader)
            digest = _digest(reader)
    for sample in result.samples:
        print(f"seed {seed}: {sample}", file=sys.stderr)
    return Run(seed, **counts, seconds=time.monotonic() - started, differences=result.differences, digest=digest)


def _kill(local: LocalJob, rng: random.Random, counts: dict[str, int]) -> None:
    partition = rng.choice(sorted(local.supervisor.workers))
    if not local.supervisor.workers[partition].running:
        return
    counts["kills"] += 1
    counts["early"] += not is_running(local, partition)
    counts["rolled_back"] += kill_worker(local, partition)
    if rng.random() < WIPED_SHARE:
        wipe_state(local, partition)
        counts["wiped"] += 1


def _digest(reader: LocalReader) -> str:
    digest = hashlib.sha256()
    for row in sorted((key, tuple(positions)) for key, positions in reader.all(Index.postings)):
        digest.update(repr(row).encode())
    for word, count in sorted((word, (count.documents, count.occurrences)) for word, count in reader.all(Index.words)):
        digest.update(repr((word, count)).encode())
    return digest.hexdigest()[:12]


def main() -> int:
    """Run all, print a line each, return 1 if one index differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="of the first run")
    parser.add_argument("--kills", type=int, default=6)
    asked = parser.parse_args()
    print(f"first seed {asked.seed}: repeat with --seed {asked.seed} --runs {asked.runs} --kills {asked.kills}")
    print(f"{'run':>4} {'seed':>7} {'kills':>6} {'early':>6} {'wiped':>6} {'rolled_back':>7} {'s':>6}  index")
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="grete-chaos-") as scratch:
        folder = Path(scratch) / "folder"
        write_folder(folder)
        for number in range(asked.runs):
            with tempfile.TemporaryDirectory(dir=scratch) as directory:
                run = one_run(folder, Path(directory) / "job", asked.seed + number, asked.kills)
            runs.append(run)
            same = "identical" if not run.differences and run.digest == runs[0].digest else "DIFFERENT"
            print(
                f"{number + 1:>4} {run.seed:>7} {run.kills:>6} {run.early:>6} {run.wiped:>6} {run.rolled_back:>7} "
                f"{run.seconds:>6.1f}  {run.digest} {same}",
                flush=True,
            )
    good = sum(not run.differences and run.digest == runs[0].digest for run in runs)
    kills, rolled_back = sum(run.kills for run in runs), sum(run.rolled_back for run in runs)
    print(f"{good} of {len(runs)} runs gave the identical index; {kills:,} kills, {rolled_back:,} records rolled back")
    return 0 if good == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
