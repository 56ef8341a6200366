"""A job whose graph changes between two starts: real workers, stopped and started with the code of before and after."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grete.cli.main import app
from grete.errors import ExitCode
from grete.testing.broker import Broker
from tests.execution.changing_jobs import EXTENDED, OLD, Changing
from tests.worker.workers import WorkerUnderTest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]  # many workers, one after another

DETERMINISTIC = {"partitions=2": 'partitions=2, mode="deterministic"'}
WORLDS = {
    "embedded": ([], {}, False),
    "at least once": (["processing_guarantee=at-least-once"], {}, False),
    "deterministic": ([], DETERMINISTIC, False),
    "Kafka": ([], {}, True),
    "Kafka, at least once": (["processing_guarantee=at-least-once"], {}, True),
    "Kafka, deterministic": ([], DETERMINISTIC, True),
}


@pytest.fixture(autouse=True)
def _fixed_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of deterministic jobs ask for it."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.kafka if on_kafka else ()) for name, (_, _, on_kafka) in WORLDS.items()
    ]
)
def changing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Changing]:
    """A job that has not run."""
    settings, changes, on_kafka = WORLDS[request.param]
    broker: Broker | None = request.getfixturevalue("kafka_broker") if on_kafka else None
    made = Changing(tmp_path, *settings, bootstrap=broker.bootstrap if broker else "", **changes)
    yield made
    made.log.close()


@pytest.fixture
def aligned(tmp_path: Path) -> Iterator[Changing]:
    """A job on the embedded log, exactly once."""
    made = Changing(tmp_path)
    yield made
    made.log.close()


def test_a_stage_is_added_after_one_of_two_workers_was_tried(changing: Changing) -> None:
    """The first try has left its restores where the other worker begins; the new code goes on, with all."""
    old, extended = changing.code(OLD), changing.code(EXTENDED)
    changing.start_and_stop(old, 0)
    changing.feed("a", "b", "c", "d")
    changing.start_and_stop(extended, 0)
    refused = changing.refused(old, 0)
    assert "sends to stage 'third' of job" in refused
    assert "and this code has no such stage: start the code that has it; or go on without it in a job of" in refused
    with changing.worker(extended, 0) as zero, changing.worker(extended, 1) as one:
        changing.until_counted(zero, one, stage="second", records=4)
        changing.until_counted(zero, one, stage="third", records=4)
        changing.stop(zero, one)


@pytest.mark.parametrize("processing_guarantee", ["exactly-once", "at-least-once"])
def test_workers_of_the_code_before_go_on_beside_the_new_one(tmp_path: Path, processing_guarantee: str) -> None:
    """Also those that are killed and started again: the new stage waits for them, and begins where they end."""
    job = Changing(tmp_path, f"processing_guarantee={processing_guarantee}")
    old, extended = job.code(OLD), job.code(EXTENDED)
    job.feed("a", "b", "c", "d")
    with job.worker(old, 0) as zero, job.worker(old, 1) as one:
        job.until_counted(zero, one, stage="second", records=4)
        job.stop(one)
        with job.worker(extended, 1) as new_one:
            new_one.running()
            job.feed("a", "b", "c", "d")
            job.until_counted(zero, new_one, stage="second", records=8)
            zero.signal(signal.SIGKILL)
            zero.ends()
            with job.worker(old, 0) as again:
                job.feed("a", "b", "c", "d")
                job.until_counted(again, new_one, stage="second", records=12)
                job.stop(again)
            before = job.counted("third")
            with job.worker(extended, 0) as new_zero:
                new_zero.running()
                job.feed("a", "b", "c", "d")
                job.until_counted(new_zero, new_one, stage="second", records=16)
                job.until_counted(new_zero, new_one, stage="third", records=before + 4)
                job.stop(new_zero, new_one)
    job.log.close()


def test_stages_that_were_exchanged_write_nothing(changing: Changing) -> None:
    """A worker for each stage: neither runs under the other's number, and the right code goes on."""
    right, wrong = changing.code(OLD), changing.code("[Second, First]")
    changing.start_and_stop(right, 0)
    changing.feed("a", "b", "c", "d")
    for stage in ("first", "second"):
        refused = changing.refused(wrong, 0, f"--stage={stage}")
        assert "the stages were first, second and are second, first: keep them in their order" in refused
        assert "or give the job a new name" in refused
    with changing.worker(right, 0) as zero, changing.worker(right, 1) as one:
        changing.until_counted(zero, one, stage="second", records=4)
        changing.stop(zero, one)


RENAMED = {"class Second(Task):\n": 'class Second(Task):\n    name = "counter"\n'}
OTHER_STREAM = {"    words = Input(passed)\n    counts": "    words = Input(given)\n    counts"}
BACK = {
    "    words = Input(passed)\n": "    words = Input(passed)\n    more = Input(also)\n",
    "class First": 'also = Topic("also", key=utf8, value=utf8)\n\n\nclass First',
    "seen = Input(passed)": "out = Output(also)\n    lines = Input(given)",
}


