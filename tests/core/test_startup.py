"""Starting: what is committed, redo or restore (R1), the announcement (R2), and inputs that are gone (K3)."""

from collections.abc import Callable

import pytest

from grete.core import actions as do
from grete.core import events as on
from grete.core.changelog.ownership import Ownership
from grete.core.lifecycle import TaskStatus
from grete.core.limits import TAIL_MESSAGES
from grete.core.startup import StartUp
from grete.errors import Fenced, Halted
from grete.halts import HaltCode
from grete.protocol.changelog import ChangelogHeader, ChangelogType, encode_data
from grete.protocol.changelog_position import ChangelogPosition
from grete.protocol.control import decode_rollback_marker
from tests.core.scenario import LIMITS, NONCE, Scenario, running
from tests.core.streams import INNER, JOB, OUT, SINK, Log, T

CHANGELOG = INNER.changelog


def committed(checkpoints: int = 3, *, changelog_retention_ms: int = LIMITS.changelog_retention_ms) -> Scenario:
    """Return a task that has committed checkpoints 1 to ``checkpoints`` with one record each."""
    task, a0, a1 = running(changelog_retention_ms=changelog_retention_ms)
    for checkpoint_id in range(1, checkpoints + 1):
        a0.send(checkpoint_id, f"record {checkpoint_id}")
        a0.mark(checkpoint_id)
        a1.mark(checkpoint_id)
    task.read()
    assert task.core.frozen == checkpoints
    return task


def reads(task: Scenario) -> list[int]:
    """Return the offsets from which the changelog was read."""
    return [read.offset for read in task.all(do.ReadChangelog)]


# --- R1: redo or restore --------------------------------------------------------------------------------------------


def test_the_same_host_redoes_from_its_changelog_position() -> None:
    """A changelog position names a valid commit that is still in the log.

    So nothing is wiped, and nothing before it is read (R1).
    """
    task = committed()
    assert task.changelog_position is not None
    after = task.successor().start()
    assert reads(after)[0] == task.changelog_position.offset
    assert not after.all(do.WipeStore)
    assert not after.all(do.ApplySegment)
    assert (after.core.frozen, after.state, after.core.start_up.restored) == (3, task.state, False)


def test_what_was_committed_after_the_changelog_position_is_applied() -> None:
    """A crash between commit and store is redone from the changelog (A7, R1).

    The changelog position is then that of the last commit.
    """
    task, a0, a1 = running()
    task.hold.add(do.ApplyFrozen)
    a0.send(1, "x")
    a0.mark(1)
    a1.mark(1)
    task.read()
    assert (task.state, task.changelog_position and task.changelog_position.checkpoint_id) == ([], 0)
    after = task.successor().start()
    assert (after.state, after.core.frozen) == (["x"], 1)
    assert after.all(do.WriteChangelogPosition) == [do.WriteChangelogPosition(ChangelogPosition(3, 1, 1, NONCE))]


def test_another_host_restores() -> None:
    """Without a changelog position the changelog is read from its base, and the state is the same (R1)."""
    task = committed()
    after = task.successor(same_host=False).start()
    assert (after.store, after.core.frozen, after.core.start_up.restored) == (task.store, 3, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda changelog_position: changelog_position._replace(offset=2),
        lambda changelog_position: changelog_position._replace(generation=9),
        lambda changelog_position: changelog_position._replace(checkpoint_id=2),
        lambda changelog_position: changelog_position._replace(nonce=b"another process!"),
    ],
)
def test_a_changelog_position_that_is_not_a_commit_of_this_log_is_wiped(
    change: Callable[[ChangelogPosition], ChangelogPosition],
) -> None:
    """Offset, generation, checkpoint and nonce must all be those of the commit there: else wipe and restore (R1)."""
    task = committed()
    after = task.successor()
    assert task.changelog_position is not None
    after.changelog_position, after.store = change(task.changelog_position), {"of another log": 1}
    after.start()
    assert len(after.all(do.WipeStore)) == 1
    assert (after.store, after.changelog_position) == (task.store, task.changelog_position)


