"""Totals over all channels of an alignment, updated with each message (A5, A6)."""

from collections.abc import Mapping

from grete.core.aligned.channel import Channel, SkippedRecord
from grete.protocol.control import Marker
from grete.protocol.ids import TopicPartition


class ChannelTotals:
    """The least marker of all channels, whether all have ended, and whether one skips. A task has many channels.

    It counts the channels whose marker is the least one, and looks at all of them when none is left. Ids are multiples
    of the interval, so that is once a checkpoint, not once a marker.
    """

    def __init__(self, channels: Mapping[tuple[int, TopicPartition], Channel]) -> None:
        """``channels`` may change; when anything but a method of this class has changed one, ``forget`` is called."""
        self.greatest_marker = 0  # of all that have come
        self._channels = channels
        self.forget()

    def forget(self) -> None:
        """Look at all channels again."""
        self._least = self._at_least = 0  # the least marker, and how many channels have it; 0: look at all of them
        self._open = sum(not channel.ended for channel in self._channels.values())
        self._skipping = sum(channel.skipped is not None for channel in self._channels.values())

    def proves(self, channel: Channel, checkpoint_id: int, offset: int, frozen: int) -> None:
        """Note that all records of a channel up to ``checkpoint_id`` are before ``offset``."""
        before = channel.marker
        channel.proves(checkpoint_id, offset, frozen)
        if self._at_least and before == self._least < channel.marker:
            self._at_least -= 1

    def ends(self, channel: Channel, marker: Marker, offset: int) -> None:
        """Note whether a producer's inputs have ended, or it stops, as its marker says. To be called before ``proves``.

        One that stops says its last marker again (R6).
        """
        header, at_end = marker.header, marker.at_end
        self.greatest_marker = max(self.greatest_marker, header.checkpoint_id)
        if header.checkpoint_id >= channel.marker:  # an older one comes late from a process that was frozen
            self._open += channel.ended - at_end
            channel.ended = at_end
            channel.says(header.generation, header.checkpoint_id, offset)

    def skips(self, channel: Channel, checkpoint_id: int, offset: int) -> None:
        """Note the first record that is skipped (A5)."""
        assert channel.skipped is None, channel  # the first one counts
        channel.skipped = SkippedRecord(checkpoint_id, offset)
        self._skipping += 1

    def skips_no_more(self, channel: Channel) -> None:
        """Note that all that was skipped is rolled back."""
        assert channel.skipped is not None, channel
        channel.skipped = None
        self._skipping -= 1

    @property
    def least_marker(self) -> int:
        """The least marker."""
        if not self._at_least:
            markers = [channel.marker for channel in self._channels.values()]
            self._least = min(markers)
            self._at_least = markers.count(self._least)
        return self._least

    def awaits_others(self, channel: Channel) -> bool:
        """Whether the least marker stays as it is, whatever a marker of this channel proves."""
        return self._at_least > (channel.marker == self._least)

    @property
    def all_ended(self) -> bool:
        """Whether the inputs of all producers have ended."""
        return not self._open

    @property
    def skipping(self) -> bool:
        """Whether a record was skipped since the last commit."""
        return self._skipping > 0

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two steps of a task."""
        markers, still_open, skipping = [], 0, 0
        for channel in self._channels.values():
            markers.append(channel.marker)
            still_open += not channel.ended
            skipping += channel.skipped is not None
        assert not self._at_least or (self._least, self._at_least) == (min(markers), markers.count(self._least)), (
            markers
        )
        assert self._open == still_open, self._open
        assert self._skipping == skipping, self._skipping
