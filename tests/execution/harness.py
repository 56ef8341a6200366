"""One task's processor over stores in memory, with the life of its checkpoints in the test's hands."""

import weakref
from collections.abc import Sequence
from typing import Any

from grete import Job
from grete.execution.job_task import JobTask
from grete.execution.records.outputs import Outputs
from grete.execution.sinks.outbox import Outbox
from grete.execution.sinks.sink_targets import MakeSinks, sinks_of
from grete.execution.task_code.processor import Processor
from grete.execution.timing.reserved_stores import OUTBOX
from grete.ports import ExternalRecord, LogRow
from grete.protocol.envelope import Header, MessageType, encode_header
from grete.protocol.frames import encode_columns
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.stores.memory import MemoryDisk, MemoryStore
from grete.stores.overlay.overlay import Overlay

Row = tuple[bytes | None, bytes | None, int]  # key, value, timestamp


class Rig:
    """A task of ``job``. ``disk`` is what crashes leave, ``external_partitions`` the count of each external topic."""

    def __init__(
        self,
        job: Job,
        stage: int = 0,
        *,
        disk: MemoryDisk | None = None,
        external_partitions: int = 1,
        sinks: MakeSinks = sinks_of,
        **settings: Any,
    ) -> None:
        graph = job.stages[stage]
        self.topology = job.topology()
        self.disk = MemoryDisk() if disk is None else disk
        names = {store_id: name for name, store_id in graph.store_ids().items()}
        store = MemoryStore(names, self.disk)
        checked = Settings(**settings)
        self.overlay = Overlay(
            store,
            list(names),
            uncommitted_state_bytes_max=checked.uncommitted_state_bytes_max,
            read_cache_bytes_max=1 << 20,
            expiring=graph.expiring_ids(),
        )
        self.outputs = Outputs(graph, self.topology, checked, lambda _topic: external_partitions)
        task = JobTask(graph, self.topology, 0)
        outbox = Outbox(task.owner, self.overlay.store(OUTBOX), checked, sinks=sinks)
        self.processor = Processor(task, self.overlay, self.outputs, outbox)
        weakref.finalize(self, self.processor.outbox.abandon)  # as the end of a process: SQLite's files are closed
        self.processor.reset()
        self.now_ms = 0.0
        self.settle()
        self.checkpoint_id = 0
        self.offset = 0

    @property
    def task(self) -> Any:
        """The running instance."""
        return self.processor.instance.task

    def rows(self, topic: str, rows: Sequence[Row], headers: Sequence[bytes | None] | None = None) -> None:
        """Process rows of an external topic, at the next offsets."""
        assert self.some_rows(topic, rows, headers) == len(rows)

    def some_rows(self, topic: str, rows: Sequence[Row], headers: Sequence[bytes | None] | None = None) -> int:
        """Process rows up to one whose timers are left to slices; return how many."""
        cells = headers if headers is not None else [None] * len(rows)
        batch = [
            LogRow(self.offset + index, 0, timestamp, key, value, cell)
            for index, ((key, value, timestamp), cell) in enumerate(zip(rows, cells, strict=True))
        ]
        taken = self.processor.process_rows(TopicPartition(topic, 0), batch)
        self.offset += taken
        return taken

    def frame(
        self, rows: Sequence[Row], headers: Sequence[bytes | None] | None = None, *, offset: int = 0, skip: int = 0
    ) -> None:
        """Process a frame of the first stream into the stage."""
        topic = self.topology.streams_into(self.processor.job_task.stage.ordinal)[0].topic
        keys, values, timestamps = zip(*rows, strict=True)
        message = encode_header(Header(MessageType.FRAME, 0, 1, 1, 1))
        message += encode_columns(keys, values, timestamps, headers)
        self.processor.process_frame(TopicPartition(topic, 0), offset, message, skip)

    def external(self) -> list[tuple[str, bytes | None, bytes | None, int]]:
        """Take what was sent to external topics, as (topic, key, value, timestamp)."""
        return [plain(record) for record in self.processor.take_external()]

    def freeze(self) -> None:
        """Freeze the next checkpoint."""
        self.checkpoint_id += 1
        self.processor.before_freeze(self.checkpoint_id)
        self.overlay.freeze()

    def commit(self) -> None:
        """Commit the next checkpoint, and do what follows it."""
        self.freeze()
        while not self.overlay.apply_chunk(b"pointer"):
            pass
        self.processor.after_commit()
        self.settle()

    def settle(self) -> None:
        """Do all that there is to do for the sinks at this moment."""
        while self.processor.outbox.work(self.now_ms):
            pass

    def rollback(self) -> None:
        """Go back to the last commit (R4)."""
        self.overlay.drop_open()
        self.processor.reset()
        self.settle()


def plain(record: ExternalRecord) -> tuple[str, bytes | None, bytes | None, int]:
    """Return (topic, key, value, timestamp)."""
    return record.partition.topic, record.key, record.value, record.timestamp_ms
