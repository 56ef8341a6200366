"""A standby over a changelog that a test writes by hand, and what its store must hold."""

from collections.abc import Sequence

from grete.execution.changelog.standby import StandbyTask
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.ports import LogReader, StateStore
from grete.protocol.changelog import decode_data
from grete.protocol.changelog_position import ChangelogPosition, decode_changelog_position
from grete.protocol.commit import decode_commit
from grete.stores.memory import MemoryDisk, MemoryStore
from tests.core.streams import INNER
from tests.core.test_changelog_fold import Writer

CHANGELOG = INNER.changelog
NAMES = {0: "counts"}
TURNS_MAX = 10_000  # of a standby that has so little to read: more is a turn without end

State = dict[tuple[int, bytes], bytes]


class StandbyHost:
    """A changelog that grows when a test says so, a clock that it moves, and a standby that can be killed."""

    def __init__(self, store: StateStore | None = None, reader: LogReader | None = None) -> None:
        self.now_ms = 0.0
        self.data = MemoryLogData(lambda: 0)
        self.log = MemoryLog(self.data)
        self.log.create_topic(CHANGELOG.topic, 1)
        self.disk = MemoryDisk()
        self.store: StateStore = MemoryStore(NAMES, self.disk) if store is None else store
        self.reader: LogReader = self.log if reader is None else reader
        self.standby = self._standby()

    def _standby(self) -> StandbyTask:
        return StandbyTask(INNER, self.reader, self.store, batch_bytes_max=64, mono_ms=lambda: self.now_ms)

    def append(self, *messages: bytes) -> None:
        """Let the changelog get messages."""
        for message in messages:
            self.data.append(CHANGELOG, None, message, 0, None)

    def restart(self) -> None:
        """Kill the standby and start another one on its store."""
        self.standby = self._standby()

    def work(self, turns: int = TURNS_MAX) -> None:
        """Let it do all that it can, or so much of it."""
        for _ in range(turns):
            if not self.standby.tick():
                return
        assert turns < TURNS_MAX, f"a turn without end: {self.standby.progress}"

    @property
    def held(self) -> ChangelogPosition | None:
        """Return the changelog position of the store."""
        position = self.store.changelog_position()
        return None if position is None else decode_changelog_position(position)

    @property
    def state(self) -> State:
        """Return the content of the store."""
        return {(number, key): value for number in NAMES for key, value in self.store.scan(number, b"", None)}


def chain() -> list[bytes]:
    """Return claim, commit of 0 at offset 1, then data and commit of checkpoints 1, 2, 3 at offsets 3, 5, 7."""
    writer = Writer(1)
    messages = [writer.claim(), writer.commit(0)]
    for checkpoint_id in (1, 2, 3):
        messages += [writer.data(b"%d" % checkpoint_id), writer.commit(checkpoint_id, previous=checkpoint_id - 1)]
    return messages


def state_of(segments: Sequence[tuple[bytes, ...]]) -> State:
    """Return the state after all writes of some data messages, one after another."""
    state: State = {}
    for messages in segments:
        for message in messages:
            data = decode_data(message)
            for number in data.reset_stores or ():
                state = {place: value for place, value in state.items() if place[0] != number}
            for number, key, value in zip(data.stores, data.keys, data.values, strict=True):
                if value is None:
                    state.pop((number, key), None)
                else:
                    state[number, key] = value
    return state


def position_at(offset: int, message: bytes) -> ChangelogPosition:
    """Return the changelog position that names a commit."""
    commit = decode_commit(message)
    return ChangelogPosition(offset, commit.generation, commit.checkpoint_id, commit.nonce)
