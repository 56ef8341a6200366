"""Bulk writes: commits from outside of the workers, which count once their outcome is written (1.8)."""

import zlib

import pytest

from grete.core import actions as do
from grete.core import events as on
from grete.core.changelog.changelog_fold import Segment
from grete.core.changelog.ownership import Ownership
from grete.core.lifecycle import StartupPhase
from grete.core.startup import StartUp
from grete.errors import Halted
from grete.protocol.changelog import ChangelogHeader, ChangelogType, InputDecision, encode_data
from grete.protocol.commit import Commit, encode_commit
from grete.protocol.ids import RollbackEntry, TopicPartition
from tests.core.test_changelog_fold import BASE, Writer, fold

DATA, COMMIT = ChangelogType.DATA, ChangelogType.COMMIT


def bulk_write_after_two_checkpoints() -> tuple[list[bytes], Writer]:
    """Return checkpoints 1 and 2 of generation 1, then a bulk write of generation 2 that commits checkpoint 9.

    Its writer is returned, too.
    """
    first, run = Writer(1), Writer(2)
    messages = [first.claim(), first.data(), first.commit(1), first.data(), first.commit(2, previous=1)]
    return [*messages, run.claim(), run.data(b"of the run"), run.commit(9, bulk_write_id="r", previous=2)], run


def checkpoint_ids(segments: list[Segment]) -> list[int]:
    """Return the checkpoints that segments close."""
    return [segment.commit.checkpoint_id for segment in segments]


def test_a_bulk_write_counts_once_its_outcome_is_written() -> None:
    """Its data are those of a segment only then (1.8)."""
    messages, run = bulk_write_after_two_checkpoints()
    into, segments = fold(messages)
    assert (checkpoint_ids(segments), into.in_doubt, into.last and into.last.checkpoint_id) == ([1, 2], "r", 2)
    into, segments = fold([*messages, run.outcome(counts=True)])
    assert (checkpoint_ids(segments), into.in_doubt, into.last and into.last.checkpoint_id) == ([1, 2, 9], None, 9)
    assert (segments[-1].messages, segments[-1].offset, into.last_offset) == ((messages[6],), 7, 7)


def test_a_bulk_write_that_is_invalid_leaves_nothing() -> None:
    """The next checkpoint builds on the one before the bulk write, and may be lower than the bulk write's (1.8)."""
    messages, run = bulk_write_after_two_checkpoints()
    after = Writer(3)
    tail = [run.outcome(counts=False), after.claim(), after.data(), after.commit(3, previous=2)]
    into, segments = fold([*messages, *tail])
    assert (checkpoint_ids(segments), into.last and into.last.checkpoint_id) == ([1, 2, 3], 3)
    assert segments[-1].messages == (tail[2],)


@pytest.mark.parametrize(("previous", "expected"), [(9, [1, 2, 10]), (2, [1, 2, 10])])
def test_the_next_commit_proves_the_outcome(previous: int, expected: list[int]) -> None:
    """No task builds on a bulk write in doubt, or passes one over: the next commit tells its outcome (1.8)."""
    messages, _ = bulk_write_after_two_checkpoints()
    after = Writer(3)
    into, segments = fold([*messages, after.claim(), after.data(b"after"), after.commit(10, previous=previous)])
    assert checkpoint_ids(segments) == expected
    assert (messages[6] in segments[-1].messages) is (previous == 9)
    assert (into.in_doubt, len(segments[-1].messages)) == (None, 2 if previous == 9 else 1)


def test_a_outcome_that_comes_late_sets_the_rollback_history_right() -> None:
    """The outcome tells where a generation went back to that began between commit and outcome (R3).

    It is the bulk write's checkpoint, or the one before.
    """
    messages, _ = bulk_write_after_two_checkpoints()
    resumed = Writer(3)
    for counts, restored in ((True, 9), (False, 2)):
        resumed = Writer(3)
        into, _ = fold([*messages, resumed.claim(), resumed.outcome(counts=counts)])
        assert into.rollback_history[-1] == RollbackEntry(3, restored)


def test_what_was_decided_after_a_bulk_write_is_kept() -> None:
    """Its outcome may be found last, at task (0, 0): a successor still repeats what was decided since (1.8, D2)."""
    messages, _ = bulk_write_after_two_checkpoints()
    live = Writer(3)
    into, _ = fold([*messages, live.claim(), live.decision(40), live.decision(41)])
    assert into.in_doubt == "r"
    into.settle("r", counts=True)
    assert [d.first_offset for d in into.since.decisions if isinstance(d, InputDecision)] == [40, 41]


