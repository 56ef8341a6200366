"""A job's history as rows that its tasks can take: from files or tables, partitioned as live records are.

They have columns key, value, timestamp, and if they are a topic's archive partition and offset; a column topic, if
there is one, names that topic. Key and value are binary or text (a struct becomes JSON), timestamp is a timestamp or
ms.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from grete.errors import ConfigError
from grete.protocol.ids import TopicPartition
from grete.spark.backfill.account.file_rows import FileRange
from grete.spark.backfill.blocks import DDL, ORDER, PlacingPart, TimesOf, cutter
from grete.spark.backfill.sources import COLUMNS, FILES, WHOLE, source_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ZONE = "spark.sql.session.timeZone"
CORRUPT = "_corrupt_record"  # where Spark puts a line that is not JSON
_PARQUET = ".parquet"
_JSON = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
_PATTERN = re.compile(r"[*?{\[]")  # of several files or folders, as Hadoop has them
_OF_TOPIC = "topic="
# What a table has beside its data files, as a path or a pattern below its folder.
_TABLE_MARKS = {"_delta_log": "Delta", ".hoodie": "Hudi", "metadata/*.metadata.json": "Iceberg"}
_OF_PATTERNS = frozenset("{},[]\\")  # what would mean something else in a pattern of several folders
TOPICS_MAX = 3  # that a message names
_BYTES, _TEXT = {"binary"}, {"string"}
NESTED = ("struct", "map", "array")


class TopicHistory(NamedTuple):
    """The rows of one external input: where they are, timestamp, key, value, refused.

    ``ends``: by partition, the offset after its last row; then each has a partition and an offset, and ``files`` says
    which file has which of them. None if the files have no offsets: then each has a file.
    """

    rows: "DataFrame"
    ends: dict[int, int] | None
    files: Mapping[int, Sequence[FileRange]] = {}
    partitions: int = 0  # of the topic
    placing: PlacingPart = None  # as of ``murmur2.partitions_of``

    def by_partition(self, partitions: int, times_of: TimesOf | None = None) -> "DataFrame":
        """Return a Spark partition for each of the job's: rows in the order of offsets, or blocks (``blocks.rows_of``).

        ``times_of``: as of ``blocks.cutter``.
        """
        from pyspark.sql import functions as f

        if self.ends is not None:
            return self.rows.repartitionById(partitions, f.col("partition")).sortWithinPartitions("offset")
        blocks = self.rows.mapInArrow(cutter(partitions, times_of, self.placing), DDL)
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


def read_history(
    spark: "SparkSession",
    source: "str | DataFrame",
    topic: str,
    partitions: int,
    columns: Mapping[str, str] = {},
) -> TopicHistory:
    """Return the history of an external input; ``columns``: their names in the source.

    Raises ConfigError: there is no such source, or it has wrong columns, or another topic's.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException

    name = source if isinstance(source, str) else f"of {topic}, a data frame,"
    try:
        with in_utc(spark):
            found = with_place(_opened(spark, source, columns) if isinstance(source, str) else source)
            found = renamed(found, name, columns)
            if isinstance(source, str) and (given := source_of(source)).kind in FILES:
                _check_topics(topic, name, _topics_under(found, given.place))
            return _history(found, name, topic, partitions)
    except AnalysisException as error:
        raise ConfigError(f"history {name}: {str(error).splitlines()[0]}") from error
    except Py4JJavaError as error:  # the files' schemas differ
        raise ConfigError(f"history {name}: {error.java_exception.getMessage()}") from error


def _opened(spark: "SparkSession", text: str, columns: Mapping[str, str]) -> "DataFrame":
    kind, path = source = source_of(text)
    if kind not in FILES:
        return source.open(spark)
    _check_plain(spark, path)
    if is_json(spark, kind, path):
        if WHOLE in columns.values():
            raise ConfigError(f"history {path}: JSON lines have no types: name the field of the value, not {WHOLE}")
        return _read_json(spark, path, {columns.get(each, each) for each in ("key", "value")})
    return spark.read.option("mergeSchema", True).parquet(path)  # else columns of newer files may be left out


def _history(found: "DataFrame", path: str, topic: str, partitions: int) -> TopicHistory:
    from pyspark.sql import functions as f

    types = {name: kind.dataType.simpleString() for name, kind in ((field.name, field) for field in found.schema)}
    archived = "offset" in types and "partition" in types
    _check_columns(path, types, archived=archived)
    if "topic" in types:
        named = found.select("topic").where("topic is not null").distinct().collect()
        _check_topics(topic, path, {str(row[0]) for row in named})
    key, value = _bytes(found, "key", types), _bytes(found, "value", types)
    is_number = types["timestamp"] in ("bigint", "int")
    timestamp = f.col("timestamp").cast("bigint" if is_number else "timestamp")  # one without a zone is of UTC
    milliseconds = timestamp if is_number else f.unix_millis(timestamp)
    reason = f.when(milliseconds.isNull(), f.lit("the row has no timestamp"))
    raw = value
    if CORRUPT in types:
        reason = f.when(f.col(CORRUPT).isNotNull(), f.lit("the line is not JSON")).otherwise(reason)
        raw = f.coalesce(f.col(CORRUPT).cast("binary"), value)
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
        place = [f.col("_path"), f.col("_block")]
    headers = [f.col("headers")] if "headers" in types else []
    rows = found.select(
        *place,
        *([f.col("_path")] if archived else []),
        milliseconds.alias("timestamp"),
        key.alias("key"),
        raw.alias("value"),
        *headers,
        reason.alias("refused"),
    )
    if not archived:
        return TopicHistory(rows, None, partitions=partitions)
    files = _files(rows)
    return TopicHistory(rows.drop("_path"), _ends(path, files, partitions), files)


