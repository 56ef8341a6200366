"""A job's history as rows that its tasks can take: from files, partitioned as live records are.

Files have columns key, value, timestamp, and if they are a topic's archive partition and offset; a column topic, if
there is one, names that topic. Key and value are
binary or text (a struct becomes JSON), timestamp is a timestamp or ms.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from grete.errors import ConfigError
from grete.protocol.ids import TopicPartition
from grete.spark.backfill.blocks import DDL, ORDER, TimesOf, cutter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_CORRUPT = "_corrupt_record"  # where Spark puts a line that is not JSON
_PARQUET = ".parquet"
_JSON = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
_PATTERN = re.compile(r"[*?{\[]")  # of several files or folders, as Hadoop has them
_OF_TOPIC = "topic="
# What a table has beside its data files, as a path or a pattern below its folder.
_TABLE_MARKS = {"_delta_log": "Delta", ".hoodie": "Hudi", "metadata/*.metadata.json": "Iceberg"}
_OF_PATTERNS = frozenset("{},[]\\")  # what would mean something else in a pattern of several folders
TOPICS_MAX = 3  # that a message names
_BYTES, _TEXT = {"binary"}, {"string"}
_NESTED = ("struct", "map", "array")


class TopicHistory(NamedTuple):
    """The rows of one external input: where they are, timestamp, key, value, refused.

    ``ends``: by partition, the offset after its last row; then each has a partition and an offset. None if the
    files have no offsets: then each has a file.
    """

    rows: "DataFrame"
    ends: dict[int, int] | None

    def by_partition(self, partitions: int, times_of: TimesOf | None = None) -> "DataFrame":
        """Return a Spark partition for each of the job's: rows in the order of offsets, or blocks (``blocks.rows_of``).

        ``times_of``: as of ``blocks.cutter``.
        """
        from pyspark.sql import functions as f

        if self.ends is not None:
            return self.rows.repartitionById(partitions, f.col("partition")).sortWithinPartitions("offset")
        blocks = self.rows.mapInArrow(cutter(partitions, times_of), DDL)
        return blocks.repartitionById(partitions, f.col("partition")).sortWithinPartitions(*ORDER)

    def until(self, resume: Mapping[TopicPartition, int], topic: str) -> "TopicHistory":
        """Return it without the rows that live tasks will read."""
        from pyspark.sql import functions as f

        if self.ends is None:
            return self
        rows = self.rows
        for partition, end in self.ends.items():
            offset = resume[TopicPartition(topic, partition)]
            if offset < end:
                late = (f.col("partition") == partition) & (f.col("offset") >= offset)
                rows = rows.where(~f.coalesce(late, f.lit(False)))
        return self._replace(rows=rows)


def read_files(spark: "SparkSession", path: str, topic: str, partitions: int) -> TopicHistory:
    """Return the history of an external input. Raises ConfigError: no such files, wrong columns, another topic's."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    try:
        _check_plain(spark, path)
        name = path.rstrip("/")
        if name.endswith(_JSON) or (not name.endswith(_PARQUET) and _holds_json(spark, path)):
            found = _read_json(spark, path)
        else:
            found = spark.read.option("mergeSchema", True).parquet(path)  # else columns of newer files may be left out
    except AnalysisException as error:
        raise ConfigError(f"history {path}: {str(error).splitlines()[0]}") from error
    except Py4JJavaError as error:  # the files' schemas differ
        raise ConfigError(f"history {path}: {error.java_exception.getMessage()}") from error
    types = {name: kind.dataType.simpleString() for name, kind in ((field.name, field) for field in found.schema)}
    archived = "offset" in types and "partition" in types
    _check_columns(path, types, archived=archived)
    _check_topic(found, path, topic, types)
    key, value = _bytes(found, "key", types), _bytes(found, "value", types)
    timestamp = (
        f.col("timestamp").cast("bigint") if types["timestamp"] in ("bigint", "int") else f.unix_millis("timestamp")
    )
    reason = f.when(timestamp.isNull(), f.lit("the row has no timestamp"))
    raw = value
    if _CORRUPT in types:
        reason = f.when(f.col(_CORRUPT).isNotNull(), f.lit("the line is not JSON")).otherwise(reason)
        raw = f.coalesce(f.col(_CORRUPT).cast("binary"), value)
    if archived:
        partition = f.col("partition").cast("int")
        anywhere = f.crc32(f.coalesce(raw, f.lit(b""))) % partitions
        reason = f.when(partition.isNull() | f.col("offset").isNull(), "the row has no partition or offset").otherwise(
            reason
        )
        place = [
            f.coalesce(partition, anywhere).cast("int").alias("partition"),
            f.col("offset").cast("bigint").alias("offset"),
        ]
    else:
        place = [
            f.col("_metadata.file_path").alias("_path"),
            f.col("_metadata.file_block_start").alias("_block"),
        ]
    headers = [f.col("headers")] if "headers" in types else []
    rows = found.select(
        *place,
        timestamp.alias("timestamp"),
        key.alias("key"),
        raw.alias("value"),
        *headers,
        reason.alias("refused"),
    )
    return TopicHistory(rows, _ends(path, rows, partitions) if archived else None)


def _read_json(spark: "SparkSession", path: str) -> "DataFrame":
    """Read JSON lines; keys and values have the very text of the file, while Spark would write what it infers.

    Else 9007199254740993 beside 2.5 becomes 9.007199254740992E15, and 7 becomes 7.0.
    """
    from pyspark.sql.types import StringType, StructType

    inferred = spark.read.json(path).schema
    schema = StructType()
    for field in inferred:
        schema.add(field.name, StringType() if field.name in ("key", "value") else field.dataType)
    return spark.read.schema(schema).json(path)


