"""A mutant: one known mistake, how it is brought back by patching a class from outside, and what must notice it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.verification.simulation.fault_plan import draw_faults
from tests.verification.simulation.plan import Plan, World

Make = Callable[[Any], Any]  # from the original method, property or function to the mistaken one


@dataclass(frozen=True, slots=True)
class Mutant:
    """``killed_by``: the invariants that may notice it. ``shows``: whether the mistake can show in a world at all.

    ``focus`` makes a seed's world one in which the mistake shows sooner, and which is clean without it.
    """

    mistake: str
    killed_by: frozenset[str]
    owner: Any
    attribute: str
    make: Make
    shows: Callable[[Plan], bool]
    focus: Callable[[Plan], Plan]
    world: World  # of a seed's, the one in which it lives


MUTANTS: dict[str, Mutant] = {}


def anywhere(plan: Plan) -> bool:
    """Tell that a mistake may show in any world."""
    return True


def unchanged(plan: Plan) -> Plan:
    """Return the world as it is."""
    return plan


def busier(plan: Plan) -> Plan:
    """Return a world with three times the faults."""
    return replace(plan, faults=draw_faults(plan.seed, 3 * len(plan.faults), damaged=False), damaged=False)


def full_of(*kinds: str, damaged: bool = False) -> Callable[[Plan], Plan]:
    """Return a focus: a world with three times the faults, all of these kinds."""

    def focus(plan: Plan) -> Plan:
        faults = draw_faults(plan.seed, 3 * len(plan.faults), damaged=False)
        return replace(
            plan, faults=tuple(replace(each, kind=kinds[each.number % len(kinds)]) for each in faults), damaged=damaged
        )

    return focus


def mutant(
    owner: Any,
    attribute: str,
    *killed_by: str,
    shows: Callable[[Plan], bool] = anywhere,
    focus: Callable[[Plan], Plan] = unchanged,
    world: World = "aligned",
) -> Callable[[Make], Make]:
    """Register the decorated function: its name is the mutant's, its docstring says the mistake."""

    def register(make: Make) -> Make:
        mistake = (make.__doc__ or "").strip()
        MUTANTS[make.__name__] = Mutant(mistake, frozenset(killed_by), owner, attribute, make, shows, focus, world)
        return make

    return register


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Bring a mistake back for the time of a run.

    Raises KeyError for an unknown name, LookupError for one that patches an attribute which has moved.
    """
    each = MUTANTS[name]
    owners = each.owner.__mro__ if isinstance(each.owner, type) else (each.owner,)
    owner = next((owner for owner in owners if each.attribute in vars(owner)), None)
    if owner is None:
        raise LookupError(f"mutant {name}: {each.owner.__name__} has no {each.attribute}: has it moved?")
    original = vars(owner)[each.attribute]
    setattr(owner, each.attribute, each.make(original))
    try:
        yield
    finally:
        setattr(owner, each.attribute, original)
