"""The driver does what the core asks for, in its order, on a real log and store (A7, A8, R1, R5, B1)."""

from itertools import pairwise

import pytest

from grete.core.lifecycle import TaskStatus
from grete.stores.memory import MemoryDisk
from grete.stores.spill import MemorySpill
from tests.core.streams import T
from tests.execution.driving import Crash, Driven, Step, driven

# The steps of one commit, in the order that A7 asks for; several of a kind may follow one another.
ORDER = (
    "output acknowledged",
    "data",
    "commit",
    "commit acknowledged",
    "chunk",
    "last chunk",
    "after commit",
    "marker",
    "trim",
)


def out_of_order(trace: list[Step]) -> list[tuple[str, str]]:
    """Return each pair of neighbours, among the steps of a commit, that stand in the wrong order."""
    steps = [ORDER.index(step.what) for step in trace if step.what in ORDER]
    return [(ORDER[first], ORDER[second]) for first, second in pairwise(steps) if second < first]


def commit_of_many(**changes: int | str) -> list[Step]:
    """Return the trace of one checkpoint of 2,500 keys, cut so that it has three data messages and three chunks."""
    task, a0, a1 = driven(**changes)
    for batch in range(5):
        a0.send(1, *(f"{batch}.{number:0200}" for number in range(500)))
    a0.mark(1)
    a1.mark(1)
    task.trace.clear()
    task.run()
    return task.trace


# --- A7: the order of a commit ----------------------------------------------------------------------------------------


def test_a_commit_keeps_its_order() -> None:
    """All outputs acknowledged → data → commit → store, the changelog position last → markers → trim (A7)."""
    trace = commit_of_many()
    assert out_of_order(trace) == []
    counts = {what: sum(step.what == what for step in trace) for what in ORDER}
    assert counts["output acknowledged"] == sum(step.what == "output" for step in trace) > 0
    assert (counts["data"], counts["commit"], counts["commit acknowledged"]) == (4, 1, 1)  # the last of the rewrite
    assert (counts["chunk"], counts["last chunk"], counts["marker"]) == (2, 1, 2)
    assert counts["trim"] > 0


@pytest.mark.parametrize(("earlier", "later"), list(pairwise(ORDER)))
def test_any_other_order_is_noticed(earlier: str, later: str) -> None:
    """The check is not blind: for each two steps, the real trace with the later one moved up is refused (A7)."""
    trace = commit_of_many()
    at = [index for index, step in enumerate(trace) if step.what == earlier][-1]
    moved = next(index for index, step in enumerate(trace) if step.what == later)
    trace.insert(at, trace.pop(moved))
    assert (later, earlier) in out_of_order(trace)


def test_one_missing_acknowledgement_holds_the_commit_up() -> None:
    """That later sends have succeeded says nothing about an earlier one: data waits for every delivery (A7)."""
    task, a0, a1 = driven()
    a0.send(1, "x")
    a0.mark(1)
    a1.mark(1)
    task.log.mute = True
    task.trace.clear()
    task.run()
    outputs = [answer for answer in task.log.answers if answer.token > 0]
    assert len(outputs) == 2
    task.driver.delivered(outputs[1])
    while task.driver.tick():
        pass
    assert {step.what for step in task.trace} == {"output", "freeze"}
    task.driver.delivered(outputs[0])
    while task.driver.tick():
        pass
    assert [step.what for step in task.trace][-2:] == ["data", "commit"]


def test_outputs_after_the_freeze_go_on_during_the_commit() -> None:
    """They are of the next checkpoint, and neither wait for the commit nor hold it up (A8)."""
    task, a0, a1 = driven()
    task.log.mute = True
    a0.send(1, "x")
    a0.mark(1)
    a1.mark(1)
    a0.send(2, "y")
    task.run()
    assert [step for step in task.trace if step.what == "output"] == [Step("output", 1)] * 2 + [Step("output", 2)] * 2
    task.log.mute = False
    task.run()
    assert task.keys() == {"x"}
    assert task.runner.processed == ["x", "y"]


def test_nothing_is_sent_before_the_claim_is_acknowledged() -> None:
    """Claim, then the genesis, then the restores, then input (C1, A2, R2)."""
    task, a0, _ = driven()
    a0.send(1, "x")
    task.run()
    whats = [step.what for step in task.trace if step.what not in ("freeze", "after commit", "last chunk")]
    assert whats[:4] == ["claim", "claim acknowledged", "commit", "commit acknowledged"]
    assert whats[4:8] == [
        "rollback_marker",
        "rollback_marker",
        "rollback_marker acknowledged",
        "rollback_marker acknowledged",
    ]
    assert whats[8] == "output"


# --- R1: crashes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [0, 1, 2])
def test_a_crash_between_chunks_is_redone(chunks: int) -> None:
    """The commit is valid, the store holds part of it: the successor here completes it from the log (A7, R1)."""
    task, a0, a1 = driven()
    names = [f"{number:04}" for number in range(2_500)]
    a0.send(1, *names)
    a0.mark(1)
    a1.mark(1)
    task.store.crash_at = chunks
    with pytest.raises(Crash):
        task.run()
    assert len(task.keys()) == 1_000 * chunks
    after = Driven(data=task.data, disk=task.disk, nonce=b"another process!").start()
    assert after.keys() == set(names)
    assert (after.driver.parts.counters["redos"], after.driver.parts.counters["wipes"], after.core.frozen) == (1, 0, 1)
    assert after.driver.parts.counters["restored records"] == 2_500


