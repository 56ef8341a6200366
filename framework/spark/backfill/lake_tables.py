"""Folders of Delta, Iceberg and Hudi: their Parquet files alone are not the table, so they are no history."""

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from grete.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What a table has beside its data files, as a path or a pattern below its folder.
_MARKS = {"_delta_log": "Delta", ".hoodie": "Hudi", "metadata/*.metadata.json": "Iceberg"}


def check_plain(spark: "SparkSession", path: str) -> None:
    """Raise ConfigError if the path is the folder of such a table, or within one.

    Its log says which files are deleted, replaced or not yet committed; who reads all files counts their rows, too.
    """
    scheme, colon, place = path.rpartition("://")
    for folder in (PurePosixPath(place), *PurePosixPath(place).parents):
        for mark, name in _MARKS.items():
            if folder.name and _is_there(spark, f"{scheme}{colon}{folder / mark}"):
                raise ConfigError(
                    f"history {path}: {scheme}{colon}{folder} is a table of {name} (it has {mark}), whose folder also "
                    "has files that are no part of it any more. Read the table by its own reader, write key, value and "
                    "timestamp to a folder of Parquet, in the order of time (in Spark: orderBy), and give that one"
                )


def _is_there(spark: "SparkSession", path: str) -> bool:
    from pyspark.errors import AnalysisException

    try:
        spark.read.format("binaryFile").load(path)
    except AnalysisException:
        return False
    return True
