"""The checker of the chaos runs: what is right passes, and each kind of damage is seen."""

from collections.abc import Callable

import msgspec
import pytest

from tests.verification.chaos.chain import Entry, Given, Link, Tail, extended
from tests.verification.chaos.checker import Checker

Row = tuple[int, int, bytes, bytes]


def right_run(inputs: int = 12) -> tuple[list[Row], list[Row]]:
    """Return (inputs, entries) of a run without failures: two sources, three accounts in two partitions."""
    given: list[Row] = []
    entries: list[Row] = []
    sources: dict[str, Tail] = {}
    accounts: dict[str, Tail] = {}
    offsets = [0, 0]
    for number in range(inputs):
        source, account, partition = f"s{number % 2}", f"a{number % 3}", number % 3 % 2
        count = sources.get(source, Tail()).count + 1
        given.append((number % 2, count - 1, source.encode(), msgspec.json.encode(Given(count))))
        sources[source] = extended(sources.get(source, Tail()), f"{source}:{count}", number)
        link = Link(source, count, number, sources[source])
        accounts[account] = extended(accounts.get(account, Tail()), link.tail.digest, -number)
        value = msgspec.json.encode(Entry(link, -number, accounts[account]))
        entries.append((partition, offsets[partition], account.encode(), value))
        offsets[partition] += 1
    return given, entries


def judged(given: list[Row], entries: list[Row]) -> list[str]:
    """Return the violations."""
    checker = Checker()
    for row in given:
        checker.input(*row)
    for row in entries:
        checker.entry(*row)
    checker.complete()
    return checker.violations


def test_a_right_run_passes_in_any_order_of_partitions() -> None:
    """A consumer reads partition by partition: the checker does not ask for an order that Kafka does not give."""
    given, entries = right_run()
    assert judged(given, entries) == []
    assert judged(given, sorted(entries, key=lambda row: (-row[0], row[1]))) == []


def swapped(rows: list[Row]) -> list[Row]:
    return [*rows[:3], rows[6], *rows[4:6], rows[3], *rows[7:]]


def forked(rows: list[Row]) -> list[Row]:
    """The work of a checkpoint done twice: the first time is taken back, but one of its entries stays."""
    entry = msgspec.json.decode(rows[4][3], type=Entry)
    other = Entry(entry.link, entry.nonce + 1, extended(Tail(1, "x"), entry.link.tail.digest, entry.nonce + 1))
    return [*rows[:4], (*rows[4][:3], msgspec.json.encode(other)), *rows[5:]]


def foreign(rows: list[Row]) -> list[Row]:
    """An entry made of a link that no source has made."""
    entry = msgspec.json.decode(rows[-1][3], type=Entry)
    link = Link(entry.link.source, entry.link.number, 99, extended(Tail(3, "y"), "z", 99))
    return [*rows[:-1], (*rows[-1][:3], msgspec.json.encode(Entry(link, entry.nonce, entry.tail)))]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda rows: rows[:-1], "11 entries came out"),
        (lambda rows: rows[1:], "a repeat or a gap"),
        (lambda rows: [*rows, rows[-1]], "came out twice"),
        (swapped, "a repeat or a gap"),
        (forked, "a fork"),
        (foreign, "a fork"),
        (lambda rows: [(1 - rows[0][0], *rows[0][1:]), *rows[1:]], "had partition"),
    ],
    ids=["lost at the end", "lost at the beginning", "twice", "out of order", "fork", "foreign link", "moved"],
)
def test_damage_is_seen(damage: Callable[[list[Row]], list[Row]], words: str) -> None:
    """A gap, a repeat, a reorder and a fork each break a chain."""
    given, entries = right_run()
    assert any(words in violation for violation in judged(given, damage(entries)))


def test_an_entry_without_an_input_is_seen() -> None:
    """Both directions: what came out must have been given."""
    given, entries = right_run()
    assert any("were given" in violation for violation in judged(given[:-1], entries))


def test_wrong_missing_and_foreign_state_is_seen() -> None:
    """The state must be what the entries say, key by key."""
    checker = Checker()
    expected = {"a": Tail(1, "x"), "b": Tail(2, "y")}
    checker.state("right", expected, expected.items())
    assert checker.violations == []
    checker.state("wrong", expected, [("a", Tail(1, "z")), ("c", Tail(1, "x"))])
    assert [violation.split(": ")[1].split()[0] for violation in checker.violations] == ["a", "c", "b"]
