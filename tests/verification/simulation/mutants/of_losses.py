"""Mistakes that show only where a log loses what it has acknowledged: what is missing is overlooked (decision 0011)."""

from typing import Any

from grete.core.deterministic.merge import Merge
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan

_truncated = full_of("truncated stream", "crash", "truncated stream", damaged=True)


def _streams(plan: Plan) -> bool:
    return bool(plan.topology.streams)


@mutant(Merge, "progress", "frontier", "seq", "time", shows=_streams, focus=_truncated, world="deterministic")
def gap_before_progress(progress: Any) -> Any:
    """A progress message counts, though a record before it is missing (D1, D3)."""

    def mistaken(self: Merge, partition: TopicPartition, offset: int, message: Any) -> None:
        header = message.header
        channel = self._channel(header, partition, offset)
        known = message._replace(header=header._replace(seq=min(header.seq, channel.received + 1)))
        progress(self, partition, offset, known)

    return mistaken


@mutant(Merge, "frame", "seq", "digest", "frontier", shows=_streams, focus=_truncated, world="deterministic")
def lost_record_overlooked(frame: Any) -> Any:
    """A frame is taken, though a record before it is missing (D3)."""

    def mistaken(self: Merge, partition: TopicPartition, offset: int, header: Any, value: bytes) -> None:
        channel = self._channel(header, partition, offset)
        if channel.skip_offset is None:
            channel.received = max(channel.received, header.seq - 1)
        frame(self, partition, offset, header, value)

    return mistaken
