"""State moved by Spark is the same, entry by entry, as moved by one process, and the job goes on live exactly once."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from grete.api.jobs.job import Job
from grete.errors import ConfigError
from grete.execution.deterministic.outputs import is_of_outputs
from grete.execution.timing.floors import FLOOR
from grete.execution.timing.reserved_stores import META, STREAM_TIME, TIMERS
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.ports import ExternalRecord, JobLog
from grete.protocol.partitioner import partition_of
from grete.spark.format.options import LogSpec
from grete.spark.moving.spark_mover import SparkMover
from grete.state.pins.prepare import prepare
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import contents, segments, snapshots
from grete.state.write.fork import fork
from grete.state.write.moving.entries import MovedEntries
from grete.state.write.moving.mover import Mover
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob
from tests.spark.backfill.scene import NOW_MS, Silent
from tests.spark.moving.scene import CLUSTER, SETTINGS, Moving, Orders, Sent, State, fresh_name, made
from tests.support.draining import drain
from tests.support.kafka_topics import widen
from tests.support.parity_records import fed, records_of

if TYPE_CHECKING:
    pass

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark

FIRST, SECOND, THIRD = made(300, 1, 0), made(300, 2, 1_500), [*made(200, 3, 3_000), *made(0, 4, 100_000)]
AHEAD = [each for each in made(0, 5, 50_000) if partition_of(each[0].encode(), 3) == 1]


@pytest.mark.usefixtures("spark")
def test_a_rescale_by_spark_equals_one_by_a_process(tmp_path: Path) -> None:
    """Two stages from 3 to 5: stores, tables, windows, joins, what expires, timers of both clocks; then as if never so.

    The changelogs hold a rescale already, and what commits have written, changed and deleted after it. One partition is
    ahead in event time, so records that are late for its keys, and only these, are late in the tasks that get them.
    """
    base = Moving(tmp_path / "base", "moving", 2).run(FIRST)
    base.rescale(3)
    base = base.of(3).run(SECOND, AHEAD)
    alone, spark = base.copy(tmp_path / "alone"), base.copy(tmp_path / "spark")
    expected = alone.rescale(5)
    with spark.mover() as mover:
        moved = spark.rescale(5, mover)
    assert moved.entries == expected.entries
    assert {name for name, count in moved.entries.items() if count} == {
        *(
            f"keep/{store}"
            for store in ("_timers", "both", "parts", "recent", "sums", "blocks", "hops", "near", "visits")
        ),
        *(f"keep/{store}" for store in ("met-left", "met-right", "known")),
        "count/counts",
    }
    alone, spark = alone.of(5), spark.of(5)
    found = spark.state()
    assert found == alone.state()
    owners = {key[9 : 9 + key[8]] for _, _, store, key in found if store == TIMERS}
    assert owners == {b"", b"@wall", b"blocks", b"hops", b"near", b"visits", b"met", b"known"}
    assert sum(store == META and key.startswith(FLOOR) for _, _, store, key in found) == 5
    assert len({found["keep", number, META, STREAM_TIME] for number in range(5)}) == 1
    base.run(THIRD)
    spark.run(THIRD)
    assert spark.sent() == base.sent()
    late = {key.split()[-1] for key, _, _ in spark.sent() if key is not None and key.startswith(b"late blocks")}
    assert late == {key.encode() for key, _, at in THIRD if partition_of(key.encode(), 3) == 1 and at < NOW_MS + 9_000}
    assert not [key for _, _, store, key in spark.state() if store == META and key.startswith(FLOOR)]
    silent = base.job.stage("keep").store_ids()["near"]  # closed panes of sliding windows go when the key has a timer
    values = [
        {(s, key): v for (_, _, s, key), v in each.state().items() if s >= 10 and s != silent} for each in (base, spark)
    ]
    assert values[0] == values[1]
    assert spark.files_taken() == 10
    assert not (spark.job_directory.directory / "spark").exists() or not [
        *(spark.job_directory.directory / "spark").iterdir()
    ]
    for each in (base, alone, spark):
        each.log.close()


@pytest.mark.kafka
@pytest.mark.usefixtures("spark")
def test_a_rescale_by_spark_on_kafka(kafka_broker: Broker, tmp_path: Path) -> None:
    """Of two jobs on a broker one is rescaled by Spark, one by a process: the same state, and the same outputs once."""
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    made_by: list[tuple[State, Sent]] = []
    for by_spark in (False, True):
        name = fresh_name()
        job = Moving(tmp_path / name, name, 2, f"kafka://{kafka_broker.bootstrap}").run(FIRST)
        widen(admin, f"{name}-orders", 3)
        job = job.of(2)  # a log that has seen the topic grow halts
        if by_spark:
            with job.mover() as mover:
                job.rescale(3, mover)
        else:
            job.rescale(3)
        job = job.of(3)
        state = job.state()
        job.run(THIRD)
        count = 0 if not made_by else made_by[0][1].total()
        made_by.append((state, job.sent(count or 1_200)))
        job.log.close()
    assert made_by[0] == made_by[1]


STAGES = "Windows, Joins, Forget, Sums"
FORKED = f"from grete import Job\nfrom tests.support.parity import {STAGES}\n\njob = Job"


class Forked:
    """A job whose state is windows, joins by time, duplicates that are known, and what expires."""

    def __init__(self, directory: Path, name: str, stages: str = STAGES, numbers: str = "2") -> None:
        """Write its code, and open its log. ``numbers``: partitions, and perhaps the mode."""
        directory.mkdir()
        self.reference = str(directory / f"{name}.py")
        Path(self.reference).write_text(f'{FORKED}("{name}", [{stages}], partitions={numbers})\n')
        self.job: Job = load_job(self.reference)
        self.job_directory = JobDirectory(directory / "job")
        self.log: JobLog = self.job_directory.open_log()
        prepare(self.job, self.log, self.job_directory, SETTINGS, ["events"])
        self.where = LogSpec("embedded", "", str(self.job_directory.directory / "log.db"))

    def run(self, records: list[ExternalRecord]) -> None:
        """Let workers process records."""
        self.log.open_metadata(self.job.name).produce_with_meta(records, {})
        with LocalJob(self.job, self.reference, self.job_directory, SETTINGS) as local:
            drain(local)
            local.stop()

    def state(self) -> list[tuple[int, int, bytes, bytes]]:
        """Return task, store, key and value of all entries."""
        return [
            (number, store, key, value)
            for number, snapshot in enumerate(snapshots(self.log, self.job))
            for store, entries in contents(segments(self.log, snapshot), frozenset(range(20))).items()
            for key, (value, _) in sorted(entries.items())
            if value is not None
        ]

    def fork_of(self, first: "Forked", mover: Mover | None = None) -> MovedEntries:
        """Take the state of another one."""
        found = snapshots(first.log, first.job)
        return fork(
            first.log, first.job, found, self.log, self.job, SETTINGS, copy=True, assume_keyed=True, mover=mover
        )


@pytest.mark.usefixtures("spark")
def test_a_fork_by_spark_equals_one_by_a_process(tmp_path: Path) -> None:
    """With as many partitions all moves: windows, joins by time, what is known of duplicates, entries that expire."""
    first, alone, spark = (Forked(tmp_path / name, name) for name in ("first", "alone", "spark"))
    first.run(records_of([each for each in fed(0, 150) if each[0] == "events"], "", 0))
    expected = alone.fork_of(first)
    with SparkMover(CLUSTER, first.where, spark.where, None, Silent()) as mover:
        moved = spark.fork_of(first, mover)
    assert moved.entries == expected.entries
    assert {name.split("/")[0] for name in moved.entries} == {"windows", "joins", "forget", "sums"}
    assert spark.state() == alone.state()
    tail = records_of([each for each in fed(160, 200) if each[0] == "events"], "", 0)
    alone.run(tail)
    spark.run(tail)
    assert spark.state() == alone.state()
    for each in (first, alone, spark):
        each.log.close()


@pytest.mark.usefixtures("spark")
def test_a_deterministic_fork_to_more_partitions_by_spark_equals_one_by_a_process(tmp_path: Path) -> None:
    """Windows and joins by time of tasks that are not equally far; numbers of outputs stay with the first job."""
    kind = ', mode="deterministic"'
    first = Forked(tmp_path / "first", "first", "Windows, Joins", f"2{kind}")
    alone, spark = (Forked(tmp_path / name, name, "Windows, Joins", f"3{kind}") for name in ("alone", "spark"))
    records = records_of([each for each in fed(0, 150) if each[0] == "events"], "", 0)
    last = max((record for record in records if record.partition.partition == 0), key=lambda each: each.timestamp_ms)
    first.run([*records, last._replace(timestamp_ms=last.timestamp_ms + 2_000)])
    expected = alone.fork_of(first)
    with SparkMover(CLUSTER, first.where, spark.where, None, Silent()) as mover:
        assert spark.fork_of(first, mover).entries == expected.entries
    found = spark.state()
    assert found == alone.state()
    assert sum(store == META and key.startswith(FLOOR) for _, store, key, _ in found) == 6
    assert not [key for _, store, key, _ in found if store == META and is_of_outputs(key)]
    for each in (first, alone, spark):
        each.log.close()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("changes", "orders", "text"),
    [
        ({}, FIRST[:3], r"cannot tell from \d keys? in 2 partitions whether the keys of store"),
        ({"put(key, total)": 'put("x" + key, total)'}, FIRST, r"store keep/sums: key b'x.* it is not keyed as the rec"),
    ],
)
def test_what_spark_cannot_move_is_refused_before_anything_is_changed(
    tmp_path: Path, changes: dict[str, str], orders: Orders, text: str
) -> None:
    """Keys that do not tell their partition, and too few of them: as by a process, with its words."""
    job = Moving(tmp_path / "job", "moving", 2, changes=changes).run(orders)
    changelogs = [wiring.changelog for wiring in all_wirings(job.job)]
    ends = [job.log.bounds(changelog) for changelog in changelogs]
    for mover in (None, job.mover()):
        with pytest.raises(ConfigError, match=text):
            job.rescale(3, mover)
        assert [job.log.bounds(changelog) for changelog in changelogs] == ends
        assert {job.log.partitions(changelog.topic) for changelog in changelogs} == {2}
    job.log.close()
