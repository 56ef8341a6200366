"""The content of a commit, and the rewrite that bounds the changelog (A7, K2, K3)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grete.core import actions as do
from grete.core.changelog.changelog_fold import ChangelogFold
from grete.core.changelog.changelog_rewrite import ChangelogRewrite
from grete.core.limits import REWRITE_ROUNDS_MAX
from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.protocol.changelog_position import ChangelogPosition
from grete.protocol.commit import OutputCommit, RoundStart
from grete.protocol.envelope import MessageType
from grete.protocol.ids import RollbackEntry
from tests.core.scenario import NONCE, Scenario, running
from tests.core.streams import INNER, JOB, OUT, Producer, T

CHANGELOG = INNER.changelog


def advance(task: Scenario, checkpoint_id: int, *producers: Producer, names: tuple[str, ...] = ()) -> None:
    """Process some records and commit a checkpoint, 100 ms after the last."""
    task.log.now_ms += 100
    if names:
        producers[0].send(checkpoint_id, *names)
    for producer in producers:
        producer.mark(checkpoint_id)
    task.read()
    assert task.core.commits.committed is not None
    assert task.core.commits.committed.checkpoint_id == checkpoint_id


# --- A7: order and content --------------------------------------------------------------------------------------------


def test_the_steps_of_a_commit_come_in_their_order() -> None:
    """Flush, freeze, data, commit, store, markers, trim: each step is asked for after the one before (A7)."""
    task, a0, a1 = running()
    before = len(task.done)
    task.emit(OUT[0], "out")
    advance(task, 1, a0, a1)
    kinds = [type(action) for action in task.done[before:]]
    expected = [do.FlushOutputs, do.Send, do.Freeze, do.WriteData, do.AppendChangelog, do.ApplyFrozen]
    assert kinds == [*expected, do.Send, do.Send, do.Committed, do.Trim]


def test_no_data_before_all_outputs_are_acknowledged() -> None:
    """Every delivery of the checkpoint must be known to have succeeded, not only the last one (A7)."""
    task, a0, a1 = running()
    task.acks = False
    task.emit(OUT[0], "x")
    task.emit(OUT[1], "y")
    a0.mark(1)
    a1.mark(1)
    task.read()
    assert [freeze.checkpoint_id for freeze in task.all(do.Freeze)] == [0, 1]
    assert len(task.all(do.WriteData)) == 1  # the genesis
    task.ack()
    assert len(task.all(do.WriteData)) == 2
    assert task.core.commits.committed is not None
    assert task.core.commits.committed.checkpoint_id == 1


def test_no_marker_before_the_store_is_written() -> None:
    """Markers follow the store, the store follows the commit (A7, A9)."""
    task, a0, a1 = running()
    task.hold.add(do.ApplyFrozen)
    a0.mark(1)
    a1.mark(1)
    task.read()
    assert MessageType.MARKER not in [header.type for header in task.sent(OUT[0])]
    task.release()
    assert [(h.type, h.checkpoint_id) for h in task.sent(OUT[0])][-1] == (MessageType.MARKER, 1)


def test_a_commit_says_all_that_a_restart_needs() -> None:
    """Own fields, seqs of outputs, data count and digest, per channel what is included, rollback histories (1.2)."""
    task, a0, a1 = running(generations=(3, 1))
    task.emit(OUT[1], "1", "2")
    a0.send(4, "x", "y")
    advance(task, 7, a0, a1)
    commit = task.log.commits(INNER)[-1]
    assert (commit.producer, commit.generation, commit.checkpoint_id, commit.previous) == (INNER.producer, 1, 7, 0)
    assert (commit.nonce, commit.fingerprint, commit.data_count) == (NONCE, JOB.fingerprint(), 1)
    assert commit.rollback_history == (RollbackEntry(1, 0),)
    assert commit.outputs == (OutputCommit(OUT[0].topic, 0, 1), OutputCommit(OUT[1].topic, 1, 3))
    [read] = commit.inputs
    assert (read.topic, read.partition, read.resume) == (T.topic, T.partition, len(task.log.rows[T]))
    assert [(c.generation, c.checkpoint_id, c.seq) for c in read.channels] == [(3, 7, 2), (1, 7, 0)]
    assert [(known.producer, known.rollback_history[-1].generation) for known in commit.known] == [(0, 3), (1, 1)]


def test_the_changelog_position_names_the_commit() -> None:
    """Offset, generation, checkpoint, nonce: those of the commit whose state the store is (R1)."""
    task, a0, a1 = running()
    advance(task, 1, a0, a1, names=("x",))
    [*_, apply] = task.all(do.ApplyFrozen)
    assert apply.changelog_position == ChangelogPosition(3, 1, 1, NONCE)
    header = decode_changelog_header(task.log.rows[CHANGELOG][3][1])
    assert (header.type, header.seq) == (ChangelogType.COMMIT, 3)


# --- K3: streams ------------------------------------------------------------------------------------------------------


def test_a_stream_is_trimmed_up_to_the_committed_resume_offset() -> None:
    """Only by its one consumer, only after the commit is valid and applied, never beyond what a restart reads (K3)."""
    task, a0, a1 = running()
    early = a0.send(2, "early")
    task.hold.add(do.ApplyFrozen)
    a0.mark(1)
    a1.mark(1)
    task.read()
    assert task.all(do.Trim) == []
    task.release()
    assert task.all(do.Trim) == [do.Trim(T, early)]


# --- K2: the rewrite
# ----------------------------------------------------------------------------------------------------


def test_a_round_moves_base_and_round_start() -> None:
    """A round ends: it is the base now, and the commit that ended it begins the next one (K2)."""
    rewrite = ChangelogRewrite()
    rewrite.committed(5, 100, b"k", changelog_retention_ms=0)
    assert (rewrite.cursor, rewrite.round_start, rewrite.base) == (b"k", 0, 0)
    rewrite.committed(7, 200, b"", changelog_retention_ms=0)  # nothing is before the genesis
    assert (rewrite.cursor, rewrite.round_start, rewrite.base, rewrite.rounds) == (b"", 7, 0, ())
    rewrite.committed(9, 300, b"", changelog_retention_ms=0)
    assert (rewrite.round_start, rewrite.base, rewrite.started_ms, rewrite.rounds) == (9, 7, 300, (RoundStart(7, 200),))
    assert (rewrite.trim(300, changelog_retention_ms=0), rewrite.rounds) == (7, ())


def test_round_starts_are_thinned_out() -> None:
    """Few round starts are remembered, however short rounds are, and trimming is a 32nd of the history late (K2)."""
    rewrite = ChangelogRewrite()
    before: int | None = None
    for offset in range(1, 1_000):
        rewrite.committed(offset, offset, b"", changelog_retention_ms=640)
        before = rewrite.trim(offset, changelog_retention_ms=640)
        assert before is None or offset - 640 - 20 <= before <= offset - 640
        assert len(rewrite.rounds) <= REWRITE_ROUNDS_MAX + 1
    assert 300 < (before or 999) < 1_000


def test_a_commit_names_the_round_that_an_earlier_commit_completed() -> None:
    """Never its own: whether the commit itself is valid is not known to who reads it (1.8 R1)."""
    task, a0, a1 = running()
    for checkpoint_id in (1, 2, 3, 4):
        advance(task, checkpoint_id, a0, a1, names=(str(checkpoint_id),))
    at = [o for o, (_, v) in enumerate(task.log.rows[CHANGELOG]) if v[0] & 0xF == ChangelogType.COMMIT]
    bases = [(commit.round_start, commit.base) for commit in task.log.commits(INNER)]
    assert bases == [(0, 0), (0, 0), (at[1], 0), (at[2], at[1]), (at[3], at[2])]


def test_the_rewrite_goes_on_where_the_last_commit_says_after_a_restart() -> None:
    """Cursor and round start are in the commit: a restart does not begin the round again (K2)."""
    task, a0, a1 = running()
    advance(task, 1, a0, a1, names=("p", "q", "r", "s"))
    task.rewrite_keys = 1
    advance(task, 2, a0, a1)
    assert (task.log.commits(INNER)[-1].cursor, task.all(do.WriteData)[-1].cursor) == (b"p", b"")
    after = task.successor().start()
    after.rewrite_keys = 1
    advance(after, 3, a0, a1)
    assert after.all(do.WriteData)[-1].cursor == b"p"
    assert [c.round_start for c in task.log.commits(INNER)[-2:]] == [3, 3]


def test_the_changelog_is_trimmed_before_a_round_start_when_the_next_round_ends() -> None:
    """A committed round that began at S trims all before S; the commit at S itself stays (K2)."""
    task, a0, a1 = running(changelog_retention_ms=0)
    advance(task, 1, a0, a1, names=("x",))
    assert task.log.start[CHANGELOG] == 0
    advance(task, 2, a0, a1)
    start = task.log.start[CHANGELOG]
    header = decode_changelog_header(task.log.rows[CHANGELOG][start][1])
    assert (header.type, task.log.commits(INNER)[0].checkpoint_id) == (ChangelogType.COMMIT, 1)


def test_history_is_respected() -> None:
    """Commits younger than the retention stay, for as-of reads; older ones are trimmed (K2)."""
    task, a0, a1 = running(changelog_retention_ms=250)
    starts = []
    for checkpoint_id in range(1, 7):
        advance(task, checkpoint_id, a0, a1)
        starts.append(task.log.commits(INNER)[0].checkpoint_id)
    assert starts == [0, 0, 0, 1, 2, 3]  # a commit each 100 ms: the base is the newest round start at least 250 ms old


def test_a_trim_that_is_not_due_is_not_forgotten() -> None:
    """Rounds that end while earlier ones are still history trim later, to the newest that is old enough (K2)."""
    task, a0, a1 = running(changelog_retention_ms=1_000)
    advance(task, 1, a0, a1, names=("x", "y"))
    for checkpoint_id in (2, 3, 4):
        advance(task, checkpoint_id, a0, a1)
    assert task.log.start[CHANGELOG] == 0
    task.rewrite_keys = 1  # the round does not end with the next checkpoint
    task.log.now_ms += 1_000
    advance(task, 5, a0, a1)
    assert task.log.commits(INNER)[0].checkpoint_id == 3


@settings(max_examples=25)
@given(
    keys_of_checkpoints=st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=8),
    rewrite_keys=st.integers(1, 4),
    restarts=st.sets(st.integers(1, 8)),
)
def test_whatever_was_trimmed_a_restore_finds_the_state(
    keys_of_checkpoints: list[list[int]], rewrite_keys: int, restarts: set[int]
) -> None:
    """After any writes, rewrites, trims and restarts, what is left of the changelog is the whole state (K2, R1)."""
    task, a0, a1 = running(changelog_retention_ms=0)
    for checkpoint_id, keys in enumerate(keys_of_checkpoints, 1):
        task.rewrite_keys = rewrite_keys
        for key in keys:
            a0.send(checkpoint_id, f"key {key}")
        advance(task, checkpoint_id, a0, a1)
        if checkpoint_id in restarts:
            task = task.successor(same_host=checkpoint_id % 2 == 0).start()
            task.read()
    elsewhere = task.successor(same_host=False).start()
    assert (elsewhere.store, elsewhere.core.frozen) == (task.store, len(keys_of_checkpoints))
    expected = {
        f"key {key}": sum(keys.count(key) for keys in keys_of_checkpoints)
        for keys in keys_of_checkpoints
        for key in keys
    }
    assert elsewhere.store == expected


@pytest.mark.parametrize("rewrite_keys", [1, 3, 1_000])
def test_the_changelog_stays_bounded(rewrite_keys: int) -> None:
    """An idle task with state goes on rewriting and trimming: the log does not grow with time (K2)."""
    task, a0, a1 = running(changelog_retention_ms=0)
    advance(task, 1, a0, a1, names=("p", "q", "r"))
    task.rewrite_keys = rewrite_keys
    sizes = []
    for checkpoint_id in range(2, 40):
        advance(task, checkpoint_id, a0, a1)
        sizes.append(len(task.log.rows[CHANGELOG]) - task.log.start[CHANGELOG])
    assert max(sizes[20:]) <= max(sizes[:20])
    fold = ChangelogFold(CHANGELOG, task.log.start[CHANGELOG])
    for offset in range(task.log.start[CHANGELOG], len(task.log.rows[CHANGELOG])):
        fold.feed(offset, task.log.rows[CHANGELOG][offset][1])
    assert fold.complete


def test_restarts_do_not_stop_the_trimming() -> None:
    """A task that restarts more often than the history setting still trims what is old enough (K2)."""
    task, a0, a1 = running(changelog_retention_ms=250)
    for checkpoint_id in range(1, 41):
        advance(task, checkpoint_id, a0, a1, names=(f"{checkpoint_id % 3}",))
        if checkpoint_id % 2 == 0:
            task = task.successor().start()
            task.read()
    assert task.log.start[CHANGELOG] > 0
