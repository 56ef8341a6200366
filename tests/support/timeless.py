"""A part of test runners."""

from collections.abc import Sequence
from typing import ClassVar

from grete.protocol.ids import TopicPartition


class Timeless:
    """The event-time part of a Runner that keeps none."""

    watermark: tuple[int, bool] | None = None
    dropped: ClassVar[dict[str, int]] = {}
    last_failure = ""
    counts: ClassVar[dict[str, int]] = {"in": 0, "out": 0, "dead letters": 0}
    sent_to: ClassVar[dict[str, int]] = {}
    progress: tuple[int, ...] = ()  # of the user's code, which is not watched here
    at_work: tuple[Sequence[bytes | None], int] | None = None
    in_flight = None  # it makes no calls

    waiting_timers = 0
    wall = None

    def fire_wall(self, now: int) -> None:
        """Do nothing."""

    def input_is_idle(self, partition: TopicPartition, *, ended: bool = False) -> None:
        """Do nothing."""
