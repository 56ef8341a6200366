"""The clock of a deterministic source: which logical time each record gets (D1, D2)."""

from grete.core.deterministic.logical_watermarks import NEVER
from grete.core.limits import IDLE_AFTER_US, IDLE_AHEAD, IDLE_INTERVALS, PROMPTED_INTERVALS


class LogicalClock:
    """Gives each record of a deterministic source its time, in µs, once (D2).

    It follows the log's clock, forward only, however that jumps. ``floor``: no later record gets a time at or below it.
    Progress messages go up to the time lease: a successor starts above that. An idle source emits progress messages
    less often and further ahead, because no task waits for it. A source that is told which times its neighbours have
    observed advances to those at once, and emits hardly any others.
    """

    def __init__(self, progress_interval_ms: int, time_lease_ms: int) -> None:
        self.floor = 0
        self.lease = 0  # logged, and known to be valid
        self.lease_sent = 0  # logged or on its way
        self.timer = NEVER  # when a wall-clock timer of the task fires, if time passes by then
        self.interval_us, self._lease_us = progress_interval_ms * 1000, time_lease_ms * 1000
        self._ahead_us: int | None = None  # of the monotonic clock
        self._emitted_us = 0  # the time of the last progress message
        self._given_us = 0  # the time of the last record
        self._wanted = 0  # the last time that another task has observed, so that all sources must pass it
        self._observed_us = 0  # when it was told so

    def anchor(self, append_time_ms: int, mono_us: int) -> None:
        """Take the append time of an own message as the present, unless that would mean to go back."""
        ahead = append_time_ms * 1000 - mono_us
        self._ahead_us = ahead if self._ahead_us is None else max(self._ahead_us, ahead)

    def now(self, mono_us: int) -> int:
        """Return the log's time in µs."""
        return mono_us + (self._ahead_us or 0)

    def start(self, last_t: int, lease: int) -> None:
        """Go on after the times that a predecessor has given or announced."""
        self.floor, self.lease, self.lease_sent = max(self.floor, last_t, lease), lease, lease

    def give(self, records: int, mono_us: int) -> int:
        """Return the time of the first of ``count`` records; each of the others is 1 µs after the one before."""
        self._given_us = self._emitted_us = self.now(mono_us)
        first = max(self.floor + 1, self._given_us)
        self.floor = first + records - 1
        return first

    def observe(self, t: int, mono_us: int) -> None:
        """Note that records up to ``t`` wait in some task until this source has passed them; 0: none was observed."""
        if t:
            self._wanted, self._observed_us = max(self._wanted, t), self.now(mono_us)

    def advance(self, mono_us: int) -> int:
        """Return the time up to which no record will come any more: never past the time lease.

        It is the time that another task waits for, and no more: else sources that observe each other would advance
        each other for ever. Without such a time it is now, or a bit later if the source is idle.
        """
        t = self._wanted
        if t <= self.floor:
            t = self.now(mono_us)
            if self._idle(mono_us) and not self._prompted(mono_us):
                t += IDLE_AHEAD * self.interval_us
        self.floor = max(self.floor, min(t, self.lease))
        return self.floor

    def next_lease(self, mono_us: int) -> int | None:
        """Return the end of a new time lease, once half of the last one is used; None: there is enough."""
        now = self.now(mono_us)
        if now + self._lease_us // 2 <= self.lease_sent:
            return None
        assert self.lease <= self.lease_sent < now + self._lease_us, (self.lease, self.lease_sent, now)
        self.lease_sent = now + self._lease_us
        return self.lease_sent

    def emit_due(self, mono_us: int) -> bool:
        """Tell whether a progress message is due, and note it.

        Without a request, all sources emit at the same times of the log's clock.
        """
        due = self.next_emit_ms(mono_us) <= 0
        if due:
            self._emitted_us = self.now(mono_us)
        return due

    def next_emit_ms(self, mono_us: int) -> float:
        """Return in how many ms a progress message is due."""
        if self.floor < min(self._wanted, self.lease) or self.floor < self.timer <= min(self.now(mono_us), self.lease):
            return 0
        if self._prompted(mono_us):
            due = self._emitted_us + PROMPTED_INTERVALS * self.interval_us
        else:
            interval = self.interval_us * (IDLE_INTERVALS if self._idle(mono_us) else 1)
            due = (self._emitted_us // interval + 1) * interval
        return max(0, (due if self.timer_is_due(mono_us) else min(due, self.timer)) - self.now(mono_us)) / 1000

    def timer_is_due(self, mono_us: int) -> bool:
        """Tell whether the log's time has reached the timer, so that logical time must pass it."""
        return self.timer <= self.now(mono_us)

    def timer_in_ms(self, mono_us: int) -> float:
        """Return in how many ms the timer is due."""
        return (self.timer - self.now(mono_us)) / 1000

    def _prompted(self, mono_us: int) -> bool:
        return self.now(mono_us) - self._observed_us < IDLE_AFTER_US

    def _idle(self, mono_us: int) -> bool:
        return self.now(mono_us) - self._given_us >= IDLE_AFTER_US
