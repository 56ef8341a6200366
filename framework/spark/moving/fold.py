"""Folds the rows that one task gets, sorted by key, into its state: what is deleted or has expired is left out.

Like ``grete.spark.moving.rows`` it holds a batch at a time, and knows what a rescale in one process knows of the
entries: which of them count, where they belong, and with which event time the task begins.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grete.errors import ConfigError
from grete.execution.timing.floors import FLOOR
from grete.execution.timing.reserved_stores import META, OUTBOX, STREAM_TIME, TIMERS
from grete.spark.moving.rows import EVERYWHERE, numbers_of
from grete.state.read.live_entries import event_time_of
from grete.state.write.moving.routes import EVIDENCE_MAX, Route, check_floors, times_to_begin_with
from grete.stores.overlay.expiring_store import horizon

FOLDED = "store int, key binary, value binary, report binary"
_SCHEMA = pa.schema(
    [("store", pa.int32()), ("key", pa.binary()), ("value", pa.binary()), ("report", pa.binary())],
)
_SOURCES = 1 << 16  # more than a stage has partitions


class FoldReport(msgspec.Struct):
    """The content of a task's state. ``seen``: stores whose keys had to tell their partition → number of keys.

    ``apart``: whether the tasks that it comes from were not equally far in event time.
    """

    task: int
    counts: dict[int, int] = {}
    seen: dict[int, int] = {}
    apart: bool = False
    wrong: dict[str, Any] | None = None  # the first entry that cannot be moved, as ConfigError.plain has it


def fold(routes: Sequence[Route], task: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the state of one task, by store and key, and a report as the last row. ``routes``: those to its stage."""
    state = _Fold(routes, task)
    held: pa.RecordBatch | None = None  # what there is of the last key: more of it may come
    for batch in batches:
        rows = state.without_resets(batch)
        rows = rows if held is None else pa.concat_batches([held, rows])
        if len(rows):
            rows = rows.filter(_last_of(rows, "store", "key", "source"))
            changes = np.flatnonzero(_last_of(rows, "store", "key")[:-1].to_numpy(zero_copy_only=False))
            begin = int(changes[-1]) + 1 if len(changes) else 0
            held = rows.slice(begin)
            if begin:
                yield state.live(rows.slice(0, begin))
    if held is not None:
        yield state.live(held)
    yield state.rest()
    yield pa.RecordBatch.from_pylist([{"report": msgspec.json.encode(state.report)}], _SCHEMA)


