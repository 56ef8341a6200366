"""Ownership of a task: claims, validity by log order, and what fences (C1, C3); rollbacks: test_rollback_claims.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.core import actions as do
from grete.core import events as on
from grete.core.changelog.ownership import Ownership
from grete.core.lifecycle import TaskStatus
from grete.errors import Fenced, Halted, TransientError
from grete.protocol.changelog import (
    ChangelogHeader,
    ChangelogType,
    Claim,
    decode_changelog_header,
    encode_data,
)
from tests.core.scenario import NONCE, Scenario, running
from tests.core.streams import A0, INNER, OUT, Log, Producer

CHANGELOG = INNER.changelog


def data(generation: int, seq: int) -> bytes:
    """Return an empty data message."""
    return encode_data(ChangelogHeader(ChangelogType.DATA, generation, seq, 0), [], [], [])


def ready_to_commit() -> Scenario:
    """Return a task of generation 2 whose commit of checkpoint 1 is on its way to the log."""
    log = Log()
    log.claim(INNER, 1)
    task = Scenario(log).start()
    for producer in (Producer(log, A0), Producer(log, A0 + 1)):
        producer.rollback_marker(0)
        producer.send(1, f"of {producer.producer}")
        producer.mark(1)
    task.hold.add(do.AppendChangelog)
    task.read()
    assert task.holding(do.AppendChangelog).generation == 2
    return task


def started() -> Ownership:
    """Return the ownership of a process that is to claim a task."""
    ownership = Ownership(CHANGELOG)
    ownership.claim = Claim(NONCE, "here", 1, 0)
    return ownership


def rolling_back() -> Scenario:
    """Return a task of generation 1 whose claim of generation 2 is on its way to the log."""
    task, a0, _ = running()
    a0.send(1, "rolled back")
    a0.rollback_marker(0)
    task.hold.add(do.AppendChangelog)
    task.read()
    assert task.core.status is TaskStatus.RECLAIMING
    return task


def test_an_own_message_before_its_place_halts() -> None:
    """Offsets never go back: a log that appends before the expected place has lost messages (decision 0011)."""
    ownership = started()
    ownership.settle(10)
    ownership.count_data(2)
    ownership.header(ChangelogType.COMMIT)
    with pytest.raises(Halted, match="offset 12, expected at 13"):
        ownership.appended(12, 1)


def test_a_gap_that_ends_before_the_own_message_halts() -> None:
    """An acknowledged message in the gap is lost, perhaps a newer claim (decision 0011)."""
    task = ready_to_commit()
    end = len(task.log.rows[CHANGELOG])
    [asked] = task.core.step(on.ChangelogAppended(end + 1, 0, 0, fenced=False))
    assert isinstance(asked, do.ReadChangelog)
    task.core.step(on.ChangelogRow(end - 1, 0, data(2, 1)))
    with pytest.raises(Halted, match=f"at offset {end + 1}, but the changelog ends behind offset {end - 1}"):
        task.core.step(on.ChangelogEnd(end))


# --- C1 ---------------------------------------------------------------------------------------------------------------


def test_nothing_is_written_before_the_claim() -> None:
    """Until its claim is in the log, a process only reads (C1)."""
    log = Log()
    task = Scenario(log)
    task.hold.add(do.AppendChangelog)
    task.start()
    assert {type(action) for action in task.done} == {do.ReadChangelog}
    assert not any(log.rows.values())
    assert decode_changelog_header(task.holding(do.AppendChangelog).value) == (ChangelogType.CLAIM, 1, 0, 0)
    task.release()
    assert task.core.status is TaskStatus.RUNNING


@pytest.mark.parametrize(("seen", "claimed"), [((1,), 2), ((7,), 8), ((1, 2, 5), 6)])
def test_a_claim_is_one_above_the_highest_generation(seen: tuple[int, ...], claimed: int) -> None:
    """g = highest generation seen + 1 (C1)."""
    log = Log()
    for generation in seen:
        log.claim(INNER, generation)
    task = Scenario(log).start()
    assert task.core.generation == claimed
    assert decode_changelog_header(log.rows[CHANGELOG][len(seen)][1]).generation == claimed


@pytest.mark.parametrize(("other", "second"), [(1, 2), (4, 5)])
def test_a_claim_behind_an_equal_or_higher_one_is_made_again(other: int, second: int) -> None:
    """If a claim of the same or a higher generation is before its own, the process claims again, above it (C1)."""
    log = Log()
    task = Scenario(log)
    task.hold.add(do.AppendChangelog)
    task.start()
    log.claim(INNER, other)
    task.release()
    generations = [decode_changelog_header(value).generation for _, value in log.rows[CHANGELOG][:3]]
    assert generations == [other, 1, second]
    assert (task.core.status, task.core.generation) == (TaskStatus.RUNNING, second)
    assert [header.generation for header in task.sent(OUT[0])] == [second]


def test_a_claim_behind_a_lower_one_is_valid() -> None:
    """A lower generation before the own claim changes nothing: log order decides (C1, C2)."""
    log = Log()
    log.claim(INNER, 3)
    task = Scenario(log)
    task.hold.add(do.AppendChangelog)
    task.start()
    log.append(CHANGELOG, data(3, 1))
    task.release()
    assert (task.core.status, task.core.generation) == (TaskStatus.RUNNING, 4)


def test_a_refused_claim_is_made_again_above_the_one_that_refused_it() -> None:
    """A log that compares refuses a claim that came too late: the process reads on and claims above (C1)."""
    log = Log()
    task = Scenario(log)
    task.hold.add(do.AppendChangelog)
    task.start()
    log.claim(INNER, 4)
    task.held, task.hold = [], set()
    task.step(on.ChangelogAppended(-1, 0, 0, fenced=True))
    assert (task.core.status, task.core.generation) == (TaskStatus.RUNNING, 5)


def test_a_repeat_of_the_own_claim_does_no_harm() -> None:
    """An at-least-once log may hold the claim twice, and report the second: the start goes on."""
    log = Log()
    task = Scenario(log)
    task.hold.add(do.AppendChangelog)
    task.start()
    log.append(CHANGELOG, task.holding(do.AppendChangelog).value)
    task.release()
    assert task.core.status is TaskStatus.RUNNING


def test_what_the_predecessor_committed_meanwhile_counts() -> None:
    """A commit between the first look and the own claim is valid, and the successor goes on from it (C1, C2)."""
    task = ready_to_commit()
    successor = task.successor(same_host=False)
    successor.hold.add(do.AppendChangelog)
    successor.start()
    task.release()
    successor.release()
    assert successor.core.frozen == 1
    assert successor.state == task.state != []


# --- C3 ---------------------------------------------------------------------------------------------------------------


def test_a_sole_writer_never_reads_its_tail() -> None:
    """Contiguous offsets prove that nothing foreign is in between: fencing costs nothing (C3)."""
    task, a0, a1 = running()
    reads = len(task.all(do.ReadChangelog))
    for checkpoint_id in range(1, 6):
        a0.send(checkpoint_id, f"record {checkpoint_id}")
        a0.mark(checkpoint_id)
        a1.mark(checkpoint_id)
        task.read()
    assert list(task.committed) == [0, 1, 2, 3, 4, 5]
    assert len(task.all(do.ReadChangelog)) == reads


def test_a_gap_is_read_before_the_store_is_written() -> None:
    """A late message of an older generation makes a gap: the log is read, and the commit is valid (C3)."""
    task = ready_to_commit()
    # the checkpoint's data message: the first after the last verified one
    own_start = len(task.log.rows[CHANGELOG]) - 1
    task.log.append(CHANGELOG, data(1, 1))
    asked = [action for action in task.release() if isinstance(action, do.ReadChangelog | do.ApplyFrozen | do.Send)]
    assert asked[0] == do.ReadChangelog(own_start)
    assert [type(action) for action in asked] == [do.ReadChangelog, do.ApplyFrozen, do.Send, do.Send]
    assert task.core.seen["tails verified"] == 1
    assert 1 in task.committed


@pytest.mark.parametrize("message", ["claim", "data"])
def test_a_higher_generation_before_a_commit_fences(message: str) -> None:
    """A message of any type of a higher generation before the commit makes the commit invalid (C2, C3).

    The task then writes no store and sends no marker.
    """
    task = ready_to_commit()
    if message == "claim":
        task.log.claim(INNER, 3)
    else:
        task.log.append(CHANGELOG, data(3, 1))
    with pytest.raises(Fenced, match="generation 3, claim at offset"):
        task.release()
    assert list(task.committed) == [0]
    assert [header.checkpoint_id for header in task.sent(OUT[0])] == [0]


def test_a_higher_generation_after_a_commit_leaves_it_valid() -> None:
    """Validity is decided by what is before: a later claim fences the next commit, not this one (C2)."""
    task = ready_to_commit()
    task.release()
    assert 1 in task.committed
    task.log.claim(INNER, 3)
    for producer in (A0, A0 + 1):
        after = Producer(task.log, producer)
        after.generation, after.checkpoint_ids = 1, {after.partitions[0]: [1]}
        after.mark(2)
    with pytest.raises(Fenced):
        task.read()
    assert list(task.committed) == [0, 1]
    assert task.successor().start().core.frozen == 1


def test_a_commit_that_the_log_refuses_fences() -> None:
    """A log that compares and appends in one transaction refuses the commit: the process gives up (C3)."""
    task = ready_to_commit()
    task.log.claim(INNER, 3)
    with pytest.raises(Fenced, match="generation 3, claim at offset"):
        task.step(on.ChangelogAppended(-1, 0, 0, fenced=True))
    assert list(task.committed) == [0]


def test_a_refusal_that_no_claim_explains_is_no_fence() -> None:
    """A transactional id is lost by a transaction that took too long, too: exit 1, to be started again (1.8 C5/S1)."""
    task = ready_to_commit()
    with pytest.raises(TransientError, match=r"transaction\.timeout\.ms"):
        task.step(on.ChangelogAppended(-1, 0, 0, fenced=True))
    assert list(task.committed) == [0]


def test_a_fenced_commit_is_not_what_the_successor_finds() -> None:
    """Owner and successor agree on the commit that was overtaken: neither takes it (C2, C3)."""
    task = ready_to_commit()
    successor = task.successor(same_host=False).start()
    with pytest.raises(Fenced):
        task.release()
    assert (successor.core.frozen, successor.state) == (0, [])


@given(st.lists(st.booleans(), max_size=30))
def test_contiguity_is_proof(appends: list[bool]) -> None:
    """For any mix of own (True) and foreign messages, only a mix without foreign ones is taken without reading (C3)."""
    ownership = started()
    ownership.settle(9)
    offset = 9
    for own in appends:
        offset += 1
        ownership.count_data(own)
    ownership.header(ChangelogType.COMMIT)
    expected = None if all(appends) else 10
    assert ownership.appended(offset + 1, 1) == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30))
def test_contiguity_counts_the_ends_of_transactions(checkpoint_ids: list[tuple[int, bool]]) -> None:
    """S1: the offset behind each own transaction is known to be its end, so that a foreign message still shows (C3)."""
    ownership = started()
    ownership.settle(0, trailing=1)
    first = 2
    for own, foreign in checkpoint_ids:
        ownership.count_data(own)
        ownership.header(ChangelogType.COMMIT)
        offset = first + own + foreign
        assert ownership.appended(offset, 1, trailing=1) == (first if foreign else None)
        if foreign:
            ownership.verify_tail(offset, data(1, 1))
            ownership.tail_verified()
        first = offset + 2


def test_data_behind_a_message_is_not_before_it() -> None:
    """Data is sent on while the log has not answered: the answer is about the message, the next one about the data."""
    ownership = started()
    ownership.settle(9)
    ownership.count_data(2)
    ownership.header(ChangelogType.OUTPUT_RELEASE)
    ownership.count_data(3)
    assert ownership.appended(12, 1) is None
    header = ownership.header(ChangelogType.COMMIT)
    assert (header.seq, ownership.appended(16, 1)) == (6, None)