@pytest.mark.parametrize(
    ("stages", "changes", "words"),
    [
        (OLD, RENAMED, "stage 'second' is called 'counter' now: write renamed_from = \"second\" in the class"),
        ("[Third, First, Second]", {}, "the stages were first, second and are third, first, second: keep them"),
        ("[Second]", {}, "the stages were first, second and are second: keep them in their order"),
        ("[First]", {}, "sends to stage 'second' of job"),
        (OLD, OTHER_STREAM, "the stream 'first.passed.second' from 'first' to 'second' is gone"),
        (OLD, {"partitions=2": "partitions=3"}, "has 2 partitions, not 3 as in this code"),
        (OLD, DETERMINISTIC, "made with guarantee exactly-once, not exactly-once (deterministic): put that back"),
        (EXTENDED, BACK, "stage 'second' reads 'also' from 'third', which was added later"),
        (OLD, {'Topic("changing-given"': 'Topic("changing-other"'}, "first-0: the job's graph is not the one of"),
    ],
)
def test_what_is_refused_writes_nothing(aligned: Changing, stages: str, changes: dict[str, str], words: str) -> None:
    """No topic, no claim, no restore, no pin; the way that the message names, to put it back, works."""
    old = aligned.code(OLD)
    aligned.start_and_stop(old, 0)
    assert words in json.loads(aligned.refused(aligned.code(stages, **changes), 0).splitlines()[-1])["error"]
    aligned.start_and_stop(old, 0)


def test_a_first_start_that_is_refused_leaves_no_topic(changing: Changing) -> None:
    """A mistake in a setting or a name leaves nothing behind; so the code that is right can begin."""
    code = changing.code(OLD)
    for options in (["--stage=nobody"], ["--set=checkpoint_interval_ms=0"]):
        changing.refused(code, 0, *options, ends=ExitCode.USAGE)
    changing.refused(code, 7, ends=ExitCode.USAGE)
    changing.start_and_stop(code, 0)


@pytest.mark.parametrize("stages", [OLD, EXTENDED])
def test_a_job_of_the_release_before_is_pinned_by_its_commits(aligned: Changing, stages: str) -> None:
    """Its log has commits and no graph: code that extends them goes on, code that contradicts them is refused."""
    old = aligned.code(OLD)
    aligned.start_and_stop(old, 0)
    aligned.feed("a", "b", "c", "d")
    metadata = aligned.log.open_metadata(aligned.name)
    first = json.loads(metadata.meta_get("graph") or b"")["first"]
    metadata.produce_with_meta([], {"graph": None})
    refused = aligned.refused(aligned.code("[Second, First]"), 0)
    assert "was made by stage number" in refused
    assert "and in this code the stage has number" in refused
    code = aligned.code(stages)
    with aligned.worker(code, 0) as zero, aligned.worker(code, 1) as one:
        aligned.until_counted(zero, one, stage="second", records=4)
        aligned.stop(zero, one)
    pinned = json.loads(metadata.meta_get("graph") or b"")
    assert pinned["first"] == first
    assert [stage["name"] for stage in pinned["stages"]] == ["first", "second", "third"][: 2 + (stages == EXTENDED)]


def test_a_job_goes_on_without_an_added_stage_as_a_fork(aligned: Changing) -> None:
    """The way that the refusal names: a job of another name, of the code before, with the state of this one."""
    old, extended = aligned.code(OLD), aligned.code(EXTENDED)
    aligned.feed("a", "b", "c", "d")
    with aligned.worker(extended, 0) as zero, aligned.worker(extended, 1) as one:
        aligned.until_counted(zero, one, stage="second", records=4)
        aligned.stop(zero, one)
    assert "grete fork JOB SECOND_JOB" in aligned.refused(old, 0)
    second = aligned.code(OLD, **{'Job("changing"': 'Job("without"'})
    forked = aligned.directory.with_name("forked")
    asked = ["fork", old, second, f"--directory={aligned.directory}", f"--second-directory={forked}"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, repr(done.exception)
    assert done.stdout.startswith("second/counts\t")  # of the newest checkpoint that all have
    for partition in range(2):
        with WorkerUnderTest(forked, reference=second, partition=partition, task=f"first-{partition}") as worker:
            worker.running()


def test_a_rescale_needs_every_stage_and_pins_the_partitions(aligned: Changing) -> None:
    """All state is written, so that of a stage that was added, too; the old number is refused afterwards."""
    old, extended = aligned.code(OLD), aligned.code(EXTENDED)
    aligned.feed("a", "b", "c", "d")
    with aligned.worker(old, 0) as zero, aligned.worker(old, 1) as one:
        aligned.until_counted(zero, one, stage="second", records=4)
        aligned.stop(zero, one)
    with aligned.worker(extended, 0) as zero, aligned.worker(extended, 1) as one:
        aligned.stop(zero, one)
    asked = ["--partitions=3", "--assume-keyed", f"--directory={aligned.directory}"]
    refused = CliRunner().invoke(app, ["rescale", old, *asked])
    assert "sends to stage 'third'" in str(refused.exception)
    done = CliRunner().invoke(app, ["rescale", extended, *asked])
    assert done.exit_code == 0, repr(done.exception)
    assert json.loads(aligned.log.open_metadata(aligned.name).meta_get("graph") or b"")["partitions"] == 3
    assert "has 3 partitions, not 2" in aligned.refused(extended, 0)
    aligned.start_and_stop(aligned.code(EXTENDED, **{"partitions=2": "partitions=3"}), 2)
