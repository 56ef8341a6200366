"""The experiment's job on Spark's Real-time Mode: documents, their words by a pipelined shuffle, counts in RocksDB.

It imports nothing of this repository. Arguments: the folder of the jars of Spark's Kafka connector, then those of
../tools.py.
"""

import os
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def main(jars: str, bootstrap: str, documents: str, changes: str, name: str, directory: str, *more: str) -> None:
    """Run until it is ended. ``more``: guarantee, ms between two commits, partitions."""
    _, ms, partitions = more
    spark = (
        SparkSession.builder.master(f"local[{2 * int(partitions)}]")  # the tasks of both stages run at once
        .appName(name)
        .config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar"))))
        .config("spark.driver.memory", "1500m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", partitions)
        .config("spark.local.dir", directory)
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    kafka = {"kafka.bootstrap.servers": bootstrap}
    texts = (
        spark.readStream.format("kafka")
        .options(**kafka, subscribe=documents, startingOffsets="earliest")
        .load()
        .select(
            f.col("key").cast("string").cast("int").alias("document"),
            f.expr(r"regexp_extract_all(lower(cast(value as string)), '[\\p{L}\\p{N}_]{1,64}', 0)").alias("words"),
        )
    )
    postings = texts.select("document", "words", f.explode(f.array_distinct("words")).alias("word")).select(
        "word",
        "document",
        f.expr("filter(sequence(0, size(words) - 1), place -> words[place] = word)").alias("positions"),
    )
    index = postings.groupBy("word").agg(
        f.last("document").alias("document"), f.last("positions").alias("positions"), f.count("*").alias("version")
    )
    told = index.select(
        f.col("word").alias("key"),
        f.format_string("[%d,%s,%d]", "document", f.to_json("positions"), "version").alias("value"),
    )
    (
        told.writeStream.format("kafka")
        .options(**kafka, topic=changes, checkpointLocation=f"{directory}/checkpoint", **{"kafka.linger.ms": "0"})
        .outputMode("update")
        .trigger(realTime=f"{ms} milliseconds")  # type: ignore[call-overload]  # its overloads leave it out
        .start()
        .awaitTermination()
    )


def end_with_input() -> None:
    """End when who started us has ended."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_input, daemon=True).start()
    main(*sys.argv[1:])