def test_a_changelog_position_to_an_offset_without_a_message_is_wiped() -> None:
    """S1: where transactions end there is no message; whatever comes next, or nothing, is not what it names (R1)."""
    data = encode_data(ChangelogHeader(ChangelogType.DATA, 1, 7, 0), [], [], [])
    for event in (on.ChangelogRow(6, 0, data), on.ChangelogEnd(5)):
        start = on.Start(0, NONCE, "here", 1, 0, ChangelogPosition(5, 1, 1, NONCE), {CHANGELOG: (0, 9)})
        begun = StartUp("b-0", CHANGELOG, Ownership(CHANGELOG), lambda _commit: None)
        assert begun.begin(start) == [do.ReadChangelog(5)]
        actions = begun.row(event) if isinstance(event, on.ChangelogRow) else begun.end(event)
        assert actions == [do.WipeStore(), do.ReadChangelog(0)]


def test_a_log_that_ends_before_a_commit_in_the_store_halts() -> None:
    """A log that has lost what it acknowledged would take committed checkpoints back (decision 0011)."""
    task = committed()
    after = task.successor()
    assert task.changelog_position is not None
    after.changelog_position = task.changelog_position._replace(offset=10_000)
    with pytest.raises(Halted, match="has lost messages"):
        after.start()


def test_the_store_is_wiped_before_anything_is_applied() -> None:
    """Restoring over what a former life has left would keep keys that were deleted since (R1)."""
    task = committed()
    after = task.successor()
    after.changelog_position = ChangelogPosition(2, 9, 1, NONCE)
    after.start()
    kinds = [type(action) for action in after.done]
    assert kinds.index(do.WipeStore) < kinds.index(do.ApplySegment)
    assert kinds.index(do.ApplySegment) < kinds.index(do.WriteChangelogPosition)


def test_an_uncommitted_tail_is_not_applied() -> None:
    """Data that no valid commit closes never reaches the store (R1)."""
    task = committed()
    header = ChangelogHeader(ChangelogType.DATA, 1, task.core.ownership.next_seq, 0)
    task.log.append(CHANGELOG, encode_data(header, [0], [b"open"], [b"open"]))
    after = task.successor(same_host=False).start()
    assert (after.core.frozen, after.store) == (3, task.store)


def test_an_old_changelog_position_is_used_although_its_claim_was_trimmed() -> None:
    """Commits repeat the nonce (R1, K2).

    So a changelog position can be checked in a log that begins after its claim.
    """
    task = committed(changelog_retention_ms=0)
    assert task.log.start[CHANGELOG] > 1
    after = task.successor().start()
    assert (after.core.start_up.restored, after.core.frozen, after.core.generation) == (False, 3, 2)


def test_a_restore_reads_from_the_round_start_that_a_late_commit_names() -> None:
    """With history the log is long: any commit near the end names the last complete round before it (1.8 R1)."""
    task = committed(checkpoints=TAIL_MESSAGES)
    base, end = task.log.commits(INNER)[-1].base, len(task.log.rows[CHANGELOG])
    after = task.successor(same_host=False).start()
    assert base > 0
    assert reads(after)[:2] == [end - TAIL_MESSAGES, base]
    assert after.store == task.store


def test_a_restore_without_a_named_base_reads_from_the_start() -> None:
    """If no commit is near the end, the log's start is the base (1.8 R1)."""
    task = committed(checkpoints=1)
    for seq in range(TAIL_MESSAGES + 1):
        header = ChangelogHeader(ChangelogType.DATA, 1, task.core.ownership.next_seq + seq, 0)
        task.log.append(CHANGELOG, encode_data(header, [], [], []))
    after = task.successor(same_host=False).start()
    assert reads(after)[1] == 0
    assert after.store == task.store


