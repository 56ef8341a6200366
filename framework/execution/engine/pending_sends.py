"""The messages that a task has sent and that the log has not acknowledged yet (A7, B1)."""

from grete.errors import LogAway

CHANGELOG = -1  # token of the claim or commit that is on its way
PRODUCED = -3  # token of the first batch of plain records of a sink in at-least-once mode; of others, one less each


class PendingSends:
    """Sends by token, in order. Its mark is the token up to which *every* send is known to have been delivered."""

    def __init__(self, name: str, send_timeout_ms: int) -> None:
        self.name = name
        self.send_timeout_ms = send_timeout_ms
        self.bytes = 0
        self.ahead_ms: int | None = None  # of the machine's clock before the log's, at least; None: not known yet
        self._pending: dict[int, tuple[int, float]] = {}  # token -> (size, time of the send)
        self._others: list[tuple[int, int, float]] = []  # (token below 0, size, time of the send)
        self._last, self._last_produced = 0, PRODUCED + 1

    def sent(self, token: int, size: int, mono_ms: float) -> None:
        """Note a send; tokens grow."""
        assert token > self._last
        self._pending[token] = (size, mono_ms)
        self._last = token
        self.bytes += size

    def sent_other(self, token: int, mono_ms: float, size: int = 0) -> None:
        """Note a send that the mark does not count: a claim, a commit, plain records. Its token is below 0."""
        assert token < 0, token
        self._others.append((token, size, mono_ms))
        self.bytes += size

    def produced(self, size: int, mono_ms: float) -> int:
        """Note a batch of plain records; return its token. One partition may answer long before another."""
        self._last_produced -= 1
        self.sent_other(self._last_produced, mono_ms, size)
        return self._last_produced

    def delivered(self, token: int) -> bool:
        """Note a delivery; they may arrive in any order. Return whether the mark has risen."""
        if token < 0:
            found = next(other for other in self._others if other[0] == token)
            self._others.remove(found)
            self.bytes -= found[1]
            return False
        is_oldest = token == next(iter(self._pending))
        size, _ = self._pending.pop(token)
        self.bytes -= size
        assert self.bytes >= 0, f"{self.name}: more bytes are delivered than were sent: {self.bytes}"
        return is_oldest

    def appended(self, append_time_ms: int, mono_ms: float, wall_ms: int) -> None:
        """Note that the claim or commit is in the log: appended behind its send, and before now.

        So no delay of the log looks like a clock that is wrong.
        """
        sent_ms = next(since for token, _, since in self._others if token == CHANGELOG)
        self.delivered(CHANGELOG)
        most = wall_ms - append_time_ms
        self.ahead_ms = round(max(most - (mono_ms - sent_ms), min(0, most)))

    def answered(self, token: int) -> None:
        """Note a delivery for a task that has ended: it may have been noted before."""
        if token in self._pending or any(other[0] == token for other in self._others):
            self.delivered(token)

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two turns of a task."""
        others = [token for token, *_ in self._others]
        size = sum(size for size, _ in self._pending.values()) + sum(size for _, size, _ in self._others)
        assert self.bytes == size, f"{self.name}: {self.bytes} bytes are said to be on their way, and {size} are"
        assert others.count(CHANGELOG) <= 1, f"{self.name}: two claims or commits are on their way at a time"
        assert list(self._pending) == sorted(self._pending), f"{self.name}: sends out of the order of their tokens"
        assert max(self._pending, default=0) <= self._last, f"{self.name}: a send beyond token {self._last}"

    @property
    def empty(self) -> bool:
        """Whether the log has answered all sends."""
        return not (self._pending or self._others)

    @property
    def awaited(self) -> bool:
        """Whether a send is pending that the mark does not count."""
        return bool(self._others)

    @property
    def awaits_plain(self) -> bool:
        """Whether a batch of plain records is pending."""
        return any(token <= PRODUCED for token, *_ in self._others)

    @property
    def delivered_up_to(self) -> int:
        """Return the greatest token with nothing pending at or below it."""
        return next(iter(self._pending)) - 1 if self._pending else self._last

    def check(self, mono_ms: float) -> None:
        """Raise LogAway if the oldest send has waited too long (B1); the next claim decides what it was (C4)."""
        limit = self.send_timeout_ms
        if self._pending:
            token, (size, since) = next(iter(self._pending.items()))
            if mono_ms - since > limit:
                raise self._late(f"send {token} of {size} bytes", mono_ms - since)
        if self._others and mono_ms - self._others[0][2] > limit:
            token, size, since = self._others[0]
            what = f"a batch of plain records ({size} bytes)" if token <= PRODUCED else "a claim or commit"
            raise self._late(what, mono_ms - since)

    def _late(self, what: str, waited_ms: float) -> LogAway:
        return LogAway(
            f"{self.name}: {what} is unacknowledged for {waited_ms / 1000:.0f} s "
            f"(setting send_timeout_ms = {self.send_timeout_ms}): is the log up?",
            task=self.name,
            setting="send_timeout_ms",
        )
