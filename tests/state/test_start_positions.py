"""The start positions of a job's inputs: settled at its first start, on both logs and in both modes."""

import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from grete import Input, Job, Output, Record, Task, Topic, utf8
from grete.api.tasks.mode import Mode
from grete.api.topics.topic import StartPosition
from grete.cli.starts import starts_of
from grete.errors import ConfigError, GraphError
from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord, JobLog
from grete.protocol.ids import TopicPartition
from grete.replay.determinism.replay import replay
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from grete.state.pins.start_pinning import pin_starts
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.worker.workers import LIMIT_S

SETTINGS = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20)
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
NOON_MS = round(NOON.timestamp() * 1000)


def copying(start: StartPosition, mode: Mode = "aligned", name: str = "j", topic: str = "lines") -> Job:
    """Return a job of 2 partitions that copies its input."""

    class Copies(Task):
        lines = Input(Topic(topic, key=utf8, value=utf8), start=start)
        out = Output(Topic(f"{topic}-copied", key=utf8, value=utf8))

        def process(self, record: Record[str, str]) -> None:
            self.out.send(record.key, record.value)

    return Job(name, stages=[Copies], partitions=2, mode=mode)


def append(log: JobLog, topic: str, *rows: tuple[int, str, int]) -> None:
    """Append (partition, value, minutes since noon)."""
    records = [
        ExternalRecord(TopicPartition(topic, p), b"k", value.encode(), NOON_MS + 60_000 * minutes)
        for p, value, minutes in rows
    ]
    log.produce(0, 0, records)
    while not log.poll():
        log.wait(100)


@pytest.fixture
def place(tmp_path: Path) -> JobDirectory:
    """Return the directory of a job."""
    return JobDirectory(tmp_path / "place")


@pytest.fixture
def log(place: JobDirectory) -> Iterator[EmbeddedLog]:
    """Yield a log with three lines a minute apart in partition 0, the second one of an earlier time; none in 1."""
    with closing(place.open_log()) as opened:
        assert isinstance(opened, EmbeddedLog)
        opened.create_topic("lines", 2, plain=True)
        append(opened, "lines", (0, "a", 0), (0, "b", -5), (0, "c", 2))
        yield opened


def begins(job: Job) -> list[int]:
    """Return at which offset each partition begins, 0 where nothing is settled."""
    starts = job.topology().starts.get(0, {})
    return [starts.get(TopicPartition("lines", number), 0) for number in range(2)]


PLACES: list[tuple[StartPosition, list[int]]] = [
    ("earliest", [0, 0]),
    ("latest", [3, 0]),
    (NOON, [0, 0]),
    (NOON + timedelta(minutes=1), [2, 0]),
    (datetime(2026, 11, 1, 13, 2, tzinfo=timezone(timedelta(hours=1))), [2, 0]),
    (NOON + timedelta(hours=1), [3, 0]),
]


@pytest.mark.parametrize(("start", "offsets"), PLACES)
def test_the_first_start_settles_where_a_job_begins(
    place: JobDirectory, log: EmbeddedLog, start: StartPosition, offsets: list[int]
) -> None:
    """Also if it dies before anything is processed: what comes meanwhile is read by the next start."""
    prepare(first := copying(start), log, place, SETTINGS)
    assert begins(first) == offsets
    append(log, "lines", (0, "d", 90), (1, "e", 90))
    prepare(second := copying(start), log, place, SETTINGS)
    assert begins(second) == offsets


def run(
    job: Job, place: JobDirectory, file: Path, *, kill: bool = False, starts: dict[str, datetime] | None = None
) -> None:
    """Run workers until all is processed; ``kill`` one as soon as it runs."""
    with LocalJob(job, str(file), place, SETTINGS, inputs=OutsideInputs(starts=starts)) as local:
        deadline = time.monotonic() + LIMIT_S
        while not local.drained(local.ends()):
            assert time.monotonic() < deadline
            local.poll(20)
            if kill and local.supervisor.workers[0].reports.tasks:
                local.supervisor.kill(0)
                kill = False
        local.stop()


def copied(log: JobLog, topic: str = "lines") -> list[str]:
    """Return the values of the output, sorted."""
    ends = [(TopicPartition(f"{topic}-copied", p), *log.bounds(TopicPartition(f"{topic}-copied", p))) for p in range(2)]
    rows = [row for at, begin, _ in ends for row in log.read(at, begin, 1 << 20)]
    return sorted((row.value or b"").decode() for row in rows)


