"""The driver's port to user code in deterministic mode. The real processor is processor.py in this folder."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from grete.core.actions import MergedWatermarks
from grete.core.events import Advance
from grete.execution.deterministic.remade import Check, Recovered
from grete.execution.task_code.ports import Runner
from grete.ports import ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition
from grete.protocol.notes import CallResult, CallsNote
from grete.protocol.record_batch import RecordBatch


class LogicalRunner(Runner, Protocol):
    """Runs the user's task over the overlay, by logical time."""

    @property
    def producer_name(self) -> bytes:
        """The name that the outputs of this task give as their producer."""

    @property
    def places(self) -> Mapping[TopicPartition, int]:
        """The offset, by external partition, from which on there may be outputs unknown to the state; -1: unknown."""

    def note_end(self, partition: TopicPartition, end: int) -> None:
        """Note that all records sent to an external partition are before ``end``."""

    def go_on_after(
        self, released: Mapping[TopicPartition, int], digests: Mapping[TopicPartition, Sequence[Check]]
    ) -> None:
        """Drop external outputs up to these seqs, which are visible already; before anything is processed.

        ``digests``: of what was released, to be compared with what is made again.
        """

    def recover(self, partition: TopicPartition, visible: Recovered) -> None:
        """Drop recovered external outputs, and compare them with the ones made again."""

    def recall(self, calls: Mapping[int, Sequence[CallResult]]) -> None:
        """Take recorded results in place of calls: by the number of a record of this task."""

    def take_calls(self) -> Sequence[CallsNote]:
        """Return and forget the results of calls since the last time."""

    def own_sinks(self, generation: int) -> None:
        """Release to files and tables ahead of commits as this generation of the task."""

    def let_out(self, t: int) -> None:
        """Let outputs up to logical time ``t`` µs go to files and tables: no others of these times will be made."""

    @property
    def sink_t(self) -> int:
        """The logical time in µs of the last output that waits for ``let_out``; -1: none does."""

    def process_decided(
        self, partition: TopicPartition, rows: Sequence[LogRow], first_t: int, last_t: int = -1
    ) -> None:
        """Process rows of an external input; the i-th has the logical time ``first_t`` + i.

        ``last_t``: when their decision ends, if others that it had were taken by the next one.
        """

    def fire_slice(self) -> None:
        """Let the next slice of due timers fire; behind the last one go on with what was being processed (E10)."""

    @property
    def left(self) -> bool:
        """Whether timers are left for the next slice: the rest of what was being processed waits for them."""

    @property
    def reached(self) -> tuple[int, int]:
        """The number of rows, or batches, that are processed of what was given last, and the offset behind them."""

    def process_merged(self, batches: Sequence[RecordBatch | MergedWatermarks], upto: int) -> None:
        """Process merged records and watermarks, and let time reach ``upto``."""

    def process_idle(self, partition: TopicPartition, t: int, *, ended: bool = False) -> None:
        """Take an external partition for idle, or ended, from logical time ``t`` µs on."""

    def take_advances(self) -> Sequence[Advance]:
        """Return and forget the advances of event time for consumers."""

    def take_numbered(self) -> tuple[list[ExternalRecord], dict[TopicPartition, Check]]:
        """Return and forget the collected outputs to topics outside of the job that are not visible yet.

        Also return the last seq and digest of each partition among them. Raises OutputsDiffer.
        """

    @property
    def next_timer(self) -> int:
        """The logical time in µs at which event time is to be told though nothing comes; 1 << 62: never."""

    @property
    def next_wall(self) -> int:
        """The logical time in µs at which wall-clock timers may fire next; 1 << 62: none is set."""
