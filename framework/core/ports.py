"""The port of the cores: what drivers, workers and the test kit ask of the core of a task, whatever its mode."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from grete.core.actions import Action
from grete.core.commit_pipeline import CommitPipeline
from grete.core.events import Event
from grete.core.external_inputs import ExternalInputs
from grete.core.graph.task_topology import TaskWiring
from grete.core.idleness import Idleness
from grete.core.lifecycle import TaskStatus
from grete.core.startup import StartUp
from grete.protocol.ids import TopicPartition


class InternalInputs(Protocol):
    """The channels into one task. ``Inputs`` (aligned, at least once) and ``Merge`` (deterministic) are the two."""

    def processed_offset(self, partition: TopicPartition) -> int:
        """Return the offset of the first message of an input partition that is still to be processed."""

    def reached_by_channel(self) -> Iterator[tuple[int, int]]:
        """Yield (producer, time in µs that it has reached) of each channel that the task waits for; 0 or less: none."""

    @property
    def waiting_bytes(self) -> tuple[int, int]:
        """Bytes of received frames that wait for their turn: in memory, and on disk."""

    @property
    def holds_input(self) -> bool:
        """Whether it holds something of them that no frozen checkpoint has."""

    def rollback_causes(self) -> Sequence[int]:
        """Return the producers whose rollback would make this task roll back, too (R4)."""


class Core(Protocol):
    """The core of one task. ``TaskCore`` (aligned, at least once) and ``DeterministicCore`` are the two."""

    task: TaskWiring
    status: TaskStatus
    frozen: int  # the checkpoint closed last
    seen: Counter[str]  # what has happened, in words → how often
    external: ExternalInputs
    idleness: Idleness
    start_up: StartUp
    commits: CommitPipeline

    @property
    def inputs(self) -> InternalInputs:
        """The channels into the task."""

    def check_invariants(self) -> None:
        """Raise AssertionError unless the state is one that there may be between two steps."""

    @property
    def generation(self) -> int:
        """The generation that this process has claimed."""

    @property
    def wants_input(self) -> bool:
        """Whether the next message or external batch may be fed."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing is being processed, and what was processed is sent."""

    @property
    def waits_for_tasks(self) -> bool:
        """Whether only what other tasks send may let it go on: their checkpoint markers, or their logical time."""

    @property
    def reached_t(self) -> int:
        """The time in µs that all of its channels have reached: of its last checkpoint, or logical time; -1: none."""

    @property
    def covered_t(self) -> int:
        """The logical time in µs up to which the last commit has all of the channels; 0: not known."""

    def due_in_ms(self, mono_ms: int) -> float:
        """Return in how many ms a Tick can do something; a minute if nothing depends on time."""

    def step(self, event: Event) -> Sequence[Action]:
        """Take an event, return what must be done, in order. Raises Fenced, TransientError, Halted, ConfigError."""
