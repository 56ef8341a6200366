"""Wrong inputs of the command line, made from its options, settings and tables.

Each is to be answered by an exit code and a text that has the cause, and the remedy.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import typer.main

from grete.cli.main import app
from grete.settings import Settings

JOB = "tasks.word_count"
HUGE = 10**18
NO_JOB_HAS_RUN = "no job has run in"


class WrongInput(NamedTuple):
    """A command line, the files that it finds, and words of the cause that its answer must have."""

    arguments: tuple[str, ...]
    cause: str
    files: tuple[tuple[str, str | bytes], ...] = ()
    code: int = 2

    @property
    def name(self) -> str:
        """The case, for the one who reads that it failed."""
        return " ".join(self.arguments)[:90] + "".join(f" ({name}: {text!r})" for name, text in self.files)


def _settings() -> Iterator[WrongInput]:
    """Each setting by --set: what is no number, below its bound and beyond it; a name that is almost its own."""
    for place, (name, default) in enumerate(zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True)):
        if isinstance(default, int):
            for value in (("", "fast", "0.5", "1e3")[place % 4], "-1", str(HUGE)):
                yield WrongInput(("config", "--set", f"{name}={value}"), f"{name}={value}")
        yield WrongInput(("config", "--set", f"{name}s=1"), f"unknown setting '{name}s'")


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words that call a command, and it, for each that is no group."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), typer.main.get_command(app))]
    while waiting:
        words, found = waiting.pop(0)
        if not hasattr(found, "commands"):
            yield words, found
            continue
        waiting += [((*words, name), found.commands[name]) for name in found.commands]


VALUES = {"job": JOB, "name": "sentences", "store": "counts", "key": "x", "second": JOB, "stage": "count-words"}
VALUES |= {
    "query": "SELECT 1",
    "partition": "0",
    "file": "missing.incident",
    "--to": "out",
    "--partitions": "4",
    "--partition": "0",
}


def required(command: Any) -> list[str]:
    """Return right values for all that a command must be given."""
    given = []
    for each in command.params:
        option = (each.opts or [each.name])[-1]
        if each.required:
            given += [option, VALUES[option]] if option.startswith("-") else [VALUES[each.name]]
    return given


def _options() -> Iterator[WrongInput]:
    """Each option of each command: without its value, empty where that is a path, no number where that is one."""
    for words, command in commands():
        yield WrongInput((*words, *required(command), "--sped"), "No such option: --sped")
        for each in command.params:
            if not each.opts or not (option := each.opts[-1]).startswith("-") or each.is_flag:
                continue
            yield WrongInput((*words, *required(command), option), f"Option '{option}' requires an argument")


def _missing_arguments() -> Iterator[WrongInput]:
    for words, command in commands():
        if required(command):
            yield WrongInput(words, "Missing")


GOOD = """from grete import Input, Job, Output, Store, Task, Topic, int64, utf8
a, b = Topic("a", key=utf8, value=utf8), Topic("b", key=utf8, value=utf8)
class One(Task):
    inp, out = Input(a), Output(b)
    def process(self, record): self.out.send(record.key, record.value)
