"""The driver does what the core asks for, in its order, on a real log and store (A7, A8, R1, R5, B1)."""

from itertools import pairwise

import pytest

from framework.core.task import Status
from framework.errors import Fenced, Halted, TransientError
from framework.logs.memory import MemoryLog
from framework.stores.memory import MemoryDisk
from protocol.ids import TopicPartition
from tests.core.scenario import A0, A1, IN, INNER, SINK, SOURCE, Producer, T
from tests.runtime.driving import OUTSIDE, STORE, Crash, Driven, Step

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


def driven(**changes: int | str) -> tuple[Driven, Producer, Producer]:
    """Return a running INNER, and its producers, announced."""
    task = Driven(**changes)  # type: ignore[arg-type]
    a0, a1 = Producer(task, A0), Producer(task, A1)
    a0.restore(0)
    a1.restore(0)
    return task.start(), a0, a1


def commit_of_many(**changes: int | str) -> list[Step]:
    """Return the trace of one version of 2,500 keys, cut so that it has two data messages and three chunks."""
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
    """All outputs acknowledged → data → commit → store, the pointer last → markers → trim (A7)."""
    trace = commit_of_many()
    assert out_of_order(trace) == []
    counts = {what: sum(step.what == what for step in trace) for what in ORDER}
    assert counts["output acknowledged"] == sum(step.what == "output" for step in trace) > 0
    assert (counts["data"], counts["commit"], counts["commit acknowledged"]) == (2, 1, 1)
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
    """They are of the next version, and neither wait for the commit nor hold it up (A8)."""
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
    assert whats[4:8] == ["restore", "restore", "restore acknowledged", "restore acknowledged"]
    assert whats[8] == "output"


# --- R1: crashes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [0, 1, 2])
def test_a_crash_between_chunks_is_redone(chunks: int) -> None:
    """The commit is valid, the store holds part of it: the successor on this host completes it from the log (A7, R1)."""
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
    assert (after.driver.counters["redos"], after.driver.counters["wipes"], after.core.frozen) == (1, 0, 1)
    assert after.driver.counters["restored records"] == 2_500


def test_another_host_bootstraps_the_same_state() -> None:
    """Wipe or empty disk: the changelog is the truth (R1)."""
    task, a0, a1 = driven()
    for version in (1, 2, 3):
        a0.send(version, f"record {version}")
        a0.mark(version)
        a1.mark(version)
    task.run()
    after = Driven(data=task.data, disk=MemoryDisk(), nonce=b"another process!").start()
    assert after.keys() == task.keys() == {"record 1", "record 2", "record 3"}
    assert after.driver.counters["bootstraps"] == 1
    assert after.driver.restore_progress[0] == after.driver.restore_progress[1]


def test_the_predecessor_is_fenced() -> None:
    """When another process has claimed, the log refuses the next commit, and the store is not touched (C3, C5)."""
    task, a0, a1 = driven()
    Driven(data=task.data, disk=MemoryDisk(), nonce=b"another process!").start()
    a0.send(1, "x")
    a0.mark(1)
    a1.mark(1)
    with pytest.raises(Fenced, match="b-0: a newer generation than 1"):
        task.run()
    assert task.keys() == set()


def test_the_users_task_is_made_when_the_state_is_there() -> None:
    """Once after the restore, once after each rollback: never over half a state (R1, R4)."""
    task, a0, _ = driven()
    assert task.runner.resets == 1
    a0.send(1, "void")
    task.run()
    a0.restore(0)
    task.run()
    assert task.runner.resets == 2


# --- R4, R5: rollback -------------------------------------------------------------------------------------------------


def test_a_roll_back_discards_what_was_read_ahead() -> None:
    """Void records, layer and outputs go; the batch in memory is dropped, and the stream is read again (R4, R5)."""
    task, a0, a1 = driven()
    a0.send(1, "void")
    task.run()
    a0.restore(0)
    a0.send(1, "x")
    a1.send(1, "y")
    a0.mark(1)
    a1.mark(1)
    task.run()
    assert task.keys() == {"x", "y"}
    assert task.runner.processed == ["void", "x", "y"]
    outputs = [(step.what, step.version) for step in task.trace if step.what in ("restore", "output")]
    assert outputs[2:] == [("output", 1)] * 2 + [("restore", 0)] * 2 + [("output", 1)] * 2


def test_early_frames_come_back_from_the_spill() -> None:
    """Beyond the memory budget payloads are on disk; what is processed is what was sent (A4)."""
    task, a0, a1 = driven(early_memory_bytes_max=0)
    for number in range(5):
        a0.send(2, f"early {number}")
    task.run()
    assert task.core.seen["early records on disk"] == 5
    for version in (1, 2):
        a0.mark(version)
        a1.mark(version)
    task.run()
    assert task.keys() == {f"early {number}" for number in range(5)}


