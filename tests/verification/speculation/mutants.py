"""Speculative tasks with one rule left out each; the oracle must notice every one of them."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from framework.core.speculative.channel import Channel
from framework.core.speculative.messages import OUTSIDE, Revision
from framework.core.speculative.source import SpeculativeSource
from framework.core.speculative.task import EMPTY, SpeculativeCore
from framework.core.speculative.versions import Versions
from tests.verification.speculation.world import Node, TaskNode

MUTANTS: dict[str, tuple[type, str, Any]] = {}  # name → class, attribute, what it is instead


def mutant(where: type, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a mutant: the function takes the place of a method."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        MUTANTS[function.__name__] = where, name, function
        return function

    return register


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Put a mutant in place."""
    where, attribute, function = MUTANTS[name]
    is_property = isinstance(vars(where)[attribute], property)
    with patch.object(where, attribute, property(function) if is_property else function):
        yield


@mutant(SpeculativeCore, "_changed")
def readers_do_not_run_again(self: Any, place: Any, before: Any, after: Any) -> None:
    """What has read a version that is different now stays as it is."""
    self.versions.replace(place, before, after)


@mutant(Versions, "_readers_of")
def the_next_writer_does_not_run_again(self: Any, key: Any, place: Any) -> Any:
    """The next writer of a key has read it, too."""
    readers, writers = self._readers.get(key, []), self._writers.get(key, [])
    later = bisect_right(writers, place)
    end = len(readers) if later == len(writers) else bisect_left(readers, writers[later])
    return readers[bisect_right(readers, place) : end]


_replace = Versions.replace


@mutant(Versions, "replace")
def writes_stay(self: Any, place: Any, before: Any, after: Any) -> Any:
    """A run that does not write a key any more leaves what it has written."""
    (old_reads, old_writes), (reads, writes) = before, after
    return _replace(self, place, (old_reads, old_writes), (reads, {**old_writes, **writes}))


_revise = SpeculativeCore._revise


@mutant(SpeculativeCore, "_revise")
def nothing_is_taken_back(self: Any, unit: Any, outputs: Any) -> Any:
    """A run that makes nothing for a partition any more sends nothing."""
    return [(output, message) for output, message in _revise(self, unit, outputs) if getattr(message, "records", True)]


@mutant(SpeculativeCore, "_remove")
def what_is_taken_back_stays_in_the_state(self: Any, place: Any) -> Any:
    """A bundle that is gone leaves its writes."""
    unit = self._units.pop(place)
    del self._places[bisect_left(self._places, place)]
    return self._revise(unit, EMPTY)


_message = SpeculativeCore.message


@mutant(SpeculativeCore, "message")
def a_revised_bundle_does_not_run_again(self: Any, channel: int, offset: int, message: Any) -> Any:
    """Other records come, and nothing follows."""
    clean = {place for place, unit in self._units.items() if not unit.dirty}
    sends = _message(self, channel, offset, message)
    place = (message.t, message.source, (channel, *message.path)) if isinstance(message, Revision) else None
    if place in clean and place in self._units:
        self._units[place].dirty = False
    return sends


_settle = SpeculativeCore.settle


@mutant(SpeculativeCore, "settle")
def settled_before_it_has_run(self: Any) -> Any:
    """The bound alone decides."""
    dirty, self._dirty = self._dirty, []
    settled = _settle(self)
    self._dirty = dirty
    return settled


@mutant(SpeculativeCore, "bound")
def the_fastest_channel_decides(self: Any) -> Any:
    """The bound of one channel is taken for that of all."""
    return max(channel.bound for channel in self.channels)


@mutant(Channel, "_pass")
def what_is_not_sent_again_stays(self: Any, bound: Any) -> Any:
    """Bundles of an earlier generation count though the new one has passed them."""
    self.promised, self.bound = bound, max(self.bound, bound)
    return iter(())


_take = Channel.take