def test_another_host_restores_the_same_state() -> None:
    """Wipe or empty disk: the changelog is the truth (R1)."""
    task, a0, a1 = driven()
    for checkpoint_id in (1, 2, 3):
        a0.send(checkpoint_id, f"record {checkpoint_id}")
        a0.mark(checkpoint_id)
        a1.mark(checkpoint_id)
    task.run()
    after = Driven(data=task.data, disk=MemoryDisk(), nonce=b"another process!").start()
    assert after.keys() == task.keys() == {"record 1", "record 2", "record 3"}
    assert after.driver.parts.counters["restores"] == 1
    assert after.driver.restore.progress[0] == after.driver.restore.progress[1]


def test_the_users_task_is_made_when_the_state_is_there() -> None:
    """Once after the restore, once after each rollback: never over half a state (R1, R4)."""
    task, a0, _ = driven()
    assert task.runner.resets == 1
    a0.send(1, "rolled back")
    task.run()
    a0.rollback_marker(0)
    task.run()
    assert task.runner.resets == 2


# --- R4, R5: rollback -------------------------------------------------------------------------------------------------


def test_a_rollback_discards_what_was_read_ahead() -> None:
    """Rolled-back records, write batch, outputs and read-ahead are dropped, and the stream is read again (R4, R5)."""
    task, a0, a1 = driven()
    a0.send(1, "rolled back")
    task.run()
    a0.rollback_marker(0)
    a0.send(1, "x")
    a1.send(1, "y")
    a0.mark(1)
    a1.mark(1)
    task.run()
    assert task.keys() == {"x", "y"}
    assert task.runner.processed == ["rolled back", "x", "y"]
    outputs = [(step.what, step.checkpoint_id) for step in task.trace if step.what in ("rollback_marker", "output")]
    assert outputs[2:] == [("output", 1)] * 2 + [("rollback_marker", 0)] * 2 + [("output", 1)] * 2


def test_early_frames_come_back_from_the_spill() -> None:
    """Beyond the memory budget payloads are on disk; what is processed is what was sent (A4)."""
    task, a0, a1 = driven(early_memory_bytes_max=0)
    for number in range(5):
        a0.send(2, f"early {number}")
    task.run()
    assert task.core.seen["early records on disk"] == 5
    for checkpoint_id in (1, 2):
        a0.mark(checkpoint_id)
        a1.mark(checkpoint_id)
    task.run()
    assert task.keys() == {f"early {number}" for number in range(5)}


def test_skipped_frames_are_read_again() -> None:
    """With no buffer at all the task seeks back at each freeze; nothing is lost or doubled (A5)."""
    task, a0, a1 = driven(early_bytes_max=0)
    for checkpoint_id in (3, 3, 3):
        a0.send(checkpoint_id, f"{checkpoint_id}.{len(a0.checkpoint_ids[T])}")
    a1.send(1, "1")
    for checkpoint_id in (1, 2, 3):
        a0.mark(checkpoint_id)
        a1.mark(checkpoint_id)
    task.run()
    assert task.keys() == {"1", "3.0", "3.1", "3.2"}
    assert task.runner.processed == sorted(task.runner.processed)
    assert task.core.seen["seeks back"] >= 1


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_an_idle_driver_does_nothing() -> None:
    """No event, no action, no write: tick says so, and when to come back."""
    task, *_ = driven()
    task.trace.clear()
    assert not task.driver.tick()
    assert (task.driver.running, task.driver.due_in_ms(), task.trace) == (True, 60_000, [])


def test_a_stop_ends_with_an_exit() -> None:
    """Commits what is open, waits for the last markers, closes the task, exits 0 and does nothing more (R6)."""
    task, a0, a1 = driven()
    a0.send(1, "x")
    task.run()
    task.driver.stop()
    a0.mark(1)
    a1.mark(1)
    task.run()
    assert task.driver.exit is not None
    assert (task.driver.exit.reason, task.keys(), task.driver.tick()) == ("stopped at checkpoint 1", {"x"}, False)
    assert [step.what for step in task.trace][-3:] == ["marker acknowledged", "marker acknowledged", "close"]


def test_what_was_trimmed_is_not_trimmed_again() -> None:
    """A checkpoint that moves no resume offset costs no call on the log (K3)."""
    task, a0, a1 = driven(changelog_retention_ms=10_000)
    a0.send(9, "early")
    for checkpoint_id in (1, 2, 3):
        a0.mark(checkpoint_id)
        a1.mark(checkpoint_id)
        task.run()
    assert [task.core.frozen, sum(step.what == "trim" for step in task.trace)] == [3, 1]


def test_a_task_that_restores_is_not_running() -> None:
    """A supervisor sees the restore until its announcement is acknowledged (R2)."""
    task = Driven()
    task.log.mute = True
    task.start()
    assert (task.driver.running, task.core.status) == (False, TaskStatus.STARTING)
    task.log.mute = False
    task.run()
    assert task.driver.running


def test_the_spill_is_emptied_when_nothing_waits_in_it() -> None:
    """Frames that were processed, or are rolled back, give their disk space back, without a rollback (A4, A5)."""
    task, a0, a1 = driven(early_memory_bytes_max=0)
    for checkpoint_id in range(2, 12):
        a0.send(checkpoint_id, f"early {checkpoint_id}")
        a0.mark(checkpoint_id - 1)
        a1.mark(checkpoint_id - 1)
        task.run()
    a0.send(12, "rolled back")
    a0.rollback_marker(11)
    task.run()
    spill = task.driver._early._spill
    assert task.core.seen["early records on disk"] == 11
    assert isinstance(spill, MemorySpill)
    assert spill.put(b"")[0] == 0
