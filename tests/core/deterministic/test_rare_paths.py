"""Rare events of a deterministic task: a log in doubt, a successor, inputs of several streams, a full batch."""

from dataclasses import replace

import pytest
from msgspec import structs

from grete.core import actions as do
from grete.core import events as on
from grete.core.lifecycle import TaskStatus
from grete.errors import Fenced, Halted, TransientError
from grete.protocol.changelog import ChangelogType, Outcome, encode_outcome
from grete.protocol.commit import encode_commit
from grete.protocol.control import encode_marker
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import RecordBatch
from tests.core.deterministic.scenario import NEVER, Logical, Writer, inner
from tests.core.streams import A0, A1, IN, INNER, SOURCE, Log, T

OTHER = TopicPartition("j.other.t.b", 0)  # a second stream that INNER reads


def source() -> Logical:
    """Return SOURCE, running, with a time lease."""
    return Logical(Log(), SOURCE).start()


# --- the own changelog ------------------------------------------------------------------------------------------------


def test_an_append_that_the_log_refuses_is_fenced_by_the_claim_before_it() -> None:
    """The task looks for the claim because of which its message was refused, and names it (C5)."""
    task = source()
    task.hold = {do.AppendChangelog}
    task.take("x")
    task.log.claim(SOURCE, 2)
    with pytest.raises(Fenced, match="generation 2"):
        task.step(on.ChangelogAppended(-1, task.log.now_ms, task.mono_ms, fenced=True))


def test_an_append_that_the_log_refuses_for_another_reason_is_tried_by_a_restart() -> None:
    """Without a newer claim the process ends with an error after which a restart helps (C5)."""
    task = source()
    task.hold = {do.AppendChangelog}
    task.take("x")
    with pytest.raises(TransientError, match="refused a message of generation 1"):
        task.step(on.ChangelogAppended(-1, task.log.now_ms, task.mono_ms, fenced=True))


def test_a_task_in_doubt_does_nothing_more() -> None:
    """While the reason for its end is being looked for, nothing that is acknowledged counts (C4)."""
    task = source()
    task.hold = {do.AppendChangelog, do.ReadChangelog}
    task.take("x")
    task.step(on.ChangelogAppended(-1, task.log.now_ms, task.mono_ms, fenced=True))
    assert task.step(on.ChangelogAppended(99, task.log.now_ms, task.mono_ms, fenced=False)) == []
    assert task.step(on.Tick(1_000, 0)) == []


def test_an_input_that_is_gone_is_explained_by_a_newer_claim_or_is_the_error() -> None:
    """A successor may have trimmed what a paused task wants to read (C5)."""
    gone = Halted("in[0] offset 3 was trimmed")
    with pytest.raises(Halted, match="offset 3 was trimmed"):
        source().step(on.InputGone(gone))
    task = source()
    task.log.claim(SOURCE, 2)
    with pytest.raises(Fenced, match="generation 2"):
        task.step(on.InputGone(gone))


def test_a_message_of_no_newer_generation_changes_nothing() -> None:
    """A gap in the offsets is read: an older generation's message there leaves the own one valid (C3)."""
    task = source()
    task.hold = {do.AppendChangelog}
    task.take("x")
    task.log.claim(SOURCE, 0)
    task.release()
    assert task.core.seen["tails verified"] == 1
    assert task.frames(SOURCE.outputs[0]) == [(1, [1_050_000])]


# --- start and stop ---------------------------------------------------------------------------------------------------


def bulk_written(*, counts: bool | None) -> Logical:
    """Return INNER, not started, whose changelog ends with a bulk write; ``counts``: its outcome, None: not told."""
    first = Logical(Log(), INNER).start()
    first.tick(100)
    ownership, commit = first.core.ownership, first.core.commits.committed
    assert commit is not None
    written = structs.replace(
        commit, checkpoint_id=commit.checkpoint_id + 1, previous=commit.checkpoint_id, bulk_write_id="r", data_count=0
    )
    first.log.append(INNER.changelog, encode_commit(ownership.header(ChangelogType.COMMIT), written))
    if counts is not None:
        outcome = encode_outcome(ownership.header(ChangelogType.OUTCOME), Outcome("r", counts))
        first.log.append(INNER.changelog, outcome)
    return first.successor()


def test_a_start_behind_a_bulk_write_commits_first() -> None:
    """A bulk write does not know where the outputs of this job begin: the task's first commit says it (D5)."""
    task = bulk_written(counts=True)
    before = len(task.log.commits(INNER))
    task.start()
    commits = task.log.commits(INNER)
    assert (len(commits), commits[-1].bulk_write_id) == (before + 1, None)
    assert task.core.status is TaskStatus.RUNNING


def test_a_start_asks_for_the_outcome_of_a_bulk_write() -> None:
    """The core gives the answer to its start, and goes on from what counts (1.8)."""
    task = bulk_written(counts=None)
    task.hold = {do.FindOutcome}
    task.start()
    assert task.holding(do.FindOutcome).bulk_write_id == "r"
    task.step(on.OutcomeFound("r", counts=False))
    assert task.core.status is TaskStatus.RUNNING
    assert task.core.commits.committed is not None
    assert task.core.commits.committed.bulk_write_id is None


