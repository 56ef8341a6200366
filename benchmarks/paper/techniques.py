"""Each technique of the paper with the settings that make it, and the guarantee that it gives."""

from collections.abc import Mapping

from benchmarks.latency.modes import MODES, Mode

AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE, NONE = "at most once", "at least once", "exactly once", "none"
STRONG_MS = 1  # a checkpoint about every batch
MICRO_BATCHES = "micro-batches"

_ADDED = (
    Mode("at-most-once", {"processing_guarantee": "none"}, loses=True),
    Mode("strong productions", {"checkpoint_interval_ms": str(STRONG_MS)}),
    Mode(MICRO_BATCHES),
)
TECHNIQUES: Mapping[str, Mode] = MODES | {mode.name: mode for mode in _ADDED}
GUARANTEES = {
    "no guarantee": NONE,
    "at-most-once": AT_MOST_ONCE,
    "at-least-once": AT_LEAST_ONCE,
    "strong productions": EXACTLY_ONCE,
    MICRO_BATCHES: EXACTLY_ONCE,
    "exactly-once": EXACTLY_ONCE,
    "deterministic": EXACTLY_ONCE,
    "deterministic, sequenced": EXACTLY_ONCE,
}
SHOWN = {"exactly-once": "aligned", "deterministic": "deterministic, transactional"}  # where a name says too little


def shown(mode: str) -> str:
    """Return the name of a technique in tables and pictures."""
    return SHOWN.get(mode, mode)
