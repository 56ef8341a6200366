"""Looking into a job from outside: commits, drained inputs, and what a crash has rolled back."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

import pytest

from grete import Input, Job, Output, Record, Task, Topic, TumblingWindow, Window, int64, utf8
from grete.ports import Log
from grete.state.read.checkpoints.commits import (
    all_wirings,
    count_commits,
    ends_of,
    external_ends,
    last_commit,
    uncommitted_records,
)
from grete.testing import Kit
from grete.worker.supervisor.completion import have_committed, idle_in, reached, used_up
from grete.worker.supervisor.progress import CommitProgress
from tasks.inverted_index import documents, job
from tests.logs.lagging_log import LaggingLog
from tests.support.committed import all_committed

TEXTS = {f"doc-{number}": f"it goes on and on {number}" for number in range(8)}
WORDS_PER_TEXT = 5  # different ones


def fed_kit(**options: object) -> tuple[Kit, Log]:
    """Return a job with documents that no task has seen, and its log."""
    kit = Kit(job, **options)  # type: ignore[arg-type]  # options of many types
    for name, text in TEXTS.items():
        kit.feed(documents, name, text)
    return kit, kit._log


def at_stake(log: Log) -> int:
    """Return the uncommitted records of all tasks."""
    return sum(uncommitted_records(log, wiring) for wiring in all_wirings(job))


def test_nothing_is_committed_before_the_first_start() -> None:
    """An empty changelog is no error."""
    _, log = fed_kit()
    assert [last_commit(log, wiring.changelog) for wiring in all_wirings(job)] == [None] * 8
    assert reached(log, job, external_ends(log, job)) is None
    assert not all_committed(log, job, 0)
    assert not used_up(log, job, {})


class CountedLog:
    """A log that notes the questions about partitions."""

    def __init__(self, log: Log) -> None:
        self._log, self.asked = log, list[str]()

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._log, name)


def test_the_last_commits_of_many_tasks_are_asked_for_together() -> None:
    """The log is asked once for the bounds of all, and fetches none of them afterwards, also if the caller stops."""
    kit, log = fed_kit()
    kit.run()
    counted, changelogs = cast("Any", CountedLog(log)), [wiring.changelog for wiring in all_wirings(job)]
    found = [last_commit(counted, changelog, bounds) for changelog, bounds in ends_of(counted, changelogs)]
    assert found == [last_commit(log, changelog) for changelog in changelogs]
    assert None not in found
    asked = Counter(counted.asked)
    assert (asked["all_bounds"], asked["expect"], asked["bounds"], asked["leave"]) == (1, 1, 0, len(changelogs))
    next(iter(ends_of(counted, changelogs)))
    assert Counter(counted.asked)["leave"] == 2 * len(changelogs)


def test_sources_reach_the_ends_before_all_tasks_have_committed_them() -> None:
    """The checkpoint by which all inputs are committed, and whether everyone has got there (A2b)."""
    kit, log = fed_kit()
    ends = external_ends(log, job)
    assert sum(ends.values()) == len(TEXTS)
    kit.process()
    assert reached(log, job, ends) is None
    kit.run()
    checkpoint_id = reached(log, job, ends)
    assert checkpoint_id is not None
    assert checkpoint_id > 0
    assert all_committed(log, job, checkpoint_id)
    assert not all_committed(log, job, checkpoint_id + 1_000_000)
    kit.feed(documents, "one-more", "text")
    assert reached(log, job, external_ends(log, job)) is None


def test_records_are_at_stake_until_their_checkpoint_is_committed() -> None:
    """A crash rolls back the records that were sent and are not covered by a commit.

    An earlier life's rolled-back records do not count again.
    """
    kit, log = fed_kit()
    kit.process()
    assert at_stake(log) == len(TEXTS) * WORDS_PER_TEXT
    kit.crash_all()
    assert at_stake(log) == len(TEXTS) * WORDS_PER_TEXT
    kit.process()
    assert at_stake(log) == len(TEXTS) * WORDS_PER_TEXT
    kit.run()
    assert at_stake(log) == 0


def test_last_commit_is_found_behind_many_other_messages() -> None:
    """Claims of a task that crashes again and again stand after its last commit."""
    kit, log = fed_kit()
    kit.run()
    changelog = all_wirings(job)[0].changelog
    before = last_commit(log, changelog)
    assert before is not None
    commits = count_commits(log, changelog)
    for _ in range(30):
        kit.crash("split")
        kit.process()
    assert log.bounds(changelog)[1] > before.offset + 8
    assert last_commit(log, changelog) == before
    assert count_commits(log, changelog) == commits


def test_at_least_once_is_drained_when_all_inputs_are_used_up() -> None:
    """Without checkpoints to compare: each task's committed positions stand at the ends of all that it reads (1.5)."""
    kit, log = fed_kit(processing_guarantee="at-least-once")
    ends = external_ends(log, job)
    kit.process()
    assert not used_up(log, job, ends)
    kit.run()
    assert used_up(log, job, ends)
    kit.feed(documents, "one-more", "text")
    assert not used_up(log, job, external_ends(log, job))