"""
ADDRESSES = (
    " ", "kafka", "kafka:", "kafka://", "kafka://host", "kafka://:9092", "kafka://host:0", "kafka://host:x",
    "kafka://host:99999", "kafka://host:-1", "kafka://host:9092,", "kafka://host:9092,other",
    "kafka://u:p" + "@host:9092",
    "kafka://host:9092/topic", "kafka://host:9092?x=1", "kafka://[::1:9092", "kafka://h o s t:9092", "kafka:///x",
    "KAFKA", "pulsar://host:1", "http://host:9092", "host:9092", "file:///tmp/log.db", "Embedded", "./log.db",
)  # fmt: skip


def _addresses() -> Iterator[WrongInput]:
    """--log, --http and the like."""
    for address in ADDRESSES:
        yield WrongInput(("run", JOB, "--log", address), "not shown" if "@" in address else f"log {address}:")
    for http in ("", "x", "0.0.0.0", ":", "host:", "127.0.0.1:x", "-1", "99999", "127.0.0.1:99999", "a:b:c", "8080/x"):
        yield WrongInput(("up", JOB, "--http", http), "--http")
        yield WrongInput(("worker", JOB, "--partition", "0", "--http", http), "--http")


def _paths() -> Iterator[WrongInput]:
    """Paths that are empty, missing, folders where files are wanted, and files where folders are."""
    file = (("file", ""),)
    for path in (
        "missing.py",
        "folder.py",
        "no_such_job",  # a name that no other test of this process has imported
        "a/b.py",
        "",
        " ",
        ".",
        "..",
        "/",
        "x\0y.py",
        "tasks",
        "a.b.c.d",
        "tasks.",
        ".x",
    ):
        yield WrongInput(("run", path), "", (("folder.py/x", ""),))
    for path in ("file", "file/below", "/proc/nowhere", "/dev/null"):
        yield WrongInput(("run", JOB, "--directory", path), path, file)
    yield WrongInput(("run", JOB, "--directory", "x" * 300), "File name too long", file, code=1)
    yield WrongInput(("run", JOB, "--directory", ""), "it is empty")
    for path in ("missing.toml", "/", "/dev/zero", "file/x"):
        yield WrongInput(("run", JOB, "--settings", path), path, file)
    for path in ("missing", "/", "file/x"):
        yield WrongInput(("run", JOB, "--log", "kafka://127.0.0.1:1", "--kafka-config", path), path, file)
    for source in ("missing.txt", "/", "file/x", "", "/dev"):
        yield WrongInput(("run", JOB, "--input", f"sentences={source}"), f"sentences={source}", file)
    for given in ("sentences", "=x", "letters=x", "word-totals=x", "", "sentences=a=b"):
        yield WrongInput(("run", JOB, "--input", given), "--input", file)
    for path in ("missing", "file", "file/x"):
        yield WrongInput(("run", JOB, "--input-dir", path), path, file)
    yield WrongInput(("run", "tasks.join", "--input-dir", "."), "--input-dir")


JOB_FILES = {
    "": "bound to nothing",
    "x = 1": "bound to nothing",
    "job = 1": "job",
    "job = None": "job",
    "from grete import Job": "bound to nothing",
    "def job(): pass": "job",
    "import no_such_module_here": "no_such_module_here",
    "def f(:": "line 1",
    "1/0": "ZeroDivisionError",
    "raise ValueError": "ValueError",
    "raise SystemExit": "ends the process",
    "import sys; sys.exit(7)": "ends the process, with 7",
    "import sys; sys.exit('no')": "ends the process",
    "exit(3)": "ends the process",
    "def f(): f()\nf()": "RecursionError",
    "\tx = 1\n  y = 2": "line",
    "from grete import Job\njob = Job('j')": "stages",
    "from grete import Job\njob = Job()": "name",
    GOOD + "job = Job('j', stages=One)": "stages is a class and no list",
    GOOD + "job = Job('j', stages=One())": "stages",
    GOOD + "job = Job('j', stages=None)": "stages",
    GOOD + "job = Job('j', stages=[])": "stages",
    GOOD + "job = Job('j', stages='One')": "stages",
    GOOD + "job = Job('j', stages=[One()])": "stages",
    GOOD + "job = Job('j', stages=[None])": "stages",
    GOOD + "job = Job('j', stages=[One, One])": "one",
    GOOD + "job = Job('j', stages={One})": "stages",
    GOOD + "job = Job('', stages=[One])": "name",
    GOOD + "job = Job('a b', stages=[One])": "a b",
    GOOD + "job = Job('../x', stages=[One])": "../x",
    GOOD + "job = Job('ä', stages=[One])": "ä",
    GOOD + "job = Job(7, stages=[One])": "7",
    GOOD + "job = Job(None, stages=[One])": "None",
    GOOD + "job = Job('x' * 300, stages=[One])": "xxx",
    GOOD + "job = Job('j', stages=[One], partitions=0)": "partitions",
    GOOD + "job = Job('j', stages=[One], partitions='2')": "partitions",
    GOOD + "job = Job('j', stages=[One], partitions=10**9)": "partitions",
    GOOD + "job = Job('j', stages=[One], speed=1)": "speed",
    GOOD + "job = Job('j', [One]); job = Job": "job",
    GOOD + "class Two(Task):\n    inp = Input(a)\njob = Job('j', stages=[Two])": "process",
    "from grete import Task, Job\nclass S(Task): pass\njob = Job('j', stages=[S])": "process",
}
DECLARED = {
    "Input(Topic('', key=utf8, value=utf8))": "topic",
    "Input(Topic('a b', key=utf8, value=utf8))": "a b",
    "Input(Topic(7, key=utf8, value=utf8))": "7",
    "Input(Topic('c', key=str, value=utf8))": "key",
    "Input(Topic('c', key=utf8))": "value",
    "Input(Topic('c', key=None, value='utf8'))": "key",
    "Input('c')": "c",
    "Input()": "topic",
    "Input(None)": "None",
    "Output('b')": "b",
    "Output()": "target",
    "Store('', key=utf8, value=utf8)": "store",
    "Store('a/b', key=utf8, value=utf8)": "a/b",
    "Input(Topic('d', key=utf8, value='utf8'))": "value",
    "Store('s', key=utf8, value=int)": "class 'int'",
    "Store('s')": "key",
}


def _job_files() -> Iterator[WrongInput]:
    """The code of a job."""
    for code, cause in JOB_FILES.items():
        yield WrongInput(("run", "job.py"), cause, (("job.py", code),))
    for declared, cause in DECLARED.items():
        code = f"{GOOD}    other = {declared}\njob = Job('j', stages=[One])"
        yield WrongInput(("run", "job.py"), cause, (("job.py", code),))
    yield WrongInput(("run", "job.py"), "job.py", (("job.py", b"\xff\xfe\x00"),))
    yield WrongInput(("run", "job.py"), "job.py", (("job.py", b"x = '\xe4'"),))
    yield WrongInput(("run", "job.py"), "job.py", (("job.py", b"x = 1\0"),))
    yield WrongInput(("run", "my-job.py"), "my-job.py", (("my-job.py", ""),))
    yield WrongInput(("run", "json.py"), "json.py", (("json.py", GOOD + "job = Job('j', stages=[One])"),))


SETTINGS_FILES = (
    "restarts_max: 1", "restarts_max", "[", "[[workers]]", "[workers", "= 1", "a = [",
    "restarts_max = 1\nrestarts_max = 2",
    "[workers]\n[workers]", "restarts_max = ''", "restarts_max = []", "restarts_max = {}", "restarts_max = 1e3",
    "restarts_max = 1979-05-27", "restarts_max = nan", "restarts_max = -1", f"restarts_max = {HUGE}", "speed = 1",
    "[speed]", "[checkpoints.deep]", "checkpoints = 1", "log = 1", "[log]\nlog = ''", "[log]\nlog = 'pulsar'",
    "[log]\nkafka_config = 1", "[log]\nurl = ''", "[log]\nlog = 'kafka'", "[memory]\nrestarts_max = 1",
    "processing_guarantee = 'maybe'", "processing_guarantee = true", "tracing = 'loud'", "http_hosts = 1",
)  # fmt: skip
KAFKA_FILES = (
    "=x", "no.such.option=1", "security.protocol=maybe", "bootstrap.servers=other:1",
    "group.id=mine", "enable.idempotence=false", "transactional.id=x", "plugin.library.paths=x.so", "\0=1",
    "ssl.ca.location=missing.pem", "acks=x", "isolation.level=read_uncommitted", "sasl.mechanism=NONE", "a=1\na=2",
    "enable.auto.commit=true", "acks=0",
)  # fmt: skip


def _settings_files() -> Iterator[WrongInput]:
    """grete.toml, and the file of librdkafka's options."""
    for text in SETTINGS_FILES:
        # The address of a log is checked where it is used, and named by itself.
        yield WrongInput(
            ("run", JOB), "write embedded" if text.startswith("[log]\nlog") else "grete.toml", (("grete.toml", text),)
        )
    yield WrongInput(("run", JOB), "grete.toml", (("grete.toml", b"\xff\xfe"),))
    for text in KAFKA_FILES:
        given = ("checkpoints", JOB, "--log", "kafka://127.0.0.1:1", "--kafka-config", "kafka.conf")
        yield WrongInput(given, text.split("=")[-1 if "plugin" in text else 0].strip("\0"), (("kafka.conf", text),))


