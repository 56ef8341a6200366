"""How a stage gets exactly once: by aligned checkpoints, or by being deterministic (docs/DETERMINISTIC.md)."""

from typing import Literal

Mode = Literal["aligned", "deterministic"]
MODES: tuple[Mode, ...] = ("aligned", "deterministic")