def test_a_stop_waits_until_all_is_acknowledged() -> None:
    """A process that ends takes what is not delivered with it: it stays until the log has it (R6)."""
    task = source()
    task.take("x")
    task.acks = False
    task.take("y")
    task.hold = {do.Exit}
    task.step(on.Stop())
    assert not task.held
    task.ack()
    task.tick(100)
    assert task.holding(do.Exit).reason.startswith("stopped at checkpoint")


# --- what time asks for -----------------------------------------------------------------------------------------------


def test_a_task_that_has_not_started_depends_on_no_time() -> None:
    """The driver may sleep until something comes."""
    assert Logical(Log(), SOURCE).core.due_in_ms(0) == 60_000


def test_while_a_commit_is_on_its_way_only_progress_messages_are_due() -> None:
    """No second commit begins before the first one ends; a source goes on to tell its time, others do not."""
    task = source()
    task.hold = {do.WriteData}
    task.tick(100)
    assert task.core.commits.pending is not None
    assert task.core.due_in_ms(task.mono_ms) < 100
    behind, _, _ = inner()
    behind.hold = {do.WriteData}
    behind.tick(100)
    assert behind.core.due_in_ms(behind.mono_ms) == 60_000


def test_a_task_says_up_to_when_it_has_received() -> None:
    """The sources of the job must pass the time of what a task holds, or it would wait for ever (D1)."""
    task, a0, _ = inner()
    a0.send(("x", 100, A0))
    task.read()
    assert (task.core.merge.latest, task.core.merge.upto) == (100, -1)


def test_an_external_input_that_ends_is_noted() -> None:
    """A source at its end says so in its commit."""
    task = source()
    task.step(on.ExternalProcessed(IN, 0, ended=True))
    task.tick(100)
    assert task.log.commits(SOURCE)[-1].at_end


# --- inputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"what is this", "an internal topic must hold only what Grete wrote"),
        (encode_marker(A0, 1, 1, 1, at_end=False), "a MARKER message does not belong in deterministic mode"),
    ],
)
def test_a_message_that_cannot_be_there_halts_with_its_place(value: bytes, text: str) -> None:
    """Bytes of somebody else and messages of aligned mode are never skipped."""
    task, _, _ = inner()
    task.log.append(T, value)
    with pytest.raises(Halted, match=text) as caught:
        task.read()
    assert f"{T} offset 0" in str(caught.value)


def test_events_of_aligned_mode_are_mistakes_of_the_driver() -> None:
    """A driver that answers what the core has not asked for shows at once."""
    with pytest.raises(AssertionError, match="does not belong in deterministic mode"):
        source().step(on.Processed(0))


def test_a_producer_that_does_not_belong_to_the_stream_halts() -> None:
    """Records of an unknown producer have no place in the order."""
    task, _, _ = inner()
    Writer(task.log, 77).send(("x", 100, 77))
    with pytest.raises(Halted, match="this producer does not belong to the stream"):
        task.read()


def test_a_message_before_the_position_halts() -> None:
    """A log that delivers twice is noticed (R5)."""
    task, a0, _ = inner()
    at = a0.send(("x", 100, A0))
    task.read()
    with pytest.raises(Halted, match="received offset 0, expected 1 or later"):
        task.deliver(at, task.log.rows[T][at][1])


def test_a_channel_that_skips_passes_over_what_comes_behind() -> None:
    """Skipped frames are read again from the first of them, so no later frame is taken before (D1)."""
    task, a0, a1 = inner(early_memory_bytes_max=1)
    for name, t in (("x", 100), ("y", 110), ("z", 120)):
        a0.send((name, t, A0))
    a0.progress(130)
    task.read()
    assert (task.core.seen["frames skipped"], task.names) == (1, [])
    a1.progress(200)
    for _ in range(4):
        task.read()
    assert task.names == ["x", "y", "z"]


def test_a_full_write_batch_takes_nothing_while_a_commit_is_on_its_way() -> None:
    """The bound on uncommitted state holds: the next records wait until the frozen ones are in the store (A9)."""
    task, a0, a1 = inner(uncommitted_state_bytes_max=10)
    a0.send(("x", 100, A0))
    a0.progress(150)
    a1.progress(150)
    task.read()
    task.hold = {do.WriteData}
    task.tick(100)
    task.open_bytes = 11
    task.step(on.Tick(task.mono_ms, 11))
    a0.send(("y", 200, A0))
    a0.progress(300)
    a1.progress(300)
    task.step(on.InputRead())
    assert task.names == ["x"]
    task.release()
    for _ in range(2):
        task.tick(1_000)
        task.open_bytes = None
        task.read()
    assert task.names == ["x", "y"]


def test_inputs_of_several_streams_are_one_order() -> None:
    """Records of two streams go by logical time, in runs of one stream each (D1)."""
    both = replace(INNER, channels=((A0, T), (A1, OTHER)))
    log = Log()
    task = Logical(log, both).start()
    a0, a1 = Writer(log, A0), Writer(log, A1, OTHER)
    a0.send(("a", 100, A0), ("b", 110, A0), ("d", 130, A0))
    a1.send(("c", 120, A1), ("e", 140, A1), ("f", 150, A1))
    a0.progress(200)
    a1.progress(200)
    task.read()
    assert (task.names, task.timer) == (list("abcdef"), NEVER)
    taken = [batch for action in task.all(do.ProcessRecords) for batch in action.batches]
    batches = [batch for batch in taken if isinstance(batch, RecordBatch)]
    assert [(batch.source, len(batch.values)) for batch in batches] == [(T, 2), (OTHER, 1), (T, 1), (OTHER, 2)]