def test_a_invalid_outcome_decides_nothing() -> None:
    """An outcome behind a message of a higher generation is invalid, as any message is (C2)."""
    messages, run = bulk_write_after_two_checkpoints()
    late = run.outcome(counts=True)
    into, segments = fold([*messages, Writer(3).claim(), late])
    assert (checkpoint_ids(segments), into.in_doubt) == ([1, 2], "r")


def test_attempts_are_numbered_apart() -> None:
    """Data of two attempts in turns: the commit closes those of the one it names, and misses none (1.2)."""
    run = Writer(1)
    claim = run.claim()

    def data(attempt: int, seq: int) -> bytes:
        return encode_data(ChangelogHeader(DATA, 1, seq, attempt), [0], [b"%d" % attempt], [b"%d" % seq])

    mine = [data(8, 1), data(8, 2)]
    digest = zlib.crc32(mine[1], zlib.crc32(mine[0]))
    fields = {name: getattr(BASE, name) for name in BASE.__struct_fields__}
    named = Commit(**fields | {"checkpoint_id": 1, "attempt": 8, "data_count": 2, "data_digest": digest})
    commit = encode_commit(ChangelogHeader(COMMIT, 1, 1, 0), named)
    _, segments = fold([claim, data(7, 1), mine[0], data(7, 2), mine[1], data(7, 3), commit])
    assert [segment.messages for segment in segments] == [tuple(mine)]
    with pytest.raises(Halted, match="ChangelogSeq 3 after 1"):
        fold([claim, data(7, 1), data(7, 3)])


# --- a start ----------------------------------------------------------------------------------------------------------


def started(messages: list[bytes]) -> tuple[StartUp, list[do.Action]]:
    """Return a restore that has read all messages, and what it wants then."""
    changelog = TopicPartition("j.b.changelog", 1)
    bounds = {changelog: (0, len(messages))}
    start = StartUp("b-1", changelog, Ownership(changelog), lambda _commit: None)
    actions = start.begin(on.Start(0, bytes(16), "here", 1, 0, None, bounds))
    for _ in range(2):  # the probe, then the whole log
        for offset, message in enumerate(messages):
            start.row(on.ChangelogRow(offset, 0, message))
        actions = start.end(on.ChangelogEnd(len(messages)))
    return start, actions


def test_a_start_asks_for_the_outcome_before_it_claims() -> None:
    """A run that is the last commit: what was decided at task (0, 0) decides what the state is (1.8, R1)."""
    messages, _ = bulk_write_after_two_checkpoints()
    start, actions = started(messages)
    assert actions == [do.FindOutcome("r")]
    applied, claimed = start.outcome(on.OutcomeFound("r", counts=True))
    assert applied == do.ApplySegment((messages[6],), 7)
    assert isinstance(claimed, do.AppendChangelog)
    assert start.phase is StartupPhase.CLAIMING


def test_a_start_passes_over_a_bulk_write_that_is_invalid() -> None:
    """Nothing of it is applied (1.8)."""
    start, _ = started(bulk_write_after_two_checkpoints()[0])
    (claimed,) = start.outcome(on.OutcomeFound("r", counts=False))
    assert isinstance(claimed, do.AppendChangelog)
    assert start.fold.last is not None
    assert start.fold.last.checkpoint_id == 2


def test_a_start_refuses_a_bulk_write_in_doubt() -> None:
    """It would have to guess; nothing is claimed, so the run can still be decided (1.8)."""
    start, _ = started(bulk_write_after_two_checkpoints()[0])
    wanted = r"b-1: the bulk write r .* has not written its outcome.*grete backfill JOB --resume or --abort"
    with pytest.raises(Halted, match=wanted):
        start.outcome(on.OutcomeFound("r", counts=None))


def test_a_copy_of_the_outcome_answers_the_question() -> None:
    """A copy of the outcome makes a read of another changelog unnecessary (1.8)."""
    messages, run = bulk_write_after_two_checkpoints()
    _, actions = started([*messages, run.outcome(counts=True)])
    assert [type(action) for action in actions] == [do.AppendChangelog]
