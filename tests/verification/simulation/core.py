"""The real cores: each checks its state after a step, and an aligned one is told control messages twice (A6, R4)."""

from collections.abc import Sequence

from grete.core.actions import Action
from grete.core.aligned.task import TaskCore
from grete.core.deterministic.task import DeterministicCore
from grete.core.events import Event, Message
from grete.execution.engine.driver import TaskDriver
from grete.protocol.control import decode_marker, decode_rollback_marker
from grete.protocol.envelope import MessageType
from tests.verification.simulation.oracle import Violation


def check_steps(core: TaskCore | DeterministicCore, process: str) -> None:
    """Let a core check its state after each step, one that ends it included. What must not be raises Violation."""
    step = core.step

    def checked(event: Event) -> Sequence[Action]:
        try:
            return step(event)
        finally:
            try:
                core.check_invariants()
            except AssertionError as error:
                raise Violation("core", f"{process}: after {event}: {error}") from error

    setattr(core, "step", checked)  # noqa: B010  # mypy does not let a method be assigned


def check_turns(driver: TaskDriver, process: str) -> None:
    """Let a driver check the state of its parts after each turn that has done something; its core checks its own."""
    tick = driver.tick

    def checked() -> bool:
        busy = tick()
        try:
            if busy:
                driver.parts.check_invariants()
        except AssertionError as error:
            raise Violation("core", f"{process}: behind a turn: {error}") from error
        return busy

    setattr(driver, "tick", checked)  # noqa: B010  # as above


_MARKERS = 8  # of that many markers one is given twice; of the rollback markers each is


class SimCore(TaskCore):
    """A TaskCore that checks itself."""

    def _message(self, event: Message) -> list[Action]:
        actions = super()._message(event)
        kind = event.value[0] & 15
        if kind == MessageType.ROLLBACK_MARKER or (
            kind == MessageType.MARKER and self.aligned and event.offset % _MARKERS == 0
        ):
            self._again(event, kind)
        return actions

    def _again(self, event: Message, kind: int) -> None:
        inputs, seen = self.inputs, self.seen.copy()
        before = self._known()
        if kind == MessageType.MARKER:
            inputs.marker(event.partition, event.offset, decode_marker(event.value), self.frozen)
        elif inputs.rollback_marker(event.partition, event.offset, decode_rollback_marker(event.value), self.frozen):
            raise Violation("repeat", f"{self.task.name}: {event.partition} offset {event.offset} rolls back again")
        if before != self._known():
            text = f"{before}, and then {self._known()}"
            raise Violation("repeat", f"{self.task.name}: {event.partition} offset {event.offset} changes {text}")
        self.seen.clear()
        self.seen.update(seen)

    def _known(self) -> object:
        channels = [
            (c.next_seq, c.included, c.generation, c.marker, c.ended, c.skipped, set(c.future))
            for c in self.inputs.channels.values()
        ]
        return channels, dict(self.inputs.rollbacks.known), self.inputs.early.bytes, dict(self.inputs.included)
