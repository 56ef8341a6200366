"""What the driver hands to one Spark task."""

from typing import Any

from pyspark.sql.datasource import InputPartition

from framework.spark.format.options import Where


class Part(InputPartition):
    """What one Spark task reads."""

    def __init__(self, where: Where, number: int, what: Any) -> None:
        super().__init__(number)
        self.where = where
        self.what = what
