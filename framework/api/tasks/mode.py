"""The two ways to exactly once: aligned checkpoints, or deterministic (docs/explanation/deterministic.md)."""

from typing import Literal

Mode = Literal["aligned", "deterministic"]
MODES: tuple[Mode, ...] = ("aligned", "deterministic")
