"""``make ship``: what a release is tried with, beside what `make test` has here: other Pythons, brokers, an audit.

Each line passes, fails, or says why it was not tried here. What has passed at a commit is not done again: ``.ship`` has
it, with what each command printed. ``ONLY=NAME`` tries one line. ``WRITE=1`` puts the table into the docs.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks import results
from benchmarks.results import Kept, Table
from benchmarks.running import taken
from grete.cli.commands.new import templates
from grete.errors import ConfigError
from grete.testing.broker.settings import KAFKA
from tests.suite.prove import show
from tests.support.typed_job import MISTAKES, RIGHT, WRONG
from tests.verification.chaos.cluster import Cluster

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".ship"
NAME = "ship"  # of the results
Outcome = Literal["passed", "failed", "not tried"]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
BROKERS = ("3.9.1", "4.0.0", "4.4.0")  # beside the one of all tests: the last of 3, the first of 4, a newer one
ASK_S_MAX = 60.0  # a program for its version, or an engine whether it is there
ON_BROKER = [
    "-n",
    str(os.cpu_count() or 1),
    "-m",
    "kafka and not chaos and not spark",
    "tests/logs",
    "tests/contracts",
    "tests/cli",
    "tests/worker",
]

PYSPARKS = ("4.2",)  # beside the one of all tests
ON_SPARK = ["-n", "2", "-m", "spark and (check or test or ship)", "tests/spark"]


class Told(msgspec.Struct, frozen=True):
    """The result of a line."""

    outcome: Outcome
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a release is tried with."""

    name: str
    how: str
    attempt: Callable[[Path], Told]  # where it writes what it prints


def environment(**more: str) -> dict[str, str]:
    """Return that of a command of its own: make hands on what this run was asked for."""
    ours = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "WRITE", "PYTHON", "VENV"}
    return {name: value for name, value in os.environ.items() if name not in ours} | more


def call(command: Sequence[str], log: Path, **more: str) -> Told:
    """Run a command: it passes if it exits with 0."""
    began = time.monotonic()
    with log.open("wb") as file:
        code = subprocess.run(
            command, cwd=ROOT, env=environment(**more), stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False
        ).returncode
    seconds = time.monotonic() - began
    return (
        Told("failed", f"exit code {code}: {log.relative_to(ROOT)}", seconds) if code else Told("passed", "", seconds)
    )


