"""To which partitions the entries of a job's state go: in a rescale, and in a fork to other numbers of partitions.

A route is plain data, so that the state may be moved by this process (framework.state.mover) or by Spark's executors
(framework.spark.moving).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from framework.api.job import Job
from framework.errors import ConfigError
from framework.execution.build import store_names
from framework.execution.deterministic.outputs import is_of_outputs
from framework.execution.reserved_stores import EVENT_TIME, META, OUTBOX, STREAM_TIME, TIMERS, TURN
from framework.job.key_metadata import Placement, Places
from framework.state.live_entries import event_time_of
from framework.state.snapshots import Snapshot

BACKFILL = "it cannot be rescaled; run its history through a job with other partitions instead: grete backfill"
BITS_MIN = 20  # of evidence that a store is keyed as the records are: a chance of one in a million to be wrong
_TIMER_NAME = 8  # in a timer's key: 8 bytes of time, a byte of length, owner, key (framework.execution.timers)


class Route(NamedTuple):
    """How the state of one task moves. ``first``: where the tasks of its stage begin among those of the new job."""

    stage: str
    stores: dict[int, str]
    expiring: frozenset[int]  # of the stores
    snapshot: Snapshot
    partition: int
    before: int  # partitions of its stage
    partitions: int  # that its stage is to have
    place: Placement
    first: int
    is_whole: bool  # the task goes on as it was under another name: nothing of it moves, all that it noted counts

    @property
    def moves(self) -> bool:
        """Whether its stage gets another number of partitions."""
        return self.before != self.partitions

    @property
    def task(self) -> str:
        """Its name, for errors."""
        return self.snapshot.task

    def targets(self, store: int, key: bytes) -> range:
        """Return the partitions that get an entry. Names of stores go everywhere; turns and event time do not."""
        if self.is_whole:
            stays = store == OUTBOX or (store == META and is_of_outputs(key))  # it counts outputs of the first job
            return range(self.partition, self.partition + (not stays))
        if store == META:
            return range(0 if key in (STREAM_TIME, TURN) or key.startswith(EVENT_TIME) else self.partitions)
        at = self.place(key_of_entry(store, key), self.partitions) if self.moves else self.partition
        return range(at, at + 1)

    def check(self, store: int, key: bytes) -> None:
        """Raise ConfigError for an entry that cannot be moved by its key."""
        if store == OUTBOX:
            raise ConfigError(f"stage {self.stage} writes files or tables, task by task: {BACKFILL}", stage=self.stage)
        belongs = self.place(key_of_entry(store, key), self.before) if self.tells(store) else self.partition
        if belongs != self.partition:
            raise ConfigError(
                f"store {self.stage}/{self.stores[store]}: key {key!r} is in partition {self.partition}, and its own "
                f"key would be in {belongs}: it is not keyed as the records are: {BACKFILL}",
                stage=self.stage,
            )

    def tells(self, store: int) -> bool:
        """Whether the keys of a store must tell where they belong."""
        return self.moves and store != META


def routes_of(
    old: Job, new: Job, snapshots: Sequence[Snapshot], places: Places, *, is_whole: bool = False
) -> list[Route]:
    """Return the route of each task of ``old``, which is at these snapshots, to ``new``. ``places``: unless whole."""
    found = []
    for (graph, partition), snapshot in zip(old.tasks(), snapshots, strict=True):
        place = places[graph.ordinal] if not is_whole else _nowhere
        partitions, first = new.stages[graph.ordinal].partitions, new.tasks_of(graph.ordinal).start
        stores, expiring = store_names(graph), frozenset(graph.expiring_ids())
        route = graph.name, stores, expiring, snapshot, partition, graph.partitions, partitions, place, first, is_whole
        found.append(Route(*route))
    return found


def key_of_entry(store: int, key: bytes) -> bytes:
    """Return the part of an entry's key that is a record's: of a timer, what the task has called it."""
    return key[_TIMER_NAME + 1 + key[_TIMER_NAME] :] if store == TIMERS else key


def least_time(stream_times: Iterable[bytes]) -> bytes:
    """Return the event time that rescaled tasks begin with, of what the tasks before have saved: the least.

    No timer of a slower partition may be taken for late.
    """
    return min(stream_times, key=event_time_of)


def check_seen(routes: Sequence[Route], seen: Mapping[str, int], *, assume_keyed: bool) -> None:
    """Refuse stores with too few keys to tell that they are the records' keys. ``seen``: "stage/store" → its keys."""
    counts = {route.stage: route.before for route in routes}
    for name, keys in seen.items():
        count = counts[name.split("/", 1)[0]]
        if keys * (count.bit_length() - 1) < BITS_MIN and not assume_keyed:
            raise ConfigError(
                f"cannot tell from {keys} key{'s' * (keys != 1)} in {count} partition{'s' * (count != 1)} whether the "
                f"keys of store {name} are the records' keys: if you know that they are, add --assume-keyed"
            )


def counted(route: Route, counts: Mapping[int, int]) -> Counter[str]:
    """Return "stage/store" → entries, of store → entries; what tasks note of themselves does not count."""
    return Counter({f"{route.stage}/{route.stores[store]}": n for store, n in counts.items() if store != META})


def _nowhere(_key: bytes, _partitions: int) -> int:
    raise AssertionError("a task that goes on as it was has no entries that move")
