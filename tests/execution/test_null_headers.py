"""A header whose value is null stays null: through streams between stages, into topics, and in letters."""

from typing import Any

import pytest

from grete import DeadLetter, Input, Job, Output, Record, Task, Topic, bytes_serde, utf8
from grete.api.tasks.mode import Mode
from grete.testing import Kit

SOURCE, BETWEEN, TARGET = (Topic(name, key=utf8, value=utf8) for name in ("source", "between", "target"))
REFUSED = Topic("refused", key=bytes_serde, value=bytes_serde)
HEADERS = (("t", b"1"), ("t", None), ("t", b""), ("", None))


class First(Task):
    source = Input(SOURCE)
    out = Output(BETWEEN)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, record.value, headers=record.headers)


class Last(Task):
    between = Input(BETWEEN, errors=DeadLetter(REFUSED))
    out = Output(TARGET)

    def process(self, record: Record[str, str]) -> None:
        if record.value == "bad":
            raise ValueError("bad")
        self.out.send(record.key, record.value, headers=record.headers)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_a_null_header_stays_null(mode: Mode) -> None:
    """Beside others of its name, empty ones, and records without any; replayed after crashes, too."""
    kit = Kit(Job("null-headers", stages=[First, Last], mode=mode))
    feeds: list[tuple[str, Any]] = [("good", HEADERS), ("good", ()), ("bad", HEADERS[1:2])]
    for value, headers in feeds:
        kit.feed(SOURCE, "k", value, headers=headers)
    kit.run(crashes=4, seed=3)
    found = [record.headers[: len(headers)] for record, (_, headers) in zip(kit.outputs(TARGET), feeds, strict=False)]
    assert found == [HEADERS, ()]
    (letter,) = kit.outputs(REFUSED)
    assert letter.headers[0] == ("t", None)