def answer(*command: str) -> tuple[bool, str]:
    """Return whether a program exits with 0, and the last line that it prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ASK_S_MAX)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode == 0, lines[-1] if lines else f"exit code {done.returncode}"


def find_python(version: str) -> str | None:
    """Return an interpreter of that version, of PATH or of pyenv."""
    name = f"python{version}"
    places = [
        *filter(None, [shutil.which(name)]),
        *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}")),
    ]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    return next((place for place in places if answer(place, "-c", ask) == (True, version)), None)


def on_python(version: str) -> Callable[[Path], Told]:
    """Return the attempt of all tests on that version."""

    def attempt(log: Path) -> Told:
        python = find_python(version)
        if python is None:
            return Told("not tried", f"no python{version} was found")
        return call(["make", "test", f"PYTHON={python}", f"VENV=.venv-{version}"], log)

    return attempt


def on_broker(version: str) -> Callable[[Path], Told]:
    """Return the attempt of the tests that share a broker on one of that version, twice: it keeps what they left."""

    def attempt(log: Path) -> Told:
        with tempfile.TemporaryDirectory(prefix="grete-ship-") as scratch:
            try:
                cluster = Cluster(Path(scratch), version=version)
            except ConfigError as error:
                return Told("not tried", str(error))
            with cluster:
                first = call([sys.executable, "-m", "pytest", *ON_BROKER], log, GRETE_KAFKA=cluster.bootstrap)
                if first.outcome == "failed":
                    return first
                return call([sys.executable, "-m", "pytest", *ON_BROKER], log, GRETE_KAFKA=cluster.bootstrap)

    return attempt


def on_spark(version: str) -> Callable[[Path], Told]:
    """Return the attempt of the tests of Spark on that release of PySpark, in an environment for it."""

    def attempt(log: Path) -> Told:
        place = f".venv-pyspark-{version}"
        python = f"{place}/bin/python"
        for step in (
            ["make", "venv", f"VENV={place}"],
            [python, "-m", "pip", "install", "--quiet", "--no-deps", f"pyspark=={version}.*"],
        ):
            if (told := call(step, log)).outcome == "failed":
                return told
        return call([python, "-m", "pytest", *ON_SPARK], log, PYSPARK_PYTHON=str(ROOT / python))

    return attempt


def on_docker(log: Path) -> Told:
    """Build the image, and run the tests that share a broker on one that Docker runs."""
    there, said = answer("docker", "info")
    if not there:
        return Told("not tried", said)
    built = call(["docker", "build", "."], log)
    if built.outcome == "failed":
        return built
    return call([sys.executable, "-m", "pytest", *ON_BROKER], log)


def audit(log: Path) -> Told:
    """Look what is pinned up among the known vulnerabilities."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="grete-audit-") as scratch:
        venv.create(scratch, with_pip=True)
        there, said = answer(f"{scratch}/bin/python", "-m", "pip", "install", "--quiet", "pip-audit")
        if not there:
            return Told("not tried", f"pip-audit cannot be installed: {said}")
        command = [
            f"{scratch}/bin/pip-audit",
            "-r",
            "requirements/dev.txt",
            "--no-deps",
            "--disable-pip",
            "--format",
            "json",
        ]
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    log.write_text(done.stdout + done.stderr)
    return judged(done.stdout, done.stderr, time.monotonic() - began)


class Vulnerability(msgspec.Struct):
    """One of pip-audit's findings."""

    id: str


class Audited(msgspec.Struct):
    """One package of its report."""

    name: str
    vulns: list[Vulnerability] = []
    skip_reason: str = ""


class Report(msgspec.Struct):
    """The report that it prints."""

    dependencies: list[Audited]


def judged(report: str, said: str, seconds: float) -> Told:
    """Return the result of an audit. A package that the index does not know is none that was looked up."""
    try:
        packages = msgspec.json.decode(report, type=Report).dependencies
    except msgspec.DecodeError:
        return Told("not tried", (said.strip().splitlines() or ["pip-audit printed nothing"])[-1], seconds)
    bad = [f"{each.name}: {', '.join(one.id for one in each.vulns)}" for each in packages if each.vulns]
    if bad:
        return Told("failed", "; ".join(bad), seconds)
    unknown = [each for each in packages if each.skip_reason]
    if unknown or not packages:
        first = unknown[0].skip_reason if unknown else "it looked nothing up"
        return Told("not tried", f"{len(unknown)} of {len(packages)} packages were not looked up: {first}", seconds)
    return Told("passed", f"{len(packages)} packages, no known vulnerability", seconds)


def on_pyright(log: Path) -> Told:
    """Let it look strictly at the projects of `grete new` and at a user's mistakes, beside what pip installs of us.

    It is a program of Node, which its first start fetches. In `make test`, mypy looks at the same job.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="grete-types-") as scratch:
        programs, projects = Path(scratch) / "venv" / "bin", Path(scratch) / "projects"
        venv.create(programs.parent, with_pip=True)
        needed = [f"{ROOT}[registry]", "hypothesis", "pyright", "pytest"]  # as the examples and their tests import
        if call([str(programs / "pip"), "install", "--quiet", *needed], log).outcome == "failed":
            return Told("not tried", f"pyright cannot be installed: {log.relative_to(ROOT)}")
        projects.mkdir()
        for name in templates():
            new = [str(programs / "grete"), "new", f"my-{name.replace('_', '-')}", "--template", name]
            subprocess.run(new, cwd=projects, env=environment(), capture_output=True, check=True)
        (projects / "right.py").write_text(RIGHT)
        (projects / "wrong.py").write_text(WRONG)
        (projects / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
        command = [str(programs / "pyright"), "--outputjson", "--pythonpath", str(programs / "python")]
        done = subprocess.run(command, cwd=projects, env=environment(), capture_output=True, text=True, check=False)
    log.write_text(done.stdout + done.stderr)
    return typed(done.stdout, done.stderr, time.monotonic() - began)


class Start(msgspec.Struct):
    """The place where a finding begins; the first line is 0."""

    line: int


class Range(msgspec.Struct):
    """The text that a finding is about."""

    start: Start


class Finding(msgspec.Struct):
    """One of pyright's."""

    file: str
    severity: str
    message: str
    range: Range


