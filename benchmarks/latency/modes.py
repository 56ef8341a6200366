"""The modes that are compared, each with the settings that make it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from grete.settings import Settings, with_texts

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Mode:
    """One row of the tables. ``repeats``, ``loses``: what its outputs may do after a kill."""

    name: str
    fixed: Mapping[str, str] = field(default_factory=dict)  # settings
    repeats: bool = False
    checkpoints: bool = True  # else the interval means nothing
    loses: bool = False

    def settings(self, checkpoint_interval_ms: int) -> Settings:
        """Return the settings of the job's workers."""
        return with_texts(Settings(), {"checkpoint_interval_ms": str(checkpoint_interval_ms), **self.fixed})


AT_LEAST_ONCE = {"processing_guarantee": "at-least-once"}

# No guarantee, the paper's baseline: state is kept in memory and never saved, so a crash loses it.
MODES = {
    mode.name: mode
    for mode in (
        Mode(
            "no guarantee",
            {"processing_guarantee": "at-least-once", "checkpoint_interval_ms": str(HOUR_MS)},
            True,
            False,
        ),
        Mode("at-least-once", AT_LEAST_ONCE, True),
        Mode("exactly-once"),
        Mode("deterministic"),
        Mode("deterministic, sequenced", {"output_delivery": "sequenced"}),
    )
}