def _check_columns(path: str, types: dict[str, str], *, archived: bool) -> None:
    wanted = {"key": (*_BYTES, *_TEXT, *_NESTED), "value": (*_BYTES, *_TEXT, *_NESTED), "timestamp": ("timestamp",)}
    for name, kinds in wanted.items():
        if name not in types:
            raise ConfigError(f"history {path}: no column {name}: need key, value, timestamp; found {', '.join(types)}")
        numbers = ("bigint", "int", "timestamp_ntz") if name == "timestamp" else ("void",)
        if not types[name].startswith(kinds) and types[name] not in numbers:
            raise ConfigError(f"history {path}: column {name} is {types[name]}: need {' or '.join(kinds[:2])}")
    if not archived and ("offset" in types or "partition" in types):
        raise ConfigError(f"history {path}: it has only one of the columns partition and offset: give both, or none")
    if "headers" in types and types["headers"] != "array<struct<key:string,value:binary>>":
        raise ConfigError(
            f"history {path}: column headers is {types['headers']}: need array<struct<key:string,value:binary>>"
        )


def _check_topic(found: "DataFrame", path: str, topic: str, columns: Collection[str]) -> None:
    """Raise ConfigError if there are rows of other topics: folders of a topic each, or an archive of several."""
    names = _topics_under(found, path)
    if "topic" in columns:
        names |= {str(row[0]) for row in found.select("topic").where("topic is not null").distinct().collect()}
    if others := sorted(names - {topic}):
        shown = ", ".join(others[:TOPICS_MAX]) + (", …" if len(others) > TOPICS_MAX else "")
        raise ConfigError(
            f"history {path} has rows of topic {shown} (its column topic, or folders topic=…), and is given as that of "
            f"{topic}: give the files of that topic alone; if it had another name then, leave the column topic out",
            topic=topic,
        )


def _topics_under(found: "DataFrame", path: str) -> set[str]:
    """Return the names of folders topic=… that a pattern has matched: Spark makes no column of them."""
    given, *pattern = _PATTERN.split(path, 1)
    if not pattern:
        return set()
    named = {*given.split("/")[:-1]}  # folders without a pattern: what they are called is the user's choice
    folders = {folder for file in found.inputFiles() for folder in unquote(file).split("/")[:-1]}
    return {each.removeprefix(_OF_TOPIC) for each in folders - named if each.startswith(_OF_TOPIC)}


def _bytes(found: "DataFrame", name: str, types: dict[str, str]) -> "Column":
    from pyspark.sql import functions as f

    column = found[name]
    if types[name].startswith(_NESTED):
        column = f.to_json(column)
    return column.cast("binary")


def _ends(path: str, rows: "DataFrame", partitions: int) -> dict[int, int]:
    """Return the end of each partition. Raises ConfigError if there are partitions that the job does not have."""
    from pyspark.sql import functions as f

    found = rows.where("refused is null").groupBy("partition").agg(f.max("offset").alias("last")).collect()
    ends = {row["partition"]: row["last"] + 1 for row in found}
    strange = sorted(number for number in ends if not 0 <= number < partitions)
    if strange:
        raise ConfigError(
            f"history {path} has rows of partition {strange[0]}, and the job has {partitions} partitions: its offsets "
            "belong to another topic, or to another job's partition count; leave the columns partition and offset out "
            "to partition by key, or rescale the job"
        )
    return ends


def _holds_json(spark: "SparkSession", path: str) -> bool:
    """Whether the first file of a directory, wherever it is, is JSON."""
    names = [row[0] for row in spark.read.format("binaryFile").load(path).select("path").limit(20).collect()]
    return any(name.endswith(_JSON) for name in names) and not any(name.endswith(_PARQUET) for name in names)


def _check_plain(spark: "SparkSession", path: str) -> None:
    """Raise ConfigError if the path is the folder of a table of Delta, Iceberg or Hudi, or within one.

    Its log says which files are deleted, replaced or not yet committed; who reads all files counts their rows, too.
    """
    scheme, colon, place = path.rpartition("://")
    folders = [folder for folder in (PurePosixPath(place), *PurePosixPath(place).parents) if folder.name]
    if folders and not _OF_PATTERNS & {*path} and not _is_there(spark, f"{scheme}{colon}{_any_of(folders)}"):
        return
    for folder in folders:
        for mark, name in _TABLE_MARKS.items():
            if _is_there(spark, f"{scheme}{colon}{folder / mark}"):
                raise ConfigError(
                    f"history {path}: {scheme}{colon}{folder} is a table of {name} (it has {mark}), whose folder also "
                    "has files that are no part of it any more. Read the table by its own reader, write key, value and "
                    "timestamp to a folder of Parquet, and give that one"
                )


def _any_of(folders: Sequence[PurePosixPath]) -> str:
    """Return a pattern of all marks in all folders, the last of which holds the others: Spark takes 0.1 s for each."""
    top = folders[-1]
    return f"{top}/{{{','.join(str(folder.relative_to(top) / mark) for folder in folders for mark in _TABLE_MARKS)}}}"


def _is_there(spark: "SparkSession", path: str) -> bool:
    from pyspark.errors import AnalysisException

    try:
        spark.read.format("binaryFile").load(path)
    except AnalysisException:
        return False
    return True
