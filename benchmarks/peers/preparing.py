"""Fetches and builds what the peers run on, once: it is kept in the cache, nothing of it is in this repository."""

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from grete.errors import ConfigError
from grete.spark.java import cache, call, find_java, made

FETCH_S_MAX = 900.0
COMPILE_S_MAX = 120.0


def java_classpath(tool: str, pom: Path, source: Path) -> str:
    """Return the class path of a program with its libraries, and with the sources beside it that it uses.

    Raises ConfigError if Maven or a JDK is missing.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError(f"{tool}: its jars are fetched with Maven, and there is no mvn: install it")

    def build(draft: Path) -> None:
        fetch = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        call(tool, [*fetch, f"-DoutputDirectory={draft / 'jars'}"], FETCH_S_MAX, "fetching its jars with Maven")
        jars = os.pathsep.join(map(str, (draft / "jars").glob("*.jar")))
        compiler = [find_java(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", jars]
        compiler += ["-sourcepath", str(source.parent)]
        compiling = f"compiling {source.name} (it needs a JDK)"
        call(tool, [*compiler, "-d", str(draft / "classes"), str(source)], COMPILE_S_MAX, compiling)

    built = _once(tool, [pom, source, *sorted(source.parent.glob("*.java"))], build)
    return os.pathsep.join([str(built / "classes"), str(built / "jars" / "*")])


def jars_of(tool: str, pom: Path) -> Path:
    """Return a folder with the jars that a Maven file names. Raises ConfigError if Maven is missing, or one of them."""
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError(f"{tool}: its jars are fetched with Maven, and there is no mvn: install it")

    def build(draft: Path) -> None:
        fetch = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        call(tool, [*fetch, f"-DoutputDirectory={draft}"], FETCH_S_MAX, "fetching its jars with Maven")

    return _once(tool, [pom], build)


def python_with(tool: str, requirements: Path) -> str:
    """Return a Python that has these packages, in an environment of its own: they clash with ours."""

    def build(draft: Path) -> None:
        call(tool, [sys.executable, "-m", "venv", str(draft)], FETCH_S_MAX, "making its environment")
        install = [str(draft / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(requirements)]
        call(tool, install, FETCH_S_MAX, "installing it from the package registry")

    return str(_once(tool, [requirements], build) / "bin" / "python")


def _once(tool: str, inputs: list[Path], build: Callable[[Path], None]) -> Path:
    """Return the directory that ``build`` made out of just these files, now or earlier."""
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in inputs)).hexdigest()[:12]
    target = made(cache()) / f"peer-{tool.lower().replace(' ', '-')}-{digest}"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=cache()) as name:
            build(Path(name) / "draft")
            with contextlib.suppress(OSError):  # another process was faster
                (Path(name) / "draft").rename(target)
    return target
