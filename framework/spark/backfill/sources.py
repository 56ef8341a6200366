"""The source of a topic's history: files, a table, a query, another format of Spark, or the log."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from grete.api.jobs.job import Job
from grete.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "kafka"  # the log's own history
COLUMNS = ("key", "value", "timestamp", "partition", "offset", "headers", "topic")  # that a history may have
WHOLE = "*"  # all columns that have no other use, as one
TABLE, SQL = "table", "sql"
FILES = ("", "parquet", "json")  # kinds that are read as files; without a name, by the names of the files
_KIND = re.compile(r"(\w+):(?!//)(.+)", re.DOTALL)
_SCHEMES = {"file", "dbfs"}  # of paths that have no //


class HistorySource(NamedTuple):
    """A text of ``--from``. ``kind``: of FILES, TABLE, SQL, or a format of Spark; ``place``: path, name or query."""

    kind: str
    place: str

    @property
    def text(self) -> str:
        """The text, with a path that all on this machine understand."""
        if self.kind in (TABLE, SQL) or "://" in self.place or self.place.split(":")[0] in _SCHEMES:
            place = self.place
        else:
            place = str(Path(self.place).absolute())
        return f"{self.kind}:{place}" if self.kind else place

    def open(self, spark: "SparkSession") -> "DataFrame":
        """Return the rows of a source that is not read as files. Raises AnalysisException."""
        if self.kind == TABLE:
            return spark.table(self.place)
        return spark.sql(self.place) if self.kind == SQL else spark.read.format(self.kind).load(self.place)


def source_of(text: str) -> HistorySource:
    """Return the source of a text: ``table:NAME``, ``sql:QUERY``, ``FORMAT:PATH``, or a path."""
    found = _KIND.fullmatch(text)
    if found is None or found[1] in _SCHEMES or len(found[1]) == 1:
        return HistorySource("", text)
    return HistorySource(found[1], found[2])


def sources_of(job: Job, texts: list[str]) -> dict[str, str]:
    """Return external topic → where its history comes from, of texts ``[TOPIC=]SOURCE|kafka``. Raises ConfigError."""
    topics = _topics(job)
    if texts == [LOG]:
        return dict.fromkeys(topics, LOG)
    sources: dict[str, str] = {}
    for text in texts:
        topic, equals, path = text.partition("=")
        if not equals or topic not in topics:
            if len(topics) > 1:
                raise ConfigError(f"--from {text}: write TOPIC=PATH or TOPIC={LOG}; topics: {', '.join(topics)}")
            topic, path = topics[0], text
        if topic in sources:
            raise ConfigError(
                f"--from {text}: {topic} has a history already: give a folder, or a pattern such as *.parquet",
                topic=topic,
            )
        sources[topic] = path
    check_all(job, sources)
    return sources


def check_all(job: Job, sources: Iterable[str]) -> None:
    """Raise ConfigError if a topic has no source, or a source is for no topic that the job reads."""
    topics = _topics(job)
    if strange := [topic for topic in sources if topic not in topics]:
        raise ConfigError(f"a history of {strange[0]}, which the job does not read: topics: {', '.join(topics)}")
    if missing := [topic for topic in topics if topic not in sources]:
        raise ConfigError(f"--from says nothing of {', '.join(missing)}: add --from {missing[0]}=PATH, or ={LOG}")


def columns_of(job: Job, texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return topic → column of a history → its name there, of texts ``[TOPIC:]COLUMN=NAME,…``. Raises ConfigError."""
    topics = _topics(job)
    found: dict[str, dict[str, str]] = {topic: {} for topic in topics}
    for text in texts:
        topic, colon, pairs = text.partition(":")
        if colon and topic not in topics:
            raise ConfigError(f"--map {text}: {topic} is no topic that the job reads: {', '.join(topics)}")
        for pair in (pairs if colon else text).split(","):
            column, equals, name = (each.strip() for each in pair.partition("="))
            if column not in COLUMNS or not equals or not name:
                raise ConfigError(f"--map {text}: write [TOPIC:]COLUMN=NAME,… with a COLUMN of {', '.join(COLUMNS)}")
            for each in [topic] if colon else topics:
                found[each][column] = name
    return found


def _topics(job: Job) -> list[str]:
    topology = job.topology()
    return sorted({topic for stage in job.stages for topic in topology.externals_of(stage.ordinal)})
