"""A job whose code is deployed again with changes: its code, and how it is run and read."""

from pathlib import Path

from tests.cli.test_state_commands import grete

CODE = """
import msgspec
from grete import Input, Job, Output, Record, Store, Task, Topic, TumblingWindow, Window, avro, int64, json, utf8
orders = Topic("orders", key=utf8, value=utf8)
totals = Topic("totals", key=utf8, value=int64)
class Order(msgspec.Struct):
    item: str
    count: int = 1
class Total(Task):
    orders = Input(orders)
    counts = Store("counts", key=utf8, value=int64)
    last = Store("last", key=utf8, value=json(Order))
    rows = Store("rows", key=json(Order), value=avro({"type": "record", "name": "R", "fields": [
        {"name": "n", "type": "long"}]}))
    years = TumblingWindow("years", 315_360_000_000, key=utf8, value=int64)
    out = Output(totals)
    def process(self, record: Record[str, str]) -> None:
        item = record.value
        count = self.counts.get(item, 0) + 1
        self.counts.put(item, count)
        self.last.put(item, Order(item))
        self.rows.put(Order(item), {"n": count})
        self.years.update(item, record.timestamp, lambda value: (value or 0) + 1)
        self.out.send(item, count)
    def on_window(self, window: Window[str, int]) -> None:
        self.out.send("closed " + window.key, window.value)
class Other(Task):
    orders = Input(orders)
    def process(self, record: Record[str, str]) -> None:
        pass
job = Job("shop", stages=[Total, Other])
"""
READER = """
class Reads(Task):
    totals = Input(totals)
    seen = Store("seen", key=utf8, value=int64)
    def process(self, record: Record[str, int]) -> None:
        self.seen.put(record.key, record.value)
job = Job("shop", stages=[Total, Other, Reads])
"""
Changes = tuple[tuple[str, str], ...]


def code(folder: Path, *changes: tuple[str, str], name: str = "changed", more: str = "") -> str:
    """Write the job's code with other words in it; return its path."""
    text = CODE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (folder / f"{name}.py").write_text(text + more)
    return str(folder / f"{name}.py")


def run(reference: str, directory: Path, *items: str) -> str:
    """Run a job over some orders more, to their end."""
    lines = directory.parent / "orders.txt"
    lines.write_text("".join(f"{item}\n" for item in items))
    return grete(
        "run", reference, f"--directory={directory}", f"--input=orders={lines}", "--set=checkpoint_interval_ms=50"
    )


def scan(reference: str, directory: Path, store: str) -> dict[str, str]:
    """Return the content of a store, as it is printed."""
    lines = grete("state", "scan", reference, store, f"--directory={directory}").splitlines()
    return dict(line.split("\t") for line in lines)
