"""Deterministic mode, stepped by hand: decisions and leases, commits (D2, D4)."""

from dataclasses import replace

import pytest

from grete.core import actions as do
from grete.core import events as on
from grete.core.limits import SOURCE_BATCHES_MAX
from grete.errors import ConfigError, Fenced
from grete.protocol.changelog import (
    ChangelogType,
    decode_changelog_header,
    decode_time_lease,
)
from grete.protocol.ids import TopicPartition
from tests.core.deterministic.scenario import Logical, Writer, inner
from tests.core.scenario import Scenario
from tests.core.streams import A0, INNER, SOURCE, Log

TO = SOURCE.outputs
ALONE = replace(SOURCE, outputs=())  # a source that only writes to the outside


def kinds(task: Logical) -> list[ChangelogType]:
    """Return the types of the messages in the task's changelog."""
    return [decode_changelog_header(value).type for _, value in task.log.rows[task.task.changelog]]


def source() -> Logical:
    """Return SOURCE, running, at log time 1,050 ms, with a lease."""
    return Logical(Log(), SOURCE).start()


# --- a source: decisions and leases (D2) ------------------------------------------------------------------------------


def test_nothing_is_sent_before_the_decision_is_acknowledged() -> None:
    """User code runs at once, but what it makes of a batch is sent when its decision is in the changelog (D2)."""
    task = source()
    task.hold = {do.AppendChangelog}
    task.take("x", "y")
    assert task.names == ["x", "y"]
    assert task.frames(TO[0]) == []
    task.release()
    assert task.frames(TO[0]) == [(1, [1_050_000, 1_050_001])]


def test_processing_does_not_wait_for_decisions() -> None:
    """Some batches are decided and processed while a decision is on its way; then theirs go together (D2)."""
    task, names = source(), [f"n{number}" for number in range(SOURCE_BATCHES_MAX)]
    task.hold = {do.AppendChangelog}
    for name in names:
        assert task.core.wants_input
        task.take(name)
    assert not task.core.wants_input
    assert (task.names, task.frames(TO[0])) == (names, [])
    task.release()
    assert [seq for seq, _ in task.frames(TO[0])] == [*range(1, SOURCE_BATCHES_MAX + 1)]
    assert kinds(task).count(ChangelogType.INPUT_DECISION) == SOURCE_BATCHES_MAX
    appends = [a for a in task.all(do.AppendChangelog) if a.value[0] & 15 == ChangelogType.INPUT_DECISION]
    assert [len(append.before) for append in appends] == [0, SOURCE_BATCHES_MAX - 2]


def test_a_checkpoint_is_frozen_between_batches() -> None:
    """A due checkpoint stops new batches until those in flight are done.

    So a commit is never put off for ever.
    """
    task = source()
    task.hold = {do.AppendChangelog}
    task.take("x")
    task.mono_ms += 100
    task.log.now_ms += 100
    task.take("y")
    task.release()
    task.tick(1)
    assert task.core.frozen > 0
    assert task.successor().start().names == []


def test_nothing_is_sent_for_a_decision_behind_anothers_claim() -> None:
    """An input decision that a newer generation's claim precedes is invalid, and its sender gives up (D2, C3)."""
    task = source()
    task.hold = {do.AppendChangelog}
    task.take("x")
    task.log.claim(SOURCE, 2)
    with pytest.raises(Fenced, match="generation 2"):
        task.release()
    assert task.frames(TO[0]) == []


@pytest.mark.parametrize("same_host", [True, False])
def test_a_successor_replays_what_was_decided(same_host: bool) -> None:
    """Decided and not committed: the same rows at the same times, then on from there (D2)."""
    task = source()
    task.take("x", "y")
    task.take("z")
    after = task.successor(same_host=same_host).start()
    assert after.processed == task.processed
    assert after.frames(TO[0])[2:] == after.frames(TO[0])[:2]
    assert after.core.external.position[TopicPartition("in", 0)] == 3
    after.take("new")
    assert after.processed[-1][1] > task.processed[-1][1]


def test_an_invalid_decision_is_not_replayed() -> None:
    """A zombie's decision behind its successor's claim does not count (D2, C2)."""
    task = source()
    task.hold = {do.AppendChangelog}
    task.take("x")
    after = task.successor()
    after.start()
    held = task.holding(do.AppendChangelog)
    task.log.append(SOURCE.changelog, *held.before, held.value)
    assert after.successor(nonce=b"a third process!").start().processed == []


def test_a_commit_takes_decisions_with_it() -> None:
    """Records in a commit are not replayed; decisions behind it are (D2, D4)."""
    task = source()
    task.take("x")
    task.tick(100)
    assert task.core.commits.committed is not None
    task.take("y")
    assert task.successor().start().names == ["y"]


def test_no_decision_is_between_a_freeze_and_its_commit() -> None:
    """A restart reads the changelog from the commit on: what is decided during a commit is appended behind it (D2)."""
    task = source()
    task.hold = {do.WriteData}
    task.tick(100)
    task.take("x")
    assert ChangelogType.INPUT_DECISION not in kinds(task)
    task.release()
    behind = kinds(task)[-2:]
    assert behind[-1] is ChangelogType.INPUT_DECISION
    assert task.successor().start().names == ["x"]


def test_nothing_is_committed_before_all_is_replayed() -> None:
    """A commit in the middle of a replay would take decisions with it that are not in its state (D2)."""
    task = source()
    task.take("x")
    task.take("y")
    after = task.successor()
    after.hold = {do.ProcessExternal}
    after.start()
    after.tick(1_000)
    assert not any(isinstance(action, do.Freeze) for action in after.done)


