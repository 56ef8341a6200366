"""The partitions to which the entries of a job's state go: in a rescale, and in a fork to other numbers of them.

A route is plain data, so that the state may be moved by this process (grete.state.write.moving.mover) or by Spark's
executors (grete.spark.moving).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from grete.api.jobs.job import Job
from grete.core.graph.partitioners import Partitioner
from grete.errors import ConfigError
from grete.execution.build import store_names
from grete.execution.calls.kept_results import is_kept
from grete.execution.deterministic.outputs import AT, is_of_outputs
from grete.execution.deterministic.processor import CALLS, RECORDS
from grete.execution.sinks.waiting_outputs import BLOCK, CLOSED, NUMBER
from grete.execution.timing.floors import Floor
from grete.execution.timing.reserved_stores import EVENT_TIME, META, OUTBOX, STREAM_TIME, TIMERS, TURN, WAITING
from grete.job.key_metadata import Placement, Places
from grete.protocol.partitioner import crc32_partition_of
from grete.quoting import key_text
from grete.state.read.checkpoints.snapshots import Snapshot
from grete.state.read.live_entries import event_time_of
from grete.state.write.moving.record_keys import RecordKeys, record_keys

BACKFILL = "it cannot be rescaled; run its history through a job with other partitions instead: grete backfill"
BITS_MIN = 20  # of evidence that a store is keyed as the records are: a chance of one in a million to be wrong
EVIDENCE_MAX = 1_000  # keys of a store that are remembered: more prove no more
_OF_ONE_TASK = (STREAM_TIME, AT, CALLS, RECORDS)  # in META: what becomes of the first is not its route's to say
FLOORS_MAX = 8  # of a task: each costs a lookup with each record


class Route(NamedTuple):
    """The route of one task's state. ``first``: the number, in the new job, of the first task of its stage."""

    stage: str
    stores: dict[int, str]
    expiring: frozenset[int]  # of the stores
    keys: RecordKeys
    snapshot: Snapshot
    partition: int
    before: int  # partitions of its stage
    partitions: int  # that its stage is to have
    place: Placement
    first: int
    forks: bool  # to another job
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
        """Return the partitions that get an entry. Names of stores go everywhere; turns and event time do not.

        Nor do entries that are for all keys: they go wherever some of their keys do.
        """
        own = range(self.partition, self.partition + 1)
        if self.is_whole:
            stays = store == OUTBOX or (store == META and is_of_outputs(key))  # it counts outputs of the first job
            return own[stays:]
        if store == META:
            if key == TURN or key.startswith(EVENT_TIME) or is_of_outputs(key):
                return own[1:]
            if not self.moves:
                return own
            return range(0 if key in _OF_ONE_TASK or is_kept(key) else self.partitions)
        if not self.moves or store == OUTBOX:  # what a task keeps of its sinks is its own, and not a second job's
            return own[self.forks and store == OUTBOX :]
        record_key = self.keys.of(store, key)
        if record_key is None:
            return range(self.partitions)
        at = self.place(record_key, self.partitions)
        return range(at, at + 1)

    def check(self, store: int, key: bytes) -> None:
        """Raise ConfigError for an entry that cannot be moved by its key."""
        if self.keeps(store, key):
            raise ConfigError(
                f"{self.task} has outputs that its file, table or service has not got yet{_checkpoint(key)}, and they "
                "cannot go to another task: start the job as it was, let it run until they are there (grete run ends "
                "then), and ask again",
                task=self.task,
            )
        if not self.tells(store, key):
            return
        record_key = self.keys.of(store, key)
        assert record_key is not None
        belongs = self.place(record_key, self.before)
        if belongs != self.partition:
            raise ConfigError(
                f"store {self.stage}/{self.stores[store]}: key {key_text(record_key)} is in partition "
                f"{self.partition}, and its own key would be in {belongs}: it is not keyed as the records are: "
                f"{BACKFILL}; there declare its key as Key, with the record's key as its first part",
                stage=self.stage,
            )

    def keeps(self, store: int, key: bytes) -> bool:
        """Whether the entry keeps an output that a sink has not got yet, and the stage gets another number of tasks."""
        waits = store == OUTBOX and key.startswith(WAITING) and not key.startswith(BLOCK)  # what has the blocks tells
        return waits and self.moves and not self.forks

    def tells(self, store: int, key: bytes) -> bool:
        """Whether an entry must tell by its key where it belongs."""
        return self.moves and store not in (META, OUTBOX) and self.keys.of(store, key) is not None


