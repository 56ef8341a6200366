"""Comparison with the reference: outputs of deterministic tasks begin as its own, byte for byte (D1, D3, D5)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from grete.core.events import Advance
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.made import Made
from tests.verification.simulation.oracle import TaskHistory, Violation
from tests.verification.simulation.reference import Record
from tests.verification.simulation.usercode import FILES

Channel = tuple[int, TopicPartition]


class Reference(NamedTuple):
    """The outputs of a run without crashes, from the same decisions."""

    channels: Mapping[Channel, Sequence[Record]]
    told: Mapping[Channel, Sequence[Advance]]
    outside: Mapping[Channel, Sequence[bytes]]

    def check_streams(self, made: Mapping[Channel, Made], *, drained: bool = False) -> None:
        """Check the records and the watermarks of each channel; ``drained``: all of them. Raises Violation."""
        for key, each in made.items():
            _check_prefix(f"stream {key}", each.records, self.channels.get(key, []), whole=drained)
        for key, advances in self.told.items():
            found = [advance for _, advance in sorted(made[key].told.items())]
            if not made[key].cut:
                _check_prefix(f"watermarks {key}", found, advances)
                upto = made[key].advanced
                left = [advance for advance in advances[len(found) :] if advance.t <= upto]
                if left:
                    raise Violation("event time", f"stream {key}: advanced to {upto} without {left[0]}")
            elif not set(found) <= set(advances):
                raise Violation("event time", f"stream {key}: {set(found) - set(advances)} are not in the reference")

    def check_outside(self, outside: Mapping[Channel, Sequence[bytes]], *, drained: bool = False) -> None:
        """Check what has left the job; ``drained``: to topics, all of it. Raises Violation."""
        for key, values in outside.items():
            whole = drained and key[1] != FILES
            _check_prefix(f"outside {key}", values, self.outside.get(key, []), whole=whole)

    def check_frontiers(self, history: TaskHistory, made: Mapping[Channel, Made]) -> None:
        """Check that the last commit holds all records up to its logical time: the reference has no others."""
        commit = history.commit
        for i in () if commit is None else commit.inputs:
            for c in i.channels:
                key = c.producer, TopicPartition(i.topic, i.partition)
                if key in made:
                    _check_frontier(history, c.seq, key, self.channels.get(key, ()))


def _check_frontier(history: TaskHistory, seq: int, key: Channel, records: Sequence[Record]) -> None:
    assert history.commit is not None and history.commit.deterministic is not None
    frontiers = {
        (f.producer, TopicPartition(f.topic, f.partition)): f.t for f in history.commit.deterministic.frontiers
    }
    left = [record for record in records[seq:] if record[0] <= frontiers[key]]
    if left:
        raise Violation("frontier", f"{history.wiring.name}: has all of {key} up to {frontiers[key]}, not {left[0]}")


def _check_prefix(name: str, found: Sequence[object], expected: Sequence[object], *, whole: bool = False) -> None:
    for index, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            raise Violation("prefix", f"{name}: record {index + 1} is {one!r}, the reference has {other!r}")
    if len(found) > len(expected):
        raise Violation("prefix", f"{name}: {found[len(expected)]!r} is not in the reference")
    if whole and len(found) < len(expected):
        raise Violation("drained", f"{name}: {expected[len(found)]!r} is in the reference alone")
