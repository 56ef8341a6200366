"""A command that asks where an input ends is told what an open transaction hides there, or waits for it."""

import pytest

from grete.errors import ConfigError
from grete.logs import open_transactions
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.logs.open_transactions import HiddenInput, WaitNotices, full_ends, refuse_open, stable_ends, told_all
from grete.protocol.ids import TopicPartition

P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOON_MS = 1_793_534_400_000


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> MemoryLogData:
    """A log in which a transaction is open behind the first row of P, and a row of another's behind its own."""
    monkeypatch.setattr(open_transactions, "SAY_S", 0.0)
    monkeypatch.setattr(open_transactions, "LOOK_S", 0.0)
    made = MemoryLogData(lambda: 0)
    MemoryLog(made).create_topic("orders", 2)
    for partition in (P, Q):
        made.append(partition, b"ann", b"1", NOON_MS, None)
    made.begin_transaction(P)
    made.append(P, b"bob", b"2", NOON_MS, None)
    made.append(P, b"ann", b"3", NOON_MS, None)
    return made


def test_it_is_named_with_its_place_time_and_key_and_with_the_brokers_command(data: MemoryLogData) -> None:
    """So that a person finds the producer, which no client of ours can ask for."""
    (text,) = told_all(MemoryLog(data), [P, Q])
    assert text.startswith(
        "orders[0]: an open transaction begins at offset 1 with key 'bob' (a message of 2026-11-01T12:00:00+00:00): "
        "2 offsets from there on cannot be read"
    )
    assert "describe-producers --topic orders --partition 0 names the producer" in text
    assert "abort --topic orders --partition 0 --start-offset 1" in text


def test_what_needs_all_of_an_input_is_refused(data: MemoryLogData) -> None:
    """A rescale, for instance, moves the state of keys, and not their records."""
    log = MemoryLog(data)
    with pytest.raises(ConfigError, match=r"not all is read: orders\[0\]: an open transaction begins at offset 1"):
        refuse_open(log, [P, Q], "not all is read")
    data.end_transaction(P)
    refuse_open(log, [P, Q], "not all is read")


def test_ends_are_known_once_all_before_them_can_be_read(data: MemoryLogData) -> None:
    """Messages sent during the wait are behind the ends; the wait names the transaction that it waits for."""
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        data.end_transaction(P)
        data.append(P, b"ann", b"later", NOON_MS, None)

    assert full_ends(MemoryLog(data), [P, Q]) == {P: 3, Q: 1}
    assert stable_ends(MemoryLog(data), [P, Q], say) == {P: 3, Q: 1}
    assert [text.partition(" begins")[0] for text in said] == ["waits: orders[0]: an open transaction"]


def test_a_run_awaits_what_was_hidden_and_asks_for_the_ends_again(data: MemoryLogData) -> None:
    """Ends that were asked for before the transaction ended have nothing of it."""
    said: list[str] = []
    hidden = HiddenInput(MemoryLog(data), [P, Q], said.append)
    ends = {P: 1, Q: 1}
    assert ([hidden.is_over(ends) for _ in range(2)], hidden.is_due) == ([False, False], True)
    assert len(said) == 1
    data.end_transaction(P)
    assert [hidden.is_over(ends), hidden.is_over({P: 3, Q: 1})] == [False, True]
    data.begin_transaction(P)
    data.append(P, b"bob", b"4", NOON_MS, None)  # came later
    assert hidden.is_over({P: 3, Q: 1})


def test_a_run_is_not_at_its_end_at_the_first_look(data: MemoryLogData) -> None:
    """A transaction may end between the question where inputs end and that look: its records are not in the answer."""
    ends = {each: end for each, (_, end) in MemoryLog(data).all_bounds([P, Q]).items()}
    data.end_transaction(P)
    hidden = HiddenInput(MemoryLog(data), [P, Q], print)
    assert not hidden.is_over(ends)
    assert hidden.is_over({each: end for each, (_, end) in MemoryLog(data).all_bounds([P, Q]).items()})


def test_a_wait_is_said_once_a_minute() -> None:
    """Not at once: most transactions are open for less than a second."""
    now, said = [0.0], list[str]()
    saying = WaitNotices(said.append, lambda: now[0])
    found = MemoryLogData(lambda: 0)
    MemoryLog(found).create_topic("orders", 1)
    found.begin_transaction(P)
    found.append(P, None, b"1", NOON_MS, None)
    hides = MemoryLog(found).open_transactions([P])
    lines = []
    for now[0] in (0.0, 1.0, 2.0, 3.0, 62.0, 63.0):
        saying.look(hides)
        lines.append(len(said))
    saying.look({})
    now[0] = 200.0
    saying.look(hides)
    assert (lines, len(said)) == ([0, 0, 1, 1, 2, 2], 2)
    assert "with key None" in said[0]
