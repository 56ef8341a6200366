"""The simulator's mutants patch what is there."""

from tests.verification.simulation.mutants import MUTANTS
from tests.verification.simulation.mutants.registry import applied


def test_each_mutant_finds_what_it_patches() -> None:
    """An attribute that moves to another class takes its mutants along."""
    moved = []
    for name in MUTANTS:
        try:
            with applied(name):
                continue
        except LookupError as error:
            moved.append(str(error))
    assert moved == []
