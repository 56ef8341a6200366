"""A job whose stages have numbers of partitions of their own, over a log: pinned, refused when changed, rescaled."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.key_metadata import rescaled
from grete.logs.embedded import EmbeddedLog
from grete.settings import Settings
from grete.state.pins.graph_pinning import GRAPH
from grete.state.pins.prepare import prepare
from grete.state.write.rescale import partitions_of, rescale
from grete.worker.process.hosting import stages_of

LINES, WORDS = Topic("lines", key=utf8, value=int64), Topic("words", key=utf8, value=int64)
SETTINGS = Settings()


class Split(Task):
    """A source with the job's number."""

    lines = Input(LINES)
    words = Output(WORDS)

    def process(self, record: Record[str, int]) -> None: ...


class Count(Task):
    """Has a number of its own."""

    partitions = 3
    words = Input(WORDS)
    counts = Store("counts", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None: ...


def job_of(first: int, second: int | None) -> Job:
    """Return the job with these numbers; None: the second stage has that of the job."""
    return Job("j", [Split, type("Count", (Count,), {"partitions": second})], partitions=first)


@pytest.fixture
def place(tmp_path: Path) -> JobDirectory:
    """Return the directory of a job."""
    return JobDirectory(tmp_path)


@pytest.fixture
def log(place: JobDirectory) -> Iterator[EmbeddedLog]:
    """Yield a log."""
    with closing(place.open_log()) as opened:
        assert isinstance(opened, EmbeddedLog)
        yield opened


def test_the_topics_are_made_with_the_numbers_of_their_stages(place: JobDirectory, log: EmbeddedLog) -> None:
    """Inputs and changelogs with that of their stage, a stream with that of its reader; pinned with the graph."""
    prepare(job := job_of(2, 3), log, place, SETTINGS)
    found = {topic: log.partitions(topic) for topic in ("lines", "j.split.changelog", "j.count.changelog")}
    assert found == {"lines": 2, "j.split.changelog": 2, "j.count.changelog": 3}
    assert log.partitions("j.split.words.count") == 3
    pinned = json.loads(log.read_metadata("j").meta_get(GRAPH) or b"")
    assert pinned["partitions"] == 2
    assert [stage.get("partitions") for stage in pinned["stages"]] == [None, 3]
    prepare(job, log, place, SETTINGS)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ((2, 5), r"stage 'count' of job 'j' has 3 partitions, not 5 as in this code: write partitions = 3 in class"),
        ((2, 5), r"to have more: grete rescale JOB --stage=count --partitions=5$"),
        ((2, None), r"stage 'count' of job 'j' has 3 partitions, not 2 as in this code: write partitions = 3 in class"),
        ((2, 2), r"; to have fewer: grete fork JOB SECOND_JOB, a job of another name$"),
        ((4, 3), r"^job 'j' has 2 partitions, not 4 as in this code: write Job\(…, partitions=2\)"),
    ],
)
def test_another_number_is_refused(
    place: JobDirectory, log: EmbeddedLog, changed: tuple[int, int | None], said: str
) -> None:
    """Keys are in the tasks that they had; put back, the job starts."""
    prepare(job_of(2, 3), log, place, SETTINGS)
    with pytest.raises(ConfigError, match=said):
        prepare(job_of(*changed), log, place, SETTINGS)
    prepare(job_of(2, 3), log, place, SETTINGS)


def test_a_deterministic_job_is_not_sent_to_a_command_that_refuses_it(place: JobDirectory, log: EmbeddedLog) -> None:
    """It cannot be rescaled."""
    prepare(Job("j", [Split, Count], partitions=2, mode="deterministic"), log, place, SETTINGS)
    with pytest.raises(ConfigError, match=r"partitions=2\); a deterministic job keeps its number: run its inputs"):
        prepare(Job("j", [Split, Count], partitions=3, mode="deterministic"), log, place, SETTINGS)


def test_a_number_of_its_own_that_is_the_jobs_changes_nothing(place: JobDirectory, log: EmbeddedLog) -> None:
    """The number of tasks counts, not the place where it is declared."""
    prepare(job_of(3, None), log, place, SETTINGS)
    prepare(job_of(3, 3), log, place, SETTINGS)


def test_a_worker_has_the_tasks_of_its_number() -> None:
    """Each stage that has this number gives one; a number that no stage has is refused."""
    job = job_of(2, 3)
    assert [[stage.name for stage in stages_of(job, n, None)] for n in range(3)] == [["split", "count"]] * 2 + [
        ["count"]
    ]
    with pytest.raises(ConfigError, match="job 'j' has partitions 0 to 2, not 3"):
        stages_of(job, 3, None)
    with pytest.raises(ConfigError, match="stage 'split' has partitions 0 to 1, not 2"):
        stages_of(job, 2, "split")


def test_a_rescale_without_a_stage_that_follows_the_job_asks_for_one(place: JobDirectory, log: EmbeddedLog) -> None:
    """A number alone does not name the stage, so the command asks for one."""
    own = Job("j", [type("Split", (Split,), {"partitions": 2}), Count])
    prepare(own, log, place, SETTINGS)
    with pytest.raises(ConfigError, match=r"each stage of job 'j' has a number.*--stage, one of split, count"):
        rescale(log, own, 4, SETTINGS, own_topics=True)
    with pytest.raises(ConfigError, match="job 'j' has no stage 'sum'"):
        partitions_of(log, own, "sum")
    assert rescaled(log.read_metadata("j"), own, own.stages[0]) is None
