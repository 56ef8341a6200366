"""The parts of ``make prove``: for each, the command of a turn, with all that is drawn, so that it can be repeated."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.joining import TASKS as JOINS
from grete.errors import ConfigError
from grete.testing.broker.jars import find_jars
from tests.verification.machines.network import Network
from tests.verification.model.world import FULL
from tests.verification.outside.mutants import mutants
from tests.verification.simulation.mutants import MUTANTS

VERIFICATION = "tests.verification"
MODES = ("aligned", "deterministic")


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of search."""

    name: str
    share: int  # of the time
    counts: str  # what is counted
    size: int  # how many of them are in a turn
    turn: Callable[[int], list[str]]  # first number → command; it exits with 0 if nothing was found
    lacks: Callable[[], str] = str  # why it cannot run here, or nothing


def python(*arguments: object) -> list[str]:
    """Return the command that runs a module of this repository."""
    return [sys.executable, "-m", *map(str, arguments)]


def _no_jars() -> str:
    try:
        find_jars()
    except ConfigError as error:
        return str(error)
    return ""


def _no_machines() -> str:
    if os.geteuid():
        return "network namespaces need root"
    try:
        with tempfile.TemporaryDirectory(prefix="grete-prove-") as scratch, Network(Path(scratch), ["one"]):
            return _no_jars()
    except ConfigError as error:
        return str(error)


def _no_peers() -> str:
    return "" if shutil.which("mvn") else "the peers are fetched with Maven, and there is no mvn"


def _hunts(number: int) -> list[str]:
    names = [sorted(MUTANTS)[each % len(MUTANTS)] for each in range(number, number + HUNTS)]
    each = (part for name in names for part in ("--hunt", name))
    return python(f"{VERIFICATION}.simulation", *each, "--seed", number)


def _outside(number: int) -> list[str]:
    return python(f"{VERIFICATION}.outside", "--only", sorted(mutants())[number % len(mutants())])


def _model(number: int) -> list[str]:
    return python(f"{VERIFICATION}.model", "--full", "--world", [*FULL][number % len(FULL)])


def _chaos(number: int) -> list[str]:
    return python(f"{VERIFICATION}.chaos.jobs", "--minutes", 0, "--seed", number)


def _takeovers(number: int) -> list[str]:
    mode = MODES[number // TAKEOVERS % len(MODES)]
    return python(f"{VERIFICATION}.machines.takeovers", "--takeovers", TAKEOVERS, "--mode", mode, "--seed", number)


def _members(number: int) -> list[str]:
    mode = MODES[number // FAULTS % len(MODES)]
    return python(f"{VERIFICATION}.machines.members", "--faults", FAULTS, "--mode", mode, "--seed", number)


def _peers(number: int) -> list[str]:
    kind = [*JOINS][number % len(JOINS)]
    return python("benchmarks.joins", "--messages", MESSAGES, "--rounds", 1, "--kinds", kind)


# A turn takes a minute or so on two cores.
SEEDS, HUNTS, TAKEOVERS, FAULTS, MESSAGES, KILLS = 100, 8, 20, 10, 20_000, 6
# What found most, for the time that it took, has the larger shares. The first turn of each comes in this order.
PARTS = (
    Part(
        "fresh seeds of the simulator",
        5,
        "seeds",
        SEEDS,
        lambda first: python(f"{VERIFICATION}.simulation", "--seeds", f"{first}..{first + SEEDS}"),
    ),
    Part("mutants of the core", 3, "hunts, from fresh seeds on", HUNTS, _hunts),
    Part("mutants outside of the core", 4, "mutants", 1, _outside),
    Part("chaos on the embedded log", 2, "random jobs", 1, _chaos),
    Part("chaos on Kafka", 3, "random jobs", 1, lambda number: [*_chaos(number), "--log", "kafka"], _no_jars),
    Part(
        "leaders that die under those who ask",
        1,
        "kills of a broker",
        KILLS,
        lambda number: python(f"{VERIFICATION}.chaos.dead_leaders", "--kills", KILLS, "--seed", number),
        _no_jars,
    ),
    Part("machines: an assigner", 2, "take-overs", TAKEOVERS, _takeovers, _no_machines),
    Part("machines: members", 2, "faults", FAULTS, _members, _no_machines),
    Part("the model at wide bounds", 3, "worlds", 1, _model),
    Part("joins beside the peers", 1, "kinds of join, at other times", 1, _peers, _no_peers),
    Part("tests of the tier prove", 1, "runs", 1, lambda _: python("pytest", "-q", "-m", "prove", "tests")),
)
