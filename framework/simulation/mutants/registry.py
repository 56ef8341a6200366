"""A mutant: one known mistake, how it is brought back by patching a class from outside, and what must notice it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from framework.simulation.world import Plan

Make = Callable[[Any], Any]  # from the original method, property or function to the mistaken one


@dataclass(frozen=True, slots=True)
class Mutant:
    """``killed_by``: the invariants that may notice it. ``shows``: whether the mistake can show in a world at all.

    ``hint``: a seed that is known to find it; it only saves time, and may be wrong when worlds change.
    """

    mistake: str
    killed_by: frozenset[str]
    owner: Any
    attribute: str
    make: Make
    shows: Callable[[Plan], bool]
    hint: int | None = None


MUTANTS: dict[str, Mutant] = {}


def anywhere(plan: Plan) -> bool:
    """Tell that a mistake may show in any world."""
    return True


def mutant(
    owner: Any, attribute: str, *killed_by: str, shows: Callable[[Plan], bool] = anywhere, hint: int | None = None
) -> Callable[[Make], Make]:
    """Register the decorated function: its name is the mutant's, its docstring says the mistake."""

    def register(make: Make) -> Make:
        mistake = (make.__doc__ or "").strip()
        MUTANTS[make.__name__] = Mutant(mistake, frozenset(killed_by), owner, attribute, make, shows, hint)
        return make

    return register


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Bring a mistake back for the time of a run. Raises KeyError for an unknown name."""
    each = MUTANTS[name]
    owners = each.owner.__mro__ if isinstance(each.owner, type) else (each.owner,)
    owner = next(owner for owner in owners if each.attribute in vars(owner))
    original = vars(owner)[each.attribute]
    setattr(owner, each.attribute, each.make(original))
    try:
        yield
    finally:
        setattr(owner, each.attribute, original)
