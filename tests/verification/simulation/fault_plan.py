"""The faults of a world, with their times: a list drawn from the seed. Plain data."""

import random
from dataclasses import dataclass

FAULTY = 0.6  # of the steps; then faults stop, and the world must come to rest
DRAIN = 0.2  # of the steps, in which a drain meets with faults
OF_A_DRAIN = 1_000  # the number of its first fault
# Kind of fault → how often: tests.verification.simulation.faults does it.
KINDS = {
    "crash": 10,
    "crash at a call": 22,
    "crash at a boundary": 8,
    "crash in a restore": 10,
    "crash of several": 5,
    "zombie": 14,
    "freeze": 4,
    "twin": 8,
    "lost acknowledgement": 7,
    "disk full": 4,
    "slow partition": 5,
    "broker restart": 2,
    "clock jump": 4,
    "stale or wiped store": 8,
    "corrupt store": 2,
    "power loss": 4,
    "graceful stop": 4,
}
# Drawn apart, so that the other faults of a seed stay: of a share of the worlds, some of these more.
UNKIND = {"twin in a rollback": 3, "outage": 2}
UNKIND_SHARE, UNKIND_MAX = 0.4, 3
HOURS = "idle hours"  # in worlds whose checkpoints are minutes apart
DAMAGED = 0.06  # of the worlds
DAMAGES = ("truncated stream", "truncated changelog", "flipped bit in a frame", "flipped bit in data")
LOGICAL_DAMAGES = ("thinned input", "other outputs")  # of deterministic worlds
EMPTIED = "emptied changelog"  # a damage that no seed draws: the other faults of all would be others
# may follow a damage: what is read again is seen
REVEALING = ("crash", "crash in a restore", "stale or wiped store")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is to go wrong: ``draw`` decides whom it hits and how, whatever the other faults are."""

    number: int
    at: float  # share of the steps
    kind: str
    draw: int


def with_hours(seed: int, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Return the faults with a few times of rest among them, whose numbers follow those of the others."""
    r = random.Random(f"hours {seed}")
    more = [Fault(len(faults) + n, FAULTY * r.random(), HOURS, r.getrandbits(32)) for n in range(r.randint(1, 3))]
    return tuple(sorted((*faults, *more), key=lambda fault: fault.at))


def with_unkind(seed: int, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Return the faults with some of UNKIND among them, whose numbers follow those of the others."""
    r = random.Random(f"unkind faults {seed}")
    count = r.randint(1, UNKIND_MAX) if r.random() < UNKIND_SHARE else 0
    kinds = r.choices(tuple(UNKIND), weights=tuple(UNKIND.values()), k=count)
    more = [Fault(len(faults) + n, FAULTY * r.random(), kind, r.getrandbits(32)) for n, kind in enumerate(kinds)]
    return tuple(sorted((*faults, *more), key=lambda fault: fault.at))


def draw_drain_faults(seed: int, least: int = 0) -> tuple[Fault, ...]:
    """Return the faults of the time in which a job is drained; their numbers follow those of all others."""
    r = random.Random(f"faults of a drain {seed}")
    count = r.randint(least, least + 8)
    kinds = r.choices(tuple(KINDS), weights=tuple(KINDS.values()), k=count)
    drawn = sorted((DRAIN * r.random() ** 2, kind, r.getrandbits(32)) for kind in kinds)
    return tuple(Fault(OF_A_DRAIN + number, *each) for number, each in enumerate(drawn))


def draw_faults(seed: int, count: int, *, damaged: bool, damages: tuple[str, ...] = DAMAGES) -> tuple[Fault, ...]:
    """Return ``count`` faults; in a world that is to be damaged one more of ``damages``, which no protocol survives."""
    r = random.Random(f"faults {seed}")
    kinds = r.choices(tuple(KINDS), weights=tuple(KINDS.values()), k=count)
    drawn = [(FAULTY * r.random(), kind, r.getrandbits(32)) for kind in kinds]
    if damaged:
        drawn.append((FAULTY * r.uniform(0.3, 1.0), r.choice(damages), r.getrandbits(32)))
    return tuple(Fault(number, *each) for number, each in enumerate(sorted(drawn)))
