"""A second count of files, by Spark's SQL alone: an audit is not blind where its reader is.

An audit runs the job over the same files as the backfill, through the same code. If that leaves a row out, takes a file
that is no part of the history any more, or brings rows in a wrong order, both make the same wrong state. So the tasks
of an audit add up checksums of the records that they take, and of their places in the order. SQL adds up the same of
the files, which it finds, opens and sorts by itself.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from grete.api.jobs.graph import StageGraph
from grete.errors import Halted
from grete.execution.task_code.record_times import order_of
from grete.halts import HaltCode
from grete.protocol.ids import producer_id
from grete.spark.backfill.account.file_rows import EXAMPLES_MAX, FileRows
from grete.spark.backfill.account.record_sums import PLACES, RecordSums
from grete.spark.backfill.history import CORRUPT, NESTED, TopicHistory, in_utc, is_json, renamed, with_place
from grete.spark.backfill.plans import BackfilledTask
from grete.spark.backfill.ranges import InputRanges
from grete.spark.backfill.sources import FILES, source_of
from grete.spark.murmur2 import partitions_of
from grete.state.pins.start_pinning import SettledStarts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DELTA_LOG = "add struct<path: string>, remove struct<path: string>"
# The files of a Delta table: those whose last action adds them. A commit that has both replaces the marks of a file.
_LIVE = """
    SELECT path FROM (
        SELECT add.path, version, true AS there FROM {log} WHERE add IS NOT NULL
        UNION ALL SELECT remove.path, version, false FROM {log} WHERE remove IS NOT NULL
    ) GROUP BY path HAVING max_by(there, struct(version, there))
"""
_CRC = "crc32(concat(coalesce(k, X''), X'00', coalesce(v, X''), cast({} AS BINARY)))"
_ARCHIVED = "SELECT p, o, min({crc}) AS crc FROM {rows} WHERE {inside} GROUP BY p, o"  # an offset counts once
_PLAIN = "SELECT p, ts, _path, _block, row, {crc} AS crc FROM {rows} WHERE {inside}"
_ORDERED = """
    SELECT p, count(*), sum(crc), sum(pmod(n * crc, {prime}))
    FROM (SELECT p, crc, row_number() OVER (PARTITION BY p ORDER BY {order}) AS n FROM ({records})) GROUP BY p
