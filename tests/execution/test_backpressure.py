"""Backpressure of a source: its looks at its consumers, and their reports of progress (B1)."""

from hypothesis import example, given
from hypothesis import strategies as st

from grete.execution.inputs.backpressure import Backpressure, ReportedPositions, lag_bound
from grete.execution.inputs.input_reader import InputReader
from grete.execution.limits import BACKPRESSURE_LOOK_MS, LAG_PER_PRODUCER, POSITION_REPORT_MS, POSITION_REPORT_PARTS
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.protocol.ids import TopicPartition

STREAMS = (TopicPartition("stream", 0), TopicPartition("stream", 1))


class Counting(MemoryLog):
    """A log that counts the looks."""

    looks = 0

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        self.looks += partition == STREAMS[0]
        return super().bounds(partition)


def logged(messages: int) -> Counting:
    log = Counting(MemoryLogData(lambda: 0))
    log.create_topic("stream", 2)
    for _ in range(messages):
        log.send(0, 1, STREAMS[1], b"x")
    log.poll()
    return log


def test_it_looks_again_when_its_share_of_the_room_is_used_up() -> None:
    """Two producers, 40 of 100 messages there: each may send 30 before it looks, so together they keep to the bound."""
    log = logged(40)
    backpressure = Backpressure(log, STREAMS, 100, len(STREAMS))
    for _ in range(30):
        assert not backpressure.behind(0)
        backpressure.sent(STREAMS[1])
    assert log.looks == 1
    assert not backpressure.behind(0)
    assert log.looks == 2


def test_a_marker_to_each_partition_is_one_message_of_each() -> None:
    """The share is one of a partition: what goes to the others takes nothing of it."""
    log = logged(40)
    backpressure = Backpressure(log, STREAMS, 100, len(STREAMS))
    for _ in range(30):
        assert not backpressure.behind(0)
        for stream in STREAMS:
            backpressure.sent(stream)
    assert log.looks == 1


def test_while_they_are_behind_it_looks_every_few_ms() -> None:
    """One message too many: it stops, and goes on when a later look finds that they have caught up."""
    log = logged(101)
    backpressure = Backpressure(log, STREAMS, 100, len(STREAMS))
    assert backpressure.behind(0)
    assert backpressure.due_in_ms == BACKPRESSURE_LOOK_MS
    log.trim(STREAMS[1], 5)
    assert (backpressure.behind(BACKPRESSURE_LOOK_MS - 1), log.looks) == (True, 1)
    assert (backpressure.behind(BACKPRESSURE_LOOK_MS), log.looks) == (False, 2)


def test_what_is_processed_does_not_count_though_it_is_not_trimmed() -> None:
    """A consumer that commits seldom is not behind; one that nothing is known of, or of a topic before, may be."""
    log = logged(1_000)
    log.report_processed({STREAMS[1]: 950})
    assert not Backpressure(log, STREAMS, 100, len(STREAMS)).behind(0)
    log.report_processed({STREAMS[1]: 899})
    assert Backpressure(log, STREAMS, 100, len(STREAMS)).behind(0)
    log.report_processed({STREAMS[1]: 1_001})
    assert Backpressure(log, STREAMS, 100, len(STREAMS)).behind(0)


def test_markers_of_all_producers_have_room() -> None:
    """A setting that a few checkpoints' markers would reach means 25 messages for each producer (B1)."""
    assert not Backpressure(logged(50), STREAMS, 1, len(STREAMS)).behind(0)
    assert Backpressure(logged(51), STREAMS, 1, len(STREAMS)).behind(0)


