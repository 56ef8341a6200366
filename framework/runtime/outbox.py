"""The outbox of one task: outputs to files wait in a reserved store, as state, until their version commits (S2)."""

import struct
from collections.abc import Callable

import msgspec

from framework.api.files import Files
from framework.api.serdes import encode_error, functions_of
from framework.errors import SerdeError
from framework.sinks.files import apply_outbox
from framework.stores.overlay import LayeredStore

_NUMBER = struct.Struct(">Q")  # versions and entry numbers: never negative
_INDEX = struct.Struct(">H")
_ENTRY, _VERSION = b"e", b"v"  # first byte of a key: an entry by its number, or what a version holds
_HELD_BYTES = 300  # of an entry in the open layer, beyond its value


class _Closed(msgspec.Struct, array_like=True):
    """What a version holds: entries first <= number < end, and the directories that their indexes mean."""

    first: int
    end: int
    directories: list[str]


class Outbox:
    """Entries are numbered; ``close_version`` notes which are the version's, so that applying it again is the same."""

    def __init__(self, stage: str, partition: int, store: LayeredStore) -> None:
        self.bytes = 0  # of entries that wait for their version's commit
        self._stage = stage
        self._partition = partition
        self._store = store
        self._directories: list[str] = []
        self._first = self._next = 0
        self._applied: list[
            bytes
        ] = []  # keys to delete in the next version: the application is not undone by a rollback
        self._mark = (0, 0)

    def sender(self, files: Files[object]) -> Callable[..., None]:
        """Return Output.send for this directory."""
        index = _INDEX.pack(len(self._directories))
        self._directories.append(files.directory)
        encode = functions_of(files.value)[0]
        where = f"output to files {files.directory}: "

        def send(_key: object, value: object, **_: object) -> None:
            try:
                raw = encode(value)
            except Exception as error:
                raise encode_error(files.value, value, error, where) from error
            if b"\n" in raw:
                raise SerdeError(
                    f"{where}a value of serde {files.value.name} has a newline in it: {raw[:80]!r}: use json"
                )
            self._store.put(_ENTRY + _NUMBER.pack(self._next), index + raw)
            self._next += 1
            self.bytes += len(raw) + _HELD_BYTES

        return send

    def reload(self) -> None:
        """Start from the restored state: apply what its versions hold and the sink may lack (S2)."""
        self._directories = []
        self._applied = []
        self._first = self._next = self.bytes = 0
        self.apply()

    def close_version(self, version: int) -> None:
        """Note which entries are the version's, and delete those that have been applied. Before the freeze."""
        for key in self._applied:
            self._store.delete(key)
        self._applied = []
        if self._next > self._first:
            row = _Closed(self._first, self._next, self._directories)
            self._store.put(_VERSION + _NUMBER.pack(version), msgspec.json.encode(row))
            self._first = self._next

    def apply(self) -> None:
        """Write the files of each committed version that is not known to be applied. Raises TransientError.

        Only when nothing is frozen that is not committed: then every closed version is.
        """
        applied = set(self._applied)
        for key, row in self._store.scan(_VERSION, b"w"):
            if key not in applied:
                self._apply(key, _NUMBER.unpack(key[1:])[0], msgspec.json.decode(row, type=_Closed))

    def mark(self) -> None:
        """Remember this moment for ``rollback``."""
        self._mark = self._next, self.bytes

    def rollback(self) -> None:
        """Take back the entries since ``mark``; their writes are undone by the overlay."""
        self._next, self.bytes = self._mark

    def _apply(self, key: bytes, version: int, closed: _Closed) -> None:
        lines: dict[str, list[bytes]] = {}
        keys = [key]
        size = 0
        for entry, value in self._store.scan(_ENTRY + _NUMBER.pack(closed.first), _ENTRY + _NUMBER.pack(closed.end)):
            lines.setdefault(closed.directories[_INDEX.unpack_from(value)[0]], []).append(value[2:])
            keys.append(entry)
            size += len(value) - 2 + _HELD_BYTES
        for directory, values in lines.items():
            apply_outbox(directory, self._stage, self._partition, version, values)
        self._applied += keys
        self.bytes = max(self.bytes - size, 0)
        self._first, self._next = max(self._first, closed.end), max(self._next, closed.end)
