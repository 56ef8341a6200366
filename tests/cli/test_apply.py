"""`grete apply`: graph and stores of a job change while no worker runs; its state stays."""

import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from grete.errors import ConfigError, ExitCode
from grete.job.loader import load_job
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.state.read.checkpoints.commits import last_commit
from grete.testing.broker import Broker
from tests.cli.changed_pipeline import code, run, scan
from tests.cli.changed_shop import Changes
from tests.cli.test_plan import plan
from tests.cli.test_state_commands import grete
from tests.worker.workers import WorkerUnderTest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]  # many workers, one after another

LAST_DROPPED = (("Total, Audit]", "Total]"),)
MIDDLE_DROPPED = (("[Parse, Enrich, ", "[Parse, "), ("given = Input(enriched)", "given = Input(parsed)"))
STORE_DROPPED = (
    ('    last = Store("last", key=utf8, value=utf8)\n', ""),
    ('        self.last.put("last", record.key)\n', ""),
)
INSERTED = (
    (
        "job = Job(",
        """cleaned = Topic("cleaned", key=utf8, value=utf8)
class Clean(Task):
    parsed = Input(parsed)
    kept = Store("kept", key=utf8, value=int64)
    out = Output(cleaned)
    def process(self, record: Record[str, str]) -> None:
        self.kept.put(record.key, self.kept.get(record.key, 0) + 1)
        self.out.send(record.key, record.value)
Enrich.parsed = Input(cleaned)
job = Job(""",
    ),
    ("Audit]", "Audit, Clean]"),
)
REWIRED = (("class Audit(Task):\n    parsed = Input(parsed)", "class Audit(Task):\n    parsed = Input(enriched)"),)
ALL = (*LAST_DROPPED, *STORE_DROPPED, *INSERTED[:1], ("Total]", "Total, Clean]"))
CHANGES: dict[str, tuple[Changes, list[str], dict[str, dict[str, int]]]] = {  # rows, state after two orders more
    "the last stage is dropped": (LAST_DROPPED, ["stage 'audit' is gone"], {"counts": {"fig": 2, "pear": 3}}),
    "a middle stage is dropped": (
        MIDDLE_DROPPED,
        ["stage 'enrich' is gone", "the stream 'parse.parsed.total' from 'parse' to 'total' is new"],
        {"counts": {"fig": 2, "pear": 3}, "seen": {"fig": 2, "pear": 3}},
    ),
    "a store is dropped": (STORE_DROPPED, ["store total/last is gone"], {"counts": {"fig": 2, "pear": 3}}),
    "a stage is put between two": (
        INSERTED,
        [
            "stage 'clean' is new and writes what a stage of before reads",
            "the stream 'parse.parsed.enrich' from 'parse' to 'enrich' is gone",
        ],
        {"counts": {"fig": 2, "pear": 3}, "known": {"fig": 2, "pear": 3}, "kept": {"fig": 1, "pear": 1}},
    ),
    "a stage reads another stream": (
        REWIRED,
        [
            "the stream 'enrich.enriched.audit' from 'enrich' to 'audit' is new",
            "the stream 'parse.parsed.audit' from 'parse' to 'audit' is gone",
        ],
        {"counts": {"fig": 2, "pear": 3}, "seen": {"fig": 2, "pear": 3}},
    ),
    "all at once": (
        ALL,
        [
            "stage 'audit' is gone",
            "stage 'clean' is new and writes what a stage of before reads",
            "store total/last is gone",
            "the stream 'parse.parsed.enrich' from 'parse' to 'enrich' is gone",
        ],
        {"counts": {"fig": 2, "pear": 3}, "kept": {"fig": 1, "pear": 1}},
    ),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a job that has run."""
    folder = tmp_path_factory.mktemp("ran")
    run(code(folder), folder / "job", "pear", "fig", "pear")
    return folder / "job"


@pytest.fixture
def directory(ran: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    return Path(shutil.copytree(ran, tmp_path / "job"))


@pytest.mark.parametrize(("changes", "rows", "state"), CHANGES.values(), ids=CHANGES)
def test_an_applied_change_keeps_the_state(
    directory: Path, tmp_path: Path, changes: Changes, rows: list[str], state: dict[str, dict[str, int]]
) -> None:
    """A start before it names the plan; behind it the new code goes on, and the code of before is refused."""
    changed, before = code(tmp_path, *changes), code(tmp_path, name="before")
    assert "grete plan JOB" in grete("run", changed, f"--directory={directory}", fails=ConfigError)
    ends, found = plan(changed, directory)
    assert (ends, sorted(row["what"] for row in found if row["by"] == "apply")) == (1, rows)
    grete("apply", changed, f"--directory={directory}")
    assert plan(changed, directory) == (0, [])
    refused = grete("run", before, f"--directory={directory}", fails=ConfigError)
    assert "was dropped from this job by grete apply" in refused or "grete plan JOB" in refused
    run(changed, directory, "pear", "fig")
    for store, entries in state.items():
        assert scan(changed, directory, store) == entries
    grete("replay", changed, f"--directory={directory}")  # the changelogs give the same
    run(changed, directory, "fig")
    assert scan(changed, directory, "counts") == {"fig": 3, "pear": 3}
    assert "grete plan JOB" in (again := grete("run", before, f"--directory={directory}", fails=ConfigError)) or (
        "was dropped" in again
    )


def test_numbers_and_names_of_what_was_dropped_are_never_used_again(directory: Path, tmp_path: Path) -> None:
    """A stage or store that is added later gets the next number, and may not have the name of a dropped one."""
    grete("apply", code(tmp_path, *LAST_DROPPED, *STORE_DROPPED), f"--directory={directory}")
    store = (
        '    counts = Store("counts"',
        '    more = Store("more", key=utf8, value=int64)\n    counts = Store("counts"',
    )
    later = code(
        tmp_path,
        *STORE_DROPPED,
        store,
        ("class Audit(Task)", "class Check(Task)"),
        ("Total, Audit]", "Total, Check]"),
        name="later",
    )
    run(later, directory, "fig")
    assert scan(later, directory, "seen") == {"fig": 1}
    with closing(EmbeddedLog(directory / "log.db")) as log:
        commit = last_commit(log, TopicPartition("pipeline.check.changelog", 0))
        assert commit is not None
        assert commit.commit.producer >> 16 == 4  # 3 was that of audit
        definition = log.meta_get("definition")
    assert definition is not None
    assert (
        b'"dropped":{"stages":[{"mode":"aligned","name":"audit","number":3}],"stores":{"total":{"last":11}}}'
        in definition
    )
    assert b'{"id":12,"key":{"name":"utf8"},"name":"more"' in definition
    again = code(tmp_path, *STORE_DROPPED, name="again")
    assert "a new stage needs another name" in grete("run", again, f"--directory={directory}", fails=ConfigError)
    again = code(tmp_path, *LAST_DROPPED, name="again")
    assert "a new store needs another name" in grete("plan", again, f"--directory={directory}", fails=ConfigError)


REFUSED: dict[str, tuple[Changes, str]] = {
    "the first stage": (
        (("[Parse, Enrich", "[Enrich"), ("parsed = Input(parsed)\n    known", "parsed = Input(orders)\n    known"),
         ("class Audit(Task):\n    parsed = Input(parsed)", "class Audit(Task):\n    parsed = Input(enriched)")),
        "stage 'parse' is gone: its changelog says which bulk writes count",
    ),
    "a topic that no stage writes any more": (
        (("[Parse, Enrich, ", "[Parse, "),),
        "stage 'total' reads topic 'enriched' from outside: no stage writes it any more: let the stage read another",
    ),
    "a mode": ((("partitions=2)", 'partitions=2, mode="deterministic")'),), "put its mode back; or give the job"),
    "partitions": ((("partitions=2", "partitions=3"),), "to have more: grete rescale JOB --partitions=3"),
    "the key of a store": ((('"counts", key=utf8', '"counts", key=json(str)'),), "give the changed one another name"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_applied_is_refused(ran: Path, tmp_path: Path, changes: Changes, said: str) -> None:
    """With the reason and a way, before anything is written."""
    size = (ran / "log.db").read_bytes()
    assert said in grete("apply", code(tmp_path, *changes), f"--directory={ran}", fails=ConfigError)
    assert (ran / "log.db").read_bytes() == size


def test_a_deterministic_job_drops_stores_and_keeps_its_graph(tmp_path: Path) -> None:
    """A deterministic job keeps its graph: its replay after a crash must equal its earlier outputs."""
    mode = ("partitions=2)", 'partitions=2, mode="deterministic")')
    run(code(tmp_path, mode), tmp_path / "job", "pear", "fig")
    asked = f"--directory={tmp_path / 'job'}"
    refused = grete("apply", code(tmp_path, mode, *LAST_DROPPED, name="last"), asked, fails=ConfigError)
    assert (
        "a deterministic stage keeps its graph: what it makes again after a crash must be what it sent before"
        in refused
    )
    without = code(tmp_path, mode, *STORE_DROPPED, name="without")
    grete("apply", without, asked)
    run(without, tmp_path / "job", "pear")
    assert scan(without, tmp_path / "job", "counts") == {"fig": 1, "pear": 2}


def test_a_job_at_least_once_keeps_its_graph(tmp_path: Path) -> None:
    """It has no checkpoint in which all its tasks agree."""
    lines = tmp_path / "orders.txt"
    lines.write_text("pear\n")
    asked = f"--directory={tmp_path / 'job'}"
    grete("run", code(tmp_path), asked, f"--input=orders={lines}", "--set=processing_guarantee=at-least-once")
    refused = grete("apply", code(tmp_path, *LAST_DROPPED, name="last"), asked, fails=ConfigError)
    assert "a job at-least-once has no checkpoint of all its tasks: put the graph back" in refused


def feed(directory: Path, *items: str) -> None:
    """Append orders to the input, of which the job knows nothing yet."""
    with closing(EmbeddedLog(directory / "log.db")) as log:
        places = [TopicPartition("orders", partition_of(item.encode(), 2)) for item in items]
        records = [ExternalRecord(at, item.encode(), item.encode(), 1) for at, item in zip(places, items, strict=True)]
        log.produce_with_meta(records, {})


def test_records_between_stages_are_refused_and_input_may_wait(directory: Path, tmp_path: Path) -> None:
    """A worker that was killed has sent what its consumers have not: these would be lost. Input is read on later."""
    before, changed = code(tmp_path, name="before"), code(tmp_path, *MIDDLE_DROPPED)
    feed(directory, *(f"k{number}" for number in range(50)))
    options = ("--set=checkpoint_interval_ms=50", "--stage=parse")
    workers = [
        WorkerUnderTest(directory, *options, reference=before, partition=number, task=f"parse-{number}")
        for number in range(2)
    ]
    with workers[0], workers[1], closing(EmbeddedLog(directory / "log.db")) as log:
        changelogs = [TopicPartition("pipeline.parse.changelog", number) for number in range(2)]
        while sum(_sent(log, changelog) for changelog in changelogs) < 2 * 53:
            log.wait(100)
        for worker in workers:
            worker.signal(signal.SIGKILL)
            worker.ends()
    refused = grete("apply", changed, f"--directory={directory}", fails=ConfigError)
    assert "stop the job gracefully (grete run, until its input is used up)" in refused
    run(before, directory)
    feed(directory, "fig")
    grete("apply", changed, f"--directory={directory}")
    run(changed, directory)
    counts = scan(changed, directory, "counts")
    assert (counts["fig"], counts["pear"], len(counts)) == (2, 2, 52)


def _sent(log: EmbeddedLog, changelog: TopicPartition) -> int:
    """Return the number of records that a task has committed as sent."""
    found = last_commit(log, changelog)
    return 0 if found is None else sum(output.next_seq - 1 for output in found.commit.outputs)


def test_a_worker_at_work_is_named_and_not_fenced(directory: Path, tmp_path: Path) -> None:
    """The job is to be stopped first; afterwards a worker of the code of before is refused, by its definition."""
    before, changed = code(tmp_path, name="before"), code(tmp_path, *LAST_DROPPED)
    with WorkerUnderTest(
        directory, "--set=checkpoint_interval_ms=50", reference=before, partition=0, task="parse-0"
    ) as worker:
        worker.running()
        refused = grete("apply", changed, f"--directory={directory}", fails=ConfigError)
        assert "a worker of job 'pipeline' is at work: stop it first" in refused
        assert worker.process.poll() is None
        worker.signal(signal.SIGKILL)
        worker.ends()
    grete("apply", changed, f"--directory={directory}")
    with WorkerUnderTest(directory, reference=before, partition=0, task="parse-0") as worker:
        assert worker.ends() == ExitCode.HALTED
        assert "stage 'audit' was dropped from this job by grete apply" in worker.log_path.read_text()


def test_a_worker_of_the_code_of_before_that_was_not_seen_is_fenced(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs on another machine, say: what it commits behind the apply does not count."""
    monkeypatch.setattr("grete.state.write.apply.refuse_if_owned", lambda *_: None)
    before, changed = code(tmp_path, name="before"), code(tmp_path, *LAST_DROPPED)
    elsewhere = tmp_path / "elsewhere"
    options = ("--set=checkpoint_interval_ms=50", f"--state-directory={elsewhere}")
    workers = [
        WorkerUnderTest(directory, *options, reference=before, partition=number, task=f"parse-{number}")
        for number in range(2)
    ]
    with workers[0], workers[1]:
        for worker in workers:
            worker.running()
        grete("apply", changed, f"--directory={directory}")
        feed(directory, "fig")
        assert [worker.ends() for worker in workers] == [ExitCode.FENCED, ExitCode.FENCED]
    run(changed, directory)
    assert scan(changed, directory, "counts") == {"fig": 2, "pear": 2}


def test_an_apply_that_is_killed_at_any_step_counts_as_a_whole_or_not_at_all(ran: Path, tmp_path: Path) -> None:
    """Each copy is the old job or the new one, by plan and by start; to apply again ends it, and the state is there."""
    changed, before = code(tmp_path, *ALL), code(tmp_path, name="before")
    made = subprocess.run(
        [sys.executable, "-m", "tests.cli.killed_applies", str(ran), str(tmp_path), changed, "apply"],
        check=True,
        capture_output=True,
        text=True,
    )
    steps = [line.split()[-1] for line in made.stderr.splitlines() + made.stdout.splitlines() if line[:1].isdecimal()]
    assert steps[-1] == "0"
    assert set(steps[:-1]) == {"killed"}
    sides = []
    for number in range(1, len(steps) + 1):
        copy = tmp_path / str(number)
        ends, _ = plan(changed, copy)
        sides.append(ends)
        if ends == 0:
            assert "was dropped from this job" in grete("plan", before, f"--directory={copy}", fails=ConfigError)
        else:
            assert plan(before, copy) == (0, [])
        grete("apply", changed, f"--directory={copy}")
        assert plan(changed, copy) == (0, [])
        assert scan(changed, copy, "counts") == {"fig": 1, "pear": 2}
    first = sides.index(0)
    assert 0 < first < len(sides) - 1
    assert sides == [1] * first + [0] * (len(sides) - first)
    for number in (first, first + 1, len(sides)):  # before the outcome, right behind it, and at the end
        run(changed, tmp_path / str(number), "pear")
        assert scan(changed, tmp_path / str(number), "counts") == {"fig": 1, "pear": 3}


@pytest.mark.kafka
def test_a_graph_changes_on_kafka(kafka_broker: Broker, tmp_path: Path) -> None:
    """A stage and a store are dropped, and a stage is put between two: the workers of the new code go on."""
    name = ('"pipeline"', f'"pipeline-{tmp_path.name.replace("_", "-")}"')
    topics = [(f'Topic("{topic}"', f'Topic("{tmp_path.name}-{topic}"') for topic in ("orders", "totals")]
    log = f"kafka://{kafka_broker.bootstrap}"
    before, changed = code(tmp_path, name, *topics, name="before"), code(tmp_path, name, *topics, *ALL)
    assert load_job(before).name == load_job(changed).name

    def orders(*items: str) -> str:
        lines = tmp_path / "orders.txt"
        lines.write_text("".join(f"{item}\n" for item in items))
        return f"--input={tmp_path.name}-orders={lines}"

    options = [f"--log={log}", f"--directory={tmp_path / 'job'}"]
    grete("run", before, orders("pear", "fig", "pear"), "--set=checkpoint_interval_ms=50", *options)
    grete("apply", changed, *options)
    assert "was dropped from this job by grete apply" in grete("run", before, *options, fails=ConfigError)
    grete("run", changed, orders("pear", "fig"), "--set=checkpoint_interval_ms=50", *options)
    assert scan(changed, tmp_path / "job", "counts", log) == {"fig": 2, "pear": 3}
    assert scan(changed, tmp_path / "job", "kept", log) == {"fig": 1, "pear": 1}
