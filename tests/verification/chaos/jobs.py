"""Random jobs × random faults × an upgrade × outages, on real workers, checked from outside by a plain recount.

python -m tests.verification.chaos.jobs --minutes 5 [--log embedded|kafka] [--seed N]

Each job is drawn from a seed, and so is the plan of its troubles: SIGKILL, SIGSTOP, a state directory that is gone or
an older one, a log that is away for a while (the file is locked; the broker is killed or frozen), a graceful stop and a
second build of the job with one more stage.
Exit code 1 if an output or a state is not what the recount says; the line names the seed.
"""

import argparse
import math
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import EMBEDDED, KAFKA
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.state.read.local_reader import LocalReader
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.verification.chaos.drawn_log import DrawnLog, drawn_log
from tests.verification.chaos.random_job import HOT, KEYS, Amount, Recount, Shape, Total, drawn

FAULTS = {"kill": 8, "kill all": 2, "freeze": 3, "wipe": 2, "older state": 2, "log away": 2}
QUIET_S_MAX = 0.4  # between two troubles
FROZEN_S_MAX = 1.5
AWAY_S_MEAN, AWAY_S_MAX = 1.5, 20.0  # most outages are short
BATCH = 60  # records fed at a time
STALL_S = 120.0  # without an end: nothing goes on any more
NEWS = 20  # lines told of that, of the supervisor and of each worker


class Ran(NamedTuple):
    """The faults of a job's run, and the errors found."""

    shape: Shape
    faults: Counter[str]
    records: int
    wrong: list[str]


class Trouble:
    """One build of a job under troubles, of which an outage of the log is the first. ``step`` again and again."""

    def __init__(self, local: LocalJob, log: DrawnLog, rng: random.Random, seen: Counter[str]) -> None:
        self.local = local
        self._log = log
        self._directory = log.job_directory.directory
        self._rng = rng
        self._seen = seen
        self._frozen: list[tuple[int, float]] = []  # process id's worker, when it goes on
        self._back = math.inf  # when the log comes back
        self._next = 0.0

    @property
    def away(self) -> bool:
        """Whether the log does not answer."""
        return self._back < math.inf

    @property
    def takes_records(self) -> bool:
        """Whether the log takes records: a frozen worker may hold the lock that a feeder in our thread waits for."""
        return not self.away and not self._frozen

    def step(self) -> None:
        """Go on with what was frozen or away, and strike if it is time."""
        now = time.monotonic()
        for each in [each for each in self._frozen if now >= each[1]]:
            self._frozen.remove(each)
            self._signal(each[0], signal.SIGCONT)
        if now >= self._back:
            self._come_back()
        if now >= self._next:
            kind = self._rng.choices(tuple(FAULTS), weights=tuple(FAULTS.values()))[0] if self._next else "log away"
            self._next = now + self._rng.uniform(0.05, QUIET_S_MAX)
            self._strike(kind, self._rng.randrange(self.local.job.partitions))
            self._seen[kind] += 1

    def take_back(self) -> None:
        """Take everything back."""
        for partition, _ in self._frozen:
            self._signal(partition, signal.SIGCONT)
        self._frozen = []
        if self.away:
            self._come_back()

    def _strike(self, kind: str, partition: int) -> None:
        supervisor = self.local.supervisor
        match kind:
            case "kill all":
                for each in supervisor.workers:
                    supervisor.kill(each)
            case "freeze":
                self._signal(partition, signal.SIGSTOP)
                self._frozen.append((partition, time.monotonic() + self._rng.uniform(0.05, FROZEN_S_MAX)))
            case "log away":
                if not self.away:
                    self._seen[self._log.go_away()] += 1
                    away_s = min(AWAY_S_MAX, self._rng.expovariate(1 / AWAY_S_MEAN))
                    self._back = time.monotonic() + away_s
                    self._seen["seconds away"] += round(away_s)
            case _:
                supervisor.kill(partition)
                self._change_state(kind, partition)

    def _change_state(self, kind: str, partition: int) -> None:
        """Delete the state of a dead worker's task, keep a copy of it, or bring an older copy back."""
        stage = self._rng.choice(self.local.job.stages)
        state = self.local.job_directory.state(f"{stage.name}-{partition}")
        copy = self._directory / f"older-{stage.name}-{partition}"
        if kind == "wipe":
            shutil.rmtree(state, ignore_errors=True)
        elif kind == "older state" and copy.exists():
            shutil.rmtree(state, ignore_errors=True)
            shutil.copytree(copy, state)
        elif kind == "kill" and state.exists() and not copy.exists():
            shutil.copytree(state, copy)

    def _signal(self, partition: int, number: signal.Signals) -> None:
        process = self.local.supervisor.process(partition)
        if process is not None and process.poll() is None:
            process.send_signal(number)

    def _come_back(self) -> None:
        self._back = math.inf
        self._log.come_back()


def run(seed: int, directory: Path, *, records: int = 600, log: str = EMBEDDED) -> Ran:
    """Run the job of a seed from its first record to its end, through both of its builds; return what is wrong."""
    directory.mkdir(parents=True)
    rng = random.Random(f"troubles {seed}")
    with drawn_log(log, directory) as made:
        return _run(seed, directory, records, made, rng)


