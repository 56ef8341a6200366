"""Decides which checkpoints a task leaves out, or puts off, because nothing is new since its last one (A1, A6)."""

GROWTH_MAX = 5  # doublings: 32 idle intervals,
REST_MS_MAX = 320_000  # but no more than this, unless a single one is longer


def longest_interval_ms(idle_interval_ms: int) -> int:
    """Return to what the idle interval grows while a rest lasts."""
    doublings = (max(REST_MS_MAX, idle_interval_ms) // max(1, idle_interval_ms)).bit_length() - 1
    return idle_interval_ms << min(doublings, GROWTH_MAX)


class Idleness:
    """Whether a task has nothing to commit. It commits all the same once an idle interval, at its multiples.

    So the tasks of a job that is idle have checkpoints in common, as ids are times in ms; also where the interval
    doubles while the rest lasts. A source whose markers others await puts checkpoints off as long as it is sure to be
    told of one that others close: then it closes that.
    """

    def __init__(self, checkpoint_interval_ms: int, idle_interval_ms: int, *, awaited: bool, grows: bool) -> None:
        """``awaited``: others wait for the markers of this one. ``grows``: the idle interval does in a long rest.

        Not where streams hold more than markers meanwhile: a successor reads what came since the last commit.
        """
        self.news = True  # something has happened since the last freeze, or this process has not committed yet
        self.covered = 0  # the last commit has all up to this checkpoint, though its own id may be lower
        self.observed = 0  # the greatest checkpoint that others have closed, as far as is known here
        self._awaited = awaited
        self._sees_next = False  # it will be told of the next one
        self._put_off = 0  # up to which checkpoint all are put off
        self._longest_ms = longest_interval_ms(idle_interval_ms) if grows else idle_interval_ms
        self._rests_since = 0  # the last checkpoint that had something new, or the first one
        self._interval_ms = 0 if idle_interval_ms <= checkpoint_interval_ms else idle_interval_ms

    def froze(self, checkpoint_id: int) -> None:
        """Note that all that was new is in this checkpoint."""
        if self.news or self._rests_since == 0:  # the genesis is no time
            self._rests_since = checkpoint_id
        self.news = False

    def closed(self, frozen: int) -> int:
        """Return the checkpoint that was closed or left out last; ``frozen``: the one that was closed last."""
        return max(frozen, self.covered)

    def passed(self, frozen: int) -> int:
        """Return the last checkpoint that is closed, left out or put off: the timer is due behind it."""
        closed = self.closed(frozen)  # told of more, ahead of its own clock, it closes that once the clock is there
        waits = self._sees_next and not self.news and self.observed <= closed
        return max(closed, self._put_off) if waits else closed

    def observe(self, checkpoint_id: int, *, sees_next: bool) -> None:
        """Note what others have closed, and whether this task will be told of more."""
        self.observed, self._sees_next = max(self.observed, checkpoint_id), sees_next

    def leave_out(self, frozen: int, checkpoint_id: int) -> bool:
        """Leave out a checkpoint that would hold what ``frozen`` holds; return False if it is to be closed."""
        if self._awaited or self.news or self._interval_ms == 0:
            return False
        interval_ms = self._idle_interval_ms(frozen)
        if checkpoint_id // interval_ms > frozen // interval_ms:
            return False
        assert checkpoint_id > frozen, (checkpoint_id, frozen)
        self.covered = max(self.covered, checkpoint_id)
        return True

    def put_off(self, frozen: int, checkpoint_id: int) -> int | None:
        """Put off such a checkpoint, which others await, and those behind it; return which to close otherwise."""
        if not (self._awaited and self._sees_next) or self.news or self._interval_ms == 0:
            return checkpoint_id
        interval_ms = self._idle_interval_ms(frozen)
        multiple = checkpoint_id // interval_ms * interval_ms  # all close that, however late they come
        if multiple > frozen:
            return multiple
        self._put_off = (frozen // interval_ms + 1) * interval_ms - 1
        return None

    def _idle_interval_ms(self, frozen: int) -> int:
        """Return the interval behind ``frozen``: about as long as the rest had been by then, up to a bound."""
        rested = max(0, frozen - self._rests_since) // self._interval_ms
        return min(self._interval_ms << min(rested.bit_length(), GROWTH_MAX), self._longest_ms)
