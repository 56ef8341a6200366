"""A deterministic task's code over its inputs: what it sends depends on nothing but their logical order (D3)."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete import (
    Job,
)
from grete.api.topics.reader import origin_of
from grete.core.actions import MergedWatermarks
from grete.core.deterministic.logical_watermarks import NEVER, STEP_US
from grete.core.deterministic.merge_channel import ALL
from grete.core.events import Advance
from grete.core.graph.task_topology import wire
from grete.execution.deterministic.announced_time import AnnouncedTime
from grete.execution.deterministic.numbering import content_of
from grete.execution.deterministic.outputs import LogicalOutputs
from grete.execution.deterministic.processor import LogicalProcessor
from grete.execution.deterministic.remade import Check, OutputsDiffer
from grete.execution.job_task import JobTask
from grete.execution.records.outputs import Outputs
from grete.execution.sinks.outbox import Outbox
from grete.execution.timing.event_time import AFTER_ALL, BEFORE_ALL
from grete.execution.timing.reserved_stores import OUTBOX
from grete.ports import ExternalRecord, LogRow
from grete.protocol.envelope import Header, MessageType, encode_header
from grete.protocol.frames import decode_columns, decode_headers, digest_records
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import RecordBatch
from grete.settings import Settings
from grete.stores.memory import MemoryDisk, MemoryStore
from grete.stores.overlay.overlay import Overlay
from tests.execution.deterministic.stages import (
    JOB,
    Batches,
    ReadsMiddle,
)

FRAME = encode_header(Header(MessageType.FRAME, 0, 1, 1, 1))
Released = dict[TopicPartition, list[Check]]  # of each release its seq and digest


class Given(NamedTuple):
    """A record of the merged input, or if there is no value a watermark, behind the records of its time."""

    t: int
    source: int
    value: str
    watermark: tuple[int, bool] = (0, False)


class LogicalRig:
    """One task over a disk; what it sends is kept as what is outside, and in its stream.

    ``released`` None: it commits first, as a task does that has no state.
    """

    def __init__(self, stage: int, disk: MemoryDisk, released: Released | None = None, job: Job = JOB) -> None:
        graph, topology, settings = job.stages[stage], job.topology(), Settings()
        names = {store_id: name for name, store_id in graph.store_ids().items()}
        self.overlay = Overlay(
            MemoryStore(names, disk), list(names), uncommitted_state_bytes_max=1 << 28, read_cache_bytes_max=1 << 20
        )
        logical = LogicalOutputs(topology.job, wire(topology, stage, 0), releases=True)
        outputs = Outputs(graph, topology, settings, lambda _topic: 2, mode=logical)
        task = JobTask(graph, topology, 0)
        outbox = Outbox(task.owner, self.overlay.store(OUTBOX), settings)
        self.processor = LogicalProcessor(task, self.overlay, outputs, outbox, logical=logical)
        seqs = {partition: checks[-1][0] for partition, checks in (released or {}).items()}
        self.processor.logical.go_on_after(seqs, released or {})
        self.processor.reset()
        self.topic = next(iter(self.processor.instance.loops))
        self.external: list[ExternalRecord] = []
        self.released: Released = {partition: [*checks] for partition, checks in (released or {}).items()}
        self.bodies: list[tuple[TopicPartition, int, bytes]] = []
        self.advances: list[Advance] = []
        if released is None:
            self.commit()

    def run(self, records: Sequence[Given], upto: int) -> None:
        """Process a piece of the merged input."""
        batches: list[RecordBatch | MergedWatermarks] = []
        partition = TopicPartition(self.topic, 0)
        for is_record, group in groupby(records, lambda record: record.value != ""):
            found = list(group)
            if is_record:
                times, sources, values, _ = zip(*found, strict=True)
                cells: Any = [value.encode() for value in values]
                nulls: list[bytes | None] = [None] * len(found)
                offsets = [record.t for record in found]  # its own, wherever a batch begins
                stamps = [record.t // 1_000 for record in found]
                logical = times, sources
                batches.append(RecordBatch(nulls, cells, stamps, None, logical, source=partition, offset=offsets))
            else:
                channel = self.processor._producer - (1 << 16), partition  # of the stage before
                batches += [MergedWatermarks(each.t, ((channel, *each.watermark),)) for each in found]
        self.processor.process_merged(batches, upto)
        self.advances += self.processor.take_advances()
        taken, last = self.processor.take_numbered()
        self.external += taken
        for partition, check in last.items():
            self.released.setdefault(partition, []).append(check)
        self.bodies += self.processor.take_frames()

    def commit(self) -> None:
        """Commit what was processed."""
        self.processor.before_freeze(1)
        self.overlay.freeze()
        while not self.overlay.apply_chunk(b"pointer"):
            pass


def sent(bodies: Sequence[tuple[TopicPartition, int, bytes]]) -> dict[TopicPartition, list[tuple[Any, ...]]]:
    """Return the records of each partition, however they are cut, and check that each frame has the right digest."""
    found: dict[TopicPartition, list[tuple[Any, ...]]] = {}
    digests: dict[TopicPartition, int] = {}
    for partition, count, body in bodies:
        keys, values, times, headers, logical, digest = decode_columns(FRAME + body)[:6]
        assert logical is not None
        assert count == len(keys)
        assert digest == digests.get(partition, 0)
        digests[partition] = digest_records(digest, keys, values, times, headers, logical)
        found.setdefault(partition, []).extend(zip(keys, values, times, *logical, strict=True))
    return found


words = st.sampled_from(["to", "be", "or", "not", "everything"])
some_records = st.lists(st.builds(Given, st.integers(0, 30_000), st.integers(0, 2), words), max_size=40)
some_times = st.dictionaries(
    st.integers(0, 6), st.tuples(st.integers(-5, 10), st.booleans()) | st.just((AFTER_ALL, True)), max_size=5
)


def merged(records: list[Given], times: dict[int, tuple[int, bool]]) -> list[Given]:
    """Return records, and at some steps of logical time watermarks that lag, run ahead or end, in the merged order."""
    marks = [
        Given(step * STEP_US, ALL, "", (rest if rest == AFTER_ALL else step * 5 + rest, idle))
        for step, (rest, idle) in times.items()
    ]
    return sorted([*records, *marks], key=lambda given: given[:2])


records_in_order = st.builds(merged, some_records, some_times)


def known(records: Sequence[ExternalRecord]) -> list[tuple[Any, ...]]:
    """Return records, with what their headers say instead of the headers."""
    cells = [record.headers or b"" for record in records]
    said = [(origin_of(decode_headers(cell)), content_of(cell)) for cell in cells]
    return [(*record[:4], *each) for record, each in zip(records, said, strict=True)]


@given(records_in_order, st.data())
def test_outputs_do_not_depend_on_how_the_input_is_cut(records: list[Given], data: st.DataObject) -> None:
    """D1, D3, D5: cuts, how far time goes after each, commits and restarts change no output, no seq, no digest.

    A task whose state is of release 0.1 goes over to one header on the way.
    """
    end = 100_000
    whole = LogicalRig(1, MemoryDisk())
    whole.run(records, end)
    disk = MemoryDisk()
    rig = LogicalRig(1, disk, {} if data.draw(st.booleans()) else None)
    external: list[ExternalRecord] = []
    committed, bodies_committed, start = 0, 0, 0
    bodies: list[tuple[TopicPartition, int, bytes]] = []
    advances: list[Advance] = []
    crashes = 0
    while start < len(records):
        stop = data.draw(st.integers(start + 1, len(records)))
        upper = records[stop].t - 1 if stop < len(records) else end
        lower = records[stop - 1].t - 1 if stop else -1
        rig.run(records[start:stop], data.draw(st.integers(min(lower, upper), upper)))
        external += rig.external
        rig.external.clear()
        start = stop
        what = data.draw(st.sampled_from(["go on", "commit", "crash"]))
        if what == "commit":
            rig.commit()
            rig.released = {}  # the changelog tells of those since the last commit only
            committed, bodies_committed = start, len(bodies) + len(rig.bodies)
            bodies, rig.bodies = bodies + rig.bodies, []
            advances, rig.advances = advances + rig.advances, []
        elif what == "crash" and crashes < 5:  # what was sent into the stream since is made again
            del bodies[bodies_committed:]
            rig, start, crashes = LogicalRig(1, disk, rig.released), committed, crashes + 1
    rig.run([], end)
    assert known(external + rig.external) == known(whole.external)
    assert sent(bodies + rig.bodies) == sent(whole.bodies)
    assert advances + rig.advances == whole.advances
    for found in sent(whole.bodies).values():
        keys = [row[3:] for row in found]
        assert keys == sorted(keys), "logical time goes back in a channel"


def test_a_commit_keeps_what_is_still_to_be_compared() -> None:
    """D5: a successor commits before it has made all again, and dies: its own successor compares the rest."""
    disk = MemoryDisk()
    records = [Given(1_000 * i, 0, "be") for i in range(1, 7)]
    first = LogicalRig(1, disk)
    for record in records:
        first.run([record], record.t)
    second = LogicalRig(1, disk, first.released)
    second.run(records[:3], 3_000)
    second.commit()
    assert second.external == []
    LogicalRig(1, disk).run(records[3:], 6_000)
    with pytest.raises(OutputsDiffer):
        LogicalRig(1, disk).run([Given(record.t + 1, 0, "be") for record in records[3:]], 6_001)


def test_external_records_are_numbered_for_each_partition() -> None:
    """D5: headers name producer, seq from 1 and logical time; dead letters are outputs like any other."""
    rig = LogicalRig(1, MemoryDisk())
    rig.run([Given(1_000 * i, 0, "be") for i in range(1, 6)], 5_000)
    seqs: dict[TopicPartition, list[int]] = {}
    for record in rig.external:
        headers = dict(decode_headers(record.headers or b""))
        origin = origin_of(headers.items())
        assert origin is not None
        assert origin.producer == f"{JOB.name}/{JOB.stages[1].name}-0"
        assert origin.t <= 5_000
        seqs.setdefault(record.partition, []).append(origin.seq)
        if record.partition.topic == "letters":
            assert headers["grete.error"] == b"ValueError: the third"
            assert not {"grete.index", "grete.traceback"} & headers.keys()  # the same wherever it is made again
    assert {partition.topic for partition in seqs} == {"out", "letters"}
    for found in seqs.values():
        assert found == list(range(1, len(found) + 1))


def test_a_source_gives_its_own_time() -> None:
    """D2: the i-th row of a decision has the logical time first_t + i, and its children inherit it."""
    rig = LogicalRig(0, MemoryDisk())
    rows = [LogRow(7 + i, 0, 40 + i, None, line, None) for i, line in enumerate((b"to be", b"or"))]
    rig.processor.process_decided(TopicPartition("lines", 0), rows, 900)
    (found,) = sent(rig.processor.take_frames()).values()
    assert found == [(None, b"to", 40, 900, 0), (None, b"be", 40, 900, 0), (None, b"or", 41, 901, 0)]
    assert (rig.processor.next_timer, rig.processor.take_advances()) == (STEP_US, [])
    rig.run([], STEP_US)
    assert (rig.processor.next_timer, rig.advances) == (NEVER, [Advance(STEP_US, 41, idle=False)])


def test_a_source_tells_its_time_at_the_ends_of_steps() -> None:
    """E2: a decision belongs to the step in which it ends; an idle input counts like one; what is told is state."""
    disk = MemoryDisk()
    rig = LogicalRig(0, disk)

    def take(first_t: int, *stamps: int) -> None:
        rows = [LogRow(at, 0, at, None, b"be", None) for at in stamps]
        rig.processor.process_decided(TopicPartition("lines", 0), rows, first_t)

    take(900, 40, 41)
    take(4_990, 42, 43, 44)
    rig.commit()
    assert rig.processor.take_advances() == []
    rig = LogicalRig(0, disk)
    assert rig.processor.next_timer == STEP_US
    take(STEP_US - 1, 45, 46, 47)
    assert rig.processor.take_advances() == [Advance(STEP_US, 44, idle=False)]
    rig.processor.process_idle(TopicPartition("lines", 0), 2 * STEP_US)
    assert rig.processor.take_advances() == [Advance(2 * STEP_US, 47, idle=True)]
    rig.processor.process_idle(TopicPartition("lines", 0), 3 * STEP_US)
    assert (rig.processor.take_advances(), rig.processor.next_timer) == ([], NEVER)


def test_a_stream_that_was_not_told_is_told_again() -> None:
    """E2: a stage that was added last has a stream of its own; its state does not know what others were told."""
    disk = MemoryDisk()
    rig = LogicalRig(0, disk)
    rig.processor.process_idle(TopicPartition("lines", 0), STEP_US)
    rig.commit()
    assert LogicalRig(0, disk).processor._announced._told == (BEFORE_ALL, True)
    fresh = AnnouncedTime(["another"], lambda: (7, True))
    fresh.load(rig.processor.entries.get)
    fresh.changed(STEP_US + 1)
    fresh.pass_to(2 * STEP_US)
    assert fresh.take() == [Advance(2 * STEP_US, 7, idle=True)]


def test_a_batch_has_its_own_timestamp_whatever_timer_fires_behind_it() -> None:
    """A timer that is due already fires behind the batch that sets it, at the logical time of its last record."""
    rig = LogicalRig(0, MemoryDisk(), job=Job("batches", [Batches, ReadsMiddle], mode="deterministic"))
    lines = TopicPartition("lines", 0)
    rig.processor.process_decided(lines, [LogRow(0, 0, 40, None, b"one", None)], 900)
    second = [LogRow(1, 0, 41, None, b"two", None), LogRow(2, 0, 42, None, b"three", None)]
    rig.processor.process_decided(lines, second, 1_500)
    (found,) = sent(rig.processor.take_frames()).values()
    assert found == [
        (None, b"1 lines", 40, 900, 0),
        (None, b"later", 1, 900, 0),
        (None, b"2 lines", 42, 1_501, 0),
        (None, b"later", 1, 1_501, 0),  # the second batch has set it again
    ]
