"""An audit that follows a running job: no false alarm whatever dies, and a difference is told at its checkpoint."""

import time
from pathlib import Path

import pytest

from grete.api.jobs.job import Job
from grete.errors import ConfigError
from grete.job.loader import load_job
from grete.replay.audit import steps
from grete.replay.audit.refused import check_follow
from grete.replay.audit.sample import Sample
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings
from tests.replay.followed_jobs import COUNTING, HEAD, LOGICAL, ORDERED, SETTINGS, TIMED, WINDOWS, Looked, Scene
from tests.spark.backfill.damage import damage
from tests.worker.workers import LIMIT_S


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("text", "on"),
    [
        (COUNTING, "embedded"),
        (WINDOWS, "embedded"),
        (ORDERED, "embedded"),
        (TIMED, "embedded"),
        pytest.param(COUNTING, "kafka", marks=pytest.mark.kafka),
    ],
    ids=["two stages", "event time", "recorded order", "logical time", "kafka"],
)
@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.prove)])
def test_no_false_alarm_while_workers_and_the_audit_die(
    request: pytest.FixtureRequest, tmp_path: Path, text: str, on: str, kills: int
) -> None:
    """The audit looks while workers are killed; it is closed at any step and goes on without a gap."""
    log = f"kafka://{request.getfixturevalue('kafka_broker').bootstrap}" if on == "kafka" else on
    scene, looked = Scene(tmp_path, text, log, "audit-follow-" if on == "kafka" else ""), Looked()
    with scene.running() as local:
        scene.fed_and_drained(local, 40)
        for turn in range(kills):
            scene.feed(local, 60)
            with scene.audit() as audit:
                deadline = time.monotonic() + LIMIT_S
                steps = len(looked.steps)
                local.supervisor.kill(turn % 2)
                while len(looked.steps) < steps + 2:
                    assert time.monotonic() < deadline, looked.steps[-1:]
                    local.poll(20)
                    if not looked.look(audit):
                        scene.feed(local, 5)
        scene.fed_and_drained(local, 100, kill=1)
        with scene.audit() as audit:
            looked.to_end(audit)
    assert [begun.why for begun in looked.begun] == [""]
    assert looked.differences == []
    assert looked.wrong == 0
    assert looked.keys > 100
    for before, after in zip(looked.steps, looked.steps[1:], strict=False):
        assert before.checkpoint_id == after.after, "a step was left out"


def test_each_record_behind_the_beginning_is_made_again_once(tmp_path: Path) -> None:
    """Steps of a bounded number of records come to the same end as one step."""
    scene, looked = Scene(tmp_path), Looked()
    with scene.running() as local, scene.audit() as audit:
        scene.fed_and_drained(local, 20)
        looked.to_end(audit)
        before = looked.records
        for _ in range(4):
            scene.fed_and_drained(local, 50)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(steps, "STEP_RECORDS_MAX", 60)
            looked.to_end(audit)
    assert looked.records - before == 200 * 4, "200 lines, and three words of each"
    assert len(looked.steps) >= 3
    assert [step.caught_up for step in looked.steps].count(False) >= 2
    assert looked.steps[-1].caught_up
    assert looked.wrong == 0


def test_a_task_that_is_not_deterministic_is_told_once(tmp_path: Path) -> None:
    """The step in which it went wrong differs; the next one starts from what is there, and does not."""
    scene, looked = Scene(tmp_path), Looked()
    with scene.running() as local, scene.audit() as audit:
        scene.fed_and_drained(local, 60)
        looked.to_end(audit)
        scene.wrong.touch()
        scene.fed_and_drained(local, 60)
        looked.to_end(audit)
        scene.wrong.unlink()
        first = looked.differences
        scene.fed_and_drained(local, 60)
        looked.to_end(audit)
    assert {(each.stage, each.store, each.key) for each in first} == {("count", "counts", b"w7")}
    assert all(each.found != each.expected for each in first)
    assert looked.differences == first


SENDS = "            self.out.send(word, 1)\n"