OTHERS = (
    (("",), "No such command"), (("nope",), "No such command 'nope'"), (("--nope",), "No such option"),
    (("state", "nope"), "No such command"), (("run", JOB, JOB), "unexpected extra argument"),
    *((("run", JOB, "--processes", each), "--processes") for each in ("0", "-1", "x", "", "1.5", str(HUGE))),
    *((("worker", JOB, "--partition", each), f"not {each}") for each in ("-1", "99", str(HUGE))),
    (("worker", JOB, "--partition", "0", "--stage", "nope"), "nope"),
    *((("worker", JOB, "--partition", "0", "--status-fd", each), each) for each in ("999999", "-1")),  # of no file
    (("run", JOB, "--drain", "--follow"), "--drain"), (("run", JOB, "--keys", "--json-lines"), "--keys"),
    *((("run", JOB, "--from", each), "--from") for each in (
        "", "x", "sentences", "sentences@", "sentences@x", "sentences@2026-13-01T00:00Z", "sentences@2026-11-01T00:00",
        "nope@2026-11-01T00:00Z", "word-totals@2026-11-01T00:00Z", "@2026-11-01T00:00Z", "sentences@1")),
    *((("new", each), "cannot name a project") for each in (
        "class", "Bad", "a b", "", "1a", "-", "a--b", "../x", "json", "grete", "x/y", "ä",
        "none.py", "pytest", "test")),
    (("new", "mine", "--template", "nope"), "no template 'nope'"), (("new", "mine", "--template", ""), "no template"),
    (("up", JOB, "--hide-values"), "--hide-values"),
    *((("incident", "show", each), each) for each in ("missing", "/", "file/x")),
    *((("replay", JOB, "--checkpoint", each), "--checkpoint") for each in ("x", "-1", "", "1.5")),
    *((("topic", "read", JOB, "sentences", "-n", each), "-n") for each in ("x", "-1", "")),
    *((("state", "scan", JOB, "counts", "--limit", each), "--limit") for each in ("x", "-1", "")),
    *((("rescale", JOB, "--partitions", each), "--partitions") for each in ("x", "-1", "0", "")),
    *((("snapshot", JOB, "--keep", each), "--keep") for each in ("x", "-1", "0")),
    *((("backfill", JOB, "--max-refused", each), "--max-refused") for each in ("x", "-1")),
    *((("audit", JOB, "--share", each), "--share") for each in ("x", "-1", "2")),
    (("config", "--set", "tracing=loud"), "tracing"),
    (("config", "--set", "=1"), "=1"), (("config", "--set", ""), "--set"), (("config", "--set", "="), "--set"),
)  # fmt: skip


def _others() -> Iterator[WrongInput]:
    """Arguments and options of single commands."""
    for arguments, cause in OTHERS:
        yield WrongInput(arguments, cause, (("file", ""),))


KINDS = (_settings, _options, _missing_arguments, _addresses, _paths, _job_files, _settings_files, _others)
