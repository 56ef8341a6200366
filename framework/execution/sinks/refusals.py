"""The outputs that sinks refuse for good, where their Output has a policy for that: each is set aside once (S2a).

Which outputs of a checkpoint are set aside is state, in the same checkpoint as their letters. So a crash loses both or
neither, and what is set aside is not given to its sink again.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import msgspec

from grete.api.sinks.sink import Entry
from grete.errors import OutputRefused
from grete.execution.sinks.waiting_outputs import NUMBER
from grete.stores.overlay.overlay_store import OverlayStore

ASIDE = b"l"  # first byte of a key: the numbers of the outputs of a checkpoint that are set aside


class Refusal(NamedTuple):
    """An output that a sink has refused. ``number``: among all outputs of the checkpoint; ``sink``: its name."""

    checkpoint_id: int
    number: int
    target: str
    sink: str
    raw: bytes
    error: OutputRefused


SetAside = Callable[[Refusal], None]


class Refusals:
    """Refused outputs of one task: found, then set aside in the open checkpoint, then committed. ``reload`` first."""

    def __init__(self, store: OverlayStore) -> None:
        self.by_target: Mapping[str, SetAside] = {}  # the policies, of targets that have another one than "fail"
        self._store = store
        self._found: dict[int, dict[int, Refusal]] = {}  # by checkpoint and number; known until its outputs are deleted
        self._aside: dict[int, set[int]] = {}  # checkpoint → numbers, as the open checkpoint has them
        self._closing: dict[int, set[int]] = {}  # as the one has them that was closed last
        self._committed: dict[int, set[int]] = {}
        self._deleted: list[int] = []  # checkpoints of which nothing is left once what was closed is committed

    def reload(self) -> None:
        """Start from the restored state."""
        self._aside = {
            NUMBER.unpack(key[1:])[0]: set(msgspec.msgpack.decode(row, type=list[int]))
            for key, row in self._store.scan(ASIDE, b"m")
        }
        self._closing = self._committed = _copied(self._aside)
        self._deleted = []

    def take(self, checkpoint_id: int, number: int, target: str, sink: str, entry: Entry, error: OutputRefused) -> bool:
        """Take a refused output; return False if nothing says what is to become of it: the task halts."""
        if target not in self.by_target:
            return False
        refused = Refusal(checkpoint_id, number, target, sink, entry[1], error)
        assert number not in self.left_out(checkpoint_id), f"{refused} was given to its sink again"
        self._found.setdefault(checkpoint_id, {})[number] = refused
        return True

    def left_out(self, checkpoint_id: int) -> Collection[int]:
        """Return the numbers of a checkpoint's outputs that its sinks are not given again."""
        return self._aside.get(checkpoint_id, set()) | self._found.get(checkpoint_id, {}).keys()

    @property
    def due(self) -> bool:
        """Whether an output was refused and is not set aside yet."""
        return not all(map(self.is_aside, self._found))

    @property
    def settled(self) -> bool:
        """Whether all that is set aside is committed."""
        changed = self._aside != self._closing or self._closing != self._committed
        return not (changed or self._deleted or self.due)

    def set_aside(self) -> None:
        """Do for each refused output as its policy says, as a part of the open checkpoint."""
        for checkpoint_id, found in self._found.items():
            if self.is_aside(checkpoint_id):
                continue
            aside = self._aside.setdefault(checkpoint_id, set())
            for number in sorted(found.keys() - aside):
                self.by_target[found[number].target](found[number])
                aside.add(number)
            self._store.put(ASIDE + NUMBER.pack(checkpoint_id), msgspec.msgpack.encode(sorted(aside)))

    def is_aside(self, checkpoint_id: int) -> bool:
        """Tell whether all refused outputs of a checkpoint are set aside, if not for good yet."""
        found, is_deleted = self._found.get(checkpoint_id, {}), checkpoint_id in self._deleted
        return is_deleted or found.keys() <= self._aside.get(checkpoint_id, set())

    def is_committed(self, checkpoint_id: int) -> bool:
        """Tell whether no crash can take that back any more."""
        return self._found.get(checkpoint_id, {}).keys() <= self._committed.get(checkpoint_id, set())

    def close(self, applied: Collection[int]) -> None:
        """Note that a checkpoint is closed, which deletes the outputs of those ``applied``. Before the freeze."""
        for checkpoint_id in applied:
            assert self.is_aside(checkpoint_id), f"outputs of checkpoint {checkpoint_id} are lost"
            if self._aside.pop(checkpoint_id, None) is not None:
                self._store.delete(ASIDE + NUMBER.pack(checkpoint_id))
                self._deleted.append(checkpoint_id)
        self._closing = _copied(self._aside)

    def committed(self) -> None:
        """Note that what was closed last is committed."""
        self._committed = self._closing
        for checkpoint_id in self._deleted:
            self._found.pop(checkpoint_id, None)
        self._deleted = []


def _copied(aside: Mapping[int, set[int]]) -> dict[int, set[int]]:
    return {checkpoint_id: set(numbers) for checkpoint_id, numbers in aside.items()}
