"""The bounds that the core holds; each is a setting (framework.settings gives units, defaults and reasons)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What of the settings the core needs."""

    interval_ms: int
    early_memory_bytes_max: int
    early_bytes_max: int
    layer_bytes_max: int
    history_ms: int
    label_ahead_ms: int
    heartbeat_ms: int = 5
    lease_ms: int = 200
