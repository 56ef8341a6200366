"""A job of four stages whose code is deployed again with changes: its code, and how it is run and read."""

from pathlib import Path

from tests.cli.test_state_commands import grete

CODE = """
from grete import Input, Job, Output, Record, Store, Task, Timers, Topic, TumblingWindow, int64, json, utf8
orders = Topic("orders", key=utf8, value=utf8)
parsed = Topic("parsed", key=utf8, value=utf8)
enriched = Topic("enriched", key=utf8, value=utf8)
totals = Topic("totals", key=utf8, value=int64)
class Parse(Task):
    orders = Input(orders)
    out = Output(parsed)
    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.value, record.value)
class Enrich(Task):
    parsed = Input(parsed)
    known = Store("known", key=utf8, value=int64)
    out = Output(enriched)
    def process(self, record: Record[str, str]) -> None:
        self.known.put(record.key, self.known.get(record.key, 0) + 1)
        self.out.send(record.key, record.value)
class Total(Task):
    given = Input(enriched)
    counts = Store("counts", key=utf8, value=int64)
    last = Store("last", key=utf8, value=utf8)
    out = Output(totals)
    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get(record.key, 0) + 1
        self.counts.put(record.key, count)
        self.last.put("last", record.key)
        self.out.send(record.key, count)
class Audit(Task):
    parsed = Input(parsed)
    seen = Store("seen", key=utf8, value=int64)
    def process(self, record: Record[str, str]) -> None:
        self.seen.put(record.key, self.seen.get(record.key, 0) + 1)
job = Job("pipeline", stages=[Parse, Enrich, Total, Audit], partitions=2)
"""
MORE = (
    "job = Job(",
    """class More(Task):
    enriched = Input(enriched)
    seen = Store("seen", key=utf8, value=int64)
    def process(self, record: Record[str, str]) -> None:
        self.seen.put(record.key, self.seen.get(record.key, 0) + 1)
job = Job(""",
)
RENAMED_STAGE = (
    ("class Total(Task):\n", 'class Sum(Task):\n    renamed_from = "total"\n'),
    ("[Parse, Enrich, Total,", "[Parse, Enrich, Sum,"),
)
RENAMED_STORE = (('"counts", key=utf8, value=int64', '"sums", key=utf8, value=int64, renamed_from="counts"'),)


def code(folder: Path, *changes: tuple[str, str], name: str = "changed") -> str:
    """Write the job's code with other words in it; return its path."""
    text = CODE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (folder / f"{name}.py").write_text(text)
    return str(folder / f"{name}.py")


def run(reference: str, directory: Path, *items: str, log: str | None = None) -> str:
    """Run a job over some orders more, to their end."""
    lines = directory.parent / "orders.txt"
    lines.write_text("".join(f"{item}\n" for item in items))
    options = [f"--directory={directory}", "--set=checkpoint_interval_ms=50", *([f"--log={log}"] if log else [])]
    return grete("run", reference, *options, *([f"--input=orders={lines}"] if items else []))


def scan(reference: str, directory: Path, store: str, log: str | None = None) -> dict[str, int]:
    """Return the content of a store of numbers, as it is printed."""
    options = [f"--directory={directory}", *([f"--log={log}"] if log else [])]
    lines = grete("state", "scan", reference, store, *options).splitlines()
    return {key: int(value) for key, value in (line.split("\t") for line in lines)}