def test_a_restore_of_a_trimmed_log_needs_a_complete_round() -> None:
    """A log that begins after the genesis and holds no complete round was trimmed meanwhile: exit as fenced (R1)."""
    task, a0, a1 = running()
    for checkpoint_id in (1, 2, 3):
        a0.send(checkpoint_id, f"{checkpoint_id}a", f"{checkpoint_id}b")
        a0.mark(checkpoint_id)
        a1.mark(checkpoint_id)
        task.read()
        task.rewrite_keys = 1  # from here on no round ends
    assert task.changelog_position is not None
    task.log.start[CHANGELOG] = task.changelog_position.offset
    after = task.successor(same_host=False)
    with pytest.raises(Fenced, match="was trimmed while it was read"):
        after.start()
    assert (after.changelog_position, after.all(do.WriteChangelogPosition)) == (None, [])


def test_a_changelog_that_something_else_has_trimmed_halts() -> None:
    """It begins after its genesis and has no commit, and a trim of ours leaves one, so no other process did (K2)."""
    task = committed()
    task.log.start[CHANGELOG] = len(task.log.rows[CHANGELOG])
    with pytest.raises(Halted, match="has no commit: something else has trimmed it") as halted:
        task.successor(same_host=False).start()
    assert halted.value.code is HaltCode.CHANGELOG_GONE


def test_a_restore_of_a_trimmed_log_with_a_round_is_complete() -> None:
    """Every live key is after the round's start: what was trimmed is not missed (R1, K2)."""
    task = committed(checkpoints=5, changelog_retention_ms=0)
    assert task.log.start[CHANGELOG] > 1
    after = task.successor(same_host=False).start()
    assert (after.core.status, after.core.frozen) == (TaskStatus.RUNNING, 5)
    assert after.core.start_up.fold.round_ended
    assert after.store == task.store


def test_a_damaged_changelog_halts_with_its_place() -> None:
    """A message that cannot be read is refused naming topic, partition and offset (1.2)."""
    for start in ("near the end", "further back"):
        task = committed()
        if start == "further back":
            task.log.append(CHANGELOG, *[task.log.rows[CHANGELOG][0][1]] * TAIL_MESSAGES)  # repeats of the claim
        task.log.rows[CHANGELOG][2] = (0, b"\x19damaged")
        with pytest.raises(Halted, match=r"j\.b\.changelog\[0\],? offset 2: .* the changelog is damaged"):
            task.successor(same_host=False).start()


def test_a_changelog_that_ends_before_the_own_claim_halts() -> None:
    """The log said that the claim is there, and then does not have it: somebody has cut it (C1)."""
    task = Scenario(Log())
    task.hold.add(do.AppendChangelog)
    task.start()
    task.held, task.hold = [], {do.ReadChangelog}
    task.step(on.ChangelogAppended(5, 0, 0, fenced=False))
    with pytest.raises(Halted, match="the claim that this worker wrote at offset 5 is gone, the changelog ends at 0"):
        task.step(on.ChangelogEnd(0))


def test_a_changelog_position_at_damage_is_no_changelog_position() -> None:
    """The message at the changelog position cannot be read.

    The store is wiped; the restore then finds the damage (R1, 1.2).
    """
    task = committed()
    rows = task.log.rows[CHANGELOG]
    rows[-1] = (0, rows[-1][1][:-5])
    after = task.successor()
    with pytest.raises(Halted, match=rf"offset {len(rows) - 1}: .* the changelog is damaged"):
        after.start()
    assert len(after.all(do.WipeStore)) == 1


def claimed_before(task: Scenario) -> None:
    """Start a process whose claim is followed by another's before it has read up to its own."""
    task.hold = {do.AppendChangelog}
    task.start()
    claim = task.holding(do.AppendChangelog)
    task.held, task.hold = [], {do.ReadChangelog}
    offset = task.log.append(CHANGELOG, claim.value)
    task.step(on.ChangelogAppended(offset, 0, 0, fenced=False))
    task.log.claim(INNER, claim.generation + 1)
    task.release()


