"""Folders of Delta, Iceberg and Hudi: their Parquet files alone are not the table, so they are no history."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from grete.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What a table has beside its data files, as a path or a pattern below its folder.
_MARKS = {"_delta_log": "Delta", ".hoodie": "Hudi", "metadata/*.metadata.json": "Iceberg"}
_OF_PATTERNS = frozenset("{},[]\\")  # what would mean something else in a pattern of several folders


def check_plain(spark: "SparkSession", path: str) -> None:
    """Raise ConfigError if the path is the folder of such a table, or within one.

    Its log says which files are deleted, replaced or not yet committed; who reads all files counts their rows, too.
    """
    scheme, colon, place = path.rpartition("://")
    folders = [folder for folder in (PurePosixPath(place), *PurePosixPath(place).parents) if folder.name]
    if folders and not _OF_PATTERNS & {*path} and not _is_there(spark, f"{scheme}{colon}{_any_of(folders)}"):
        return
    for folder in folders:
        for mark, name in _MARKS.items():
            if _is_there(spark, f"{scheme}{colon}{folder / mark}"):
                raise ConfigError(
                    f"history {path}: {scheme}{colon}{folder} is a table of {name} (it has {mark}), whose folder also "
                    "has files that are no part of it any more. Read the table by its own reader, write key, value and "
                    "timestamp to a folder of Parquet, in the order of time (in Spark: orderBy), and give that one"
                )


def _any_of(folders: Sequence[PurePosixPath]) -> str:
    """Return a pattern of all marks in all folders, the last of which holds the others: Spark takes 0.1 s for each."""
    top = folders[-1]
    return f"{top}/{{{','.join(str(folder.relative_to(top) / mark) for folder in folders for mark in _MARKS)}}}"


def _is_there(spark: "SparkSession", path: str) -> bool:
    from pyspark.errors import AnalysisException

    try:
        spark.read.format("binaryFile").load(path)
    except AnalysisException:
        return False
    return True
