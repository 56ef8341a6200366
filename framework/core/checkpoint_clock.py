"""The clocks of a source: when it closes a checkpoint, and which number it gives it (A1); logical time (D1, D2)."""


class CheckpointClock:
    """The log's clock, carried on by the monotonic one from the append time of the own last claim or commit."""

    def __init__(self, checkpoint_interval_ms: int) -> None:
        self.checkpoint_interval_ms = checkpoint_interval_ms
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
        return self.now(mono_ms) // self.checkpoint_interval_ms * self.checkpoint_interval_ms

    def due(self, open_checkpoint: int, mono_ms: int) -> bool:
        """Tell whether the interval of ``open_checkpoint`` has passed."""
        return self.boundary(mono_ms) >= open_checkpoint

    def next_due_ms(self, open_checkpoint: int, mono_ms: int) -> int:
        """Return in how many ms the checkpoint of ``open_checkpoint`` can be closed."""
        now = self.now(mono_ms)
        return max(0, -(-open_checkpoint // self.checkpoint_interval_ms) * self.checkpoint_interval_ms - now)
