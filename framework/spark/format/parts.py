"""The part of a read that the driver hands to one Spark task."""

import time
from typing import Any

from pyspark.sql.datasource import InputPartition

from grete.errors import TransientError
from grete.logs.partition_reader import READABLE_S_MAX
from grete.ports import LogReader
from grete.protocol.ids import TopicPartition
from grete.spark.format.options import LogSpec

_WAIT_S = 0.05  # between two looks at a broker that shows less than another one did


class Part(InputPartition):
    """The input of one Spark task."""

    def __init__(self, where: LogSpec, number: int, what: Any) -> None:
        super().__init__(number)
        self.where = where
        self.what = what


def wait_for_end(log: LogReader, partition: TopicPartition, end: int) -> None:
    """Return once the log shows an executor as much as it has shown the driver. Raises TransientError: it does not.

    A broker that has just become leader may show less for a while, which would be taken for the end.
    """
    began_s = time.monotonic()
    while (there := log.bounds(partition)[1]) < end:
        if time.monotonic() - began_s > READABLE_S_MAX:
            raise TransientError(
                f"{partition} ended at offset {end}, and for {READABLE_S_MAX:.0f} s ends at {there}: check its "
                "brokers, and start the query again",
                partition=partition,
                offset=end,
            )
        time.sleep(_WAIT_S)
