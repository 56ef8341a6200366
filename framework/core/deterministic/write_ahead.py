"""Sends a part of a large checkpoint's changes before it closes, so that outputs hardly wait for its commit (D5)."""

from collections import Counter

from grete.core.actions import Action, FreezePart
from grete.core.commit_pipeline import CommitPipeline
from grete.core.deterministic.closing import Closing
from grete.core.limits import FREEZE_PART_BYTES_MIN


class WriteAhead:
    """Sends a checkpoint's data in parts, of which only the last one is sent behind its freeze.

    From a freeze on nothing is released before the commit is in the changelog. While a part is sent, inputs are decided
    and outputs leave; what changes meanwhile is the next part. It is smaller, because a key is sent in less time than a
    record takes to change it. Once little is left, or no less than before, the checkpoint is closed.
    """

    def __init__(self, commits: CommitPipeline, closing: Closing, seen: Counter[str]) -> None:
        self.active = False  # a part is frozen, and not sent to its end
        self._commits, self._closing, self._seen = commits, closing, seen
        self._part_bytes = 0  # of the last part; 0: the open checkpoint has none

    @property
    def committing(self) -> bool:
        """Whether a checkpoint is on its way to changelog and store, or a part of the open one is."""
        return self._commits.pending is not None or self.active

    @property
    def has_no_room(self) -> bool:
        """Whether nothing may be processed before all that is on its way is there."""
        return self.committing and self._closing.has_no_room

    def next(self, *, closes: bool) -> list[Action]:
        """Ask for the next slice of a part; begin one if the checkpoint is about to be closed and much is dirty."""
        if self._commits.writing or self._commits.pending is not None:
            return []
        if self.active:
            return [self._commits.next_slice()]
        size = self._closing.open_bytes
        smaller = not self._part_bytes or size <= self._part_bytes // 2
        if not (closes and smaller and size > FREEZE_PART_BYTES_MIN):
            return []
        self._seen["parts sent ahead"] += 1
        self.active, self._part_bytes = True, size
        self._closing.part_frozen()
        return [FreezePart(), self._commits.next_slice()]

    def sent(self, *, more: bool) -> None:
        """A slice of what is frozen was sent; without ``more`` it was the last."""
        self.active = self.active and more

    def closed(self) -> None:
        """The checkpoint is closed: the next one has no part yet."""
        assert not self.active, "a part of the checkpoint is still being sent"
        self._part_bytes = 0