def test_skipped_frames_are_read_again() -> None:
    """With no buffer at all the task seeks back at each freeze; nothing is lost or doubled (A5)."""
    task, a0, a1 = driven(early_bytes_max=0)
    for version in (3, 3, 3):
        a0.send(version, f"{version}.{len(a0.labels[T])}")
    a1.send(1, "1")
    for version in (1, 2, 3):
        a0.mark(version)
        a1.mark(version)
    task.run()
    assert task.keys() == {"1", "3.0", "3.1", "3.2"}
    assert task.runner.processed == sorted(task.runner.processed)
    assert task.core.seen["seeks back"] >= 1


# --- sources ----------------------------------------------------------------------------------------------------------


def test_a_source_reads_closes_and_resumes() -> None:
    """Rows of its external topic go out in frames; versions by the log's clock; a successor goes on behind them (A1, A2)."""
    task = Driven(SOURCE, interval_ms=100).start()
    task.append(IN, b"x", b"y")
    task.run()
    assert not task.keys()
    task.now_ms += 100
    task.run()
    assert task.keys() == {"x", "y"}
    task.append(IN, b"z")
    after = Driven(SOURCE, data=task.data, disk=task.disk, nonce=b"another process!", interval_ms=100)
    after.now_ms = task.now_ms
    after.start()
    assert after.runner.processed == ["z"]


def test_a_source_says_when_its_inputs_have_ended() -> None:
    """Nothing left now is news once; the flag is in the next commit, and is taken back when more arrives (A2b)."""
    task = Driven(SOURCE, interval_ms=100).start()
    assert task.core.ended == {IN: True}
    task.now_ms += 100
    task.run()
    assert task.core.committed is not None
    assert task.core.committed.at_end
    task.append(IN, b"x")
    task.driver.tick()
    assert task.core.ended == {IN: True}  # it is drained again


def test_a_source_pauses_while_its_consumers_are_far_behind() -> None:
    """More than lag_messages_max untrimmed messages in a stream: no more input, but versions are still closed (B1)."""
    task = Driven(SOURCE, interval_ms=100, lag_messages_max=3, batch_bytes_max=1).start()
    for number in range(100):
        task.append(IN, b"%d" % number)
    while task.driver.tick():
        for delivery in task.log.poll():
            task.driver.delivered(delivery)
    task.run()
    paused = len(task.runner.processed)
    assert 0 < paused < 100
    task.now_ms += 1_000
    task.run()
    assert (len(task.runner.processed), task.core.frozen) == (paused, 2_000)
    for partition in SOURCE.outputs:
        MemoryLog(task.data).trim(partition, task.log.bounds(partition)[1])
    task.run()
    assert len(task.runner.processed) > paused


def test_a_full_queue_stops_consumption() -> None:
    """More than unacked_bytes_max on its way: no more input until it is acknowledged; nothing is dropped (B1)."""
    task, a0, _ = driven(unacked_bytes_max=1, batch_bytes_max=1)
    task.log.mute = True
    a0.send(1, "x")
    a0.send(1, "y")
    task.run()
    assert task.runner.processed == ["x"]
    task.log.mute = False
    task.run()
    assert task.runner.processed == ["x", "y"]


def test_an_unacknowledged_commit_ends_the_process() -> None:
    """Its outcome is unknown: the process ends, and the next claim decides (C4, B1)."""
    task, a0, a1 = driven(unacked_ms_max=1_000)
    task.log.mute = True
    a0.mark(1)
    a1.mark(1)
    task.run()
    assert task.trace[-1].what == "commit"
    task.now_ms += 1_001
    with pytest.raises(TransientError, match="a claim or commit is unacknowledged"):
        task.run()
    after = Driven(data=task.data, disk=task.disk, nonce=b"another process!").start()
    assert after.core.frozen == 1


# --- sinks ------------------------------------------------------------------------------------------------------------


def outside(task: Driven) -> list[bytes | None]:
    """Return the values in the external topic."""
    return [row[4] for row in task.log.read(OUTSIDE, 0, 1 << 20)]


def sink(**changes: int | str) -> tuple[Driven, list[Producer]]:
    """Return a running SINK and its producers."""
    task = Driven(SINK, **changes)  # type: ignore[arg-type]
    producers = [
        Producer(task, producer, partition, fingerprint=SINK.fingerprint) for producer, partition in SINK.channels
    ]
    for producer in producers:
        producer.restore(0)
    return task.start(), producers


def test_a_sinks_outputs_become_visible_with_the_commit() -> None:
    """Held back until then, and visible with it at once; outputs of the next version stay behind (S1, A8)."""
    task, producers = sink()
    producers[0].send(1, "x")
    task.run()
    assert outside(task) == []
    for producer in producers:
        producer.mark(1)
    producers[0].send(2, "y")
    task.run()
    assert outside(task) == [b"x"]


def test_a_roll_back_drops_what_a_sink_held_back() -> None:
    """What was never made visible needs no taking back (S1, R4)."""
    task, producers = sink()
    producers[0].send(1, "void")
    task.run()
    producers[0].restore(0)
    producers[0].send(1, "x")
    for producer in producers:
        producer.mark(1)
    task.run()
    assert outside(task) == [b"x"]