def test_a_successor_starts_above_the_lease() -> None:
    """No new record comes at or below a time that the predecessor has announced by progress messages (D2)."""
    task = source()
    task.tick(5)
    [lease] = [
        decode_time_lease(v).t for _, v in task.log.rows[SOURCE.changelog] if v[0] & 15 == ChangelogType.TIME_LEASE
    ]
    assert lease == 1_250_000
    assert max(task.progress_messages(TO[0])) <= lease
    after = task.successor().start()
    after.take("x")
    assert after.processed == [("x", lease + 1, SOURCE.producer)]


def test_progress_messages_stay_within_a_lease_that_is_known_to_count() -> None:
    """A lease that is not acknowledged announces nothing (D2)."""
    task = source()
    task.tick(50)
    task.hold = {do.AppendChangelog}
    for _ in range(100):
        task.tick(5)
    assert max(task.progress_messages(TO[0])) == 1_250_000
    task.release()
    task.tick(20)
    assert max(task.progress_messages(TO[0])) > 1_500_000


def test_a_batch_is_not_overtaken_by_progress_messages() -> None:
    """While a batch waits for its input decision, no progress message overtakes it.

    With it, all channels learn of its time (D1).
    """
    task = source()
    task.hold = {do.AppendChangelog}
    before = task.progress_messages(TO[1])
    task.take("x", "y")
    task.tick(50)
    assert task.progress_messages(TO[1]) == before
    task.release()
    assert task.progress_messages(TO[1]) == [*before, 1_050_001]
    assert task.progress_messages(TO[0]) == before  # its last record says the same


def test_time_does_not_go_back_with_the_logs_clock() -> None:
    """Logical time follows append times forward only, whatever the log's clock does (D2)."""
    task = source()
    task.take("x")
    task.log.now_ms -= 3_600_000
    task.take("y")
    task.mono_ms += 7
    task.take("z")
    assert [t for _, t, _ in task.processed] == [1_050_000, 1_050_001, 1_057_000]


def test_commits_go_on_when_the_logs_clock_goes_back() -> None:
    """No checkpoint spans tasks, so none has to wait until the log's clock has caught up (D4)."""
    task = source()
    task.tick(100)
    task.log.now_ms -= 3_600_000
    task.tick(100)
    task.take("x")
    before = task.core.frozen
    task.tick(100)
    assert task.core.frozen > before


def test_a_idle_source_emits_less_often_and_advances_ahead() -> None:
    """Without records for a second there is a progress message each 20 ms, but no task waits for it (D1)."""
    task = source()
    task.take("x")
    task.tick(5)
    busy = task.core.due_in_ms(task.mono_ms)
    assert busy <= 5
    for _ in range(1_100):
        task.tick(1)
        if task.log.now_ms > 2_060:
            assert task.progress_messages(TO[0])[-1] >= task.log.now_ms * 1000
    assert task.progress_messages(TO[0])[-1] - task.progress_messages(TO[0])[-2] == 20_000


# --- commits (D4) -----------------------------------------------------------------------------------------------------


def test_a_restart_goes_on_from_what_was_processed() -> None:
    """Received is not processed: the resume offset is the first frame with a record that is not (D3, D4)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0), ("y", 200, A0))
    at = a0.send(("z", 300, A0))
    a1.progress(150)
    task.read()
    task.tick(100)
    assert (task.names, task.core.merge.channels[0].received) == (["x"], 3)
    commit = task.log.commits(INNER)[-1]
    assert commit.deterministic is not None
    assert [(c.seq, c.recovery_offset) for c in commit.inputs[0].channels] == [(1, 0), (0, 3)]
    assert [frontier.t for frontier in commit.deterministic.frontiers] == [199, 150]
    after = task.successor().start()
    a1.progress(400)
    after.read()
    assert (at, after.names) == (1, ["y", "z"])


def test_a_commit_holds_its_digests() -> None:
    """A commit has the digest of each channel up to the last record processed, in the middle of a frame, too (D3)."""
    task, a0, a1 = inner()
    one = Writer(Log(), A0)
    one.send(("x", 100, A0))
    a0.send(("x", 100, A0), ("y", 200, A0))
    a1.progress(150)
    task.read()
    task.tick(100)
    deterministic = task.log.commits(INNER)[-1].deterministic
    assert deterministic is not None
    assert [frontier.digest for frontier in deterministic.frontiers] == [one.digest, 0]


def test_a_source_that_stops_sends_nothing_after_its_last_commit() -> None:
    """A progress message every few ms would put off the end for as long as the log is slow (R6)."""
    task = source()
    task.take("x")
    task.acks = False
    task.hold = {do.WriteData}
    task.step(on.Stop())
    sent = len(task.all(do.Send))
    for _ in range(50):
        task.tick(5)
    assert len(task.all(do.Send)) == sent
    task.release()
    task.ack()
    task.release()
    assert task.exit is not None


def test_a_commit_of_the_other_mode_is_refused() -> None:
    """A job keeps its mode: neither core goes on from what the other one has committed."""
    aligned, deterministic = Scenario(Log(), INNER).start(), Logical(Log(), INNER).start()
    with pytest.raises(ConfigError, match="is not one of deterministic mode"):
        Logical(aligned.log, INNER, nonce=b"another process!").start()
    with pytest.raises(ConfigError, match="ran in another mode"):
        Scenario(deterministic.log, INNER, nonce=b"another process!").start()


def test_a_stop_commits_and_exits() -> None:
    """A graceful stop commits what is processed, waits for no task, and leaves the rest to the next start (R6)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0), ("y", 200, A0))
    a1.progress(150)
    task.read()
    task.step(on.Stop())
    assert task.exit is not None
    assert task.state == [] or task.names == ["x"]
    after = task.successor().start()
    a1.progress(300)
    after.read()
    assert after.names == ["y"]