@contextmanager
def in_utc(spark: "SparkSession") -> Iterator[None]:
    """Let a timestamp without a zone be of UTC, wherever the session is: it is settled when rows are selected."""
    before = spark.conf.get(_ZONE)
    spark.conf.set(_ZONE, "UTC")
    try:
        yield
    finally:
        spark.conf.set(_ZONE, before or "UTC")


def with_place(found: "DataFrame") -> "DataFrame":
    """Add the place of each row: its file and the block of it, or where Spark has the row if it comes from no file."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    file = {"_path": f.col("_metadata.file_path"), "_block": f.col("_metadata.file_block_start")}
    try:
        return found.withColumns(file)
    except AnalysisException:
        return found.withColumns({"_path": f.lit(""), "_block": f.spark_partition_id().cast("bigint")})


def renamed(found: "DataFrame", path: str, columns: Mapping[str, str]) -> "DataFrame":
    """Return the columns of a history by our names; ``*`` makes a struct of all that have no other use."""
    from pyspark.sql import functions as f

    if not columns:
        return found
    used = {columns.get(each, each) for each in COLUMNS} | {"_path", "_block", CORRUPT}
    rest = [name for name in found.columns if name not in used]
    if WHOLE in columns.values() and not rest:
        raise ConfigError(
            f"history {path}: {WHOLE} makes a value of the columns that have no other use: there are none"
        )
    whole = f.struct(*(found[f"`{name}`"] for name in rest)) if rest else f.lit(None)
    kept = [name for name in found.columns if name in used and name not in columns]
    return found.select(
        *(found[f"`{name}`"] for name in kept),
        *((whole if name == WHOLE else f.col(name)).alias(column) for column, name in columns.items()),
    )


def _read_json(spark: "SparkSession", path: str, raw: Collection[str]) -> "DataFrame":
    """Read JSON lines; ``raw`` fields have the very text of the file, while Spark would write what it infers.

    Else 9007199254740993 beside 2.5 becomes 9.007199254740992E15, and 7 becomes 7.0.
    """
    from pyspark.sql.types import StringType, StructType

    inferred = spark.read.json(path).schema
    schema = StructType()
    for field in inferred:
        schema.add(field.name, StringType() if field.name in raw else field.dataType)
    return spark.read.schema(schema).json(path)


def _check_columns(path: str, types: dict[str, str], *, archived: bool) -> None:
    wanted = {"key": (*_BYTES, *_TEXT, *NESTED), "value": (*_BYTES, *_TEXT, *NESTED), "timestamp": ("timestamp",)}
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


def _check_topics(topic: str, path: str, names: Collection[str]) -> None:
    """Raise ConfigError if there are rows of other topics: folders of a topic each, or an archive of several."""
    if others := sorted(set(names) - {topic}):
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
    if types[name].startswith(NESTED):
        column = f.to_json(column)
    return column.cast("binary")


def _files(rows: "DataFrame") -> dict[int, list[FileRange]]:
    """Return the files of an archive by partition, with the rows that each has of it."""
    from pyspark.sql import functions as f

    whole = [f.when(f.col("refused").isNull(), f.col(name)) for name in ("timestamp", "offset")]
    ranges = [each for column in whole for each in (f.min(column), f.max(column))]
    found: dict[int, list[FileRange]] = {}
    for partition, file, *counted in rows.groupBy("partition", "_path").agg(f.count("*"), *ranges).collect():
        found.setdefault(partition, []).append(FileRange(file, *counted))
    return {partition: sorted(found[partition], key=_by_offset) for partition in sorted(found)}


def _by_offset(file: FileRange) -> tuple[int, str]:
    return -1 if file.first_offset is None else file.first_offset, file.file


def _ends(path: str, files: Mapping[int, Sequence[FileRange]], partitions: int) -> dict[int, int]:
    """Return the end of each partition. Raises ConfigError if there are partitions that the job does not have."""
    lasts = {number: [each.last_offset for each in of if each.last_offset is not None] for number, of in files.items()}
    ends = {number: max(each) + 1 for number, each in lasts.items() if each}
    strange = sorted(number for number in ends if not 0 <= number < partitions)
    if strange:
        raise ConfigError(
            f"history {path} has rows of partition {strange[0]}, and the job has {partitions} partitions: its offsets "
            "belong to another topic, or to another job's partition count; leave the columns partition and offset out "
            "to partition by key, or rescale the job"
        )
    return ends


def is_json(spark: "SparkSession", kind: str, path: str) -> bool:
    """Tell whether a source of files is JSON: by its kind, its name, or the first files of a directory, anywhere."""
    name = path.rstrip("/")
    if kind or name.endswith((*_JSON, _PARQUET)):
        return kind == "json" or (not kind and name.endswith(_JSON))
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
                    f"has files that are no part of it any more. Where Spark has its reader: {name.lower()}:{folder}. "
                    "Else read the table by another one, write key, value and timestamp to a folder of Parquet, and "
                    "give that one"
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