class Consumer:
    """A task that reads the second stream, and what it has reported."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.offset = 0  # processed
        self.reader = InputReader(log, STREAMS[1:], 1 << 20)
        self.reader.seek(STREAMS[1], 0)
        self.reported = ReportedPositions(log, self.reader, lambda _: self.offset, {STREAMS[1]: 2}, 400)

    def look(self, now_ms: float) -> int:
        self.reported.look(now_ms)
        return self.log.processed(STREAMS)[STREAMS[1]]


def test_a_consumer_notes_a_good_part_at_once_and_the_rest_after_a_while() -> None:
    """A quarter of the bound is reported at once, less after some seconds, and nothing twice."""
    task = Consumer(logged(1_000))
    assert task.look(1) == 0
    task.reader.next_batch()
    task.offset = 99
    assert task.look(2) == 0
    task.offset = 100
    assert task.look(3) == 100
    task.offset = 101
    assert task.look(POSITION_REPORT_MS) == 100
    assert task.look(1 + POSITION_REPORT_MS) == 101


def test_a_consumer_that_goes_back_notes_it() -> None:
    """After a seek the position is reported, though it is lower: a producer must not believe the one before."""
    task = Consumer(logged(1_000))
    task.reader.next_batch()
    task.offset = 500
    assert task.look(1) == 500
    task.reader.seek(STREAMS[1], 20)
    task.offset = 20
    task.reported.forget(STREAMS[1])
    assert task.look(2) == 20


class Job:
    """Sources, each with its own view, and the task that reads one of their streams; a record, or a marker, a message.

    ``records`` of the stream: the offset of each message that is a record.
    """

    def __init__(self, sources: int, messages_max: int) -> None:
        self.log = MemoryLog(MemoryLogData(lambda: 0))
        self.log.create_topic("job", sources)
        streams = [TopicPartition("job", number) for number in range(sources)]
        self.stream = streams[0]
        self.sources = [Backpressure(self.log, streams, messages_max, len(streams)) for _ in streams]
        self.bound, self.now = lag_bound(messages_max, sources), 0.0
        self.records: list[int] = []
        self.reader = InputReader(self.log, [self.stream], 1)
        self.restart(messages_max, 0)

    def restart(self, messages_max: int, offset: int) -> None:
        """Let the consumer begin at an offset, as a new process."""
        self.processed = offset
        self.reader.seek(self.stream, offset)
        self.reported = ReportedPositions(
            self.log, self.reader, lambda _: self.processed, {self.stream: len(self.sources)}, messages_max
        )

    def send(self, source: int, *, record: bool) -> None:
        if record:
            self.records.append(self.end)
        self.log.send(0, 1, self.stream, b"x")
        self.log.poll()
        self.sources[source].sent(self.stream)

    @property
    def end(self) -> int:
        return self.log.bounds(self.stream)[1]

    def process(self, messages: int) -> None:
        """Read and process that number of messages, and report as the task does before it reads."""
        for _ in range(messages):
            self.reported.look(self.now)
            if self.reader.next_batch() is not None:
                self.processed += 1
        self.reported.look(self.now)

    def behind(self, source: int) -> bool:
        """Look again."""
        self.now += BACKPRESSURE_LOOK_MS
        return self.sources[source].behind(self.now)


STEPS = st.lists(
    st.tuples(st.sampled_from(["records", "marker", "process", "trim", "wait"]), st.integers(0, 5), st.integers(1, 60)),
    max_size=60,
)


@example(3, 1, [("records", source, count) for count in (1, 60) for source in range(3)])  # all look, then all send
@given(st.integers(1, 4), st.integers(1, 120), STEPS)
def test_sources_keep_to_the_bound_and_stop_for_nothing_else(
    sources: int, messages_max: int, steps: list[tuple[str, int, int]]
) -> None:
    """Records that wait are less than twice the bound: one source may fill it while another has a share of it left.

    A source stops only if the consumer is three quarters of the bound behind; and when that has caught up, none does.
    """
    job = Job(sources, messages_max)
    for kind, number, count in steps:
        source = number % sources
        match kind:
            case "records":
                for _ in range(3 * count):
                    job.now += 0.1
                    if job.sources[source].behind(job.now):
                        break
                    job.send(source, record=True)
            case "marker":
                job.send(source, record=False)
            case "process":
                job.process(count)
                if job.end - job.processed <= job.bound - job.bound // POSITION_REPORT_PARTS:
                    assert not job.behind(source)
            case "trim":
                job.log.trim(job.stream, job.processed)
            case _:  # wait
                job.now += 100.0 * count
        assert sum(offset >= job.processed for offset in job.records) <= 2 * job.bound + sources
    job.process(job.end)
    job.now += POSITION_REPORT_MS
    job.reported.look(job.now)
    assert not any(job.behind(source) for source in range(sources))


@given(st.integers(1, 6), st.integers(1, 1_000))
def test_markers_alone_stop_no_source(sources: int, messages_max: int) -> None:
    """A consumer may be many markers of each source behind, however low the setting is."""
    job = Job(sources, messages_max)
    for _ in range(LAG_PER_PRODUCER):
        for source in range(sources):
            assert not job.behind(source)
            job.send(source, record=False)
    assert not any(job.behind(source) for source in range(sources))
