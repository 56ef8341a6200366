"""Whole backfills on a Spark cluster: in one stage an executor is killed, in the other one an attempt gets a twin."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.backfill.scene import Scene, made, parquet
from tests.spark.test_deterministic import MODE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORY, LIVE = made(600, 31), made(100, 32)
# In the middle of one task of each stage: of the first by the number of its row, of the second by what it has added up.
FIRST, SECOND = "record.partition == 1 and record.offset == 100", "record.partition == 1 and total > 100"
SUM = "        self.sums.put(record.key, total)\n"
JOBS: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "aligned": ("die", "linger", []),
    "deterministic": ("linger", "die", [MODE]),
}


def filled(name: str, directory: Path) -> Scene:
    """Return a job, whose code has the troubles in it, ready to be filled or to be looked at; close its log."""
    first, second, changes = JOBS[name]
    own = directory / f"{name}-backfill"
    own.mkdir(exist_ok=True)
    imports = "from grete import DeadLetter"
    changed = [
        *changes,
        (imports, f"from tests.spark.troubles import die, linger\n{imports}"),
        (SUM, f"        if {SECOND}:\n            {second}({str(own)!r})\n{SUM}"),
    ]
    more = f"        if {FIRST}:\n            {first}({str(own)!r})\n"
    return Scene(own, f"-{name}", more=more, changes=changed)


def play(spark: "SparkSession", directory: Path, name: str) -> None:
    """Fill a job from two files."""
    for number in range(2):
        parquet(directory / "history" / f"{number}.parquet", HISTORY[number * 300 : (number + 1) * 300])
    scene = filled(name, directory)
    done = scene.backfill(spark, str(directory / "history"))
    good = sum(text != "x" for _, text, _ in HISTORY)
    counts = [(report.records + report.refused, report.letters) for report in done.reports]
    assert [sum(column) for column in zip(*counts, strict=True)] == [len(HISTORY) + good, len(HISTORY) - good], counts
    scene.log.close()
