"""Examples of the texts that the project started from (docs/TRACEABILITY.md), by name, with the kit."""

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, utf8
from grete.testing import Kit

letters = Topic("letters", key=utf8, value=utf8)
strings = Topic("strings", key=utf8, value=utf8)
EXECUTED: list[str] = []  # what user code did outside of the framework


class Concatenate(Task):
    """Adds each letter to the string so far, and sends the result: not commutative, so the order shows for ever."""

    letters = Input(letters)
    state = Store("state", key=utf8, value=utf8)
    out = Output(strings)

    def process(self, record: Record[str, str]) -> None:
        EXECUTED.append(record.value)
        string = self.state.get(record.key, "") + record.value
        self.state.put(record.key, string)
        self.out.send(record.key, string)


job = Job("strings", stages=[Concatenate], partitions=1)


@pytest.fixture(autouse=True)
def _nothing_executed() -> None:
    EXECUTED.clear()


@pytest.mark.parametrize("other_host", [False, True])
def test_the_table_of_aborted_and_regenerated_items(other_host: bool) -> None:
    """The formal model's concatenation: a and c are saved, b and d are not, a failure, then e.

    In the table a state that was restored and an output that was not taken back contradict each other. Here each output
    goes on from the one before, b and d included, as in a run without the failure.
    """
    kit = Kit(job)
    for letter in "ac":
        kit.feed(letters, "k", letter)
    kit.run()
    for letter in "bd":
        kit.feed(letters, "k", letter)
    kit.process()
    kit.crash(Concatenate, other_host=other_host)
    kit.feed(letters, "k", "e")
    kit.run()
    assert [string for _, string in kit.pairs(strings)] == ["a", "ac", "acb", "acbd", "acbde"]
    assert kit.state(Concatenate.state) == {"k": "acbde"}


def test_without_the_guarantee_the_output_contradicts_itself() -> None:
    """The same at least once: what was given out before the failure is given out again."""
    kit = Kit(job, processing_guarantee="at-least-once")
    kit.feed(letters, "k", "a")
    kit.process()
    kit.crash(Concatenate)
    kit.run()
    assert [string for _, string in kit.pairs(strings)] == ["a", "a"]


def test_print_a_guid() -> None:
    """The post's example: code that prints an event's id prints it twice after a failure; its effect counts once."""
    kit = Kit(job)
    kit.feed(letters, "k", "x")
    kit.process()
    kit.crash(Concatenate)
    kit.run()
    assert EXECUTED == ["x", "x"]
    assert kit.pairs(strings) == [("k", "x")]
