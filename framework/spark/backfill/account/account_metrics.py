"""The account of a history as metrics, in a file that Prometheus' node exporter collects (textfile collector).

A command that ends has no address at which it could be asked; a scheduler's gateway can be given the same file.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from grete.errors import FrameworkError
from grete.spark.backfill.account.reconciled import HistoryAccount, InputAccount

_COUNTS: tuple[tuple[str, str, Callable[[InputAccount], int]], ...] = (
    ("rows", "rows of files", lambda each: each.rows),
    ("taken", "rows of files that the job took as records", lambda each: each.taken),
    ("refused", "rows of files that are no records", lambda each: each.refused),
    ("twice", "rows of an offset that had been there", lambda each: each.twice),
    ("left_out", "rows before start=, or for the live job", lambda each: each.left_out),
    ("in_no_file", "offsets between those of the files that are in none", lambda each: each.in_no_file),
    ("from_log", "offsets that were read from the log", lambda each: each.from_log),
    ("log_keys", "different keys of the first records of the log behind the files", lambda each: each.log_keys),
    ("known_keys", "of these keys, how many are in the files", lambda each: each.known_keys),
)
_TIMES: tuple[tuple[str, str, Callable[[InputAccount], int | None]], ...] = (
    ("first", "lowest time of a record of the files", lambda each: each.first_ms),
    ("last", "highest time of a record of the files", lambda each: each.last_ms),
    ("log", "time of the first record of the log behind the files", lambda each: each.log_ms),
)


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
    for name, text, count_of in _COUNTS:
        gauge(name, text, [(place, count_of(each)) for place, each in places], "topic", "partition")
    for name, text, ms_of in _TIMES:
        times = [(place, at / 1_000) for place, each in places if (at := ms_of(each)) is not None]
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
