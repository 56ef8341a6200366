"""A system of one's own as the target of an Output: the sink of the shipped contract's example, in a job."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from grete import DeadLetter, External, Input, Job, Output, Record, Store, Task, Topic, int64, json, utf8
from grete.api.sinks.sink import Entry
from grete.api.tasks.mode import Mode
from grete.errors import GraphError, OutputRefused
from grete.testing import Kit
from tests.testing.third_party import ListSink, Place

LINES = Topic("lines", key=utf8, value=utf8)
LETTERS = Topic("letters", key=utf8, value=utf8)


def keeping(*targets: Any, mode: Mode = "aligned") -> Job:
    """Return a job that counts, and sends each count to all targets."""
    outputs = {f"out_{number}": Output(target) for number, target in enumerate(targets)}

    class Base(Task):
        lines = Input(LINES, errors=DeadLetter(LETTERS))
        counts = Store("counts", key=utf8, value=int64)

        def process(self, record: Record[str, str]) -> None:
            count = self.counts.get("all", 0) + 1
            self.counts.put("all", count)
            for name in outputs:
                row: Any = {"task": "t", "number": count} if record.value != "fail" else object()
                getattr(self, name).send(None, row)

    return Job("keeping", stages=[type("Keep", (Base,), outputs)], mode=mode)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("seed", range(3))
def test_each_output_is_there_once(mode: Mode, seed: int) -> None:
    """Two systems of one task, through crashes; a value that its serde refuses makes a dead letter."""
    places = Place(), Place()
    targets = [External(f"place {n}", json, partial(ListSink, place)) for n, place in enumerate(places)]
    kit = Kit(keeping(*targets, mode=mode))
    for number in range(20):
        kit.feed(LINES, "k", "fail" if number == 7 else "x", timestamp=number)
        if number % 5 == 4:
            kit.advance(300)
    kit.run(crashes=4, seed=seed)
    kit.stop()
    assert [place.rows for place in places] == [[("t", n) for n in range(1, 20)]] * 2
    assert len(kit.outputs(LETTERS)) == 1


@pytest.mark.parametrize("seed", range(3))
def test_what_a_system_refuses_is_a_letter(seed: int) -> None:
    """It says which of the outputs that it is given; the others of the checkpoint are there once."""

    class Picky(ListSink):
        def write(self, entries: Sequence[Entry]) -> None:
            odd = next((n for n, (_, raw) in enumerate(entries) if json.decode(raw)["number"] % 4 == 0), len(entries))
            super().write(entries[:odd])
            if odd < len(entries):
                raise OutputRefused("no multiple of 4", index=odd)

    class Count(Task):
        lines = Input(LINES)
        counts = Store("counts", key=utf8, value=int64)
        out = Output(External("place", json, lambda: Picky(place)), errors=DeadLetter(LETTERS))

        def process(self, record: Record[str, str]) -> None:
            count = self.counts.get("all", 0) + 1
            self.counts.put("all", count)
            self.out.send(None, {"task": "t", "number": count})

    place = Place()
    kit = Kit(Job("keeping", stages=[Count]))
    for number in range(20):
        kit.feed(LINES, "k", "x")
        if number % 5 == 4:
            kit.advance(300)
    kit.run(crashes=4, seed=seed)
    assert place.rows == [("t", n) for n in range(1, 21) if n % 4]
    letters = kit.outputs(LETTERS)
    assert [letter.value for letter in letters] == [f'{{"number":{n},"task":"t"}}' for n in range(4, 21, 4)]
    assert {dict(letter.headers)["grete.error"] for letter in letters} == {b"OutputRefused: no multiple of 4"}
    kit.stop()


def test_two_outputs_of_a_name_are_refused() -> None:
    """The state tells them apart by it."""
    place = Place()
    target = External("place", json, partial(ListSink, place))
    with pytest.raises(GraphError, match="External 'place' clashes with 'place': one output for each name"):
        keeping(target, target)
