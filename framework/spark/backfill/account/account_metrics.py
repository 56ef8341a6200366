"""The account of a history as metrics, in a file that Prometheus' node exporter collects (textfile collector).

A command that ends has no address at which it could be asked; a scheduler's gateway can be given the same file.
"""

import time
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from grete.errors import FrameworkError
from grete.spark.backfill.account.reconciled import HistoryAccount

_COUNTS = {
    "rows": "rows of files",
    "taken": "rows of files that the job took as records",
    "refused": "rows of files that are no records",
    "twice": "rows of an offset that had been there",
    "left_out": "rows before start=, or for the live job",
    "in_no_file": "offsets between those of the files that are in none",
    "from_log": "offsets that were read from the log",
    "log_keys": "different keys of the first records of the log behind the files",
    "known_keys": "of these keys, how many are in the files",
}
_TIMES = {
    "first_ms": ("first", "lowest time of a record of the files"),
    "last_ms": ("last", "highest time of a record of the files"),
    "log_ms": ("log", "time of the first record of the log behind the files"),
}


def write_metrics(path: Path, job: str, account: HistoryAccount, keys: int, differences: int | None) -> None:
    """Write the file as a whole or not at all. ``keys`` of the state; ``differences``: of an audit, else None.

    Raises FrameworkError: it cannot be written.
    """
    registry = CollectorRegistry()

    def gauge(name: str, text: str, values: Iterable[tuple[tuple[str, ...], float]], *labels: str) -> None:
        family = Gauge(f"grete_history_{name}", text, ("job", *labels), registry=registry)
        for which, value in values:
            family.labels(job, *which).set(value)

    places = [((each.topic, str(each.partition)), each) for each in account.inputs]
    for name, text in _COUNTS.items():
        gauge(name, text, [(place, getattr(each, name)) for place, each in places], "topic", "partition")
    for field, (name, text) in _TIMES.items():
        times = [(place, at / 1_000) for place, each in places if (at := getattr(each, field)) is not None]
        gauge(f"{name}_timestamp_seconds", text, times, "topic", "partition")
    gauge("state_keys", "keys of the state that were made, or made again", [((), keys)])
    if differences is not None:
        gauge("differences", "keys that an audit found to differ", [((), differences)])
    gauge("completed_timestamp_seconds", "when this was written", [((), time.time())])
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise FrameworkError(
            f"--metrics {path}: the work is done, and its metrics cannot be written: {error}"
        ) from error