@pytest.mark.parametrize(
    ("sends", "begun"),
    [
        (SENDS.replace("1)", "1 + WRONG.exists() * random.randrange(1, 99))"), 1),
        (f"{SENDS}        for _ in range(random.randrange(1, 99) if WRONG.exists() else 0):\n{SENDS}", 2),
    ],
    ids=["others", "another number"],
)
def test_records_between_stages_are_compared(tmp_path: Path, sends: str, begun: int) -> None:
    """By their digest, in deterministic mode; if there are more or fewer, the audit cannot go on with them."""
    scene, looked = Scene(tmp_path, LOGICAL.replace(SENDS, sends)), Looked()
    with scene.running() as local, scene.audit() as audit:
        scene.fed_and_drained(local, 60)
        looked.to_end(audit)
        scene.wrong.touch()
        scene.fed_and_drained(local, 60)
        scene.wrong.unlink()
        deadline = time.monotonic() + LIMIT_S
        while not looked.wrong or len(looked.begun) < begun or not looked.steps[-1].caught_up:
            assert time.monotonic() < deadline, looked.steps[-1:]
            looked.look(audit)
        told = looked.differences
        scene.fed_and_drained(local, 60)
        looked.to_end(audit)
    assert any(each.stage == "split" and each.key.startswith(b"digest ") for each in told)
    assert looked.differences == told
    assert len(looked.begun) == begun
    assert begun == 1 or "another number of records" in looked.begun[1].why


@pytest.mark.parametrize(
    ("text", "places"),
    [(ORDERED, [(0, "last", "k"), (1, "counts", "w"), (2, "sizes", "k")]), (TIMED, [(0, "reminded", "k")])],
    ids=["calls, streams and batches", "timers"],
)
def test_a_changed_entry_of_a_deterministic_task_is_told(
    tmp_path: Path, text: str, places: list[tuple[int, str, str]]
) -> None:
    """A changed entry is found for all inputs: their order, the calls' results and the timers' times are recorded."""
    scene, looked = Scene(tmp_path, text), Looked()
    with scene.running() as local:
        scene.fed_and_drained(local, 60)
        with scene.audit() as audit:
            looked.until_begun(audit, scene, local)
            looked.to_end(audit)
        scene.fed_and_drained(local, 60)
    expected = set()
    with scene.audit() as audit:
        for number, store, first in places:
            stage = scene.job.stages[number]
            keys = [(stage.store_ids()[store], f"{first}{n}".encode()) for n in range(29)]
            changelog = all_wirings(scene.job)[scene.job.tasks_of(number).start].changelog
            changed = damage(scene.log, scene.job_directory.directory / "log.db", changelog, keys)
            assert changed is not None
            expected.add((stage.name, 0, store, changed[1]))
        looked.to_end(audit)
    assert {(each.stage, each.partition, each.store, each.key) for each in looked.differences} == expected
    assert looked.wrong == len(expected)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_changed_entry_of_a_changelog_is_told(tmp_path: Path, share: float) -> None:
    """With all digests right, as a disk of a worker would do it; of a share, if its key is drawn."""
    scene, looked = Scene(tmp_path), Looked()
    with scene.running() as local:
        scene.fed_and_drained(local, 60)
        with scene.audit(share) as audit:
            looked.to_end(audit)
        scene.fed_and_drained(local, 60)
    wiring = all_wirings(scene.job)[2]
    with scene.audit(share) as audit:
        store = scene.job.stages[1].store_ids()["counts"]
        sample = Sample(scene.job.name, share)
        keys = [(store, b"w%d" % number) for number in range(29) if sample.has(b"w%d" % number)]
        changed = damage(scene.log, scene.job_directory.directory / "log.db", wiring.changelog, keys)
        assert changed is not None
        looked.to_end(audit)
    assert [(each.partition, each.store, each.key) for each in looked.differences] == [(0, "counts", changed[1])]
    assert looked.wrong == 1


def test_a_share_compares_the_drawn_keys(tmp_path: Path) -> None:
    """Half of the words; all of the stage before, whose outputs they need."""
    scene, whole, half = Scene(tmp_path), Looked(), Looked()
    with scene.running() as local:
        scene.fed_and_drained(local, 60)
        with scene.audit() as audit:
            whole.to_end(audit)
        scene.audit_directory = tmp_path / "half"
        with scene.audit(0.5) as audit:
            half.to_end(audit)
        scene.fed_and_drained(local, 200)
        with scene.audit(0.5) as audit:
            half.to_end(audit)
        scene.audit_directory = tmp_path / "audit"
        with scene.audit() as audit:
            whole.to_end(audit)
    assert (whole.wrong, half.wrong) == (0, 0)
    assert 200 < half.records < whole.records == 800


