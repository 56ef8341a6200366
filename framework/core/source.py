"""The clocks of a source: when it closes a version, and which number it gives it (A1); logical time (D1, D2)."""


class VersionClock:
    """The log's clock, carried on by the monotonic one from the append time of the own last claim or commit."""

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self._log_ms = 0
        self._mono_ms = 0

    def anchor(self, append_time_ms: int, mono_ms: int) -> None:
        """Take the append time of an own message as the present; the host's wall clock plays no part."""
        self._log_ms, self._mono_ms = append_time_ms, mono_ms

    def now(self, mono_ms: int) -> int:
        """Return the log's time in ms."""
        return self._log_ms + (mono_ms - self._mono_ms)

    def boundary(self, mono_ms: int) -> int:
        """Return now, rounded down to the interval."""
        return self.now(mono_ms) // self.interval_ms * self.interval_ms

    def due(self, label: int, mono_ms: int) -> bool:
        """Tell whether the interval of ``label`` has passed."""
        return self.boundary(mono_ms) >= label

    def next_due_ms(self, label: int, mono_ms: int) -> int:
        """Return in how many ms the version of ``label`` can be closed."""
        now = self.now(mono_ms)
        return max(0, -(-label // self.interval_ms) * self.interval_ms - now)


CALM_US = 1_000_000  # without a record for so long, a source beats less often:
CALM_BEATS, CALM_AHEAD = 4, 5  # each so many intervals, and promises so many: the next heartbeat comes in time


class LogicalClock:
    """Gives each record of a deterministic source its time, in µs, once (D2).

    It follows the log's clock, forward only, however that jumps. ``floor``: all up to it is given or promised not to be
    given any more, so the next record lies above it. Heartbeats go up to the lease: a successor starts above that.
    A source that has been calm for a while beats less often, and promises ahead: nobody waits for it all the same.
    """

    def __init__(self, heartbeat_ms: int, lease_ms: int) -> None:
        self.floor = 0
        self.lease = 0  # logged, and known to be valid
        self.lease_sent = 0  # logged or on its way
        self._heartbeat_us, self._lease_us = heartbeat_ms * 1000, lease_ms * 1000
        self._ahead_us: int | None = None  # of the monotonic clock
        self._beat_us = 0  # the time of the last heartbeat
        self._given_us = 0  # the time of the last record

    def anchor(self, append_time_ms: int, mono_us: int) -> None:
        """Take the append time of an own message as the present, unless that would mean to go back."""
        ahead = append_time_ms * 1000 - mono_us
        self._ahead_us = ahead if self._ahead_us is None else max(self._ahead_us, ahead)

    def now(self, mono_us: int) -> int:
        """Return the log's time in µs."""
        return mono_us + (self._ahead_us or 0)

    def start(self, last_t: int, lease: int) -> None:
        """Go on after what a predecessor has given or promised."""
        self.floor, self.lease, self.lease_sent = max(self.floor, last_t, lease), lease, lease

    def give(self, records: int, mono_us: int) -> int:
        """Return the time of the first of so many records; each of the others is 1 µs after the one before."""
        self._given_us = self.now(mono_us)
        first = max(self.floor + 1, self._given_us)
        self.floor = first + records - 1
        return first

    def promise(self, mono_us: int) -> int:
        """Return up to when nothing will be given any more: now or, if calm, a bit later; never past the lease."""
        ahead = CALM_AHEAD * self._heartbeat_us if self._calm(mono_us) else 0
        self.floor = max(self.floor, min(self.now(mono_us) + ahead, self.lease))
        return self.floor

    def next_lease(self, mono_us: int) -> int | None:
        """Return the end of a new lease, once half of the last one is used; None: there is enough."""
        now = self.now(mono_us)
        if now + self._lease_us // 2 <= self.lease_sent:
            return None
        self.lease_sent = now + self._lease_us
        return self.lease_sent

    def beat(self, mono_us: int) -> bool:
        """Tell whether a heartbeat is due, and note it. All sources beat at the same times of the log's clock."""
        due = self.next_beat_ms(mono_us) <= 0
        if due:
            self._beat_us = self.now(mono_us)
        return due

    def next_beat_ms(self, mono_us: int) -> float:
        """Return in how many ms a heartbeat is due."""
        interval = self._heartbeat_us * (CALM_BEATS if self._calm(mono_us) else 1)
        return max(0, (self._beat_us // interval + 1) * interval - self.now(mono_us)) / 1000

    def _calm(self, mono_us: int) -> bool:
        return self.now(mono_us) - self._given_us >= CALM_US
