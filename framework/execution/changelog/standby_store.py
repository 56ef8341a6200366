"""The store of a standby: committed data, whole checkpoints at a time, with the changelog position behind it (R7)."""

from collections import Counter, deque
from collections.abc import Callable, Iterable

from grete.core.changelog.damage import unreadable
from grete.errors import Halted
from grete.execution.changelog.changelog_writer import apply_segment
from grete.execution.limits import STANDBY_LOAD_BYTES, STANDBY_POSITION_MS, STANDBY_WRITE_BYTES
from grete.halts import HaltCode
from grete.ports import StateStore, Write
from grete.protocol.changelog import decode_data
from grete.protocol.changelog_position import ChangelogPosition, decode_changelog_position, encode_changelog_position
from grete.protocol.errors import DecodeError


class StandbyStore:
    """Takes committed messages one by one, and writes them with the changelog position: one write, or loads and it.

    ``held``: the position that the store is the state of, None: none. ``due``: the one to be written next.
    """

    def __init__(self, name: str, store: StateStore, counters: Counter[str], mono_ms: Callable[[], float]) -> None:
        """``name``: that of the changelog."""
        self.held: ChangelogPosition | None = None
        self.due: ChangelogPosition | None = None
        self._name, self._store, self._counters, self._mono_ms = name, store, counters, mono_ms
        self._due_since_ms = 0.0
        self._messages: deque[bytes] = deque()  # of committed checkpoints, in order
        self._writes: list[Write] = []  # of those before, decoded
        self._bytes = 0  # of what goes into the store before the next changelog position
        self._loads = False  # it is too much for one write: it is there ahead of its position

    def judge(self) -> ChangelogPosition | None:
        """Return the changelog position that the store has, None: none."""
        position = self._store.changelog_position()
        self.held = None if position is None else decode_changelog_position(position)
        return self.held

    def wipe(self) -> None:
        """Drop all that it has, and what was to come."""
        self.forget()
        self._store.wipe()
        self._counters["wipes"] += 1

    def forget(self) -> None:
        """Drop what was to come."""
        self.held = self.due = None
        self._messages.clear()
        self._writes, self._bytes, self._loads = [], 0, False

    def add(self, messages: Iterable[bytes]) -> None:
        """Take committed data messages."""
        self._messages.extend(messages)

    def take_position(self, changelog_position: ChangelogPosition) -> None:
        """Take the changelog position of all that was added: it is written once that is in the store."""
        assert self.due is None or self.due.offset <= changelog_position.offset, "a changelog position went back"
        if self.due is None:
            self._due_since_ms = self._mono_ms()
        self.due = changelog_position

    def apply_next(self) -> bool:
        """Apply the next message, if there is one; return whether there was."""
        if self._messages:
            self._apply(self._messages.popleft())
            return True
        return False

    def _apply(self, message: bytes) -> None:
        """Take a message into the next write, or into the store if that would be too large."""
        self._bytes += len(message)
        if not self._loads:
            try:
                data = decode_data(message)
            except DecodeError as error:
                raise Halted(f"{self._name}: {unreadable(error)}", code=HaltCode.CHANGELOG_DAMAGED) from error
            if not data.reset_stores and self._bytes <= STANDBY_WRITE_BYTES:
                self._writes.extend(zip(data.stores, data.keys, data.values, strict=True))
                self._counters["restored records"] += len(data.stores)
                return
            self._loads = True
            for store, key, value in self._writes:
                self._store.load(store, [key], [value])
            self._writes = []
        self._counters["restored records"] += apply_segment(self._name, self._store, message)

    @property
    def is_enough(self) -> bool:
        """Whether enough was applied to write the position: a kill costs all that was applied since the last one."""
        bytes_max = STANDBY_LOAD_BYTES if self._loads else STANDBY_WRITE_BYTES // 4
        return self._bytes >= bytes_max or self._mono_ms() - self._due_since_ms >= STANDBY_POSITION_MS

    def write(self) -> None:
        """Write what was applied, with the position that is due."""
        assert self.due is not None, "a standby writes with a changelog position only"
        assert not self._messages, "a changelog position would come before its data"
        assert not (self._loads and self._writes), "a part was loaded before what was to come first"
        self._store.write(self._writes, encode_changelog_position(self.due))
        self.held, self.due = self.due, None
        self._writes, self._bytes, self._loads = [], 0, False
        self._counters["changelog positions"] += 1
