"""The real driver over a log and a store in memory that write down what is done to them, in order.

The task's code puts each record's name as a key and sends it on; ``Driven.append`` serves the core's ``Producer``.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from grete.core.actions import Action
from grete.core.aligned.task import TaskCore
from grete.core.events import Event
from grete.core.graph.task_topology import TaskWiring
from grete.core.limits import Limits
from grete.execution.build import aligned_driver
from grete.execution.engine.task_io import TaskIO
from grete.execution.task_code.commit_requests import CommitRequests
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.ports import Delivery, ExternalRecord, LogRow, Write
from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.frames import decode_columns, encode_columns
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.stores.memory import MemoryDisk, MemoryStore
from grete.stores.overlay.overlay import Overlay
from grete.stores.spill import MemorySpill
from tests.core.scenario import NONCE
from tests.core.streams import A0, A1, INNER, JOB, SINK, Producer
from tests.support.timeless import Timeless

STORE = 1
OUTSIDE, ELSEWHERE = TopicPartition("outside", 0), TopicPartition("outside", 1)


class Step(NamedTuple):
    """One thing that was done: ``what``, and the checkpoint that it belongs to where that can be seen (else -1)."""

    what: str
    checkpoint_id: int = -1


class RecordingLog(MemoryLog):
    """Delivers one answer at a time, oldest first; ``mute``: none at all, ``away``: none of what goes there."""

    def __init__(self, data: MemoryLogData, trace: list[Step]) -> None:
        super().__init__(data)
        self.trace = trace
        self.mute = False
        self.away: TopicPartition | None = None
        self._withheld: set[tuple[int, int]] = set()  # (owner, token) of plain records to there
        self.answers: list[Delivery] = []
        self._steps: list[Step] = []  # of the sends that were not answered yet

    def send(
        self,
        owner: int,
        token: int,
        partition: TopicPartition,
        value: bytes,
        *,
        fence: int | None = None,
        sync: bool = False,
        outputs: Sequence[ExternalRecord] = (),
    ) -> None:
        """Write the send down."""
        step = step_of(partition, value)
        if step.what in ("claim", "commit"):
            assert sync, f"{step} must survive a power loss"
        self._steps.append(step)
        self.trace.append(step)
        super().send(owner, token, partition, value, fence=fence, sync=sync, outputs=outputs)

    def produce(self, owner: int, token: int, records: Sequence[ExternalRecord]) -> None:
        """Write down that plain records were sent."""
        self._steps.append(Step("plain records"))
        self.trace.append(Step("plain records"))
        if any(record.partition == self.away for record in records):
            self._withheld.add((owner, token))
        super().produce(owner, token, records)

    def poll(self) -> list[Delivery]:
        """Append what is queued; report the oldest delivery that is not reported yet."""
        self.answers += super().poll()
        for place, answer in enumerate(self.answers):
            if self.mute or (self.away is not None and (answer.owner, answer.token) in self._withheld):
                continue
            what, checkpoint_id = self._steps.pop(place)
            self.trace.append(Step(f"{what} acknowledged", checkpoint_id))
            return [self.answers.pop(place)]
        return []

    def trim(self, partition: TopicPartition, before: int) -> None:
        """Write the trim down."""
        self.trace.append(Step("trim"))
        super().trim(partition, before)


class RecordingStore(MemoryStore):
    """Writes down chunks; ``crash_at`` chunks from now the process dies."""

    def __init__(self, disk: MemoryDisk, trace: list[Step]) -> None:
        super().__init__({STORE: "keys"}, disk)
        self.trace = trace
        self.crash_at = -1

    def write(self, writes: Iterable[Write], changelog_position: bytes | None = None) -> None:
        """Write the chunk down, then do it."""
        if self.crash_at == 0:
            raise Crash
        self.crash_at -= 1
        self.trace.append(Step("chunk" if changelog_position is None else "last chunk"))
        super().write(writes, changelog_position)


class Crash(Exception):
    """The process is gone."""


class KeyRunner(Timeless):
    """The task's code: one key for each record, and the record sent on."""

    def __init__(self, overlay: Overlay, outputs: Sequence[TopicPartition], trace: list[Step]) -> None:
        self.overlay = overlay
        self.outputs = outputs
        self.trace = trace
        self.collected: list[bytes] = []
        self.external: list[ExternalRecord] = []
        self.processed: list[str] = []
        self.resets = 0
        self.outside = OUTSIDE  # where records for outside go

    requests = CommitRequests()

    def reset(self) -> None:
        """Forget what was collected."""
        self.collected, self.external = [], []
        self.resets += 1

    def process_frame(self, partition: TopicPartition, offset: int, message: bytes, skip: int) -> None:
        """Process a frame."""
        self._process([value or b"" for value in decode_columns(message).values[skip:]])

    def process_rows(self, partition: TopicPartition, rows: Sequence[LogRow]) -> int:
        """Process rows from outside."""
        self._process([row.value or b"" for row in rows])
        return len(rows)

    due = None

    def take_frames(self) -> list[tuple[TopicPartition, int, bytes]]:
        """Send all to every partition."""
        values, self.collected = self.collected, []
        body = encode_columns([None] * len(values), values, [0] * len(values)) if values else b""
        return [(partition, len(values), body) for partition in self.outputs] if values else []

    def take_external(self) -> list[ExternalRecord]:
        """Return the records that go outside."""
        records, self.external = self.external, []
        return records

    @property
    def external_bytes(self) -> int:
        """Size of what goes outside."""
        return sum(len(record.value or b"") for record in self.external)

    def before_freeze(self, checkpoint_id: int) -> None:
        """Write the freeze down."""
        self.trace.append(Step("freeze", checkpoint_id))

    def after_commit(self) -> None:
        """Write down that an outbox would be applied here."""
        self.trace.append(Step("after commit"))

    @property
    def outbox(self) -> None:
        """There is none."""
        return

    def close(self) -> None:
        """Write down that the task's code ends."""
        self.trace.append(Step("close"))

    def _process(self, values: list[bytes]) -> None:
        for value in values:
            self.overlay.store(STORE).put(value, b"1")
            self.processed.append(value.decode())
            if self.outputs:
                self.collected.append(value)
            else:
                self.external.append(ExternalRecord(self.outside, None, value, 0))


