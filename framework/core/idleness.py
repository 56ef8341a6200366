"""Which checkpoints a task leaves out: nothing is new since the last one, and no task awaits its markers (A1, A6)."""


class Idleness:
    """Whether a task has nothing to commit. It commits all the same once an idle interval, at its multiples.

    So the tasks of a job that is idle have checkpoints in common, as ids are times in ms.
    """

    def __init__(self, checkpoint_interval_ms: int, idle_interval_ms: int, *, awaited: bool) -> None:
        """``awaited``: a task waits for the markers of this one, so each checkpoint is closed."""
        self.news = True  # something has happened since the last freeze, or this process has not committed yet
        self.covered = 0  # the last commit has all up to this checkpoint, though its own id may be lower
        self._interval_ms = 0 if awaited or idle_interval_ms <= checkpoint_interval_ms else idle_interval_ms

    def closed(self, frozen: int) -> int:
        """Return the checkpoint that was closed or left out last; ``frozen``: the one that was closed last."""
        return max(frozen, self.covered)

    def leave_out(self, frozen: int, checkpoint_id: int) -> bool:
        """Leave out a checkpoint that would hold what ``frozen`` holds; return False if it is to be closed."""
        interval_ms = self._interval_ms
        if self.news or not interval_ms or checkpoint_id // interval_ms > frozen // interval_ms:
            return False
        self.covered = max(self.covered, checkpoint_id)
        return True
