"""A day of mixed load in virtual time: how much a task writes to its changelog, and how long that gets (K2, 0007)."""

import random
from collections.abc import Iterable, Iterator

import pytest

from grete import Input, Job, Record, Store, Task, Topic, bytes_serde, utf8
from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.protocol.commit import decode_commit
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.stores.overlay.rewrite_slice import row_bytes
from grete.testing import Kit

CHECKPOINT_MS = 60_000
HOUR = 3_600_000 // CHECKPOINT_MS  # checkpoints
CHANGELOG = TopicPartition("day.keep.changelog", 0)
BATCH_BYTES = 40_000  # that a checkpoint of a burst changes, about
# Beyond the bound, in each of two rounds: the changes of a checkpoint, a row, and commits that do not pay for a slice.
SLACK = 300_000
Changes = dict[str, bytes | None]

changes = Topic("changes", key=utf8, value=bytes_serde)


class Keep(Task):
    """Keeps the last value of each key; an empty one deletes it."""

    inputs = Input(changes)
    kept = Store("kept", key=utf8, value=bytes_serde)

    def process(self, record: Record[str, bytes]) -> None:
        if record.value:
            self.kept.put(record.key, record.value)
        else:
            self.kept.delete(record.key)


def day(rand: random.Random) -> Iterator[Changes]:
    """Yield the changes of each checkpoint of a day."""
    fill = [f"{number:05d}" for number in range(3_000)]

    def some(keys: list[str], size: int) -> Changes:
        chosen = rand.sample(keys, min(len(keys), BATCH_BYTES // size))
        return {key: rand.randbytes(rand.randrange(size // 2, 3 * size // 2)) for key in chosen}

    for _ in range(HOUR):  # a burst
        yield some(fill, 1_000)
    for _ in range(6 * HOUR):  # idle
        yield {}
    for number in range(3 * HOUR):  # hot keys, and a change now and then besides
        yield {**(some(fill, 1_000) if number % 40 == 0 else {}), "hot": rand.randbytes(1_000)}
    for number in range(3 * HOUR):  # one key, rewritten for ever
        yield {"one": rand.randbytes(60_000 if number < HOUR else 1_000)}
    queued: list[str] = []
    for number in range(3 * HOUR):  # a queue: what is put is deleted some checkpoints later
        put = [f"q{number:05d}-{place}" for place in range(20)]
        gone, queued = (queued[:20], [*queued[20:], *put]) if number > 60 else ([], [*queued, *put])
        yield {key: rand.randbytes(1_000) for key in put} | dict.fromkeys(gone)
    for number in range(HOUR):  # the state shrinks to nothing
        gone = [*queued, *fill, "hot", "one"][number * 75 : number * 75 + 75]
        yield dict.fromkeys(gone)
    for _ in range(4 * HOUR):  # idle without state
        yield {}
    for _ in range(HOUR):  # small keys
        yield some(fill, 20)
    for _ in range(2 * HOUR):  # idle again
        yield {}


class Watched:
    """The changelog, seen after each checkpoint."""

    def __init__(self, kit: Kit) -> None:
        self._partition = kit._data.partition(CHANGELOG)
        self._next = self._partition.end
        self._appended: list[tuple[int, int]] = []  # time in ms, bytes, of all messages
        self._states: list[tuple[int, int]] = []  # next offset at a checkpoint, bytes of state then
        self._base = self.written = self.commits = 0  # commits: bytes of them

    def look(self, state: int) -> None:
        """Take what was appended since; ``state``: bytes that are live."""
        for row in self._partition.rows[self._partition.index(self._next) :]:
            value = row.value or b""
            self._appended.append((row.append_time_ms, len(value)))
            self.written += len(value)
            if decode_changelog_header(value).type is ChangelogType.COMMIT:
                self._base, self.commits = decode_commit(value).base, self.commits + len(value)
        self._next = self._partition.end
        self._states.append((self._next, state))

    @property
    def size(self) -> int:
        """Bytes in the log now."""
        return sum(len(row.value or b"") for row in self._partition.rows)

    @property
    def largest(self) -> int:
        """The largest state since the last complete round began."""
        return max(state for end, state in self._states if end > self._base)

    def since(self, ms: int) -> int:
        """Bytes written from then on."""
        return sum(size for time_ms, size in self._appended if time_ms >= ms)


def cost(changes: Iterable[tuple[str, bytes | None]]) -> int:
    """Bytes that some rows take in a data message."""
    return sum(row_bytes(key.encode(), value) for key, value in changes)


@pytest.mark.parametrize("retention_ms", [0, 3_600_000])
def test_a_day_of_mixed_load(retention_ms: int) -> None:
    """Written are at most 2.2 bytes for each that changes; kept four times the state, and the retention.

    A commit message counts as a change: what is committed often and changes little must be trimmed, too. Without
    changes nothing is rewritten that commits do not pay for.
    """
    settings = Settings(checkpoint_interval_ms=CHECKPOINT_MS, changelog_retention_ms=retention_ms)
    kit = Kit(Job("day", stages=[Keep], partitions=1), settings=settings)
    kit.advance(CHECKPOINT_MS)
    watched, changed, before, idle = Watched(kit), 0, (0, 0, 0), []
    state: Changes = {}
    for number, batch in enumerate(day(random.Random(1)), 1):
        for key, value in batch.items():
            kit.feed(changes, key, value or b"")
        state = {key: value for key, value in (state | batch).items() if value is not None}
        kit.advance(CHECKPOINT_MS)
        changed += cost(batch.items())
        watched.look(cost(state.items()))
        if number % HOUR == 0:
            retained = watched.since(kit.now_ms - retention_ms * 33 // 32) if retention_ms else 0
            assert watched.size <= 4 * watched.largest + SLACK + retained, number // HOUR
            if changed == before[0]:
                idle.append((watched.written - before[1], watched.commits - before[2]))
            before = (changed, watched.written, watched.commits)
    assert kit.state("kept") == state
    assert watched.written <= 2.2 * (changed + watched.commits)
    assert len(idle) == 12
    assert sum(written for written, _ in idle) <= 2.2 * sum(commits for _, commits in idle)
    kit.crash("keep", other_host=True)
    kit.run()
    assert kit.state("kept") == state