class _Checked(TaskCore):
    """A core that checks its state after each step."""

    def step(self, event: Event) -> Sequence[Action]:
        """Take the event."""
        actions = super().step(event)
        self.check_invariants()
        return actions


class Driven:
    """One process of a task. ``disk`` and ``data`` outlive it: hand them to the next."""

    def __init__(
        self,
        wiring: TaskWiring = INNER,
        *,
        data: MemoryLogData | None = None,
        disk: MemoryDisk | None = None,
        nonce: bytes = NONCE,
        gathers: bool = False,
        **changes: int | str,
    ) -> None:
        self.now_ms = 1_050
        self.data = MemoryLogData(lambda: self.now_ms) if data is None else data
        self.disk = MemoryDisk() if disk is None else disk
        self.trace: list[Step] = []
        self.wiring, self.nonce = wiring, nonce
        self.log = RecordingLog(self.data, self.trace)
        for stage in JOB.stages:
            self.log.create_topic(JOB.changelog(stage.ordinal), stage.partitions)
        for topic in (*(stream.topic for stream in JOB.streams), "in"):
            self.log.create_topic(topic, 2)
        self.log.create_topic(OUTSIDE.topic, 2)
        settings = Settings(**{"changelog_retention_ms": 0, **changes})  # type: ignore[arg-type]  # settings of many types
        limits = Limits(**{name: getattr(settings, name) for name in Limits.__slots__})
        self.store = RecordingStore(self.disk, self.trace)
        overlay = Overlay(
            self.store,
            [STORE],
            uncommitted_state_bytes_max=settings.uncommitted_state_bytes_max,
            read_cache_bytes_max=1 << 20,
        )
        self.runner = KeyRunner(overlay, wiring.outputs, self.trace)
        self.core = _Checked(wiring, limits, aligned=settings.aligned)
        mono_ms = lambda: float(self.now_ms)  # noqa: E731  # one of them
        io = TaskIO(self.log, self.store, overlay, MemorySpill(), settings, mono_ms, gathers=gathers)
        self.driver = aligned_driver(0, self.core, self.runner, io)

    def append(self, partition: TopicPartition, *values: bytes) -> int:
        """Append messages to the log; return the offset of the last."""
        return [self.data.append(partition, None, value, None, None) for value in values][-1][0]

    def start(self) -> "Driven":
        """Start, and run until there is nothing to do."""
        self.driver.start(nonce=self.nonce, host="here", pid=1, wall_ms=0)
        self.run()
        return self

    def run(self) -> None:
        """Run until nothing is left to do or to be delivered."""
        busy = True
        while busy:
            busy = False
            while self.driver.tick():
                self.driver.check_invariants()
                busy = True
            for delivery in self.log.poll():
                self.driver.delivered(delivery)
                busy = True

    def keys(self) -> set[str]:
        """Return the records that the store holds."""
        return {key.decode() for key, _ in self.store.scan(STORE, b"", None)}


def step_of(partition: TopicPartition, value: bytes) -> Step:
    """Return the step of a message: its kind, and its checkpoint."""
    if partition.topic.endswith(".changelog"):
        return Step(ChangelogType(decode_changelog_header(value).type).name.lower())
    header = decode_header(value)
    return Step("output" if header.type is MessageType.FRAME else header.type.name.lower(), header.checkpoint_id)


def driven(**changes: int | str) -> tuple[Driven, Producer, Producer]:
    """Return a running INNER, and its producers, announced."""
    task = Driven(**changes)  # type: ignore[arg-type]  # as above
    a0, a1 = Producer(task, A0), Producer(task, A1)
    a0.rollback_marker(0)
    a1.rollback_marker(0)
    return task.start(), a0, a1


def outside(task: Driven) -> list[bytes | None]:
    """Return the values in the external topic."""
    return [row.value for row in task.log.read(OUTSIDE, 0, 1 << 20)]


def sink(**changes: int | str) -> tuple[Driven, list[Producer]]:
    """Return a running SINK and its producers."""
    task = Driven(SINK, **changes)  # type: ignore[arg-type]  # as above
    producers = [
        Producer(task, producer, partition, fingerprint=SINK.fingerprint) for producer, partition in SINK.channels
    ]
    for producer in producers:
        producer.rollback_marker(0)
    return task.start(), producers
