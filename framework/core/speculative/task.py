"""SpeculativeCore: which bundle runs next, what is taken back, what is settled. Sans-IO, like the other cores."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from framework.core.speculative.channel import Channel
from framework.core.speculative.messages import (
    NOTHING,
    OUTSIDE,
    Bound,
    Message,
    Passed,
    Place,
    Records,
    Revision,
    SpeculativeCommit,
)
from framework.core.speculative.versions import SettledView, Value, Versions, View

Send = tuple[int, Message]  # the number of the output, and what goes there
Outputs = Mapping[int, Records]
EMPTY: Mapping[int, Records] = {}


@dataclass(slots=True)
class Unit:
    """A bundle and what its run has read, written and made. ``dirty``: it has to run, for the first time or again."""

    place: Place
    records: Records
    dirty: bool = True
    runs: int = 0
    reads: Iterable[bytes] = ()
    writes: Mapping[bytes, Value] = field(default_factory=dict)
    outputs: Outputs = field(default_factory=dict)


class SpeculativeCore:
    """One task. ``speculative``: bundles run when they come; else when they are final, in their order.

    ``outputs``: the numbers of the partitions that it sends to; OUTSIDE is none of them.
    """

    def __init__(
        self, name: str, channels: int, outputs: Sequence[int], state: dict[bytes, bytes], *, speculative: bool
    ) -> None:
        self.name = name
        self.channels = [Channel(index) for index in range(channels)]
        self.versions = Versions(state)
        self.settled = NOTHING  # all up to it is in the committed state
        self.generation = -1
        self.ran_again = 0
        self._outputs = outputs
        self._speculative = speculative
        self._places: list[Place] = []  # of the units, in order
        self._units: dict[Place, Unit] = {}
        self._dirty: list[Place] = []  # a heap; some are not dirty any more
        self._passed = NOTHING  # the bound that was sent

    def start(self, generation: int, commit: SpeculativeCommit | None) -> None:
        """Begin a generation, at a commit."""
        self.generation = generation
        if commit is not None:
            self.settled = self._passed = commit.settled
            for channel, point in zip(self.channels, commit.channels, strict=True):
                channel.resume(point)

    # --- input ---

    def message(self, channel: int, offset: int, message: Message) -> list[Send]:
        """Take the next message of a channel; return what is taken back at once. Raises Halted."""
        sends: list[Send] = []
        for place, records in self.channels[channel].take(message, offset, self.settled):
            unit = self._units.get(place)
            if not records:
                sends += self._remove(place)
            elif unit is None:
                self._units[place] = Unit(place, records)
                insort(self._places, place)
                heappush(self._dirty, place)
            else:
                unit.records = records
                self._mark(unit)
        return sends

    def _remove(self, place: Place) -> list[Send]:
        unit = self._units.pop(place)
        del self._places[bisect_left(self._places, place)]
        sends = self._revise(unit, EMPTY)
        self._changed(place, (unit.reads, unit.writes), ((), {}))
        return sends

    # --- runs ---

    @property
    def bound(self) -> Bound:
        """The bound of all channels: no bundle up to it will change."""
        return min(channel.bound for channel in self.channels)

    def next(self) -> Unit | None:
        """Return the lowest bundle that is to run now."""
        unit = self.lowest()
        return unit if unit is not None and (self._speculative or unit.place[:2] <= self.bound) else None

    def lowest(self) -> Unit | None:
        """Return the lowest bundle that is still to run, now or in its turn."""
        while self._dirty:
            unit = self._units.get(self._dirty[0])
            if unit is not None and unit.dirty:
                return unit
            heappop(self._dirty)
        return None

    def view(self, unit: Unit) -> View | SettledView:
        """Return the state for a run of the unit."""
        if self._speculative:
            return View(self.versions, unit.place)
        return SettledView(self.versions.committed, unit.place)

    def ran(self, unit: Unit, view: View | SettledView, outputs: Outputs) -> list[Send]:
        """Take what a run has made; return the revisions that go out."""
        unit.dirty = False
        unit.runs += 1
        self.ran_again += unit.runs > 1
        if self._speculative:
            self._changed(unit.place, (unit.reads, unit.writes), (view.reads, view.writes))
            unit.reads, unit.writes = view.reads, view.writes
        return self._revise(unit, outputs)

    def _changed(
        self,
        place: Place,
        before: tuple[Iterable[bytes], Mapping[bytes, Value]],
        after: tuple[Iterable[bytes], Mapping[bytes, Value]],
    ) -> None:
        """Who has read what is different now runs again."""
        for reader in self.versions.replace(place, before, after):
            self._mark(self._units[reader])

    def _mark(self, unit: Unit) -> None:
        if not unit.dirty:
            unit.dirty = True
            heappush(self._dirty, unit.place)

    def _revise(self, unit: Unit, outputs: Outputs) -> list[Send]:
        """Send what is not as it was sent before."""
        before, unit.outputs = unit.outputs, outputs
        t, source, path = unit.place
        changed = (output for output in sorted(before.keys() | outputs.keys()) if output != OUTSIDE)
        return [
            (output, Revision(self.generation, t, source, path, outputs.get(output, ())))
            for output in changed
            if before.get(output, ()) != outputs.get(output, ())
        ]

    # --- what is final ---

    def settle(self) -> tuple[list[Unit], list[Send]]:
        """Settle what is final; return it, in order, and the bound for those downstream."""
        limit, lowest = self.bound, self.next()
        if lowest is not None:
            t, source, _ = lowest.place
            limit = min(limit, (t, source - 1))
        if limit <= self.settled:
            return [], []
        stop = bisect_left(self._places, (*limit, (1 << 62,)))
        units = [self._units.pop(place) for place in self._places[:stop]]
        del self._places[:stop]
        for unit in units:
            self.versions.settle(unit.place, unit.reads, unit.writes)
            del self.channels[unit.place[2][0]].held[unit.place]
        self.settled = limit
        return units, self._pass(limit)

    def _pass(self, bound: Bound) -> list[Send]:
        if bound <= self._passed:
            return []
        self._passed = bound
        return [(output, Passed(self.generation, bound)) for output in self._outputs]

    @property
    def may_commit(self) -> bool:
        """Whether the state is what is settled, and no more: code that waits for its turn writes to it directly."""
        return self._speculative or not any(unit.runs for unit in self._units.values())

    def commit(self) -> SpeculativeCommit:
        """Return what goes into a commit, once all that was sent is acknowledged."""
        return SpeculativeCommit(self.settled, tuple(channel.point() for channel in self.channels))

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two steps."""
        assert self._places == sorted(self._units), self._places
        held = {place for channel in self.channels for place in channel.held}
        assert held == self._units.keys(), held ^ self._units.keys()
        assert all(place[:2] > self.settled for place in self._places), (self.settled, self._places[:1])
        if not self._units:
            assert self.versions.empty
