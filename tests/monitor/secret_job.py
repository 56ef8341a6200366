"""A job whose code fails in each way that an input allows, with errors that quote the key and the value of a record."""

import os
from typing import Literal

from grete import DeadLetter, Input, Job, Output, Record, Store, Task, Timers, Topic, int64, utf8
from grete import Timer as DueTimer

lines = Topic("lines", key=utf8, value=utf8)
numbers = Topic("numbers", key=utf8, value=int64)
last = Topic("last", key=utf8, value=utf8)
refused = Topic("refused", key=utf8, value=utf8)
unread = Topic("unread", key=utf8, value=utf8)
MODE: Literal["aligned", "deterministic"] = (
    "deterministic" if os.environ.get("SECRET_JOB_MODE") == "deterministic" else "aligned"
)


class Letter(Task):
    """Refuses each record, which becomes a dead letter."""

    mode = MODE
    lines = Input(lines, errors=DeadLetter(refused))
    kept = Store("kept", key=utf8, value=utf8)

    def process(self, record: Record[str, str]) -> None:
        """Raise an error with a cause, each of which quotes the record."""
        try:
            int(record.value)
        except ValueError as error:
            raise KeyError(f"{record.key} has {record.value}") from error


class Drop(Task):
    """Drops each record; of the last one errors are told."""

    mode = MODE
    lines = Input(lines, errors="drop")

    def process(self, record: Record[str, str]) -> None:
        """Raise an error that quotes the record."""
        raise ValueError(f"{record.key} has {record.value}")


class Decode(Task):
    """Reads what its serde does not take."""

    mode = MODE
    numbers = Input(numbers, errors=DeadLetter(unread))

    def process(self, record: Record[str, int]) -> None:
        """Have nothing to do."""


class Keep(Task):
    """Keeps each record in its state, and fails at a timer of its key."""

    mode = MODE
    lines = Input(lines)
    due = Timers(errors="drop")
    kept = Store("values", key=utf8, value=utf8)

    def process(self, record: Record[str, str]) -> None:
        """Keep it."""
        self.kept.put(record.key, record.value)
        self.due.schedule(record.timestamp + 1, record.key)

    def on_timer(self, timer: DueTimer) -> None:
        """Raise an error that quotes the key."""
        raise ValueError(f"{timer.key} is due, with {self.kept.get(timer.key)}")


class Halt(Task):
    """Fails at each record, again and again, until the job is given up."""

    mode = MODE
    last = Input(last)
    out = Output(Topic("out", key=utf8, value=int64))

    def process(self, record: Record[str, str]) -> None:
        """Send what its serde does not take."""
        self.out.send(record.key, record.value)  # type: ignore[arg-type]  # that is the mistake


job = Job("secrets", stages=[Letter, Drop, Decode, Keep, Halt])
