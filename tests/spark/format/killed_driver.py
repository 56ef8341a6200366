"""A driver that follows changes, one checkpoint a batch, until it is killed. Arguments: job's and own directory."""

import sys
from pathlib import Path

from grete.spark.session import local_session
from tests.spark.format.queries import Query

if __name__ == "__main__":
    spark = local_session("local[2]")
    Query(spark, Path(sys.argv[1]), Path(sys.argv[2]), startingCheckpoint="earliest", maxCheckpointsPerBatch="1").run()