def file_of(tmp_path: Path, call: str) -> Path:
    """Write the job's file, for its workers."""
    file = tmp_path / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        f"from tests.state.test_start_positions import NOON, copying\njob = {call}\n"
    )
    return file


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_workers_begin_there_and_go_on_where_they_were(
    tmp_path: Path, place: JobDirectory, log: EmbeddedLog, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    """A killed one, too. Code that says another place later is told that the job goes on."""
    file = file_of(tmp_path, f"copying('latest', {mode!r})")
    prepare(copying("latest", mode), log, place, SETTINGS)  # a start that dies before its workers run
    append(log, "lines", (0, "d", 3), (1, "e", 3))
    run(copying("latest", mode), place, file, kill=True)
    assert copied(log) == ["d", "e"]
    append(log, "lines", (0, "f", 4))
    file.write_text(file.read_text().replace("'latest'", "'earliest'"))
    with caplog.at_level(logging.WARNING, "grete.definition"):
        run(copying("earliest", mode), place, file)
    assert copied(log) == ["d", "e", "f"]
    said = "stage copies has begun to read topic lines with start=latest, and this code says start=earliest: it goes on"
    assert said in caplog.text
    if mode == "deterministic":
        found = replay(copying("latest", mode), log, SETTINGS)
        assert (found.difference, found.halted) == (None, None)


def test_a_job_that_has_read_from_the_first_record_is_told_so(
    tmp_path: Path, place: JobDirectory, log: EmbeddedLog, caplog: pytest.LogCaptureFixture
) -> None:
    """start= that comes later changes nothing, and nothing is pinned."""
    file = file_of(tmp_path, "copying('earliest')")
    run(copying("earliest"), place, file)
    with caplog.at_level(logging.WARNING, "grete.definition"):
        prepare(later := copying("latest"), log, place, SETTINGS)
    assert "with start=earliest, and this code says start=latest: it goes on from where it is" in caplog.text
    assert begins(later) == [0, 0]
    assert copied(log) == ["a", "b", "c"]


def test_a_time_on_the_command_line_comes_before_the_code_and_is_settled_once(
    place: JobDirectory, log: EmbeddedLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Workers, whose code says nothing of it, begin there without a word; who asks for another time later is told."""
    given = {"lines": NOON + timedelta(minutes=1)}
    with caplog.at_level(logging.WARNING, "grete.definition"):
        prepare(first := copying("earliest"), log, place, SETTINGS, starts=given)
        append(log, "lines", (0, "d", 90))
        prepare(worker := copying("earliest"), log, place, SETTINGS)
        same = {"lines": given["lines"].astimezone(timezone(timedelta(hours=1)))}
        prepare(again := copying("earliest"), log, place, SETTINGS, starts=same)
    assert not told(caplog)
    assert [begins(each) for each in (first, worker, again)] == [[2, 0]] * 3
    with caplog.at_level(logging.WARNING, "grete.definition"):
        prepare(other := copying("latest"), log, place, SETTINGS, starts={"lines": NOON})
    said = "has begun to read topic lines with start=2026-11-01T12:01:00+00:00, and --from says start=2026-11-01T12:00"
    assert said in caplog.text
    assert begins(other) == [2, 0]


def test_a_time_that_comes_after_the_first_start_changes_nothing(
    place: JobDirectory, log: EmbeddedLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Also before the first commit: other machines may run tasks that began with the first record."""
    prepare(copying("earliest"), log, place, SETTINGS)
    with caplog.at_level(logging.WARNING, "grete.definition"):
        prepare(later := copying("earliest"), log, place, SETTINGS, starts={"lines": NOON + timedelta(minutes=1)})
    assert "with start=earliest, and --from says start=2026-11-01T12:01:00+00:00: it goes on" in caplog.text
    assert begins(later) == [0, 0]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the news for a person, of the job's code and where it begins."""
    return [record.getMessage() for record in caplog.records if record.name == "grete.definition"]


def piping() -> Job:
    """Return a job of two stages, with a stream between them."""

    class Reads(Task):
        copies = Input(Topic("lines-copied", key=utf8, value=utf8))
        out = Output(Topic("read", key=utf8, value=utf8))

        def process(self, record: Record[str, str]) -> None: ...

    return Job("j", stages=[copying("earliest").stages[0].task, Reads])


BAD_OPTIONS: list[tuple[list[str], str]] = [
    (["lines"], "--from lines: write TOPIC@TIME, with a time such as 2026-11-01T00:00Z; TOPIC is one of lines"),
    (["line@2026-11-01T00:00Z"], "job 'j' does not read topic 'line'; TOPIC is one of lines"),
    (["read@2026-11-01T00:00Z"], "job 'j' writes topic 'read'; TOPIC is one of lines"),
    (["lines-copied@2026-11-01T00:00Z"], "stage 'copies' writes topic 'lines-copied', and between stages every record"),
    (["lines@yesterday"], "'yesterday' is no time: write one such as 2026-11-01T00:00Z"),
    (["lines@"], "'' is no time"),
    (["lines@2026-11-31T00:00Z"], "'2026-11-31T00:00Z' is no time"),
    (["lines@2026-11-01T00:00"], "the time has no zone, and means another moment on another machine: add Z"),
    (
        ["lines@2026-11-01T00:00Z", "lines@2026-11-02T00:00Z"],
        "names topic 'lines' twice: 2026-11-01T00:00:00+00:00 and 2026-11-02T00:00Z: leave one of them out",
    ),
]


@pytest.mark.parametrize(("options", "said"), BAD_OPTIONS)
def test_a_time_that_cannot_be_meant_is_refused(options: list[str], said: str) -> None:
    """The error has the value, and a way to write it."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        starts_of(piping(), options)


def test_workers_begin_at_the_time_that_the_command_line_says(
    tmp_path: Path, place: JobDirectory, log: EmbeddedLog
) -> None:
    """A killed one, too; and the next run, which says nothing of it, goes on."""
    file = file_of(tmp_path, "copying('earliest')")
    given = starts_of(copying("earliest"), ["lines@2026-11-01T13:02+01:00"])
    run(copying("earliest"), place, file, kill=True, starts=given)
    assert copied(log) == ["c"]
    append(log, "lines", (0, "d", -9), (1, "e", 3))
    run(copying("earliest"), place, file)
    assert copied(log) == ["c", "d", "e"]


MISTAKES: list[tuple[Any, str]] = [
    ("newest", "start='newest': need 'earliest', 'latest' or a datetime with a time zone"),
    (datetime(2026, 11, 1), "need 'earliest', 'latest' or a datetime with a time zone"),  # noqa: DTZ001  # the mistake
]


@pytest.mark.parametrize(("start", "said"), MISTAKES)
def test_a_place_that_means_nothing_is_refused(start: Any, said: str) -> None:
    """A time without a zone means another moment on another machine."""
    with pytest.raises(GraphError, match=said):
        copying(start)


def test_a_stream_between_stages_has_no_start() -> None:
    """Every record of it is read."""

    class Reads(Task):
        lines = Input(Topic("lines-copied", key=utf8, value=utf8), start="latest")

        def process(self, record: Record[str, str]) -> None: ...

    with pytest.raises(
        GraphError, match="reads topic 'lines-copied' with start=, and stage 'copies' of this job writes"
    ):
        Job("j", stages=[copying("earliest").stages[0].task, Reads])


@pytest.mark.kafka
def test_kafka_finds_times_and_ends(kafka_broker: Broker, tmp_path: Path) -> None:
    """A time is that of the first record which is as late, as the broker finds it; of no such record it is the end."""
    address = LogAddress(f"kafka://{kafka_broker.bootstrap}")
    topic = f"t{os.urandom(6).hex()}"
    with closing(JobDirectory(tmp_path / "place", address=address).open_log()) as log:
        log.create_topic(topic, 2, plain=True)
        append(log, topic, (0, "a", 0), (0, "b", -5), (0, "c", 2))
        for start, offsets in PLACES:
            job = copying(start, name=f"j{os.urandom(6).hex()}", topic=topic)
            prepare(job, log, JobDirectory(tmp_path / job.name, address=address), SETTINGS)
            starts = job.topology().starts.get(0, {})
            found = [starts.get(TopicPartition(topic, number), 0) for number in range(2)]
            assert found == offsets, start


@pytest.mark.kafka
def test_of_two_machines_the_first_settles_the_time(
    kafka_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other one begins there, too, and is told; a machine that was asked for no time begins there without a word.

    The second one has looked before the first one wrote: what counts is what the log has when it would write.
    """
    address = LogAddress(f"kafka://{kafka_broker.bootstrap}")
    topic, name = f"t{os.urandom(6).hex()}", f"j{os.urandom(6).hex()}"
    first, second = ({topic: NOON + timedelta(minutes=minutes)} for minutes in (1, 60))
    jobs = [copying("earliest", name=name, topic=topic) for _ in range(3)]
    with ExitStack() as opened:
        places = [JobDirectory(tmp_path / f"place-{n}", address=address) for n in range(3)]
        logs = [opened.enter_context(closing(place.open_log())) for place in places]
        logs[0].create_topic(topic, 2, plain=True)
        append(logs[0], topic, (0, "a", 0), (0, "b", -5), (0, "c", 2))
        looked = logs[1].open_metadata(name)
        assert looked.meta_get("graph") is None  # it has read all that is there
        prepare(jobs[0], logs[0], places[0], SETTINGS, starts=first)
        with caplog.at_level(logging.WARNING, "grete.definition"):
            prepare(jobs[2], logs[2], places[2], SETTINGS)
            assert not told(caplog)
            pin_starts(jobs[1], logs[1], looked, second)
        assert "start=2026-11-01T12:01:00+00:00, and --from says start=2026-11-01T13:00:00+00:00" in caplog.text
        starts = [job.topology().starts[0][TopicPartition(topic, 0)] for job in jobs]
        assert starts == [2, 2, 2]
