"""The base of Structured Streaming readers: they keep a log open on the driver."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from grete.ports import JobLogReader
from grete.spark.format.options import Options

StoredOffset = dict[str, Any]  # of a query: Spark keeps it as JSON, and gives it back


class OnDriver:
    """A reader that stays on the driver. A part says all that an executor needs, where the job's code need not be."""

    def __getstate__(self) -> dict[str, Any]:
        """Take nothing to the executors."""
        return {}


class FollowingReader(OnDriver, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver asks it again and again what is new; on Kafka a connection for each look would cost more than that."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._log: JobLogReader | None = None

    @contextmanager
    def log(self) -> Iterator[JobLogReader]:
        """Open the log, or take the one that is open; after an error the next look opens it again."""
        if self._log is None:
            self._log = self.options.where.open()
        try:
            yield self._log
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Close the log: the query has ended."""
        if self._log is not None:
            self._log.close()
            self._log = None