class _Fold:
    """The state of a task, as far as it is folded."""

    def __init__(self, routes: Sequence[Route], task: int) -> None:
        self.report = FoldReport(task)
        self._routes = {route.partition: route for route in routes}
        self._resets: dict[tuple[int, int], int] = {}  # (store, source) → place: what is before it does not count
        self._times: dict[int, bytes] = {}  # source → event time that it has saved
        self._begin: list[tuple[bytes, bytes]] = []  # times to begin with that are not written yet
        self._floors = set[bytes]()  # the keys of those of before
        self._known: dict[int, set[bytes]] = {}  # the record keys of stores of which several entries have one

    def without_resets(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that have keys; those without one come first of their store."""
        has_key = batch.column("key").is_valid()
        if batch.column("key").null_count:
            for row in batch.filter(pc.invert(has_key)).select(["store", "source", "place"]).to_pylist():
                place = row["store"], row["source"]
                self._resets[place] = max(row["place"], self._resets.get(place, -1))
            batch = batch.filter(has_key)
        return batch

    def live(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the entries that live of these rows, the last of each key and source."""
        rows = rows.filter(rows.column("value").is_valid())
        stores, sources = (rows.column(name).to_numpy().astype(np.int64) for name in ("store", "source"))
        self._save_times(rows, stores)
        pairs = stores * _SOURCES + sources
        alive = np.ones(len(rows), bool)
        for pair in np.unique(pairs).tolist():
            alive &= (pairs != pair) | self._counting(rows, *divmod(pair, _SOURCES))
        rows = rows.filter(pa.array(alive))
        self._check(rows)
        rows = rows.filter(_last_of(rows, "store", "key"))
        stores = rows.column("store").to_numpy()
        self._count(rows, stores)
        columns = [*(rows.column(name) for name in ("store", "key", "value")), pa.nulls(len(rows), pa.binary())]
        return self._with_times(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))

    def rest(self) -> pa.RecordBatch:
        """Return the entries to write behind all rows."""
        left, self._begin = self._begin, []
        return _of_meta(left)

    def _with_times(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows, by key, with the times that the task begins with in their places."""
        for key, value in self._begin.copy():
            meta = rows.column("store").to_numpy() == META
            keys = rows.filter(pa.array(meta)).column("key").to_pylist()
            begin = int(np.sum(rows.column("store").to_numpy() < META))
            at = begin + sum(each < key for each in keys)
            is_there = key in keys
            if at == len(rows):  # what comes before it may be still to come
                break
            rows = pa.concat_batches([rows.slice(0, at), _of_meta([(key, value)]), rows.slice(at + is_there)])
            self._begin.pop(0)
        return rows

    def _counting(self, rows: pa.RecordBatch, store: int, source: int) -> Any:
        """Tell of each row, if it is of this store and source, whether it counts: not emptied, and not expired."""
        counts = rows.column("place").to_numpy() >= self._resets.get((store, source), -1)
        if store in self._routes[source].expiring:
            least = horizon(event_time_of(self._times.get(source)))
            counts &= pc.greater_equal(rows.column("value"), pa.scalar(least, pa.binary())).to_numpy(
                zero_copy_only=False
            )
        return counts

    def _save_times(self, rows: pa.RecordBatch, stores: Any) -> None:
        """Take note of the event times: they come before the stores of the user's, whose entries expire by them."""
        for row in rows.filter(pa.array(stores == META)).to_pylist():
            if row["key"] == STREAM_TIME and row["place"] >= self._resets.get((META, row["source"]), -1):
                self._times[row["source"]] = row["value"]
                self._begin = self._first_times()
            elif row["key"].startswith(FLOOR):
                self._floors.add(row["key"])

    def _first_times(self) -> list[tuple[bytes, bytes]]:
        route = next(iter(self._routes.values()))
        if not route.moves:
            return []
        self.report.apart = len({self._times.get(source, b"") for source in self._routes}) > 1
        return times_to_begin_with(route, self._times)

    def _check(self, rows: pa.RecordBatch) -> None:
        """Take note of the first entry that cannot be moved."""
        route = next(iter(self._routes.values()))
        if route.is_whole or self.report.wrong is not None:
            return
        try:
            check_floors(route, self._floors)
        except ConfigError as error:
            self.report.wrong = error.plain()
            return
        stores, sources = rows.column("store").to_numpy(), rows.column("source").to_numpy()
        wrong = np.zeros(len(stores), bool)
        if route.moves:
            numbers = numbers_of(route, route.before, stores, rows.column("key"))
            wrong |= (numbers != sources) & (numbers != EVERYWHERE)
        wrong &= (stores != META) & (stores != OUTBOX)
        for at in np.flatnonzero(stores == OUTBOX).tolist():  # they are few
            wrong[at] = route.keeps(OUTBOX, rows.column("key")[at].as_py())
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            try:
                self._routes[int(sources[at])].check(int(stores[at]), rows.column("key")[at].as_py())
            except ConfigError as error:
                self.report.wrong = error.plain()

    def _count(self, rows: pa.RecordBatch, stores: Any) -> None:
        """Take note of how many entries there are, and how many keys tell their partition."""
        route = next(iter(self._routes.values()))
        for store, count in zip(*np.unique(stores, return_counts=True), strict=True):
            number = int(store)
            self.report.counts[number] = self.report.counts.get(number, 0) + int(count)
            if not route.moves or number == META:
                continue
            if number != TIMERS and number not in route.keys.forms:
                self.report.seen[number] = self.report.seen.get(number, 0) + int(count)
                continue
            known = self._known.setdefault(number, set())
            if len(known) < EVIDENCE_MAX:
                keys = rows.filter(pa.array(stores == number)).column("key").to_pylist()
                known |= {key for key in (route.keys.of(number, each) for each in keys) if key is not None}
            if known:
                self.report.seen[number] = len(known)


def _last_of(rows: pa.RecordBatch, *names: str) -> Any:
    """Return the sorted rows that are the last with their values in these columns."""
    if not len(rows):
        return pa.array([], pa.bool_())
    differs = np.zeros(len(rows), bool)
    differs[-1] = True
    for name in names:
        column = rows.column(name)
        differs[:-1] |= pc.not_equal(column[:-1], column[1:]).to_numpy(zero_copy_only=False)
    return pa.array(differs)


def _of_meta(entries: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch:
    """Return entries of META as rows."""
    found = [{"store": META, "key": key, "value": value} for key, value in entries]
    return pa.RecordBatch.from_pylist(found, _SCHEMA)
