"""Each core notices a state that it must not have: one attribute is set wrong, and the next check raises."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from grete.core import actions as do
from grete.core.aligned.channel import SkippedRecord
from grete.core.lifecycle import CommitStep, StartupPhase, TaskStatus
from grete.protocol.changelog import ChangelogType
from grete.protocol.ids import RollbackEntry
from tests.core.deterministic.scenario import Logical, inner
from tests.core.scenario import Scenario, running
from tests.core.streams import A0, SOURCE, Log, T

Break = Callable[[Any], None]  # sets one attribute of a core, or of what it holds, to a wrong value


def committing() -> Scenario:
    """Return an aligned task with a checkpoint on its way, a record in the open batch and one in the early buffer."""
    task, a0, a1 = running(early_memory_bytes_max=0)
    a0.send(1, "x")
    task.hold = {do.WriteData}
    task.commit(1, a0, a1)
    a0.send(2, "y")
    a1.send(3, "z")
    task.read()
    return task


def logging() -> Logical:
    """Return a deterministic source with a checkpoint on its way and a batch that is decided behind it."""
    task = Logical(Log(), SOURCE).start()
    task.take("x")
    task.hold = {do.WriteData}
    task.tick(100)
    task.take("y")
    return task


def merging() -> Logical:
    """Return a deterministic task that holds a frame of one channel until the other one has passed its time."""
    task, a0, _ = inner()
    a0.send(("x", 100, A0))
    task.read()
    return task


def put(path: str, value: Any) -> Break:
    """Return a break that sets an attribute, given by its path from the core."""
    *way, name = path.split(".")

    def set_it(core: Any) -> None:
        for step in way:
            core = getattr(core, step)
        setattr(core, name, value)

    return set_it


def both(*wrong: Break) -> Break:
    """Return a break of several things at once."""

    def break_all(core: Any) -> None:
        for each in wrong:
            each(core)

    return break_all


def channel(name: str, value: Any) -> Break:
    """Return a break that sets an attribute of the first channel of an aligned task."""
    return lambda core: setattr(next(iter(core.inputs.channels.values())), name, value)


def batch(name: str, value: Any) -> Break:
    """Return a break that sets an attribute of the first batch of a source."""
    return lambda core: setattr(core.source.batches[0], name, value)


SHARED: dict[str, Break] = {
    "more is acknowledged than was sent": put("sender.acked", 1 << 40),
    "a generation without a claim": put("ownership.claim", None),
    "the end of the own messages is before the log": put("ownership._verified", -2),
    "a tail is read, and no own message is behind it": both(
        put("ownership._check", object()), put("ownership._sent", 0)
    ),
    "the start has not ended, and the task runs": put("start_up.phase", StartupPhase.READING),
    "the task starts, and its start has ended": put("status", TaskStatus.STARTING),
    "a running task without a commit": put("commits.committed", None),
    "another checkpoint is frozen than the one on its way": put("frozen", 2),
    "the commit waits for a message that was not sent": lambda core: setattr(
        core.commits.pending, "frozen", core.commits.pending.frozen._replace(last_token=1 << 40)
    ),
    "data was asked for before the outputs were acknowledged": put("sender.acked", -1),
    "data was asked for, and nothing is being appended": put("changelog.appending", None),
    "nothing is on its way, and a commit is being appended": put("commits.pending", None),
    "a message is appended that was never made": put("commits.pending.step", CommitStep.COMMIT),
    "a commit has an offset before it is appended": put("commits.pending.offset", 7),
    "a later commit than the one on its way": lambda core: setattr(
        core.commits, "committed", replace(core.commits.committed, checkpoint_id=1 << 40)
    ),
}
ALIGNED: dict[str, Break] = {
    "a frame is processed while rolling back": both(put("status", TaskStatus.RECLAIMING), put("_processing", True)),
    "a checkpoint is closed while another is on its way": put("_flushing", 5),
    "a generation that the rollback history does not end with": put("rollback_history", (RollbackEntry(9, 0),)),
    "a rollback history that goes back": lambda core: setattr(
        core, "rollback_history", (RollbackEntry(9, 0), *core.rollback_history)
    ),
    "rolled back without alignment": both(put("aligned", False), put("inputs.taken_back", True)),
    "an early frame of a closed checkpoint": lambda core: core.inputs.early._frames.update(
        {1: core.inputs.early._frames.pop(3)}
    ),
    "bytes of early frames that are gone": put("inputs.early.bytes", 1),
    "early frames in memory beyond the bound": put("inputs.early.memory_bytes", 1),
    "a record is included that was never admitted": channel("included", 99),
    "a channel skips records of a closed checkpoint": channel("skipped", SkippedRecord(1, 0)),
    "a marker of a closed checkpoint is to be read again": channel("future", [(1, 0)]),
    "a record that was taken back is included": lambda core: core.inputs.rollbacks.known.update(
        {A0: (RollbackEntry(5, 0),)}
    ),
}
LOGGING: dict[str, Break] = {
    "an input is read of which no end is known": lambda core: core.external.ended.clear(),
    "an input is read from before its first offset": lambda core: core.external.position.update(
        dict.fromkeys(core.external.position, -1)
    ),
    "rows are processed before the task runs": both(put("status", TaskStatus.GENESIS), put("processing.active", True)),
    "time has advanced beyond what is leased": put("outputs.advanced", 1 << 60),
    "more time is leased than was asked for": put("time.lease", 1 << 60),
    "an input decision is logged between a freeze and its commit": batch("logged", True),
    "an input decision is valid that was not logged": batch("valid", True),
    "batches out of the order of their times": put("source.last_t", 1 << 60),
    "new rows are taken before all are replayed": lambda core: core.source.replay.append(
        core.source.batches[0].decision
    ),
}
MERGING: dict[str, Break] = {
    "a record is processed that waits in its queue": lambda core: setattr(core.merge.channels[0], "processed", 1),
    "a record is received that is in no queue": lambda core: setattr(core.merge.channels[0], "received", 9),
    "bytes of frames that are gone": put("merge.bytes", 0),
    "a record is received, and in no queue": lambda core: core.merge.channels[0].queue.clear(),
    "a channel skips what was not read": lambda core: setattr(core.merge.channels[0], "skip_offset", 99),
    "outputs are held that need no release": both(put("releases", False), put("outputs.held", 1)),
}
CASES = [
    *(pytest.param(committing, each, id=f"aligned: {name}") for name, each in (SHARED | ALIGNED).items()),
    *(pytest.param(logging, each, id=f"source: {name}") for name, each in (SHARED | LOGGING).items()),
    *(pytest.param(merging, each, id=f"merge: {name}") for name, each in MERGING.items()),
]


@pytest.mark.parametrize(("make", "wrong"), CASES)
def test_a_state_that_must_not_be_is_noticed(make: Callable[[], Scenario], wrong: Break) -> None:
    """A core that is in order passes its check; with one thing wrong it does not."""
    core = make().core
    core.check_invariants()
    wrong(core)
    with pytest.raises(AssertionError):
        core.check_invariants()


def test_what_the_cases_begin_with_is_what_they_say() -> None:
    """The three tasks hold what the cases break: a commit on its way, an early frame on disk, a batch, a queue."""
    aligned, source, merge = committing(), logging(), merging()
    assert aligned.core.commits.pending is not None
    assert aligned.core.changelog.appending is ChangelogType.COMMIT
    assert [frame.value for frame in aligned.core.inputs.early] == [None]
    assert source.core.commits.pending is not None
    assert len(source.core.source.batches) == 1
    assert merge.core.merge.channels[0].partition == T
    assert merge.core.merge.bytes > 0