def routes_of(
    old: Job, new: Job, snapshots: Sequence[Snapshot], places: Places, *, is_whole: bool = False, forks: bool = False
) -> list[Route]:
    """Return the route of each task of ``old``, which is at these snapshots, to ``new``. ``places``: unless whole."""
    found = []
    for (graph, partition), snapshot in zip(old.tasks(), snapshots, strict=True):
        place = places[graph.ordinal] if not is_whole else _nowhere
        partitions, first = new.stages[graph.ordinal].partitions, new.tasks_of(graph.ordinal).start
        stores, expiring, keys = store_names(graph), frozenset(graph.expiring_ids()), record_keys(graph)
        task = snapshot, partition, graph.partitions, partitions
        found.append(Route(graph.name, stores, expiring, keys, *task, place, first, forks, is_whole))
    return found


def times_to_begin_with(route: Route, stream_times: Mapping[int, bytes]) -> list[tuple[bytes, bytes]]:
    """Return the entries of META with which the tasks of a rescaled stage begin, in the order of keys, as (key, value).

    ``stream_times``: old partition → the event time that its task has saved. The tasks begin with the least: no timer
    of a slower partition may be taken for late. For the keys of the others a floor says how far time was (0079).
    """
    if not stream_times:
        return []
    least = min(stream_times.values(), key=event_time_of)
    times = tuple(event_time_of(stream_times.get(number)) for number in range(route.before))
    floor = Floor(times, Partitioner.CRC32 if route.place is crc32_partition_of else Partitioner.MURMUR2)
    begin = [(STREAM_TIME, least)]
    return begin if floor.is_level or not route.keys.by_time else [*begin, floor.entry()]


def check_floors(route: Route, floors: Collection[bytes]) -> None:
    """Refuse a stage whose tasks have as many floors, by key in META, that one more is too many."""
    if route.moves and len(floors) >= FLOORS_MAX:
        raise ConfigError(
            f"stage {route.stage} was rescaled {len(floors)} times while the event times of its tasks were apart, and "
            "it still has keys that are ahead of their task: let the job process records until event time has passed "
            "that of the last rescale, then ask again",
            stage=route.stage,
        )


def check_seen(routes: Sequence[Route], seen: Mapping[str, int], apart: Collection[str], *, assume_keyed: bool) -> None:
    """Refuse stores with too few keys to tell that they are the records' keys. ``seen``: "stage/store" → its keys.

    ``apart``: stages whose tasks are not equally far in event time. There the keys to come must tell, too, how far time
    was for them, though a store may be empty.
    """
    counts = {route.stage: route.before for route in routes}
    by_time = {f"{each.stage}/{each.stores[s]}" for each in routes if each.stage in apart for s in each.keys.by_time}
    for name, keys in {**dict.fromkeys(sorted(by_time), 0), **seen}.items():
        count = counts[name.split("/", 1)[0]]
        if keys * (count.bit_length() - 1) < BITS_MIN and not assume_keyed:
            raise ConfigError(
                f"cannot tell from {keys} key{'s' * (keys != 1)} in {count} partition{'s' * (count != 1)} whether the "
                f"keys of store {name} are the records' keys: if you know that they are, add --assume-keyed"
            )


class Evidence:
    """The record keys that tell, by store, where its entries belong: each counts once, up to a bound."""

    def __init__(self) -> None:
        self._whole = Counter[str]()  # of stores with a record's key as it is, which has one entry
        self._parts: dict[str, set[bytes]] = {}

    def add(self, route: Route, store: int, key: bytes) -> None:
        """Take an entry that tells."""
        name = f"{route.stage}/{route.stores[store]}"
        if store != TIMERS and store not in route.keys.forms:
            self._whole[name] += 1
            return
        known, record_key = self._parts.setdefault(name, set()), route.keys.of(store, key)
        if record_key is not None and len(known) < EVIDENCE_MAX:
            known.add(record_key)

    def counts(self) -> dict[str, int]:
        """Return "stage/store" → keys."""
        return {**self._whole, **{name: len(known) for name, known in self._parts.items()}}


def _checkpoint(key: bytes) -> str:
    return f" (checkpoint {NUMBER.unpack_from(key, 1)[0]})" if key.startswith(CLOSED) else ""


def counted(route: Route, counts: Mapping[int, int]) -> Counter[str]:
    """Return "stage/store" → entries, of store → entries; what tasks note of themselves does not count."""
    return Counter({f"{route.stage}/{route.stores[store]}": n for store, n in counts.items() if store != META})


def _nowhere(_key: bytes, _partitions: int) -> int:
    raise AssertionError("a task that goes on as it was has no entries that move")
