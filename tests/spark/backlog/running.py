"""Runs a job over its backlog in worker processes, kills some, drains it, and reads what it gave."""

import contextlib
import json
import os
import sqlite3
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grete.api.tasks.mode import Mode
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import EMBEDDED, LogAddress
from grete.logs.partition_reader import rows as all_rows
from grete.ports import ExternalRecord, LogRow
from grete.protocol.frames import decode_headers
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.read.local_reader import LocalReader
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.spark.backlog.feeds import PARTITIONS, Fed
from tests.spark.backlog.in_batch import Rows, rows_of
from tests.support import http_server, registry

TASKS = Path(__file__).parents[3] / "tasks"
LIMIT_S = 180.0  # without a new commit: far beyond what a slow machine needs
AT_ONCE = 10_000  # records handed to the log
SETTINGS = Settings(
    checkpoint_interval_ms=50,
    restart_backoff_ms=20,
    event_time_idle_ms=500,
    batch_bytes_max=2_048,  # so that a few thousand records are many batches, and a kill comes between two of them
)
_OF_TWO = """
from grete import Job as _Job, Task as _Task

_stages = [each for each in list(globals().values()) if isinstance(each, type) and issubclass(each, _Task)]
job = _Job(job.name, [each for each in _stages if each is not _Task], partitions={partitions}, mode={mode!r})
"""


class Finished(NamedTuple):
    """The results of a run, by kind; its duration from its start; ``late``: records dropped as late."""

    results: dict[str, Rows]
    seconds: float
    killed: int
    late: int


class Outputs:
    """The outputs of an ended job, as readers see them."""

    def __init__(self, local: LocalJob, reference: str) -> None:
        self._local, self._reference = local, reference

    def rows(self, topic: str) -> list[tuple[str, LogRow]]:
        """Return (key, row) of all partitions of a topic."""
        log, places = self._local.log, [TopicPartition(topic, number) for number in range(PARTITIONS)]
        found = (row for place in places for row in all_rows(log, place, 0, log.bounds(place)[1]))
        return [((row.key or b"").decode(), row) for row in found]

    def json(self, topic: str) -> Iterator[tuple[str, Any]]:
        """Yield (key, value) of a topic of JSON."""
        return ((key, json.loads(row.value or b"null")) for key, row in self.rows(topic))

    def letters(self, topic: str) -> Iterator[list[Any]]:
        """Yield the origin of the record of each dead letter, and its key."""
        for key, row in self.rows(topic):
            headers = {name: (value or b"").decode() for name, value in decode_headers(row.headers or b"")}
            yield [int(headers["grete.source"].partition("[")[2][:-1]), int(headers["grete.offset"]), key]

    def state(self, store: str) -> list[list[Any]]:
        """Return [key, value] of a store of the job's only stage, as another program reads it."""
        job = load_job(self._reference)
        (stage,) = job.stages
        with LocalReader(self._local.job_directory.state_directory, job) as reader:
            return [list(row) for row in reader.all(getattr(stage.task, store))]


class Prices:
    """A service: it lacks one thing in 50, and has an error at the first request for each of many others."""

    def __init__(self) -> None:
        self._failed = set[str]()

    def answer(self, sku: str) -> tuple[int, bytes]:
        """Return the status and the price of a thing, which comes of its number."""
        number = int(sku.removeprefix("thing"))
        if number % 50 == 0:
            return 404, b""
        if number % 10 == 1 and sku not in self._failed:
            self._failed.add(sku)
            return 500, b""
        return 200, b"%d" % (100 + 7 * number % 1000)


def _text(row: LogRow) -> str:
    return (row.value or b"").decode()


def _visits(seen: Outputs) -> dict[str, Any]:
    over = [(key, visit) for key, visit in seen.json("visits") if visit["over"]]
    return {"visits": ([key, sorted(visit["pages"]), visit["seconds"]] for key, visit in over)}


def _once_a_day(seen: Outputs) -> dict[str, Any]:
    return {"notices": ([key, _text(row), row.timestamp_ms] for key, row in seen.rows("notices"))}


def _rate_limit(seen: Outputs) -> dict[str, Any]:
    topics = {"allowed-requests": True, "refused-requests": False}
    return {"requests": [[key, _text(row), is_] for topic, is_ in topics.items() for key, row in seen.rows(topic)]}


def _dead_letters(seen: Outputs) -> dict[str, Any]:
    refused = zip(seen.letters("refused-payments"), seen.rows("refused-payments"), strict=True)
    return {
        "large": ([key, payment["cents"]] for key, payment in seen.json("large-payments")),
        "refused": ([*letter, _text(row)] for letter, (_, row) in refused),
    }


def _sinks(_seen: Outputs) -> dict[str, Any]:
    with contextlib.closing(sqlite3.connect("shop.db")) as sql:
        table = sql.execute("SELECT item, pieces FROM stock").fetchall()
    lines = (line for path in Path("archive").glob("part-*") for line in path.read_text().splitlines())
    return {"table": table, "archive": ([row["item"], row["pieces"]] for row in map(json.loads, lines))}


