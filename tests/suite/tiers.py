"""The tier of a test is the command that runs it: make check, make test or make prove; ``ship`` has no test yet.

A tier has all tests of those before it, but for ``ship``. It follows from what a test needs; ``prove`` and ``ship`` are
written at the test, by a marker of that name, and so is a tier that a test has for another reason.
"""

from collections.abc import Set as AbstractSet
from typing import Literal, get_args

Tier = Literal["check", "test", "prove", "ship"]
TIERS: tuple[Tier, ...] = get_args(Tier)
# Markers. What `make check` does without: a machine for it has no broker, no database, no Java and no browser.
NEEDS = frozenset({"browser", "chaos", "docs", "kafka", "postgres", "spark"})
NEEDS_NOTHING = "`make check` runs the tests that need no broker, Spark, database and browser"
# Fixtures that start a server, and the marker that says so.
SERVERS = {"chromium": "browser", "kafka_broker": "kafka", "secure": "kafka", "postgres": "postgres", "spark": "spark"}


class TierError(Exception):
    """The markers of a test contradict one another, or one is missing; the text says what to write."""


def tier_of(name: str, markers: AbstractSet[str], fixtures: AbstractSet[str] = frozenset()) -> Tier:
    """Return the tier of the test. Raises TierError where it could be one or another."""
    written = [tier for tier in TIERS if tier in markers]
    needs = sorted(NEEDS & markers)
    if len(written) > 1:
        raise TierError(f"{name} has the tiers {' and '.join(written)}: leave one of them")
    if written == ["check"] and needs:
        raise TierError(f"{name} has the marker check, and {', '.join(needs)}, which `make check` does without")
    missing = sorted({SERVERS[each] for each in fixtures & SERVERS.keys()} - markers)
    if missing:
        raise TierError(f"{name} asks for a server of {', '.join(missing)}: mark it so, `make check` leaves it out")
    if written:
        return written[0]
    return "test" if needs else "check"
