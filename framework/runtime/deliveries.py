"""What a task has sent and not yet seen acknowledged (A7, B1)."""

from framework.errors import TransientError


class Deliveries:
    """Sends by token, in order. Its watermark is the token up to which *every* send is known to have been delivered."""

    def __init__(self, name: str, unacked_ms_max: int) -> None:
        self.name = name
        self.unacked_ms_max = unacked_ms_max
        self.bytes = 0
        self._pending: dict[int, tuple[int, float]] = {}  # token -> (size, time of the send)
        self._last = 0

    def sent(self, token: int, size: int, mono_ms: float) -> None:
        """Note a send; tokens grow."""
        assert token > self._last
        self._pending[token] = (size, mono_ms)
        self._last = token
        self.bytes += size

    def delivered(self, token: int) -> None:
        """Note a delivery; they may arrive in any order."""
        size, _ = self._pending.pop(token)
        self.bytes -= size

    @property
    def watermark(self) -> int:
        """Return the greatest token with nothing pending at or below it."""
        return next(iter(self._pending)) - 1 if self._pending else self._last

    def check(self, mono_ms: float) -> None:
        """Raise TransientError if the oldest send has waited too long (B1)."""
        if self._pending:
            token, (size, since) = next(iter(self._pending.items()))
            if mono_ms - since > self.unacked_ms_max:
                raise TransientError(
                    f"{self.name}: send {token} of {size} bytes is unacknowledged for {(mono_ms - since) / 1000:.0f} s "
                    f"(setting unacked_ms_max = {self.unacked_ms_max}): is the log up?"
                )
