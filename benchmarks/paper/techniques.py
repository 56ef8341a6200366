"""Each technique of the paper with the settings that make it, and the guarantee that it gives; the peers beside it."""

from collections.abc import Mapping

from benchmarks.latency.modes import MODES, Mode
from benchmarks.peers.tools import PEERS, TOOLS

AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE, NONE = "at most once", "at least once", "exactly once", "none"
STRONG_MS = 1  # a checkpoint about every batch
MICRO_BATCHES, STRONG = "micro-batches", "strong productions"  # benchmarks.paper.batches, and productions

_ADDED = (
    Mode("at-most-once", {"processing_guarantee": "none"}, loses=True),
    Mode(STRONG, {"checkpoint_interval_ms": str(STRONG_MS)}),
    Mode(MICRO_BATCHES),
)
TECHNIQUES: Mapping[str, Mode] = MODES | {mode.name: mode for mode in _ADDED}
PEER_TOOLS = tuple(TOOLS[name] for name in ("Flink", "Kafka Streams"))  # the paper's own, and that of Kafka
PEER_MODES = tuple(name for name, peer in PEERS.items() if peer.tool in PEER_TOOLS)
GUARANTEES = {
    "no guarantee": NONE,
    "at-most-once": AT_MOST_ONCE,
    "at-least-once": AT_LEAST_ONCE,
    STRONG: EXACTLY_ONCE,
    MICRO_BATCHES: EXACTLY_ONCE,
    "exactly-once": EXACTLY_ONCE,
    "deterministic": EXACTLY_ONCE,
    "deterministic, sequenced": EXACTLY_ONCE,
} | {mode: PEERS[mode].guarantee.replace("-", " ") for mode in PEER_MODES}
SHOWN = {"exactly-once": "aligned", "deterministic": "deterministic, transactional"}  # where a name says too little
BASE = "at-least-once"  # what a guarantee's overhead is over


def shown(mode: str) -> str:
    """Return the name of a technique in tables and pictures."""
    return SHOWN.get(mode, mode)


def base_of(mode: str) -> str:
    """Return the technique over which the overhead of another one is: that of the same system."""
    return f"{PEERS[mode].tool.name}, {BASE}" if mode in PEERS else BASE