def _run(seed: int, directory: Path, records: int, log: DrawnLog, rng: random.Random) -> Ran:
    shape, seen = drawn(seed), Counter[str]()
    recount, fed, begun_ms = Recount(shape), 0, int(time.time() * 1000)
    upgrade_at = int(records * rng.uniform(0.3, 0.7))
    for build, upto in ((1, upgrade_at), (2, records)):
        with _started(seed, build, directory, log.job_directory, shape) as local:
            trouble = Trouble(local, log, rng, seen)
            while fed < upto:
                _until(lambda trouble=trouble: trouble.takes_records, local, trouble)  # type: ignore[misc]  # mypy gives a default no type
                batch = [_record(rng, fed + n) for n in range(min(BATCH, upto - fed))]
                log.feed([_row(key, value, shape.partitions, begun_ms) for key, value in batch])
                recount.feed(batch)
                fed += len(batch)
                for _ in range(rng.randrange(1, 12)):
                    local.poll(20)
                    trouble.step()
            trouble.take_back()
            if build == 2 or rng.random() < 0.5:  # else it is stopped in the middle
                _until(lambda local=local: local.drained(local.ends()), local)  # type: ignore[misc]  # mypy gives a default no type
            local.stop()
            seen["graceful stops"] += 1
    wrong = _check(seed, directory, log, shape, recount)
    return Ran(shape, seen, fed, wrong)


def _started(seed: int, build: int, directory: Path, job_directory: JobDirectory, shape: Shape) -> LocalJob:
    settings = Settings(checkpoint_interval_ms=shape.checkpoint_interval_ms, restarts_max=1000, restart_backoff_ms=20)
    reference = _reference(seed, build, directory)
    return LocalJob(load_job(str(reference)), str(reference), job_directory, settings, inputs=OutsideInputs({"orders"}))


def _reference(seed: int, build: int, directory: Path) -> Path:
    path = directory / f"job_{seed}_{build}.py"
    path.write_text(
        "from pathlib import Path\n\nfrom tests.verification.chaos.random_job import job_of\n\n"
        f"job = job_of({seed}, {build}, Path({str(directory)!r}))\n"
    )
    return path


def _record(rng: random.Random, number: int) -> tuple[str, Amount]:
    key = 0 if rng.random() < HOT else rng.randrange(KEYS)
    return f"a{key}", Amount(number, rng.randrange(1000))


def _row(key: str, value: Amount, partitions: int, begun_ms: int) -> tuple[TopicPartition, bytes, bytes, int]:
    at = TopicPartition("orders", partition_of(key.encode(), partitions))
    return at, key.encode(), msgspec.json.encode(value), begun_ms + value.number


def _until(condition: Callable[[], bool], local: LocalJob, trouble: Trouble | None = None) -> None:
    deadline = time.monotonic() + STALL_S
    while not condition():
        local.poll(20)
        if trouble is not None:
            trouble.step()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the job does not end within {STALL_S:.0f} s: {local.reports.waits}\n{_told_by(local)}")


def _told_by(local: LocalJob) -> str:
    """Return the last words of supervisor and workers: a job that stops is seen once, on another machine."""
    told = [*local.supervisor.news[-NEWS:]]
    for number, worker in local.supervisor.workers.items():
        log = local.job_directory.worker_log(number)
        ended = "runs" if worker.running else f"does not run, exit code {worker.exit_code}"
        told += [f"worker {number} {ended}, start {worker.starts}, status {worker.reports.tasks}"]
        told += log.read_text(errors="replace").splitlines()[-NEWS:] if log.exists() else ["has written no log"]
    return "\n".join(told)


def _check(seed: int, directory: Path, log: DrawnLog, shape: Shape, recount: Recount) -> list[str]:
    """Compare outputs, files and stores with the recount."""
    steps: dict[str, list[Total]] = defaultdict(list)
    for key, value in log.all_of("shown"):
        steps[key].append(msgspec.json.decode(value, type=Total))
    wrong = recount.check_steps("topic", steps)
    if shape.files:
        archived: dict[str, list[Total]] = defaultdict(list)
        for path in sorted((directory / "archive").rglob("*")):
            for line in path.read_text().splitlines() if path.is_file() and not path.name.startswith(".") else ():
                key, *step = msgspec.json.decode(line)
                archived[key].append(Total(*step))
        wrong += recount.check_steps("files", archived)
    job = load_job(str(_reference(seed, 2, directory)))
    with LocalReader(log.job_directory.state_directory, job) as reader:
        for level, stage in enumerate(job.stages):
            (store,) = stage.stores.values()
            found = {key: (total.count, total.amount) for key, total in reader.all(store)}
            expected = recount.totals(level if level < shape.stages else 0)
            if found != expected:
                wrong.append(f"stage {stage.name}: state {sorted(found.items())}, not {sorted(expected.items())}")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run jobs until the time is over, a line each."""
    parser = argparse.ArgumentParser(
        prog="tests.verification.chaos.jobs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--log", choices=(EMBEDDED, KAFKA.removesuffix("://")), default=EMBEDDED)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    asked = parser.parse_args(arguments)
    until, failed, seed, total = time.monotonic() + 60 * asked.minutes, 0, asked.seed, Counter[str]()
    while seed == asked.seed or time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="grete-jobs-") as scratch:
            started = time.monotonic()
            ran = run(seed, Path(scratch) / "drawn", log=asked.log)
        failed += bool(ran.wrong)
        total += ran.faults
        said = "; ".join(ran.wrong[:3]) or f"{ran.records} records, {ran.faults.total()} troubles"
        print(f"seed {seed}  {time.monotonic() - started:5.1f} s  {ran.shape.text}: {said}", flush=True)
        seed += 1
    print(f"{seed - asked.seed} jobs, {failed} failed; {', '.join(f'{n} {kind}' for kind, n in sorted(total.items()))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