@mutant(Channel, "take")
def zombies_are_heard(self: Any, message: Any, offset: int, settled: Any) -> Any:
    """A message of an earlier generation counts behind those of a later one."""
    return _take(self, replace(message, generation=max(message.generation, self.generation)), offset, settled)


@mutant(Channel, "take")
def a_restart_may_revise_what_was_promised(self: Any, message: Any, offset: int, settled: Any) -> Any:
    """A new generation, on its way to what an earlier one has promised, is believed."""
    bound, self.bound = self.bound, max(self.promised, settled) if message.generation == self.generation else settled
    changes = list(_take(self, message, offset, settled))
    self.bound = max(bound, self.bound)
    return iter(changes)


_point = Channel.point


@mutant(Channel, "point")
def resumed_at_the_position(self: Any) -> Any:
    """A restart does not read again what is not settled."""
    return replace(_point(self), offset=self.position)


@mutant(Channel, "point")
def resumed_with_the_last_bound(self: Any) -> Any:
    """A restart begins with the bound of the position, and drops what it reads again."""
    return replace(_point(self), bound=self.bound, promised=self.promised, generation=self.generation)


@mutant(Channel, "_revise")
def the_channel_counts_last(self: Any, message: Any, offset: int, settled: Any) -> Any:
    """The order is by what the producers have numbered, then by channel."""
    for place, records in _channel_revise(self, message, offset, settled):
        yield (*place[:2], (*place[2][1:], place[2][0])), records


_channel_revise = Channel._revise


_source_take = SpeculativeSource.take


@mutant(SpeculativeSource, "take")
def passed_before_the_decision_is_valid(self: Any, rows: Any, now: int) -> Any:
    """A source says that a time is over, though a successor may give it to other rows."""
    decision, sends = _source_take(self, rows, now)
    return decision, sends + self._pass(decision.times[-1])


_source_start = SpeculativeSource.start


@mutant(SpeculativeSource, "start")
def the_lease_is_forgotten(self: Any, generation: int, decided: Any, lease: int) -> Any:
    """A successor gives times that a predecessor has passed."""
    sends = _source_start(self, generation, decided, 0)
    self.lease = lease
    return sends


@mutant(SpeculativeSource, "start")
def what_was_decided_is_not_sent_again(self: Any, generation: int, decided: Any, lease: int) -> Any:
    """A successor goes on behind what it may have lost."""
    sends = _source_start(self, generation, decided, lease)
    return [(output, message) for output, message in sends if not isinstance(message, Revision)]


@mutant(SpeculativeSource, "advance")
def passed_over_a_decision(self: Any, now: int) -> Any:
    """Time goes on over rows whose decision is not valid yet."""
    self._floor = max(self._floor, min(now, self.lease))
    return self._pass(self._floor)


@mutant(TaskNode, "acknowledged")
def committed_before_acknowledged(self: Any, life: Any) -> bool:
    """A commit counts though what was sent before it may be lost."""
    return True


@mutant(Node, "owns")
def a_zombie_commits(self: Any, process: Any) -> bool:
    """What a process appends behind the claim of its successor is valid."""
    return True


@mutant(TaskNode, "release")
def released_again(self: Any, life: Any) -> None:
    """A restarted sink does not ask what the consumer has."""
    bound, units = life.releasing.popleft()
    if life.process.generation == self.fence:
        self.released += [(unit.place, unit.outputs[OUTSIDE]) for unit in units if OUTSIDE in unit.outputs]
        self.last_released = max(self.last_released, bound)
        self.world.check_released(self)


@mutant(TaskNode, "settle")
def released_on_arrival(self: Any, life: Any) -> None:
    """What has run leaves the job before the frontier has passed it."""
    core = life.core
    place = core.next()
    ready = [core._units[each] for each in core._places if place is None or each < place.place]
    bound = ready[-1].place[:2] if ready else (-1, -1)
    _, sends = core.settle()
    life.process.send(sends)
    if self.last:
        life.releasing.append((max(bound, core.settled), ready))
