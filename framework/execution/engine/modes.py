"""The differences between the modes of a task: reading inputs, running user code and releasing outputs."""

from typing import Protocol

from grete.core import actions as do
from grete.ports import Delivery
from grete.protocol.ids import TopicPartition


class TaskMode(Protocol):
    """The mode of one task, over its TaskParts. ``AlignedMode`` and ``DeterministicMode`` are the two."""

    held_up: bool  # by its sends, its sink or its consumers: it reads no input for now

    @property
    def awaits_answers(self) -> bool:
        """Whether something can go on only when the log has answered."""

    @property
    def can_go_on(self) -> bool:
        """Whether a ``tick`` can do something now that outputs are acknowledged."""

    @property
    def observed(self) -> int:
        """The last logical time in µs that has reached this task; 0 in a mode that has none."""

    def observe(self, t: int) -> None:
        """Note that a task beside this one has observed ``t`` (D1)."""

    @property
    def observed_checkpoint(self) -> int | None:
        """The greatest checkpoint of which a marker has come (A1); None: more may come unseen for now, or never."""

    def observe_checkpoint(self, checkpoint_id: int, *, sees_next: bool) -> None:
        """Note what tasks beside this one have observed, and whether they observe the next one at once (A1)."""

    @property
    def closed_all(self) -> bool:
        """Whether the task has done nothing since it closed its last checkpoint. False: it may have."""

    def acknowledged(self, delivery: Delivery) -> None:
        """Note where sent records are, whatever they were."""

    def recover(self) -> bool | None:
        """Do a step of what comes before any processing: None if there is none left, False if it waits."""

    def stop(self) -> None:
        """Let the core come to a graceful stop (R6), as soon as nothing is held that no successor would read."""

    @property
    def settled(self) -> bool:
        """Whether all that the core takes for processed is processed and on its way into a commit."""

    def on_time(self) -> bool:
        """Tell the core that time has passed, if that may do something; True if it did."""

    def due_in_ms(self, now_ms: float) -> float:
        """Return the ms until ``on_time``, or a look at the inputs, may have something to do."""

    def look_for_idle(self) -> bool:
        """Find inputs that have brought nothing for a while (E4); True if that is news."""

    def flush(self) -> bool:
        """Close the output frames at the end of a batch; True if there were any."""

    def read(self) -> bool:
        """Read input and give it to the core or the code; False if there is none to be had now."""

    def forget_read(self, partition: TopicPartition) -> None:
        """An input is to be read from elsewhere: forget what was read of it and not processed."""

    def waits_for_calls(self, action: do.Action) -> bool:
        """Whether an action must wait for records in flight: a checkpoint drains them, new records find no place."""

    def had_turns(self) -> None:
        """Note that records in flight have taken effect."""

    def perform(self, action: do.Action) -> bool:
        """Do what a core of this mode asks for; False if it is an action of any mode."""