"""
_IN_NO_ORDER = "SELECT 0, count(*), sum(crc), 0 FROM ({records})"


class _Read(NamedTuple):
    """The records of a topic that tasks of a stage have taken: by partition, from which offset to which, and sums."""

    ranges: dict[int, tuple[int, int]]
    taken: dict[int, list[FileRows]]


class _Form(NamedTuple):
    """Limits of SQL. ``archived``: rows have offsets; ``ordered``: it knows their order; ``timed``: their times."""

    archived: bool
    ordered: bool
    timed: bool


class Recount(NamedTuple):
    """The files of an audit, to be counted again. ``sources``, ``columns``: as of a BackfillSpec."""

    spark: "SparkSession"
    sources: "Mapping[str, str | DataFrame]"
    columns: Mapping[str, Mapping[str, str]]
    histories: Mapping[str, TopicHistory]
    covered: InputRanges
    settled: SettledStarts

    def check(self, stages: Iterable[StageGraph], reports: Sequence[BackfilledTask]) -> None:
        """Raise Halted if tasks have taken other records than there are in the files, or in another order."""
        for stage in stages:
            own = [report for report in reports if report.stage == stage.ordinal]
            for declared in stage.inputs.values():
                topic = declared.topic.name
                if topic in self.histories:
                    with in_utc(self.spark):
                        rows = self._rows(topic)
                        for read in self._reads(own, topic):
                            self._check(stage, topic, rows, read, timed=order_of(declared) is None)

    def _reads(self, reports: Iterable[BackfilledTask], topic: str) -> list[_Read]:
        """Return the ranges that were read; tasks that read a partition up to different offsets are counted apart."""
        found: list[_Read] = []
        archived = self.histories[topic].ends is not None
        for report in reports:
            for taken in report.taken:
                if taken.topic != topic:
                    continue
                reader, place = (producer_id(report.stage, report.task), taken.source), taken.partition
                bounds = (self.covered.begins[reader], self.covered.ends[reader]) if archived else (0, 0)
                read = next((each for each in found if each.ranges.get(place, bounds) == bounds), None)
                if read is None:
                    found.append(read := _Read({}, {}))
                read.ranges[place] = bounds
                read.taken.setdefault(place, []).append(taken)
        return found

    def _check(self, stage: StageGraph, topic: str, rows: "DataFrame", read: _Read, *, timed: bool) -> None:
        source, archived = self.sources[topic], self.histories[topic].ends is not None
        by_place = archived or (timed and isinstance(source, str) and source_of(source).kind in FILES)
        form = _Form(archived=archived, ordered=by_place, timed=timed)
        counted = _counted(self.spark, rows, read, self.settled.times_ms.get((stage.ordinal, topic)), form)
        firsts = [accounts[0] for accounts in read.taken.values()]
        if not by_place:
            whole = RecordSums(sum(each.sums.records for each in firsts), sum(each.sums.content for each in firsts))
            _refuse(f"stage {stage.name}, topic {topic}", whole, counted[0], rows, firsts)
            return
        for place, accounts in read.taken.items():
            for taken in accounts:
                where = f"stage {stage.name}, {taken.source}"
                _refuse(where, taken.sums, counted.get(place, RecordSums()), rows, firsts)

    def _rows(self, topic: str) -> "DataFrame":
        """Return the rows of a source: p, o, k, v, ts, whether each is refused, and where it is."""
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.functions import arrow_udf

        source, columns = self.sources[topic], self.columns.get(topic, {})
        found = with_place(_opened(self.spark, source, columns) if isinstance(source, str) else source)
        found = renamed(found, str(source), columns)
        kinds = {field.name: field.dataType.simpleString() for field in found.schema}
        key, value = (f"to_json({name})" if kinds[name].startswith(NESTED) else name for name in ("key", "value"))
        is_time = kinds["timestamp"].startswith("timestamp")
        partition, offset = (name if name in kinds else "NULL" for name in ("partition", "offset"))
        found = found.selectExpr(
            f"CAST({partition} AS INT) AS p",
            f"CAST({offset} AS BIGINT) AS o",
            f"CAST({key} AS BINARY) AS k",
            f"CAST({value} AS BINARY) AS v",
            f"{'unix_millis(CAST(timestamp AS TIMESTAMP))' if is_time else 'try_cast(timestamp AS BIGINT)'} AS ts",
            f"{CORRUPT} IS NOT NULL AS refused" if CORRUPT in kinds else "false AS refused",
            "_path",
            "_block",
            "monotonically_increasing_id() AS row",
        )
        history = self.histories[topic]
        if history.ends is None:
            count, placing = history.partitions, history.placing
            by_key: Any = arrow_udf  # its stubs do not know it as we call it
            own = by_key(lambda keys: partitions_of(keys, count, placing), "int")("k")
            found = found.withColumn("p", f.coalesce(own, f.crc32(f.coalesce("v", f.lit(b""))) % count))
        return found


def _opened(spark: "SparkSession", text: str, columns: Mapping[str, str]) -> "DataFrame":
    """Open a source; of the folder of a Delta table, the files that its log names."""
    kind, place = source = source_of(text)
    if kind not in FILES:
        return source.open(spark)
    if is_json(spark, kind, place):
        of = {"key": "string", "value": "string", "timestamp": "string", "partition": "int", "offset": "bigint"}
        names = {columns.get(each, each): type_ for each, type_ in of.items()}
        schema = ", ".join(f"`{name}` {type_}" for name, type_ in names.items())
        return spark.read.schema(f"{schema}, {CORRUPT} string").json(place)
    reader, live = spark.read.option("mergeSchema", True), _live(spark, place)
    return reader.parquet(place) if live is None else reader.option("basePath", place).parquet(*live)


def _live(spark: "SparkSession", folder: str) -> list[str] | None:
    """Return the files of a Delta table; None if the folder is none."""
    from pyspark.errors import AnalysisException

    def actions(kind: str, names: str) -> "DataFrame":
        found = spark.read.schema(_DELTA_LOG).format(kind).load(f"{folder}/_delta_log/{names}")
        return found.selectExpr("add", "remove", "_metadata.file_name AS version")

    try:
        log = actions("json", "*.json")
    except AnalysisException:
        return None
    with contextlib.suppress(AnalysisException):  # there is no checkpoint of the table
        log = log.unionAll(actions("parquet", "*.checkpoint.parquet"))
    return [f"{folder}/{unquote(row.path)}" for row in spark.sql(_LIVE, log=log).collect()]


def _counted(
    spark: "SparkSession", rows: "DataFrame", read: _Read, begin_ms: int | None, form: _Form
) -> dict[int, RecordSums]:
    """Return partition → what SQL counts; in partition 0 all of what has no order that SQL knows."""
    inside, crc = "NOT refused AND ts IS NOT NULL", _CRC.format("cast(ts AS STRING)" if form.timed else "''")
    if form.archived:
        parts = (f"(p = {place} AND o >= {begin} AND o < {end})" for place, (begin, end) in read.ranges.items())
        records = _ARCHIVED.format(crc=crc, inside=f"{inside} AND ({' OR '.join(parts)})", rows="{rows}")
    else:
        inside += "" if begin_ms is None else f" AND ts >= {begin_ms}"
        records = _PLAIN.format(crc=crc, inside=inside, rows="{rows}")
    order = "o" if form.archived else "ts, _path, _block, row"
    query = (
        _ORDERED.format(prime=PLACES, order=order, records=records)
        if form.ordered
        else _IN_NO_ORDER.format(records=records)
    )
    return {row[0]: RecordSums(*(each or 0 for each in row[1:])) for row in spark.sql(query, rows=rows).collect()}


def _refuse(
    where: str, taken: RecordSums, counted: RecordSums, rows: "DataFrame", accounts: Sequence[FileRows]
) -> None:
    """Raise Halted if the sums differ."""
    if taken == counted:
        return
    if taken.records != counted.records:
        what = f"the tasks took {taken.records:,} records, and SQL counts {counted.records:,}"
    elif taken.content != counted.content:
        what = f"the tasks took {taken.records:,} records, and SQL finds as many with other keys, values or times"
    else:
        what = f"the tasks took the {taken.records:,} records that SQL finds, in another order"
    raise Halted(
        f"{where}: {what}{_of_files(rows, accounts)}. Grete has read the files wrongly, or they changed meanwhile: "
        "run the audit again, and if it says the same, neither it nor a backfill of these files can be trusted",
        code=HaltCode.BACKFILL_INCOMPLETE,
    )


def _of_files(rows: "DataFrame", accounts: Sequence[FileRows]) -> str:
    """Name the files with other numbers of rows; of an archive they are not counted by tasks."""
    taken = Counter[str]()
    for account in accounts:
        taken.update({path: file.rows for path, file in account.files.items()})
    counted = Counter({row[0]: row[1] for row in rows.groupBy("_path").count().collect()})
    wrong = sorted(path for path in {*taken, *counted} if taken[path] != counted[path]) if taken else []
    shown = "; ".join(f"{path}: {taken[path]:,} rows, by SQL {counted[path]:,}" for path in wrong[:EXAMPLES_MAX])
    return f" ({shown})" if shown else ""