class Checked(msgspec.Struct, rename="camel"):
    """The report that it prints."""

    general_diagnostics: list[Finding]


def typed(report: str, said: str, seconds: float) -> Told:
    """Return the result of pyright: each mistake has to have a finding on its line, and nothing else may have one."""
    try:
        findings = msgspec.json.decode(report, type=Checked).general_diagnostics
    except msgspec.DecodeError:
        return Told("not tried", ((said or report).strip().splitlines() or ["pyright printed nothing"])[-1], seconds)
    lines, seen = WRONG.splitlines(), set[str]()
    for each in findings:
        name, number = Path(each.file).name, each.range.start.line
        if name != "wrong.py" or lines[number].strip() not in MISTAKES:
            return Told("failed", f"{name}, line {number + 1}: {each.message.splitlines()[0]}", seconds)
        seen.add(lines[number].strip())
    missed = [each for each in MISTAKES if each not in seen]
    if missed:
        return Told("failed", f"not found: {', '.join(missed)}", seconds)
    return Told("passed", f"no finding in right code, one for each of {len(MISTAKES)} mistakes", seconds)


LINES = (
    *(
        Line(f"Python {each}", f"`make test PYTHON=python{each} VENV=.venv-{each}`", on_python(each))
        for each in PYTHONS
    ),
    *(
        Line(f"Kafka {each}", f"tests that share a broker, of {KAFKA} elsewhere, twice on one broker", on_broker(each))
        for each in BROKERS
    ),
    *(
        Line(f"PySpark {each}", "tests of Spark, and of Delta tables by Delta's reader for it", on_spark(each))
        for each in PYSPARKS
    ),
    Line("Docker", "`docker build .`, and tests that share a broker on one of the engine", on_docker),
    Line("pyright", "strictly, at the projects of `grete new` and at mistakes, with what pip installs", on_pyright),
    Line("audit of dependencies", "`pip-audit -r requirements/dev.txt`", audit),
)


def main(arguments: Sequence[str] | None = None, lines: Sequence[Line] = LINES) -> int:
    """Try each line; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite.ship", description=__doc__)
    parser.add_argument("--only", choices=[line.name for line in lines], metavar="NAME", help="try this line")
    only = parser.parse_args(arguments).only
    where = taken()
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{where.commit}.json"
    told = msgspec.json.decode(path.read_bytes(), type=dict[str, Told]) if path.exists() else {}
    for line in lines:
        if only not in {None, line.name} or (line.name in told and told[line.name].outcome == "passed"):
            continue
        print(f"{line.name}: {line.how}", flush=True)
        told[line.name] = line.attempt(FOLDER / f"{line.name.replace(' ', '-')}.log")
        path.write_bytes(msgspec.json.format(msgspec.json.encode(told)))
        print(f"  {told[line.name].outcome} {told[line.name].why}", flush=True)
    rows = [(line, told.get(line.name, Told("not tried", "not yet at this commit"))) for line in lines]
    columns = ["with", "how", "outcome", "why", "seconds"]
    table = Table(
        "What a release is tried with",
        columns,
        [[line.name, line.how, each.outcome, each.why or None, round(each.seconds)] for line, each in rows],
    )
    show(table)
    if os.environ.get("WRITE"):
        where.command, where.tables = "make ship WRITE=1", [table]
        results.write(NAME, Kept([where]))
    return 1 if any(each.outcome == "failed" for _, each in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
