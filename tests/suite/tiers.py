"""The tier of a test is the command that runs it: make check, make test, make prove or make ship.

A tier has all tests of those before it, but for ``ship``. It follows from what a test needs, and from what it took at
the last run that was kept; ``prove`` and ``ship`` are written at the test, by a marker of that name, and so is a tier
that a test has for another reason.
"""

import csv
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Literal, get_args

Tier = Literal["check", "test", "prove", "ship"]
TIERS: tuple[Tier, ...] = get_args(Tier)
# Markers. What `make check` does without: a machine for it has no broker, no database, no Java and no browser.
NEEDS = frozenset({"browser", "chaos", "docs", "kafka", "postgres", "spark"})
NEEDS_NOTHING = "`make check` runs the tests that need no broker, Spark, database and browser"
# Fixtures that start a server, and the marker that says so.
SERVERS = {"chromium": "browser", "kafka_broker": "kafka", "secure": "kafka", "postgres": "postgres", "spark": "spark"}
# A test function that took more than one of these is of `make test`, not of `make check`. A test may ask git, or start
# one command; what starts more starts workers. The 4,300 tests that are left compute 130 s, of the 300 that two cores
# have in two and a half minutes.
PROCESSES_MAX = 1.0  # for each of its tests
COMPUTING_MAX_S = 1.0  # of all its tests
HEAVY = Path(__file__).with_name("heavy.csv")  # the functions that did; `make times WRITE=1` writes it


class TierError(Exception):
    """The markers of a test contradict one another, or one is missing; the text says what to write."""


def is_heavy(processes: float, computing_s: float) -> bool:
    """Whether a function is too much for `make check`: processes of each of its tests, computing of all of them."""
    return processes > PROCESSES_MAX or computing_s > COMPUTING_MAX_S


def heavy_functions() -> dict[str, tuple[float, float]]:
    """Return function → processes for each of its tests, and seconds of computing, of those that are too much."""
    with HEAVY.open(newline="") as file:
        rows = csv.DictReader(file)
        return {row["function"]: (float(row["processes"]), float(row["computing_s"])) for row in rows}


def tier_of(
    name: str,
    markers: AbstractSet[str],
    fixtures: AbstractSet[str] = frozenset(),
    heavy: AbstractSet[str] = frozenset(),
) -> Tier:
    """Return the tier of the test. Raises TierError where it could be one or another.

    ``heavy``: the functions that took too much for `make check`.
    """
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
    return "test" if needs or name.partition("[")[0] in heavy else "check"
