"""A job whose code is written again and again, its workers, and all that is in its log: embedded, or on Kafka."""

import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from grete.errors import ExitCode
from grete.logs.embedded import EmbeddedLog
from grete.logs.kafka import KafkaLog
from grete.ports import ExternalRecord, JobLog
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.state.read.checkpoints.commits import last_commit
from tests.worker.workers import WorkerUnderTest

CODE = Path("tests/execution/changing_job.py").read_text()
OLD, EXTENDED = "[First, Second]", "[First, Second, Third]"

Everything = tuple[Sequence[str], dict[TopicPartition, int], list[tuple[str, bytes]]]


class Changing:
    """A job in a directory; ``bootstrap``: its log is on that Kafka; ``settings`` of its workers, NAME=VALUE."""

    def __init__(self, tmp_path: Path, *settings: str, bootstrap: str = "", **changes: str) -> None:
        self.name = f"changing-{uuid.uuid4().hex[:8]}"
        self.directory, self._folder = tmp_path / "job", tmp_path
        self.directory.mkdir()
        self.log: JobLog = KafkaLog(bootstrap) if bootstrap else EmbeddedLog(self.directory / "log.db")
        self.options = [f"--log=kafka://{bootstrap}"] if bootstrap else []
        self._settings, self._changes = settings, changes
        self.log.create_topic(f"{self.name}-given", 2, plain=True)

    def code(self, stages: str, **changes: str) -> str:
        """Write the code with these stages and other words in it; return its path."""
        text = CODE.replace(OLD, stages)
        for old, new in {**self._changes, **changes}.items():
            text = text.replace(old, new)
        path = self._folder / f"job_{uuid.uuid4().hex}.py"
        path.write_text(text.replace('"changing', f'"{self.name}'))
        return str(path)

    def worker(self, code: str, partition: int, *options: str, task: str = "") -> WorkerUnderTest:
        """Start a worker of the job."""
        named = task or f"first-{partition}"
        options = (
            "--set=checkpoint_interval_ms=50",
            "--set=shutdown_timeout_ms=1000",  # a lone worker waits this long for an alignment that cannot come (R6)
            *(f"--set={each}" for each in self._settings),
            *self.options,
            *options,
        )
        return WorkerUnderTest(self.directory, *options, reference=code, partition=partition, task=named)

    def start_and_stop(self, code: str, partition: int, *options: str, task: str = "") -> None:
        """Start one of the job's workers and stop it, as a first try on one of two machines."""
        with self.worker(code, partition, *options, task=task) as worker:
            worker.running()
            self.stop(worker)

    def stop(self, *workers: WorkerUnderTest) -> None:
        """Stop workers gracefully, once they take input: before, a signal just ends them."""
        for worker in workers:
            if worker.status.get("status") != "running":
                worker.running()
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            code, said = worker.ends(), worker.log_path.read_text()
            assert code == (ExitCode.FAILED if '"event": "stop timed out"' in said else ExitCode.DONE), said
            assert code == ExitCode.DONE or len(workers) == 1, said  # without the other one it cannot align

    def feed(self, *words: str) -> None:
        """Append records to the input, each with its word as key."""
        places = [TopicPartition(f"{self.name}-given", partition_of(word.encode(), 2)) for word in words]
        now_ms = time.time_ns() // 1_000_000  # what is older than its retention, Kafka deletes
        records = [ExternalRecord(at, w.encode(), w.encode(), now_ms) for at, w in zip(places, words, strict=True)]
        self.log.open_metadata(self.name).produce_with_meta(records, {})

    def everything(self) -> Everything:
        """Return all that is in the log: topics, where their partitions end, metadata."""
        topics = [topic for topic in self.log.topics() if topic.startswith(self.name)]
        partitions = [TopicPartition(topic, n) for topic in topics for n in range(self.log.partitions(topic) or 0)]
        metadata = self.log.read_metadata(self.name).meta_items("")
        return topics, {partition: self.log.bounds(partition)[1] for partition in partitions}, metadata

    def refused(self, code: str, partition: int, *options: str, ends: ExitCode = ExitCode.HALTED) -> str:
        """Start a worker that must be refused and must have written nothing; return what it said."""
        before = self.everything()
        with self.worker(code, partition, *options) as worker:
            assert worker.ends() == ends, worker.log_path.read_text()
        after = self.everything()
        assert after[0] == before[0]
        moved = {at: (before[1][at], found) for at, found in after[1].items() if found != before[1][at]}
        assert (moved, after[2]) == ({}, before[2]), worker.log_path.read_text()
        return worker.log_path.read_text()

    def until_counted(self, *workers: WorkerUnderTest, stage: str, records: int) -> None:
        """Wait until the stage's tasks have committed that many records of their input."""
        while self.counted(stage) < records:
            for worker in workers:
                assert worker.process.poll() is None, worker.log_path.read_text()
            self.log.wait(100)

    def counted(self, stage: str) -> int:
        """Return the number of records that the stage's tasks have committed."""
        if self.log.partitions(f"{self.name}.{stage}.changelog") is None:
            return 0
        found = [last_commit(self.log, TopicPartition(f"{self.name}.{stage}.changelog", n)) for n in range(2)]
        return sum(c.seq for at in found if at is not None for i in at.commit.inputs for c in i.channels)
