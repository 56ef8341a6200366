"""Moves the state of a whole job along its routes: the port, and the mover that does it in this process."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from grete.execution.timing.floors import FLOOR
from grete.execution.timing.reserved_stores import META, STREAM_TIME, TIMERS
from grete.ports import Log, LogReader
from grete.protocol.changelog_position import ChangelogPosition
from grete.state.write.bulk.bulk_write_attempt import Attempt, AttemptData, BulkWrite
from grete.state.write.moving.entries import chunks, entries_of
from grete.state.write.moving.routes import Evidence, Route, check_floors, check_seen, counted, times_to_begin_with

Columns = tuple[list[int], list[bytes], list[bytes | None]]


class Mover(Protocol):
    """Reads all state of a job at its snapshots, and writes it into the tasks of a bulk write."""

    def check(self, routes: Sequence[Route], *, assume_keyed: bool) -> None:
        """Raise ConfigError for a store whose keys do not tell where they belong, by what is there now."""

    def write(self, routes: Sequence[Route], bulk_write: BulkWrite) -> tuple[list[AttemptData], Counter[str]]:
        """Write all state; return the attempt of each task, and the entries by "stage/store"."""

    def committed(self, changelog_positions: Sequence[ChangelogPosition]) -> None:
        """Take note that what ``write`` wrote counts, task by task with these commits."""


class InProcess:
    """Moves the state in this process: one task's is in memory at a time."""

    def __init__(self, log: LogReader, into: Log) -> None:
        """``log`` is the log of the job whose state it is, ``into`` that of the bulk write."""
        self._log, self._into = log, into

    def check(self, routes: Sequence[Route], *, assume_keyed: bool) -> None:
        """As of Mover."""
        seen = Evidence()
        times: dict[str, set[bytes]] = {}
        floors: dict[str, set[bytes]] = {}
        for route in routes:
            saved = b""
            for store, key, value in entries_of(self._log, route):
                route.check(store, key)
                if route.tells(store, key):
                    seen.add(route, store, key)
                elif store == META and key == STREAM_TIME:
                    saved = value
                elif store == META and key.startswith(FLOOR):
                    floors.setdefault(route.stage, set()).add(key)
            times.setdefault(route.stage, set()).add(saved)
        for route in routes:
            check_floors(route, floors.get(route.stage, ()))
        apart = {route.stage for route in routes if route.moves and len(times[route.stage]) > 1}
        check_seen(routes, seen.counts(), apart, assume_keyed=assume_keyed)

    def write(self, routes: Sequence[Route], bulk_write: BulkWrite) -> tuple[list[AttemptData], Counter[str]]:
        """As of Mover."""
        entries = Counter[str]()
        attempts: dict[int, Attempt] = {}
        stream_times: dict[str, dict[int, bytes]] = {}
        for_all = set[tuple[int, bytes]]()  # task and key of timers that several tasks of before have
        for route in routes:
            for at in range(route.first, route.first + route.partitions):
                if at not in attempts:
                    attempts[at] = Attempt(self._into, bulk_write, at, 1, sorted(route.stores))
            for stores, keys, values in chunks(entries_of(self._log, route)):
                if route.moves:
                    for store, key, value in zip(stores, keys, values, strict=True):
                        if value is not None and (store, key) == (META, STREAM_TIME):
                            stream_times.setdefault(route.stage, {})[route.partition] = value
                for number, chunk in _placed(route, stores, keys, values, for_all).items():
                    attempts[route.first + number].add(*chunk)
                    entries.update(counted(route, Counter(chunk[0])))
        for route in {route.stage: route for route in routes}.values():
            for key, value in times_to_begin_with(route, stream_times.get(route.stage, {})):
                for at in range(route.first, route.first + route.partitions):
                    attempts[at].add([META], [key], [value])
        return [attempt.close() for attempt in attempts.values()], entries

    def committed(self, changelog_positions: Sequence[ChangelogPosition]) -> None:
        """As of Mover: workers read it from the changelogs."""


def _placed(
    route: Route, stores: list[int], keys: list[bytes], values: list[bytes | None], for_all: set[tuple[int, bytes]]
) -> dict[int, Columns]:
    """Return the entries by partition of the new job's stage; ``for_all``: those of several tasks that have come."""
    placed: dict[int, Columns] = {}
    for store, key, value in zip(stores, keys, values, strict=True):
        is_for_all = store == TIMERS and route.moves and route.keys.of(store, key) is None
        for number in route.targets(store, key):
            if is_for_all:
                if (route.first + number, key) in for_all:
                    continue
                for_all.add((route.first + number, key))
            into = placed.setdefault(number, ([], [], []))
            into[0].append(store)
            into[1].append(key)
            into[2].append(value)
    return placed
