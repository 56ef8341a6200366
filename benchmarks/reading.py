"""The speed of Spark's changelog reads: ``format("changelog")`` over state of many keys, all partitions at once."""

import random
import time
from pathlib import Path

from rich.table import Table

from benchmarks import results as kept
from benchmarks.running import Results, median, show
from grete import Input, Job, Record, Store, Task, Topic, bytes_serde, utf8
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.settings import Settings
from grete.state.write.bulk.bulk_write import begin, commit
from grete.state.write.bulk.bulk_write_attempt import Attempt

PARTITIONS = 4
ROWS = 10_000
STORE = 10
VALUE = b"x" * 70
INPUT = Topic("pairs", key=utf8, value=bytes_serde)


class Keep(Task):
    """Keeps the newest value of a key."""

    pairs = Input(INPUT)
    kept = Store("kept", key=utf8, value=bytes_serde)

    def process(self, record: Record[str, bytes]) -> None:
        """Keep it."""
        self.kept.put(record.key, record.value)


job = Job("reading", stages=[Keep], partitions=PARTITIONS)


def written(directory: Path, records: int, rewritten: int) -> JobDirectory:
    """Write records into changelogs, each key ``rewritten`` times, with a checkpoint for each time."""
    job_directory = JobDirectory(directory / "job")
    log = EmbeddedLog(job_directory.directory / "log.db")
    create_topics(job, log)
    each = records // rewritten // PARTITIONS
    for round_ in range(rewritten):
        run = begin(log, job, Settings())
        attempts = [Attempt(log, run, task, 1) for task in range(PARTITIONS)]
        for task, attempt in enumerate(attempts):
            rng = random.Random(task)
            for start in range(0, each, ROWS):
                keys = [b"%016x" % rng.getrandbits(64) for _ in range(min(ROWS, each - start))]
                attempt.add([STORE] * len(keys), keys, [VALUE] * len(keys))
        commit(log, run, [attempt.close() for attempt in attempts], settings=Settings(), full=not round_)
    log.close()
    return job_directory


def reading(directory: Path, records: int, cores: int) -> dict[str, float]:
    """Read state of ``records`` keys, then one of a tenth of them, each written ten times; check what was read."""
    from grete.spark.session import local_session

    result: dict[str, float] = {}
    spark = local_session(f"local[{cores}]")
    for label, rewritten in (("once", 1), ("ten_times", 10)):
        job_directory = written(directory / label, records, rewritten)
        options = {"job": "benchmarks.reading", "store": "kept", "directory": str(job_directory.directory)}
        for figure in (f"first_{label}_per_s", f"{label}_per_s"):  # the first one also warms the executors up
            begun = time.perf_counter()
            frame = spark.read.format("changelog").options(**options).load().selectExpr("length(key) + length(value) n")
            count, size = frame.selectExpr("count(*)", "sum(n)").collect()[0]
            result[figure] = records / (time.perf_counter() - begun)
            if (count, size) != (records // rewritten, records // rewritten * 86):
                raise SystemExit(f"{count} entries of {size} bytes were read: the measurement does not count")
    spark.stop()
    return result


def show_reading(results: Results, records: int) -> kept.Table:
    """Print how fast changelogs become tables."""
    table = Table(title=f"format(changelog): {records:,} changelog records of 86 bytes, {PARTITIONS} partitions")
    for column in ("", "records/s (median)", "in a new session"):
        table.add_column(column, justify="left" if not column else "right")
    for label, name in (("each key once", "once"), ("each key ten times", "ten_times")):
        rates = [median(results, "read", f"{prefix}{name}_per_s") for prefix in ("", "first_")]
        table.add_row(label, *(f"{rate:,.0f}" for rate in rates))
    return show(table)
