"""A job whose keys version 1 of the serdes writes in several ways, begun as a release before 0.4.0 would have."""

import json
from contextlib import closing
from pathlib import Path

from grete.cli.settings_file import address_of
from grete.logs.address import open_address
from tests.cli.test_state_commands import grete

CODE = """
from decimal import Decimal
from grete import (
    Every, HoppingWindow, Input, IntervalJoin, Job, Output, Pair, Record, SessionWindow, Store, Task, Topic,
    TumblingWindow, VersionedStore, Window, int64, json, utf8,
)
LONG_MS = 1 << 40  # 34 years: nothing closes
price, by_hour = json(Decimal), json(dict[int, int])
orders = Topic("orders", key=utf8, value=utf8)
by_price = Topic("by-price", key=price, value=utf8)
totals = Topic("totals", key=price, value=int64)
class Spread(Task):
    orders = Input(orders, time=lambda _: 1_700_000_000_000)  # nothing is late
    last = Store("last", key=price, value=utf8)
    out = Output(by_price)
    def process(self, record: Record[str, str]) -> None:
        self.last.put(Decimal(record.value), "seen")
        self.out.send(Decimal(record.value), record.value)
class Count(Task):
    by_price = Input(by_price)
    counts = Store("counts", key=price, value=int64)
    hours = Store("hours", key=price, value=by_hour, ttl_ms=LONG_MS)
    blocks = TumblingWindow("blocks", LONG_MS, key=price, value=int64)
    hops = HoppingWindow("hops", LONG_MS, LONG_MS // 2, key=price, value=int64, emit=Every(1 << 30))
    visits = SessionWindow("visits", LONG_MS, key=price, value=int64, merge=int.__add__)
    joined = IntervalJoin(
        "joined", before_ms=LONG_MS, after_ms=LONG_MS, key=price, left=int64, right=by_hour, how="outer"
    )
    known = VersionedStore("known", price, by_hour, retention_ms=LONG_MS)
    out = Output(totals)
    def process(self, record: Record[Decimal, str]) -> None:
        key, at = record.key, record.timestamp
        count = self.counts.get(key, 0) + 1
        self.counts.put(key, count)
        hours = {7: self.hours.get(key, {}).get(7, 0) + 1, 3: 0}
        self.hours.put(key, hours)
        for window in (self.blocks, self.hops, self.visits):
            window.update(key, at, lambda n: (n or 0) + 1)
        self.joined.put_left(key, at, count)
        self.joined.put_right(key, at, hours)
        self.known.put(key, at, hours)
        self.out.send(key, count)
    def on_window(self, window: Window[Decimal, int]) -> None:
        pass
    def on_join(self, pair: Pair[Decimal, int, dict[int, int]]) -> None:
        pass
job = Job("prices", stages=[Spread, Count], partitions=2)
"""


def code(folder: Path, *changes: tuple[str, str], name: str = "prices") -> str:
    """Write the job's code with other words in it; return its path."""
    text = CODE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (folder / f"{name}.py").write_text(text)
    return str(folder / f"{name}.py")


def run(reference: str, directory: Path, *prices: str, log: str | None = None, topic: str = "orders") -> None:
    """Run the job over some prices more, to their end."""
    lines = directory.parent / "orders.txt"
    lines.write_text("".join(f"{price}\n" for price in prices))
    options = [f"--directory={directory}", *([f"--log={log}"] if log else [])]
    # An input partition without records is not waited for: all records have one time, and no window closes.
    quick = ["--set=checkpoint_interval_ms=50", "--set=event_time_idle_ms=100"]
    grete("run", reference, *quick, f"--input={topic}={lines}", *options)


def begin_before(reference: str, directory: Path) -> None:
    """Start a job without input, as a release before 0.4.0 did."""
    run(reference, directory)
    pin_before(directory, "prices")


def pin_before(directory: Path, job: str, log: str | None = None) -> None:
    """Pin for a job that has processed nothing what a release before 0.4.0 did: no version of the serdes."""
    with closing(open_address(address_of(log, None, None), directory / "log.db", create=False)) as opened:
        metadata = opened.open_metadata(job)
        definition = json.loads(metadata.meta_get("definition") or b"")
        assert definition.pop("serdes") == 2
        pinned = json.dumps(definition | {"format": 1}).encode()
        metadata.produce_with_meta([], {"definition": pinned, "definition-before": None}, sync=True)
