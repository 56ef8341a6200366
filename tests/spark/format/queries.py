"""Queries that follow a job: with a real session into files or a function, or as Spark asks a reader, without it."""

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from grete.spark.format.sources import ChangelogSource, StreamSource
from grete.spark.format.topic_source import TopicSource
from tests.spark.format.history import REFERENCE, Counts
from tests.support.dropped import when_dropped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TOLD = Path("tests/spark/format/told_job.py")
OF_STREAMS = {"startingCheckpoint", "maxCheckpointsPerBatch", "maxRecordsPerBatch"}
STARTS_MAX = 5  # of a query whose Python workers connect too late
SOURCES = {source.name(): source for source in (ChangelogSource, StreamSource, TopicSource)}


def run_query(sink: "DataStreamWriter") -> None:
    """Read all that is there now, and end; start again, as its user would, if Spark's own patience was too short.

    It gives a Python worker ten seconds to import pyspark and to connect: too little on a starved machine.
    """
    for left in reversed(range(STARTS_MAX)):
        try:
            sink.trigger(availableNow=True).start().awaitTermination()
        except StreamingQueryException as error:
            if left == 0 or "Python worker failed to connect back" not in str(error):
                raise
        else:
            return


def code(path: Path, suffix: str = "", **replaced: str) -> Path:
    """Write the told job into a file, its topics and the job with a suffix of their own."""
    text = TOLD.read_text()
    for name in ("observed", "totals", "told"):
        text = text.replace(f'("{name}"', f'("{name}{suffix}"')
    for old, new in replaced.items():
        assert f"{old}=2" in text, old
        text = text.replace(f"{old}=2", f"{old}={new}")
    path.write_text(text)
    return path


class Query:
    """A query into Parquet files, with Spark's own commit log."""

    def __init__(
        self, spark: "SparkSession", directory: Path, out: Path, form: str = "changelog", **options: Any
    ) -> None:
        self.spark, self.directory, self.out, self.form = spark, directory, out, form
        own = {"store": "counts"} if form == "changelog" else {}
        self.options = {"job": REFERENCE, "directory": str(directory)} | own | options
        self.function: dict[int, list[Any]] = {}  # rows by batch, of a sink that is a function

    def frame(self) -> "DataFrame":
        """Return the stream of the changes."""
        return self.spark.readStream.format(self.form).options(**self.options).load()

    def run(self) -> None:
        """Read all that is there now, batch by batch, and end."""
        sink = self.frame().writeStream.format("parquet").option("checkpointLocation", str(self.out / "offsets"))
        run_query(sink.option("path", str(self.out / "changes")))

    def call(self) -> None:
        """Do the same with a function as sink; a batch that comes again replaces itself."""
        sink = self.frame().writeStream.foreachBatch(self._take)
        run_query(sink.option("checkpointLocation", str(self.out / "function-offsets")))

    def _take(self, frame: "DataFrame", number: int) -> None:
        self.function[number] = frame.collect()

    def batches(self) -> int:
        """Return the number of batches that Spark has committed."""
        return len([path for path in (self.out / "offsets" / "commits").glob("*") if path.name.isdecimal()])

    def rows(self, order: str = "checkpoint_id") -> list[Any]:
        """Return the rows in the files."""
        return self.spark.read.parquet(str(self.out / "changes")).orderBy(order).collect()

    def table(self) -> list[dict[str, Any]]:
        """Return the rows of a batch query of the format."""
        options = {name: value for name, value in self.options.items() if name not in OF_STREAMS}
        return [row.asDict() for row in self.spark.read.format(self.form).options(**options).load().collect()]

    def state(self) -> Counts:
        """Return the table that the changes make, one after another."""
        return made_of(self.rows())


def made_of(rows: list[Any], checkpoint_id: int = 1 << 62) -> Counts:
    """Return the table that changes make, up to a checkpoint; they come in the order of checkpoints."""
    found: Counts = {}
    for row in rows:
        if row.checkpoint_id > checkpoint_id:
            break
        if row.value is None:
            del found[row.partition, row.key]
        else:
            found[row.partition, row.key] = row.value
    return found


class Reader:
    """Spark's calls of a reader, in this process."""

    def __init__(self, code: Path | str, directory: Path, form: str = "changelog", **more: str) -> None:
        own = {"store": "counts", "startingCheckpoint": "earliest"} if form == "changelog" else {}
        self.options = {"job": str(code), "directory": str(directory)} | own | more
        self.form, self.batches = form, 0  # of its runs
        self.at: dict[str, Any] | None = None  # where the last run has ended
        self.rows: list[dict[str, Any]] = []
        self.start()

    def start(self) -> None:
        """Make the reader, as Spark does it at each start of a query."""
        self.reader = SOURCES[self.form](self.options).streamReader(None)
        when_dropped(self, self.reader.stop)  # as Spark does it at the end of a query

    def run(self) -> None:
        """Be started, go on where the last run has ended, read all that is there now, batch by batch, and end."""
        self.start()
        at = self.begin() if self.at is None else self.at
        self.reader.prepareForTriggerAvailableNow()
        while (end := self.follow(at)) != at:
            at, self.batches = end, self.batches + 1
        self.reader.stop()
        self.at = at

    def follow(self, start: dict[str, Any]) -> dict[str, Any]:
        """Read a batch up to now; return the offset of its end, as JSON has it."""
        end = json.loads(json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit())))
        for part in self.reader.partitions(start, end):
            sent = pickle.loads(pickle.dumps(part))
            self.rows += [row for batch in self.reader.read(sent) for row in batch.to_pylist()]
        if self.rows and "checkpoint_id" in self.rows[0]:
            self.rows.sort(key=lambda row: (row["checkpoint_id"], row["key"]))
        return dict(end)

    def table(self) -> list[dict[str, Any]]:
        """Return the rows of a batch query of the format."""
        options = {name: value for name, value in self.options.items() if name not in OF_STREAMS}
        reader = SOURCES[self.form](options).reader(None)
        return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]

    def begin(self) -> dict[str, Any]:
        """Return the position at which a query begins, as JSON has it."""
        return dict(json.loads(json.dumps(self.reader.initialOffset())))

    def state(self) -> dict[str, int]:
        """Return the last value of each key."""
        return {row["key"]: row["value"] for row in self.rows}