def test_a_share_of_a_job_that_is_not_keyed_is_refused(tmp_path: Path) -> None:
    """Its records write entries of other keys, which records that are not drawn write, too."""
    text = COUNTING.replace("self.counts.put(record.key", 'self.counts.put("all " + record.key')
    scene, looked = Scene(tmp_path, text), Looked()
    with scene.running() as local, scene.audit(0.5) as audit:
        scene.fed_and_drained(local, 20)
        looked.to_end(audit)
        scene.fed_and_drained(local, 60)
        with pytest.raises(ConfigError, match=r"its store counts is not keyed as its records are.*leave --share out"):
            looked.to_end(audit)
    assert looked.wrong == 0


def test_the_log_of_another_job_is_another_beginning(tmp_path: Path) -> None:
    """The comparison of a former job says nothing about a new job of the same name."""
    first, looked = Scene(tmp_path / "first"), Looked()
    with first.running() as local:
        first.fed_and_drained(local, 60)
        with first.audit() as audit:
            looked.to_end(audit)
    second = Scene(tmp_path / "second")
    second.audit_directory = first.audit_directory
    with second.running() as local, second.audit() as audit:
        second.fed_and_drained(local, 10)
        looked.to_end(audit)
        second.fed_and_drained(local, 10)
        looked.to_end(audit)
    assert len(looked.begun) == 2
    assert looked.begun[1].why
    assert looked.wrong == 0


def _job(tmp_path: Path, text: str) -> Job:
    (tmp_path / "job.py").write_text(HEAD + text)
    return load_job(str(tmp_path / "job.py"))


REFUSED = [
    ("both modes", LOGICAL.replace("class Count(Task):", 'class Count(Task):\n    mode = "aligned"\n'), "both modes"),
    ("process_batch", COUNTING.replace("def process(self, record: Record[str, int]) -> None:",
                                       "def process_batch(self, records: list[Record[str, int]]) -> None:\n"
                                       "        for record in records:\n            self.one(record)\n\n"
                                       "    def one(self, record: Record[str, int]) -> None:"), "process_batch"),
    ("calls", COUNTING.replace("def process(self, record: Record[str, int])",
                               "async def process(self, record: Record[str, int])"), "results are not recorded"),
    ("tables", COUNTING.replace("read = Input(words)",
                                "read = Input(words)\n    more = Input(lines, broadcast=True)"), "shares the table"),
    ("inputs", COUNTING.replace("read = Input(words)", "read = Input(words)\n    more = Input(totals)")
     .replace("out = Output(totals)", ""), "several inputs"),
    ("time behind a stage", COUNTING.replace('Store("counts", key=utf8, value=int64)',
                                             'Store("counts", key=utf8, value=int64, ttl_ms=1_000)'), "event time"),
    ("wall-clock timers", WINDOWS.replace("timers = Timers()", 'timers = Timers(clock="wall")'), "wall-clock"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED])
def test_what_the_log_does_not_tell_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """The error names the stage and the declaration."""
    with pytest.raises(ConfigError, match=why):
        check_follow(_job(tmp_path, text), SETTINGS, draws=False)


def test_a_share_of_event_time_and_repeats_are_refused(tmp_path: Path) -> None:
    """Event time is moved by all records; a job at least once repeats some."""
    job = _job(tmp_path, WINDOWS)
    check_follow(job, SETTINGS, draws=False)
    with pytest.raises(ConfigError, match=r"all records move.*leave --share out"):
        check_follow(job, SETTINGS, draws=True)
    with pytest.raises(ConfigError, match=r"is deterministic: .* counted over all records.*leave --share out"):
        check_follow(_job(tmp_path, LOGICAL), SETTINGS, draws=True)
    with pytest.raises(ConfigError, match="repeat records after a crash"):
        check_follow(job, Settings(processing_guarantee="at-least-once"), draws=False)
