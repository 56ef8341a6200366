"""A job with a log of its own that is backfilled, fed and run; what one plain pass over the same records gives."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from grete import Job
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.spark.backfill.audit import Audited, audit
from grete.spark.backfill.backfill import BackfillResult, BackfillSpec, backfill
from grete.spark.backfill.history_checks import Accept, Accepted
from grete.spark.backfill.ranges import parse_until
from grete.spark.backfill.sources import sources_of
from grete.spark.format.options import LogSpec
from grete.state.pins.prepare import prepare
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.local_reader import LocalReader
from grete.worker.supervisor.local_job import LocalJob
from tests.support.draining import drain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMS = Path(__file__).parents[1] / "sums.py"
SETTINGS = Settings(checkpoint_interval_ms=100)
# Histories have texts that are no numbers, and what is fed live has times of theirs.
ACCEPTED = Accepted(refused=10_000, kinds=frozenset({Accept.OVERLAP}))

NOW_MS = time.time_ns() // 1_000_000  # Kafka deletes what is of long ago

Records = Sequence[tuple[str, str, int]]  # key, text, timestamp


class Silent:
    """Takes what is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def bar(self, name: str, done: int, total: int) -> None:
        assert 0 <= done <= total, name


class Scene:
    """A job of its own names, its log, and what a test does with it."""

    def __init__(
        self,
        directory: Path,
        suffix: str = "",
        log: str = "embedded",
        more: str = "",
        changes: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Write the job, make its topics; ``more``: lines before its first stage's work; ``changes``: of its text."""
        text = SUMS.read_text().replace('Job("sums"', f'Job("sums{suffix}"')
        for before, after in changes:
            assert before in text, before
            text = text.replace(before, after)
        for topic in ("events", "letters", "told"):
            text = text.replace(f'Topic("{topic}"', f'Topic("{topic}{suffix}"')
        text = text.replace("        self.seen.put", f"{more}        self.seen.put")
        self.reference = str(directory / f"sums_{suffix.replace('-', '_')}.py")
        Path(self.reference).write_text(text)
        self.job: Job = load_job(self.reference)
        self.suffix, self.topic = suffix, f"events{suffix}"
        self.told = Silent()
        self.accepted = ACCEPTED
        self.move_to(directory / "job", log)

    def move_to(self, directory: Path, log: str = "embedded") -> None:
        """Go on with the job of this directory and log."""
        self.job_directory = JobDirectory(directory, address=LogAddress(log))
        self.log = self.job_directory.open_log()
        self.metadata = prepare(self.job, self.log, self.job_directory, SETTINGS, fed=[self.topic])
        self.where = LogSpec(log, "", str(self.job_directory.directory / "log.db"))

    def wanted(self, *sources: str) -> BackfillSpec:
        work = str(self.job_directory.directory / "spark")
        found = sources_of(self.job, list(sources))
        return BackfillSpec(self.job, self.reference, self.where, SETTINGS, found, work, accepted=self.accepted)

    def backfill(
        self, spark: "SparkSession", *sources: str, until: str | None = None, outputs: bool = False
    ) -> BackfillResult:
        wanted = self.wanted(*sources)._replace(outputs=outputs)
        return backfill(spark, wanted, parse_until(until, self.job), self.log, self.told)

    def audit(self, spark: "SparkSession", *sources: str) -> Audited:
        return audit(spark, self.wanted(*sources), self.log, self.told, aligned=True)

    def feed(self, records: Records) -> None:
        self.metadata.produce_with_meta([external(self.topic, *record) for record in records], {})

    def run(self) -> None:
        """Let real workers process what there is, and stop them."""
        with LocalJob(self.job, self.reference, self.job_directory, SETTINGS) as local:
            drain(local)
            local.stop()

    def taken(self) -> int:
        """Return the number of tasks whose workers have taken the files of a backfill for their state."""
        logs = (log.read_text() for log in map(self.job_directory.worker_log, range(self.job.workers)) if log.exists())
        return sum(log.count("state taken from files of a backfill") for log in logs)

    def prebuilt(self) -> int:
        """Return for how many tasks there are such files."""
        return sum(
            (self.job_directory.prebuilt(wiring.name) / "manifest.json").exists() for wiring in all_wirings(self.job)
        )

    def sent(self, topic: str) -> int:
        """Return the number of records in a topic."""
        name = f"{topic}{self.suffix}"
        partitions = [TopicPartition(name, number) for number in range(self.log.partitions(name) or 0)]
        return sum(len(self.log.read(partition, 0, 1 << 24)) for partition in partitions)

    def state(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the content of ``seen`` and ``sums``."""
        parse, sums = self.job.stages
        with LocalReader(self.job_directory.state_directory, self.job) as reader:
            return dict(reader.all(parse.stores["seen"])), dict(reader.all(sums.stores["sums"]))


def external(topic: str, key: str, text: str, timestamp: int) -> ExternalRecord:
    partition = TopicPartition(topic, partition_of(key.encode(), 2))
    return ExternalRecord(partition, key.encode(), text.encode(), timestamp)


def made(count: int, seed: int) -> Records:
    """Return records; about one in thirty is no number."""
    rng = random.Random(seed)
    texts = [str(rng.randrange(9)) if rng.random() > 0.03 else "x" for _ in range(count)]
    return [(f"key-{rng.randrange(40)}", text, NOW_MS + number) for number, text in enumerate(texts)]


def plain(*parts: Records) -> tuple[dict[str, int], dict[str, int]]:
    """Return the result of one plain pass."""
    seen, sums = Counter[str](), Counter[str]()
    for key, text, _ in [record for part in parts for record in part]:
        if text != "x":
            seen[key] += 1
            sums[key[-1:]] += int(text)
    return dict(seen), dict(sums)


def parquet(path: Path, records: Records, **more: Any) -> str:
    """Write records as a file."""
    keys, texts, times = (list(column) for column in zip(*records, strict=True))
    table = {"key": pa.array(keys), "value": pa.array(texts), "timestamp": pa.array(times, pa.int64())}
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(table | {name: pa.array(cells) for name, cells in more.items()}), path)
    return str(path)
