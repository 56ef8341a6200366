"""One channel into a speculative task: which bundles it holds, of which generation, and how far they are final."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from framework.core.speculative.messages import (
    NOTHING,
    Bound,
    ChannelPoint,
    Message,
    Place,
    Records,
    Revision,
)
from framework.errors import Halted


@dataclass(slots=True)
class Bundle:
    """What was received last of a place."""

    offset: int
    generation: int
    records: Records


class Channel:
    """What was received of a producer and is not settled. ``settled``: what lies at or below it is dropped."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.position = 0
        self.generation = -1
        self.bound = NOTHING  # of any generation: the same work is done again, so it holds for all
        self.promised = NOTHING  # the bound of this generation
        self.held: dict[Place, Bundle] = {}
        self._doubted = False  # whether an earlier generation has sent some of it, and this one may not
        self._points: deque[ChannelPoint] = deque([ChannelPoint(0, -1, NOTHING, NOTHING)])

    def take(self, message: Message, offset: int, settled: Bound) -> Iterator[tuple[Place, Records]]:
        """Take the next message; yield the places that have other records now. Raises Halted if one was final."""
        if offset != self.position:
            raise Halted(f"channel {self.index}: offset {offset} was delivered, though {self.position} is next")
        self.position = offset + 1
        if message.generation < self.generation:
            return
        if message.generation > self.generation:
            self.generation, self.promised, self._doubted = message.generation, NOTHING, bool(self.held)
        if isinstance(message, Revision):
            yield from self._revise(message, offset, settled)
        else:
            yield from self._pass(message.bound)
        self._points.append(ChannelPoint(self.position, self.generation, self.bound, self.promised))

    def _revise(self, message: Revision, offset: int, settled: Bound) -> Iterator[tuple[Place, Records]]:
        where = message.t, message.source
        place = *where, (self.index, *message.path)
        bundle = self.held.get(place)
        if where <= self.promised:
            was, now = bundle.records if bundle else "none", message.records
            text = f"the bundle at {place} was revised from {was} to {now}, though its producer has passed it"
            raise Halted(f"channel {self.index} offset {offset}: {text}")
        if where <= settled or where <= self.bound:
            return  # a restarted producer is on its way to what an earlier generation has promised
        if not message.records:
            if self.held.pop(place, None) is not None:
                yield place, ()
            return
        self.held[place] = Bundle(offset, message.generation, message.records)
        if bundle is None or bundle.records != message.records:
            yield place, message.records

    def _pass(self, bound: Bound) -> Iterator[tuple[Place, Records]]:
        """Move the bound; what only an earlier generation has sent, and this one has not, will never be."""
        passed, self.promised, self.bound = self.bound, bound, max(self.bound, bound)
        if not self._doubted:
            return
        doubted = [place for place, bundle in self.held.items() if self._in_doubt(place, bundle, passed)]
        gone = [place for place in doubted if place[:2] <= self.bound]
        self._doubted = len(gone) < len(doubted)
        for place in gone:
            del self.held[place]
            yield place, ()

    def _in_doubt(self, place: Place, bundle: Bundle, passed: Bound) -> bool:
        return bundle.generation < self.generation and place[:2] > passed

    def point(self) -> ChannelPoint:
        """Return where a restart reads again: at the first bundle that is held. Forget what lies before."""
        offset = min((bundle.offset for bundle in self.held.values()), default=self.position)
        while len(self._points) > 1 and self._points[1].offset <= offset:
            self._points.popleft()
        return replace(self._points[0], offset=offset)

    def resume(self, point: ChannelPoint) -> None:
        """Go back to a point."""
        self.position, self.generation = point.offset, point.generation
        self.bound, self.promised = point.bound, point.promised
        self._points = deque([point])
