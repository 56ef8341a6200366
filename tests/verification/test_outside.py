"""The mistakes outside of the core, as far as a look at the files tells: ``make prove`` makes them."""

from dataclasses import replace

from tests.verification.outside import results
from tests.verification.outside.mutants import complaints, mutants

DEAD_SHARE = 0.9  # of all mistakes: killed by tests of `make test`


def test_each_mistake_can_be_made() -> None:
    """Its old text is once in its file, and its page and its test are where it says."""
    assert [each for mutant in mutants().values() for each in complaints(mutant)] == []


def test_each_mistake_was_made_as_it_is_written() -> None:
    """The outcome of each mistake is the list's: nine of ten die, the others say why they live."""
    kept, made = results.read(), mutants()
    assert [name for name, each in made.items() if name not in kept or not kept[name].is_of(each)] == []
    assert set(kept) == set(made)
    dead = {name for name, each in kept.items() if each.outcome == "killed"}
    assert {name for name, each in made.items() if not each.lives} == dead
    assert len(dead) >= DEAD_SHARE * len(made)


def test_an_entry_that_fits_no_more_is_told() -> None:
    """Code that has changed, a page and a test that are gone, and a mistake that is no Python each have a line."""
    mutant = next(iter(mutants().values()))
    wrong = {
        "old text is 0 times": replace(mutant, old="no such line"),
        "no Python": replace(mutant, new="def :"),
        "there is no docs/none.md": replace(mutant, page="docs/none.md#nothing"),
        "there is no test": replace(mutant, test="tests/test_docs.py::test_of_nothing"),
        "tells no guarantee": replace(mutant, says=""),
    }
    assert {told: any(told in each for each in complaints(entry)) for told, entry in wrong.items()} == dict.fromkeys(
        wrong, True
    )
