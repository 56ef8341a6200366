"""The messages that a task has sent and that the log has not acknowledged yet (A7, B1)."""

from framework.errors import LogAway

CHANGELOG = -1  # token of the claim or commit that is on its way
PRODUCED = -3  # token of plain records of a sink in at-least-once mode
_OTHERS = {CHANGELOG: "a claim or commit", PRODUCED: "a batch of plain records"}


class PendingSends:
    """Sends by token, in order. Its mark is the token up to which *every* send is known to have been delivered."""

    def __init__(self, name: str, send_timeout_ms: int) -> None:
        self.name = name
        self.send_timeout_ms = send_timeout_ms
        self.bytes = 0
        self._pending: dict[int, tuple[int, float]] = {}  # token -> (size, time of the send)
        self._others: list[tuple[int, float]] = []  # (token below 0, shared by sends of one kind; time of the send)
        self._last = 0

    def sent(self, token: int, size: int, mono_ms: float) -> None:
        """Note a send; tokens grow."""
        assert token > self._last
        self._pending[token] = (size, mono_ms)
        self._last = token
        self.bytes += size

    def sent_other(self, token: int, mono_ms: float) -> None:
        """Note a send that the mark does not count: a claim, a commit, plain records. Its token is below 0."""
        self._others.append((token, mono_ms))

    def delivered(self, token: int) -> bool:
        """Note a delivery; they may arrive in any order. Return whether the mark has risen."""
        if token < 0:
            self._others.remove(next(other for other in self._others if other[0] == token))
            return False
        is_oldest = token == next(iter(self._pending))
        size, _ = self._pending.pop(token)
        self.bytes -= size
        return is_oldest

    @property
    def awaited(self) -> bool:
        """Whether a send is pending that the mark does not count."""
        return bool(self._others)

    def waits_for(self, token: int) -> bool:
        """Tell whether a send with this token, below 0, is pending."""
        return any(other == token for other, _ in self._others)

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
        if self._others and mono_ms - self._others[0][1] > limit:
            raise self._late(_OTHERS[self._others[0][0]], mono_ms - self._others[0][1])

    def _late(self, what: str, waited_ms: float) -> LogAway:
        return LogAway(
            f"{self.name}: {what} is unacknowledged for {waited_ms / 1000:.0f} s "
            f"(setting send_timeout_ms = {self.send_timeout_ms}): is the log up?",
            task=self.name,
            setting="send_timeout_ms",
        )
