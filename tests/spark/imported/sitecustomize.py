"""A daemon of Spark whose PYTHONPATH begins with this folder imports at its start what the processes it forks would.

Spark forks a process for each use of a data source, and for each core that runs Python. In a test, imports are most of
what such a process computes: it finds pyspark in a zip file, and compiles it. Here it gets the one that is installed,
whose bytecode is kept; it would read the tables of two zip files and of a jar in each fork. Spark imports nothing
ahead, as pandas and pyarrow start threads. These are told not to. Behind each task Spark looks for garbage: what was
imported is none, and to look at it was half of what the forks computed.
"""

import gc
import importlib
import os
import sys
from pathlib import Path

IMPORTED = (
    "grete.spark.backfill.audit",
    "grete.spark.backfill.backfill",
    "grete.spark.format.sources",
    "grete.spark.moving.spark_mover",
    "pandas",
    "pyarrow.pandas_compat",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
)

LOOKUP = "pyspark.sql.worker.lookup_data_sources"  # it forks one process for a session, which needs none of these
STREAMING = "pyspark.sql.streaming.python_streaming_source_runner"  # a process of its own for each source of a query

if {"pyspark.daemon", STREAMING} & {*sys.orig_argv}:
    sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]
    for path in [path for path in sys.path_importer_cache if ".zip" in path or path.endswith(".jar")]:
        del sys.path_importer_cache[path]

if "pyspark.daemon" in sys.orig_argv and LOOKUP not in sys.orig_argv:
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}

    for name in IMPORTED:
        importlib.import_module(name)

    if len([*Path("/proc/self/task").iterdir()]) > 1:
        sys.exit("what a daemon of Spark imports has started threads, which its forks would not have")
    gc.collect()
    gc.freeze()