def test_a_watch_sees_what_a_look_back_sees() -> None:
    """Commits and records at stake, read forwards from the first question on, through a crash and a restart."""
    kit, log = fed_kit()
    progress = CommitProgress(log)
    wirings = all_wirings(job)

    def compare(at_risk: int) -> None:
        assert [progress.last_commit(wiring.changelog) for wiring in wirings] == [
            last_commit(log, wiring.changelog) for wiring in wirings
        ]
        assert sum(progress.uncommitted_records(wiring) for wiring in wirings) == at_stake(log) == at_risk

    compare(0)
    kit.process()
    compare(len(TEXTS) * WORDS_PER_TEXT)
    kit.crash_all()
    kit.process()
    compare(len(TEXTS) * WORDS_PER_TEXT)
    kit.run()
    compare(0)
    assert progress.last_commit(wirings[-1].changelog) is not None


def test_a_watch_of_a_log_whose_reads_lag_counts_each_record_once() -> None:
    """An end that the log does not know of yet is no reason to read the stream again from its start."""
    kit, log = fed_kit()
    wirings = all_wirings(job)
    streams = frozenset(partition for wiring in wirings for partition in wiring.outputs)
    lagging: Any = LaggingLog(log, 2, streams)
    progress = CommitProgress(lagging)

    def at_risk() -> int:
        return sum(progress.uncommitted_records(wiring) for wiring in wirings)

    assert at_risk() == 0
    for _ in range(2):
        kit.feed(documents, "more", "text and text")
        kit.process()
        counts = [at_risk() for _ in range(200)]
        assert counts == sorted(counts)
        assert counts[-1] == at_stake(log) > 0


# --- idle and ended inputs ---

VIEWS = Topic("views", key=utf8, value=int64)


@dataclass(frozen=True)
class Said:
    """The part of a report that is judged."""

    checkpoint_id: int = 0
    idle_in: int | None = None
    ended_in: int | None = None


class Pass(Task):
    """Sends on what it reads: no time plays a part."""

    views = Input(VIEWS)
    out = Output(Topic("passed", key=utf8, value=int64))

    def process(self, record: Record[str, int]) -> None:
        self.out.send(record.key, record.value)


class Count(Task):
    """Counts by the minute, in event time."""

    views = Input(VIEWS)
    minutes = TumblingWindow("minutes", 60_000, key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.minutes.update(record.key, record.timestamp, lambda n: (n or 0) + 1)

    def on_window(self, window: Window[str, int]) -> None:
        """Leave it at that."""


TIMED, UNTIMED = Job("count", stages=[Count]), Job("pass", stages=[Pass])
IDLE = [Said(4, idle_in=3), Said(5, idle_in=5)]


@pytest.mark.parametrize(
    ("job", "inputs", "tasks", "ending", "waits", "awaited"),
    [
        (TIMED, 2, IDLE, False, True, 5),
        (TIMED, 2, [*IDLE, Said(9)], False, True, None),
        (TIMED, 1, [Said(9)], False, True, 0),
        (TIMED, 2, [Said(9)], False, False, 0),
        (UNTIMED, 2, [Said(9)], False, True, 0),
        (TIMED, 1, [Said(9, ended_in=8), Said(7, ended_in=6)], True, True, 8),
        (UNTIMED, 1, IDLE, True, False, None),
        (TIMED, 2, [], False, True, None),
    ],
)
def test_a_checkpoint_that_has_what_comes_of_idle_or_ended_inputs_is_awaited(
    job: Job, inputs: int, tasks: list[Said], ending: bool, waits: bool, awaited: int | None
) -> None:
    """It is the last one of all tasks. Where none waits for time it is none; of a drain it is that of the ends."""
    assert idle_in(job, inputs, tasks, ending=ending, waits_for_idle=waits) == awaited


def test_each_task_is_to_have_committed_it() -> None:
    """One that has not holds the job up; a checkpoint that was left out counts as committed."""
    assert have_committed(IDLE, 4)
    assert not have_committed(IDLE, 5)