def test_a_fenced_sinks_outputs_never_appear() -> None:
    """The log refuses commit and outputs together (S1, C3)."""
    task, producers = sink()
    producers[0].send(1, "x")
    task.run()
    Driven(SINK, data=task.data, nonce=b"another process!").start()
    for producer in producers:
        producer.mark(1)
    with pytest.raises(Fenced):
        task.run()
    assert outside(task) == []


def test_a_sink_waits_at_its_bound_for_the_commit_in_flight() -> None:
    """More than sink_bytes_max held back for the next version: no input until the transaction has ended (A8)."""
    task, producers = sink(sink_bytes_max=3, batch_bytes_max=1)
    for producer in producers:
        producer.mark(1)
    task.log.mute = True
    task.run()
    for name in ("aaaa", "bbbb"):
        producers[0].send(2, name)
    task.run()
    assert task.runner.processed == ["aaaa"]
    task.log.mute = False
    task.run()
    assert task.runner.processed == ["aaaa", "bbbb"]


def test_outputs_beyond_the_layers_bound_halt_naming_the_setting() -> None:
    """One version's outputs do not fit in memory: the error says which setting to raise (A9)."""
    task, producers = sink(layer_bytes_max=4_000, batch_bytes_max=1)
    for _ in range(6):
        producers[0].send(1, "x" * 1_000)  # one key of state, but an output each
    with pytest.raises(
        Halted, match=r"5000 bytes of output in one version \(setting layer_bytes_max = 4000\): raise it"
    ):
        task.run()


def test_at_least_once_sinks_send_at_once_and_commit_behind() -> None:
    """Plain records go out as they are made; the commit waits until they are acknowledged (1.5, A7)."""
    task, producers = sink(guarantee="at-least-once", interval_ms=100)
    producers[0].send(1, "x")
    task.trace.clear()
    task.run()
    assert outside(task) == [b"x"]
    task.now_ms += 100
    task.run()
    whats = [step.what for step in task.trace]
    assert whats.index("plain records acknowledged") < whats.index("data") < whats.index("commit")


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_an_idle_driver_does_nothing() -> None:
    """No event, no action, no write: tick says so, and when to come back."""
    task, *_ = driven()
    task.trace.clear()
    assert not task.driver.tick()
    assert (task.driver.running, task.driver.due_in_ms(), task.trace) == (True, 60_000, [])


def test_a_stop_ends_with_an_exit() -> None:
    """Commits what is open, waits for the last markers, then exit 0 and nothing more (R6)."""
    task, a0, a1 = driven()
    a0.send(1, "x")
    task.run()
    task.driver.stop()
    a0.mark(1)
    a1.mark(1)
    task.run()
    assert task.driver.exit is not None
    assert (task.driver.exit.code, task.keys(), task.driver.tick()) == (0, {"x"}, False)
    assert [step.what for step in task.trace][-2:] == ["marker acknowledged"] * 2


def test_what_was_trimmed_is_not_trimmed_again() -> None:
    """A version that moves no resume offset costs no call on the log (K3)."""
    task, a0, a1 = driven(history_ms=10_000)
    a0.send(9, "early")
    for version in (1, 2, 3):
        a0.mark(version)
        a1.mark(version)
        task.run()
    assert [task.core.frozen, sum(step.what == "trim" for step in task.trace)] == [3, 1]


def test_damage_in_a_restore_halts_with_its_place() -> None:
    """A changelog that cannot be read stops the start, naming topic, partition and offset (1.2)."""
    task, *_ = driven()
    rows = task.data.partition(INNER.changelog).rows
    rows[1] = (*rows[1][:4], b"\x19damaged", None)
    with pytest.raises(Halted, match=r"j\.b\.changelog\[0\] offset 1: .* the changelog is damaged"):
        Driven(data=task.data, nonce=b"another process!").start()


def test_an_input_that_was_cut_halts() -> None:
    """A stream that ends before the committed position was truncated or recreated (K3)."""
    task, a0, a1 = driven()
    a0.send(1, "x")
    a0.mark(1)
    a1.mark(1)
    task.run()
    partition = task.data.partition(TopicPartition(*T))
    partition.rows.clear()
    partition.start = 2
    with pytest.raises(Halted, match=r"reading j\.a\.t\.b\[0\] goes on at offset 5, but it ends at 2"):
        Driven(data=task.data, disk=task.disk, nonce=b"another process!").start()
    assert STORE in task.disk.stores


def test_a_task_that_restores_is_not_running() -> None:
    """A supervisor sees the restore until its announcement is acknowledged (R2)."""
    task = Driven()
    task.log.mute = True
    task.start()
    assert (task.driver.running, task.core.status) == (False, Status.STARTING)
    task.log.mute = False
    task.run()
    assert task.driver.running
