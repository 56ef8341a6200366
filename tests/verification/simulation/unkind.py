"""Unkind worlds: logs, sinks and inputs behave as users' do, without being at fault. Plain data."""

import random
from dataclasses import dataclass, replace

import msgspec

from grete.settings import Settings

SHOWN_MS_MAX = 20_000  # a log shows what it has acknowledged by then: a task waits a minute for it
STRANGER_MS_MAX = 60_000  # a transaction of somebody else's is open for: a broker aborts one after a minute
HELD_MS = 1_800_000  # where checkpoints are minutes apart: of a producer that asked its broker for so long
MINUTES, MINUTES_MS = 0.1, 300_000  # share of the worlds whose checkpoints are minutes apart, and how far


@dataclass(frozen=True, slots=True)
class Unkind:
    """The default is a kind world. The draws are its own, so that all else stays as the seed says."""

    transactions: bool = False  # sinks write their changelogs in transactions (S1): some offsets hold no message
    timeout_ms: int = 0  # of a transaction: the broker aborts one that is open for longer
    renews: bool = False  # who is refused for a rival that has not claimed may take a new epoch (C4)
    late: float = 0.0  # share of the transactions that are acknowledged before they can be read
    late_ms: int = 0  # after which they can be, at most
    holes: float = 0.0  # share of the rows of external inputs with offsets before them that hold no message
    sink_ms: int = 0  # that a step of a sink of files may take
    reads_ahead: bool = False  # clients fetch more than they are asked for
    trim_ms: int = 0  # that a trim may take
    lag: float = 0.0  # share of the messages of streams and changelogs that are not shown to readers at once
    lag_ms: int = 0  # for which they are not, though the bounds say that they are there
    fetch_ms: int = 0  # that a client may need until it has what was sought
    strangers: float = 0.0  # share of the rows of external inputs that come within a transaction, which stays open
    stranger_ms: int = 0  # for which it does, at most: no reader sees what comes behind it meanwhile


KIND = Unkind()
FOR_EVER_MS = 1 << 40  # 34 years: within the bound of a setting


def draw_unkind(seed: int, world: str, interval_ms: int, *, compare_and_append: bool) -> Unkind:
    """Return the unkindness of a seed's world."""
    r = random.Random(f"unkind {world} {seed}")
    unkind = Unkind(
        transactions=not compare_and_append and r.random() < 0.6,
        timeout_ms=r.choice((1, 2, 6)) * interval_ms,
        renews=True,
        late=r.choice((0.0, 0.3, 0.8)),
        holes=r.choice((0.0, 0.0, 0.1, 0.5)),
        sink_ms=r.choice((0, 1, 3)) * interval_ms,
        reads_ahead=r.random() < 0.5,
        trim_ms=r.choice((0, 1, 8)) * interval_ms,
        lag=r.choice((0.0, 0.0, 0.1, 0.4)),
        lag_ms=min(r.choice((1, 3)) * interval_ms, SHOWN_MS_MAX),
        fetch_ms=r.choice((0, 0, 5, 40)),
    )
    return replace(unkind, late_ms=min(unkind.timeout_ms, SHOWN_MS_MAX))


def minutes_apart(seed: int, settings: Settings) -> Settings:
    """Return the settings of some worlds with all that goes by the interval of checkpoints so much longer."""
    if random.Random(f"minutes {seed}").random() >= MINUTES:
        return settings
    times = MINUTES_MS // settings.checkpoint_interval_ms
    names = ("checkpoint_interval_ms", "send_timeout_ms", "changelog_retention_ms")
    return msgspec.structs.replace(
        settings, **{name: min(FOR_EVER_MS, getattr(settings, name) * times) for name in names}
    )
