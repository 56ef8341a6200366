"""A job that joins one stream with itself, odd numbers with even ones, and adds up the pairs by window behind that."""

from grete import (
    Input,
    IntervalJoin,
    Job,
    Output,
    Pair,
    Record,
    TableJoin,
    Task,
    Topic,
    TumblingWindow,
    VersionedStore,
    Window,
    int64,
    utf8,
)

events = Topic("events", key=utf8, value=int64)
matched = Topic("matched", key=utf8, value=int64, public=True)
rows = Topic("rows", key=utf8, value=int64)
totalled = Topic("totalled", key=utf8, value=int64)

BEFORE_MS, AFTER_MS = 40, 90


class Match(Task):
    """Keeps the stream in three ways: for matches to come, as two tables, and as versions."""

    source = Input(events)
    near = IntervalJoin(
        "near", before_ms=BEFORE_MS, after_ms=AFTER_MS, key=utf8, left=int64, right=int64, how="outer", grace_ms=5
    )
    both = TableJoin("both", utf8, int64, int64, how="left")
    known = VersionedStore("known", utf8, int64, retention_ms=100)
    out = Output(matched)
    table = Output(rows)

    def process(self, record: Record[str, int]) -> None:
        """Put a number on its side; nine deletes a row."""
        key, at, value = record.key, record.timestamp, record.value
        row = None if value == 9 else value
        self.known.put(key, at, row)
        if value % 2:
            assert self.near.put_left(key, at, value), "late"
            self.both.put_left(key, at, row)
        else:
            assert self.near.put_right(key, at, value), "late"
            self.both.put_right(key, at, (self.known.get(key, at - 100) or 0) + value)

    def on_join(self, pair: Pair[str, int, int]) -> None:
        """Send a match to another key, a row to its own."""
        both = 10 * (pair.left or 0) + (pair.right or 0)
        if pair.name == "near":
            self.out.send(f"k{both % 5}", both)
        else:
            self.table.send(pair.key, None if pair.gone else both)


class Total(Task):
    """Adds up by window, without grace: what comes of a join is not late."""

    source = Input(matched)
    totals = TumblingWindow("totals", 40, key=utf8, value=int64)
    out = Output(totalled)

    def process(self, record: Record[str, int]) -> None:
        """Add."""
        assert self.totals.update(record.key, record.timestamp, lambda total: (total or 0) + record.value), "late"

    def on_window(self, window: Window[str, int]) -> None:
        """Tell."""
        self.out.send(window.key, window.value)


job = Job("matches", stages=[Match, Total], partitions=3)
