"""Moves the state of a whole job along its routes: the port, and the mover that does it in this process."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from framework.execution.reserved_stores import META, STREAM_TIME
from framework.ports import Log, LogReader
from framework.state.bulk_write_attempt import Attempt, BulkWrite, Written
from framework.state.entries import chunks, entries_of
from framework.state.routes import Route, check_seen, counted, least_time
from protocol.changelog_position import ChangelogPosition

Columns = tuple[list[int], list[bytes], list[bytes | None]]


class Mover(Protocol):
    """Reads all state of a job at its snapshots, and writes it into the tasks of a bulk write."""

    def check(self, routes: Sequence[Route], *, assume_keyed: bool) -> None:
        """Raise ConfigError for a store whose keys do not tell where they belong, by what is there now."""
        ...

    def write(self, routes: Sequence[Route], bulk_write: BulkWrite) -> tuple[list[Written], Counter[str]]:
        """Write all state; return the attempt of each task, and the entries by "stage/store"."""
        ...

    def committed(self, changelog_positions: Sequence[ChangelogPosition]) -> None:
        """Take note that what ``write`` wrote counts, task by task with these commits."""
        ...


class InProcess:
    """Moves the state in this process: one task's is in memory at a time."""

    def __init__(self, log: LogReader, into: Log) -> None:
        """``log`` is the log of the job whose state it is, ``into`` that of the bulk write."""
        self._log, self._into = log, into

    def check(self, routes: Sequence[Route], *, assume_keyed: bool) -> None:
        """As of Mover."""
        seen = Counter[str]()
        for route in routes:
            for store, key, _ in entries_of(self._log, route):
                route.check(store, key)
                if route.tells(store):
                    seen[f"{route.stage}/{route.stores[store]}"] += 1
        check_seen(routes, seen, assume_keyed=assume_keyed)

    def write(self, routes: Sequence[Route], bulk_write: BulkWrite) -> tuple[list[Written], Counter[str]]:
        """As of Mover."""
        entries = Counter[str]()
        attempts: dict[int, Attempt] = {}
        stream_times: dict[str, list[bytes]] = {}
        for route in routes:
            for at in range(route.first, route.first + route.partitions):
                if at not in attempts:
                    attempts[at] = Attempt(self._into, bulk_write, at, 1, sorted(route.stores))
            for stores, keys, values in chunks(entries_of(self._log, route)):
                if not route.is_whole:
                    rows = zip(stores, keys, values, strict=True)
                    times = [v for s, k, v in rows if v is not None and (s, k) == (META, STREAM_TIME)]
                    stream_times.setdefault(route.stage, []).extend(times)
                for number, chunk in _placed(route, stores, keys, values).items():
                    attempts[route.first + number].add(*chunk)
                    entries.update(counted(route, Counter(chunk[0])))
        for route in {route.stage: route for route in routes}.values():
            if found := stream_times.get(route.stage):
                for at in range(route.first, route.first + route.partitions):
                    attempts[at].add([META], [STREAM_TIME], [least_time(found)])
        return [attempt.close() for attempt in attempts.values()], entries

    def committed(self, changelog_positions: Sequence[ChangelogPosition]) -> None:
        """As of Mover: workers read it from the changelogs."""


def _placed(route: Route, stores: list[int], keys: list[bytes], values: list[bytes | None]) -> dict[int, Columns]:
    """Return the entries by partition of the new job's stage."""
    placed: dict[int, Columns] = {}
    for store, key, value in zip(stores, keys, values, strict=True):
        for number in route.targets(store, key):
            into = placed.setdefault(number, ([], [], []))
            into[0].append(store)
            into[1].append(key)
            into[2].append(value)
    return placed
