"""The content of a message that the log refused: a log knows bytes, a worker the names of its stores."""

from collections.abc import Iterable, Sequence

from grete.errors import Refused
from grete.halts import HaltCode
from grete.protocol.changelog import decode_data
from grete.protocol.errors import DecodeError
from grete.protocol.frames import decode_columns
from grete.worker.process.hosted_task import WorkerTask

SHOWN_BYTES = 100  # of a key


def explained(error: Refused, tasks: Iterable[WorkerTask]) -> Refused:
    """Return the error with the largest entry of the message: store and key, or the key of a record."""
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
    return f"store {names.get(store, store)!r}, key {key[:SHOWN_BYTES]!r}: {len(data.values[place] or b'')} bytes"


def _record_in(message: bytes) -> str:
    batch = decode_columns(message)
    place = _largest(batch.keys, batch.values)
    key = (batch.keys[place] or b"")[:SHOWN_BYTES]
    return f"a record of key {key!r}: {len(batch.values[place] or b'')} bytes"


def _largest(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> int:
    sizes = [len(key or b"") + len(value or b"") for key, value in zip(keys, values, strict=True)]
    return sizes.index(max(sizes))
