"""Spark reads what a job has committed: state as of a checkpoint, its changes, commits, records of streams and topics.

    from grete.spark import register

    register(spark)
    spark.read.format("changelog").options(job="tasks.word_count", store="counts").load()

PySpark's Python data sources: no jar, no connector. The package needs the extra ``spark``.
"""

import re
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from grete.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas")  # the extra, as pyproject.toml has it
RELEASES = ((4, 2), (4, 3))  # of pyspark: the oldest and the newest that `make ship` tries, as the extra has them


def require_extra() -> None:
    """Raise ConfigError if a package of the extra is missing, or another pyspark is there. Nothing is imported."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)}: not installed; Spark needs the extra: pip install 'grete[spark]'")
    installed = version("pyspark")
    first, last = RELEASES
    if not first <= tuple(map(int, re.findall(r"\d+", installed)[:2])) <= last:
        raise ConfigError(
            f"pyspark {installed} is installed; Grete runs on {first[0]}.{first[1]} to {last[0]}.{last[1]}: "
            "pip install 'grete[spark]'"
        )


def register(spark: "SparkSession") -> None:
    """Make the formats ``changelog``, ``commits``, ``stream`` and ``topic`` known. Raises ConfigError: no extra."""
    require_extra()
    from grete.spark.format.sources import ChangelogSource, CommitsSource, StreamSource
    from grete.spark.format.topic_source import TopicSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # off unless asked for
    for source in (ChangelogSource, CommitsSource, StreamSource, TopicSource):
        spark.dataSource.register(source)