def test_messages_behind_the_own_claim_do_not_concern_the_start() -> None:
    """A later claim fences the next commit, not the start: what counts is what is before (C2, C3)."""
    after = committed().successor()
    claimed_before(after)
    assert (after.core.status, after.core.frozen, after.core.generation) == (TaskStatus.RUNNING, 3, 2)


def test_a_genesis_behind_another_claim_is_fenced() -> None:
    """The first commit is checked like any other: nothing is announced (C3, A2)."""
    task = Scenario(Log())
    with pytest.raises(Fenced, match="generation 2, claim at offset 1"):
        claimed_before(task)
    assert (task.committed, task.all(do.Send)) == ({}, [])


# --- R2: the announcement ---------------------------------------------------------------------------------------------


def test_a_rollback_marker_goes_to_all_downstream_partitions_always() -> None:
    """Also after the genesis, also if nothing was ever sent there: generation, L, next seq, rollback history (R2)."""
    task = committed()
    after = task.successor().start()
    for partition in OUT:
        [rollback_marker] = [
            decode_rollback_marker(send.value) for send in after.all(do.Send) if send.partition == partition
        ]
        assert (
            rollback_marker.header.generation,
            rollback_marker.header.checkpoint_id,
            rollback_marker.header.seq,
        ) == (2, 3, 1)
        assert (rollback_marker.rollback_history, rollback_marker.fingerprint) == (((1, 0), (2, 3)), JOB.fingerprint())


def test_no_record_is_read_before_the_rollback_markers_are_acknowledged() -> None:
    """The announcement must be in the log before any record of the new generation can be (R2)."""
    task = Scenario(Log())
    task.acks = False
    task.start()
    assert (task.core.status, task.core.wants_input, task.all(do.Seek)) == (TaskStatus.ANNOUNCING, False, [])
    first, second = [send.token for send in task.all(do.Send)]
    task.step(on.Acked(first))
    assert not task.core.wants_input
    task.step(on.Acked(second))
    assert (task.core.wants_input, task.position) == (True, {T: 0})


def test_a_rollback_marker_carries_the_seqs_of_the_last_commit() -> None:
    """Next seq after R, per partition: what was sent since is rolled back, and its numbers are given out again (R2)."""
    task, a0, a1 = running()
    task.emit(OUT[1], "1", "2")
    a0.mark(1)
    a1.mark(1)
    task.read()
    task.emit(OUT[1], "rolled back")
    task.flush()
    after = task.successor().start()
    assert [after.sent(partition)[0].seq for partition in OUT] == [1, 3]


def test_a_task_without_outputs_starts_at_once() -> None:
    """A sink has no consumer to tell (R2)."""
    task = Scenario(Log(), SINK).start()
    assert (task.core.status, task.all(do.Send)) == (TaskStatus.RUNNING, [])


# --- K3: where the inputs begin ---------------------------------------------------------------------------------------


def test_an_input_that_begins_after_the_resume_offset_halts() -> None:
    """Log start ≤ resume offset is required; retention must never delete what is not committed (K3)."""
    task = committed()
    task.log.start[T] = len(task.log.rows[T]) + 1
    with pytest.raises(
        Halted,
        match=r"j\.a\.t\.b\[0\] no longer has offset \d+, at which b-0 reads on: .*retention of the topic is too short",
    ):
        task.successor().start()


def test_a_genesis_after_its_inputs_were_trimmed_halts() -> None:
    """A task without a commit whose input has been consumed has lost its changelog: it must not begin again (K3)."""
    log = Log()
    log.start[T] = 4
    with pytest.raises(Halted, match=r"has no commit, but .* starts at 4: its changelog was deleted"):
        Scenario(log).start()