def _registry(seen: Outputs) -> dict[str, Any]:
    totals = ((key, _avro_long((row.value or b"")[5:])) for key, row in seen.rows("totals"))
    return {"totals": totals, "refused": seen.letters("refused-payments"), "state": seen.state("cents")}


def _calls(seen: Outputs) -> dict[str, Any]:
    priced = ([key, order["cents"]] for key, order in seen.json("priced-orders"))
    return {"priced": priced, "refused": seen.letters("refused-orders"), "state": seen.state("prices")}


def _avro_long(data: bytes) -> int:
    number = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data))
    return number >> 1 ^ -(number & 1)


SEEN: dict[str, Callable[[Outputs], dict[str, Any]]] = {
    "visits": _visits,
    "interval_join": lambda seen: {
        "results": ([key, _text(row), row.timestamp_ms] for key, row in seen.rows("paid-orders"))
    },
    "billing": lambda seen: {"bills": ([key, bill["number"], bill["cents"]] for key, bill in seen.json("bills"))},
    "once_a_day": _once_a_day,
    "rate_limit": _rate_limit,
    "top_pages": lambda seen: {
        "rankings": ([row.timestamp_ms // 60_000, json.loads(row.value or b"")] for _, row in seen.rows("top-pages"))
    },
    "dead_letters": _dead_letters,
    "sinks": _sinks,
    "registry": _registry,
    "calls": _calls,
}


def run(name: str, mode: Mode, fed: Sequence[Fed], directory: Path, *, log: str = EMBEDDED, kills: int = 0) -> Finished:
    """Run a job over its backlog until its inputs have ended; ``kills``: how many workers die by SIGKILL meanwhile."""
    reference = directory / f"{name}_of_two.py"
    reference.write_text((TASKS / f"{name}.py").read_text("utf-8") + _OF_TWO.format(partitions=PARTITIONS, mode=mode))
    with _outside(name, directory):
        job = load_job(str(reference))
        job_directory = JobDirectory(directory / "place", address=LogAddress(log))
        with LocalJob(
            job, str(reference), job_directory, SETTINGS, inputs=OutsideInputs({row.topic for row in fed})
        ) as local:
            _feed(local, fed)
            begun = time.monotonic()
            killed = _work(local, kills)
            seconds = time.monotonic() - begun
            local.stop()
            results = {what: rows_of(rows) for what, rows in SEEN[name](Outputs(local, str(reference))).items()}
            late = sum(local.reports.dropped.get("late", {}).values())
        return Finished(results, seconds, killed, late)


def _feed(local: LocalJob, fed: Sequence[Fed]) -> None:
    """Append all of it: a backlog is there before the workers are."""
    records = [ExternalRecord(TopicPartition(*row[:2]), row.key.encode(), row.value, row.at) for row in fed]
    for begin in range(0, len(records), AT_ONCE):
        local.log.produce(0, 0, records[begin : begin + AT_ONCE])
        while not local.log.poll():
            local.log.wait(100)


def _work(local: LocalJob, kills: int) -> int:
    """Run until all input is processed, then drain; the workers die in turn, the last one while the job is drained."""
    ends, killed = local.ends(), 0
    total, seen, deadline = sum(ends.values()), (0, False), time.monotonic() + LIMIT_S
    while True:
        local.poll(5)
        done, committed = local.drained(ends), sum(local.committed().values())
        if (committed, done) != seen:
            seen, deadline = (committed, done), time.monotonic() + LIMIT_S
        assert time.monotonic() < deadline, (local.checkpoint_ids(), local.committed())
        if killed < kills - 1 and (done or committed > total * (killed + 1) // (kills + 1)):
            local.supervisor.kill(killed % PARTITIONS)
            killed += 1
        elif done and not local.completion.draining:
            local.drain(ends)
            if killed < kills:
                local.supervisor.kill(killed % PARTITIONS)
                killed += 1
        elif done:
            return killed


@contextlib.contextmanager
def _outside(name: str, directory: Path) -> Iterator[None]:
    """Be in the job's directory within the block, and let the systems run that it asks or writes to."""
    before, variables, places = Path.cwd(), dict(os.environ), list(sys.path)
    with contextlib.ExitStack() as stack:
        if name == "registry":
            os.environ["SCHEMA_REGISTRY"] = url = stack.enter_context(registry.running()).url
            payment = {"type": "record", "name": "Payment", "fields": [{"name": "cents", "type": "long"}]}
            body = json.dumps({"schema": json.dumps(payment)}).encode()
            with urllib.request.urlopen(f"{url}/subjects/payments-value/versions", data=body):  # its id is SCHEMA_ID
                pass
        if name == "calls":
            os.environ["PRICES"] = stack.enter_context(http_server.serving(Prices().answer)).url
        os.chdir(directory)
        if name == "sinks":
            with contextlib.closing(sqlite3.connect("shop.db")) as sql:
                sql.execute("CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INT)")
        try:
            yield
        finally:
            os.chdir(before)
            sys.path[:] = places  # loading a job has put its folder there
            os.environ.clear()
            os.environ.update(variables)
