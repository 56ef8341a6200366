"""The design document's literal rules, brought back one at a time: where they lose, double or stall.

Each is a few patches of the core from outside, as the simulator's mutants are (tests.verification.simulation.mutants).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from grete.core.actions import Action, AppendChangelog
from grete.core.aligned.inputs import Inputs
from grete.core.aligned.task import TaskCore
from grete.core.events import ChangelogEnd, ChangelogRow
from grete.core.startup import StartUp
from grete.errors import Halted
from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.protocol.control import encode_marker
from grete.protocol.ids import TopicPartition
from tests.verification.model.world import CHAIN, JOINED, LONG, Bounds, World
from tests.verification.simulation.mutants import MUTANTS

Patch = tuple[Any, str, Callable[[Any], Any]]  # owner, attribute, from the original to the mistaken one


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A literal rule of the design document that does not hold.

    ``says``: the literal rule. ``missing``: the rule that closes the counterexample. ``invariant``: the one that
    must notice it.
    """

    says: str
    missing: str
    invariant: str
    world: World
    patches: tuple[Patch, ...]


def _same_as(mutant: str) -> tuple[Patch, ...]:
    each = MUTANTS[mutant]
    return ((each.owner, each.attribute, each.make),)


def _next_after_the_commit(end: Any) -> Any:
    def mistaken(self: StartUp, event: ChangelogEnd) -> list[Action]:
        actions: list[Action] = end(self, event)
        if not any(isinstance(action, AppendChangelog) for action in actions):
            return actions
        generation = 1 if self.fold.last is None else self.fold.last.generation + 1
        return [AppendChangelog(self.ownership.claim_message(generation), generation)]

    return mistaken


def _alone_with_its_generation(row: Any) -> Any:
    def mistaken(self: StartUp, event: ChangelogRow) -> list[Action]:
        actions: list[Action] = row(self, event)
        self._own = self._own._replace(lost=False)
        return actions

    return mistaken


def _remembers_the_last_message(row: Any) -> Any:
    def mistaken(self: Any, event: ChangelogRow) -> list[Action]:
        if event.offset != self._own.offset:
            self.last_type = decode_changelog_header(event.value).type
        actions: list[Action] = row(self, event)
        return actions

    return mistaken


def _marker_after_a_commit_only(announce: Any) -> Any:
    def mistaken(self: TaskCore) -> list[Action]:
        actions: list[Action] = announce(self)
        start: Any = self.start_up
        if getattr(start, "last_type", None) is ChangelogType.COMMIT and self.frozen > 0:
            for partition, seq in self.sender.next_seq.items():
                marker = encode_marker(self.task.producer, self.generation, self.frozen, seq, False)
                actions.append(self.sender.send(partition, marker))
            start.last_type = None
        return actions

    return mistaken


def _proves_nothing(rollback_marker: Any) -> Any:
    def mistaken(self: Inputs, partition: TopicPartition, offset: int, message: Any, frozen: int) -> bool:
        channel = self.channels[message.header.producer, partition]
        marker, future = channel.marker, list(channel.future)
        rolls_back = bool(rollback_marker(self, partition, offset, message, frozen))
        channel.marker, channel.future = marker, future
        self.totals.forget()
        return rolls_back

    return mistaken


def _always_rolls_back(rollback_marker: Any) -> Any:
    def mistaken(self: Inputs, partition: TopicPartition, offset: int, message: Any, frozen: int) -> bool:
        # a first start restores nothing
        again = message.header.generation > 1 and message.header.checkpoint_id == frozen
        return bool(rollback_marker(self, partition, offset, message, frozen)) or again

    return mistaken


def _must_be_the_last_checkpoint(rollback_marker: Any) -> Any:
    def mistaken(self: Inputs, partition: TopicPartition, offset: int, message: Any, frozen: int) -> bool:
        if message.header.checkpoint_id != frozen:
            raise Halted(f"{self.name}: restore to checkpoint {message.header.checkpoint_id}, the last one is {frozen}")
        return bool(rollback_marker(self, partition, offset, message, frozen))

    return mistaken


COUNTEREXAMPLES = {
    "generation_reused": Counterexample(
        says="the generation is stored with a checkpoint; a restarted task takes the next one",
        missing="C1: a claim, before anything else is written",
        invariant="generation",
        world=World("chain", CHAIN, Bounds(crashes=2)),
        patches=((StartUp, "end", _next_after_the_commit), (StartUp, "row", _alone_with_its_generation)),
    ),
    "zombie_commit": Counterexample(
        says="a commit is done when its message is flushed",
        missing="C2, C3: a commit after a higher claim is invalid, and its sender looks",
        invariant="uncommitted",
        world=World("chain", CHAIN, Bounds(zombies=1)),
        patches=_same_as("commit_not_checked"),
    ),
    "marker_lost": Counterexample(
        says="at a start the marker is sent again if the last message of the changelog is a commit",
        missing="R2: a rollback marker implies all markers up to its checkpoint",
        invariant="liveness",
        world=World("chain", CHAIN, Bounds(crashes=2)),
        patches=(
            (StartUp, "row", _remembers_the_last_message),
            (TaskCore, "_announce", _marker_after_a_commit_only),
            (Inputs, "rollback_marker", _proves_nothing),
        ),
    ),
    "generation_kept": Counterexample(
        says="the generation is bumped only when a task restarts",
        missing="C6: each rollback claims a generation",
        invariant="generation",
        world=World("long chain", LONG, Bounds(crashes=1)),
        patches=_same_as("generation_kept"),
    ),
    "rollback_marker_loop": Counterexample(
        says="a task that reads a rollback marker discards, forwards it, and goes back to its last offsets",
        missing="R4: a generation that was announced before in the channel is ignored",
        invariant="liveness",
        world=World("chain", CHAIN, Bounds(crashes=1)),
        patches=((Inputs, "rollback_marker", _always_rolls_back),),
    ),
    "rollback_marker_ahead": Counterexample(
        says="a rollback marker to another checkpoint than the task's last one is an exception",
        missing="R4: a checkpoint above the own one is normal: the task is slower than its producer",
        invariant="halted",
        world=World("chain", CHAIN, Bounds(crashes=1)),
        patches=((Inputs, "rollback_marker", _must_be_the_last_checkpoint),),
    ),
    "alignment_kept": Counterexample(
        says="going back resets offsets and state; nothing is said of the markers collected so far",
        missing="R4: a rollback drops buffers and markers, too",
        invariant="lost",
        world=World("joined", JOINED, Bounds(crashes=1)),
        patches=_same_as("markers_kept"),
    ),
}


@contextmanager
def opened(name: str) -> Iterator[None]:
    """Follow the document's literal rule for a while. Raises KeyError for an unknown name."""
    before = []
    try:
        for owner, attribute, make in COUNTEREXAMPLES[name].patches:
            classes = owner.__mro__ if isinstance(owner, type) else (owner,)
            where = next(each for each in classes if attribute in vars(each))
            before.append((where, attribute, vars(where)[attribute]))
            setattr(where, attribute, make(vars(where)[attribute]))
        yield
    finally:
        for where, attribute, original in reversed(before):
            setattr(where, attribute, original)
