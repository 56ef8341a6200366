"""Spark reads what a job has committed: state as of a checkpoint, the commits, the records of its streams (design 2.5).

    from framework.spark import register

    register(spark)
    spark.read.format("changelog").options(job="tasks.word_count", store="counts").load()

PySpark's Python data sources: no jar, no connector. The package needs the extra ``spark``.
"""

from typing import TYPE_CHECKING

from framework.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make the formats ``changelog``, ``commits`` and ``stream`` known to a session. Raises ConfigError: no extra."""
    try:
        from framework.spark.format.sources import ChangelogSource, CommitsSource, StreamSource
    except ImportError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'grete[spark]'") from error
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # off unless asked for
    for source in (ChangelogSource, CommitsSource, StreamSource):
        spark.dataSource.register(source)
