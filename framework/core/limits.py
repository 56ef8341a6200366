"""The bounds that the core holds; each is a setting (framework.settings gives units, defaults and reasons)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that the core needs."""

    checkpoint_interval_ms: int
    early_memory_bytes_max: int
    early_bytes_max: int
    uncommitted_state_bytes_max: int
    changelog_retention_ms: int
    checkpoint_ahead_ms: int
    progress_interval_ms: int = 5
    time_lease_ms: int = 200
