"""Spark reads what a job has committed: state as of a checkpoint, its changes, commits, records of streams and topics.

    from grete.spark import register

    register(spark)
    spark.read.format("changelog").options(job="tasks.word_count", store="counts").load()

PySpark's Python data sources: no jar, no connector. The package needs the extra ``spark``.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from grete.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas")  # the extra, as pyproject.toml has it


def require_extra() -> None:
    """Raise ConfigError if a package of the extra is not installed. Nothing is imported."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)}: not installed; Spark needs the extra: pip install 'grete[spark]'")


def register(spark: "SparkSession") -> None:
    """Make the formats ``changelog``, ``commits``, ``stream`` and ``topic`` known. Raises ConfigError: no extra."""
    require_extra()
    from grete.spark.format.sources import ChangelogSource, CommitsSource, StreamSource
    from grete.spark.format.topic_source import TopicSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # off unless asked for
    for source in (ChangelogSource, CommitsSource, StreamSource, TopicSource):
        spark.dataSource.register(source)
