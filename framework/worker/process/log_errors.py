"""Adds to errors of the log what only a worker knows: the names of its stores, and when the log was last silent."""

from collections.abc import Iterable, Sequence

from grete.errors import Refused
from grete.execution.engine.driver import TaskDriver
from grete.halts import HaltCode
from grete.protocol.changelog import decode_data
from grete.protocol.errors import DecodeError
from grete.protocol.frames import decode_columns
from grete.quoting import key_text
from grete.worker.process.hosted_task import WorkerTask

SHOWN_BYTES = 100  # of a key


class Outage:
    """The last time that the log was silent: until a task commits again, that is why it fails."""

    def __init__(self) -> None:
        self._commits: dict[str, int] = {}  # task → its commits then

    def note(self, drivers: Iterable[TaskDriver]) -> None:
        """Take note that the log is silent."""
        self._commits = {driver.wiring.name: driver.parts.counters["commits"] for driver in drivers}

    def explains(self, driver: TaskDriver) -> bool:
        """Whether the task has committed nothing since the log was last silent."""
        return self._commits.get(driver.wiring.name) == driver.parts.counters["commits"]


def explained(error: Refused, tasks: Iterable[WorkerTask]) -> Refused:
    """Return an error of a refused message with its largest entry: store and key, or the key of a record."""
    owner = next((task for task in tasks if task.wiring.changelog == error.partition), None)
    try:
        found = _record_in(error.message) if owner is None else _value_in(error.message, owner)
    except DecodeError:  # a claim, a commit, a user's record without a key
        found = ""
    if not found:
        return error
    text = f"{Exception.__str__(error)}. The largest in it is {found}"
    named = Refused(text, code=HaltCode.RECORD_REFUSED, partition=error.partition)
    named.task = None if owner is None else owner.name
    return named


def _value_in(message: bytes, task: WorkerTask) -> str:
    data, names = decode_data(message), task.store_names()
    place = _largest(data.keys, data.values)
    store, key = data.stores[place], data.keys[place]
    return (
        f"store {names.get(store, store)!r}, key {key_text(key[:SHOWN_BYTES])}: {len(data.values[place] or b'')} bytes"
    )


def _record_in(message: bytes) -> str:
    batch = decode_columns(message)
    place = _largest(batch.keys, batch.values)
    key = (batch.keys[place] or b"")[:SHOWN_BYTES]
    return f"a record of key {key_text(key)}: {len(batch.values[place] or b'')} bytes"


def _largest(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> int:
    sizes = [len(key or b"") + len(value or b"") for key, value in zip(keys, values, strict=True)]
    return sizes.index(max(sizes))
