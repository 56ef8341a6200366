"""A Delta table as history, through Delta's own reader for Spark, which has a release for PySpark 4.2 alone."""

import os
import shlex
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.peers.preparing import jars_of

pytestmark = [pytest.mark.ship, pytest.mark.spark, pytest.mark.timeout(900)]

POM = Path(__file__).parent / "delta" / "pom.xml"
JOB = """
from grete import Input, Job, Record, Store, Task, Topic, int64, utf8


class Count(Task):
    clicks = Input(Topic("clicks", key=utf8, value=int64))
    counts = Store("counts", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.counts.put(record.key, self.counts.get(record.key, 0) + 1)


job = Job("counted", stages=[Count], partitions=2)
"""
ROWS, DELETED, ADDED = 2_000, 7, 500
TABLE = f"""
import sys, time
from grete.spark.session import local_session

spark, place = local_session("local[2]"), sys.argv[1]


def rows(begin, end):  # in no order of time, as a table writer leaves them
    return spark.range(begin, end, numPartitions=3).selectExpr(
        "concat('page', id % 11) AS key",
        "unhex(lpad(hex(id), 16, '0')) AS value",
        "timestamp_millis(1700000000000 + (id * 7919) % 100000) AS timestamp",
        "id",
    )


rows(0, {ROWS}).write.format("delta").save(place)
spark.sql(f"DELETE FROM delta.`{{place}}` WHERE id % {DELETED} = 0")
spark.sql(f"OPTIMIZE delta.`{{place}}`")
rows({ROWS}, {ROWS} + {ADDED}).write.format("delta").mode("append").save(place)
print(spark.sql(f"DESCRIBE HISTORY delta.`{{place}}`").where("version = 2").selectExpr("string(timestamp)").first()[0])
spark.stop()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the job."""
    made = tmp_path_factory.mktemp("delta")
    (made / "counted.py").write_text(JOB)
    return made


@pytest.fixture(scope="module")
def written(folder: Path) -> str:
    """Write the table, in four versions; return the time of the third."""
    return run(folder, sys.executable, "-c", textwrap.dedent(TABLE), str(folder / "clicks")).splitlines()[-1]


def run(folder: Path, *command: str) -> str:
    """Run a command whose Spark has Delta, by the options that Spark takes from the environment."""
    jars = ",".join(map(str, sorted(jars_of("delta", POM).glob("*.jar"))))
    options = {
        "spark.jars": jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    words = [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
    environment = os.environ | {"PYSPARK_SUBMIT_ARGS": shlex.join([*words, "pyspark-shell"])}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5_000:]
    return done.stdout


def recount(*, deleted: bool, added: bool) -> Counter[str]:
    """Return the rows of each key that a version has."""
    rows = [number for number in range(ROWS) if not (deleted and number % DELETED == 0)]
    return Counter(f"page{number % 11}" for number in [*rows, *range(ROWS, ROWS + ADDED if added else ROWS)])


@pytest.mark.parametrize(
    ("source", "deleted", "added"),
    [
        ("delta:clicks", True, True),
        ("sql:SELECT * EXCEPT (id) FROM delta.`{place}`", True, True),
        ("sql:SELECT * EXCEPT (id) FROM delta.`{place}` VERSION AS OF 0", False, False),
        ("sql:SELECT * EXCEPT (id) FROM delta.`{place}` TIMESTAMP AS OF '{time}'", True, False),
    ],
)
def test_a_backfill_takes_the_rows_of_a_version(
    folder: Path, written: str, source: str, deleted: bool, added: bool
) -> None:
    """Deleted rows and files that were joined count for nothing; an audit of the same source finds no difference."""
    named = source.format(place=folder / "clicks", time=written)
    directory = f"--directory=state-{deleted}-{added}-{source.partition(':')[0]}"
    grete = (sys.executable, "-m", "grete.cli")
    run(folder, *grete, "backfill", "counted.py", f"--from={named}", directory)
    lines = run(folder, *grete, "state", "scan", "counted.py", "counts", directory).splitlines()
    assert {key: int(count) for key, count in (line.split("\t") for line in lines)} == recount(
        deleted=deleted, added=added
    )
    run(folder, *grete, "audit", "counted.py", f"--from={named}", directory)
