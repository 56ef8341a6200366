"""A broker from Apache Kafka's own jars: for machines without Docker. It needs Maven once, and a Java.

The first broker leaves the classes that its Java has loaded and checked beside the jars, some 50 MB; those after it
start with them (AppCDS).
"""

import contextlib
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from grete.errors import ConfigError
from grete.spark.java import FETCH_S_MAX, cache, call, find_java, made
from grete.testing.broker.settings import KAFKA, answers, free_port, settings

_WHAT = "Kafka's jars"
CLOSE_S_MAX = 60  # then it is killed: nothing of it is needed
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")  # a file of classes that does not fit is ignored: no line is needed
# One compiler and one collector: a broker starts with 3 s of computing instead of 5, and its tests take a third less
# of it. What Java's second compiler makes pays only under long load.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# Settings of such a broker. By default 128 MB are taken and written to clean logs, which are short, and the controller
# writes a record each half second in which nothing happens.
SMALL = {"log.cleaner.dedupe.buffer.size": "4194304", "metadata.max.idle.interval.ms": "0"}
START_TRIES = 3  # another process may take a free port before the broker has it
_CLUSTER = "Z3JldGUtdGVzdC1icm9rZQ"  # any 16 bytes
_POM = """<project><modelVersion>4.0.0</modelVersion><groupId>grete</groupId>
<artifactId>broker</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{kafka}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""


@contextlib.contextmanager
def jar_broker(
    directory: Path,
    changed: Callable[[dict[str, str]], dict[str, str]] = lambda own: own,
    *,
    keep: bool = False,
    loaded: bool = False,
) -> Iterator[tuple[str, str]]:
    """Run a broker with data below ``directory`` and a port of its own. Raises ConfigError saying what is missing.

    ``changed`` takes all settings and returns those to use: more listeners, say, with certificates and users.
    ``keep``: its data stays, and the next broker there goes on with it. ``loaded``: it is made for load, not to start
    soon.
    """
    jars, java = find_jars(), find_java()  # without Maven no Java is fetched in vain
    common = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", str(jars / "*")]
    classes, draft = classes_file(java, jars), directory / "classes.jsa"
    keeps = [] if loaded or classes.exists() else [f"-XX:ArchiveClassesAtExit={draft}", *_QUIET]
    run = [java, "-Xms256m", "-Xmx1g", *(() if loaded else SHORT_LIVED), *with_classes(classes), *keeps, *common]
    for attempt in range(START_TRIES):
        port = free_port()
        config = directory / "server.properties"
        config.touch(0o600)  # a changed one may hold passwords
        data = directory / ("data" if keep else f"data{attempt}")
        config.write_text(_lines(changed(_own_settings(data, port) | ({} if loaded else SMALL))))
        if not (data / "meta.properties").exists():
            tool = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(config)]
            call(_WHAT, [java, *SHORT_LIVED, *with_classes(classes), *common, *tool], 60, "formatting its storage")
        with (directory / "broker.log").open("ab") as log:
            broker = subprocess.Popen(  # noqa: S603 - java and arguments are ours
                [*run, "kafka.Kafka", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            answers(f"127.0.0.1:{port}", alive=lambda broker=broker: broker.poll() is None)  # type: ignore[misc]  # mypy gives a default no type
        except ConfigError as error:
            _end(broker, 0)
            if attempt + 1 < START_TRIES:
                continue
            tail = (directory / "broker.log").read_text(errors="replace")[-2_000:]
            raise ConfigError(f"Kafka's jars: {error}: {tail}") from error
        try:
            yield f"127.0.0.1:{port}", f"Apache Kafka {KAFKA} from its jars, process {broker.pid}"
        finally:
            closed = _end(broker, CLOSE_S_MAX if keep or keeps else 0)
            if keeps and closed and draft.exists():
                copy = shutil.copyfile(draft, classes.with_suffix(f".{broker.pid}"))
                copy.replace(classes)  # at once: others look for it
        return


def _end(broker: "subprocess.Popen[bytes]", close_s_max: float) -> bool:
    """End it; tell whether it has closed all. What it has not closed, the next one recovers."""
    closed = False
    if close_s_max:
        broker.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            broker.wait(close_s_max)
            closed = True
    broker.kill()
    broker.wait()
    return closed


def classes_file(java: str, jars: Path) -> Path:
    """Return the file of the classes that this Java takes from these jars. The first broker to end makes it."""
    place = Path(java).resolve()
    of = f"{place} {place.stat().st_mtime_ns} {jars}"  # Java looks at the jars itself
    return made(cache()) / f"{jars.name}-{hashlib.sha256(of.encode()).hexdigest()[:12]}.jsa"


def with_classes(classes: Path) -> list[str]:
    """Return Java's options for a start with the classes of a file, if it is there."""
    return [f"-XX:SharedArchiveFile={classes}", *_QUIET] if classes.exists() else []


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


def find_jars(version: str = KAFKA) -> Path:
    """Return the directory of Kafka's jars, fetched with Maven the first time: about 45 MB."""
    target = cache() / f"kafka-{version}"
    if target.exists():
        return target
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError("Kafka's jars: they are fetched with Maven, and there is no mvn: install it")
    with tempfile.TemporaryDirectory(dir=made(cache())) as name:
        draft = Path(name)
        (draft / "pom.xml").write_text(_POM.format(kafka=version))
        fetch = [
            maven,
            "-q",
            "-B",
            "-f",
            str(draft),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={draft / 'jars'}",
        ]
        call(_WHAT, fetch, FETCH_S_MAX, "fetching them with Maven")
        with contextlib.suppress(OSError):  # another process was faster
            (draft / "jars").rename(target)
    return target
