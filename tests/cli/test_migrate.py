"""`grete migrate`: keys and values of a stopped job that began with version 1 of the serdes get version 2 in place."""

import shutil
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from grete.core.graph.graph_check import check_commit
from grete.errors import ConfigError, ExitCode
from grete.execution.timing.reserved_stores import META
from grete.job.loader import load_job
from grete.logs.embedded import EmbeddedLog, EmbeddedReader
from grete.protocol.changelog import decode_data
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.spark.format.changes import changes, position_at, ranges
from grete.state.pins.graph_pinning import know_graph
from grete.state.pins.pinning import copy_pinned
from grete.state.read.checkpoints.commits import all_wirings, last_commit
from grete.state.read.checkpoints.snapshots import contents, live, newest, segments
from grete.state.read.local_reader import LocalReader
from grete.testing.broker import Broker
from tests.cli.old_prices import begin_before, code, pin_before, run
from tests.cli.test_plan import plan
from tests.cli.test_state_commands import grete
from tests.worker.workers import WorkerUnderTest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]  # many workers, one after another

PRICES = [*(f"{n}.0" for n in range(30)), *(f"{n}.50" for n in range(5))]
COUNTS = 10  # the id of the store
AGAIN = ["1", "1.00", "0.500"]  # of which PRICES has other spellings


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a job with version 1 that has run."""
    folder = tmp_path_factory.mktemp("ran")
    begin_before(code(folder), folder / "job")
    run(code(folder), folder / "job", *PRICES)
    return folder / "job"


@pytest.fixture
def directory(ran: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    return Path(shutil.copytree(ran, tmp_path / "job"))


def state(reference: str, directory: Path) -> dict[str, dict[int, dict[bytes, bytes]]]:
    """Return by task all that it keeps but for its own notes, as bytes, from its changelog."""
    job, found = load_job(reference), {}
    with closing(EmbeddedReader(directory / "log.db")) as log:
        know_graph(job, log)
        for (graph, number), wiring in zip(job.tasks(), all_wirings(job), strict=True):
            snapshot = newest(log, wiring)
            assert snapshot is not None
            stores = contents(segments(log, snapshot), frozenset({0, *graph.store_ids().values()} - {META}))
            columns = {store: live(entries)[:2] for store, entries in stores.items()}
            found[f"{graph.name}-{number}"] = {s: dict(zip(*each, strict=True)) for s, each in columns.items()}
    return found


def test_a_migrated_job_has_the_state_of_one_that_began_with_version_2(directory: Path, tmp_path: Path) -> None:
    """Each byte, in each task: of stores, windows, joins, versioned stores and their timers. Then both go on alike."""
    code_, asked = code(tmp_path), f"--directory={directory}"
    for prices in ((), PRICES):  # in as many runs as the other, so that records without keys have the same places
        run(code_, tmp_path / "new", *prices)
    _, (row,) = plan(code_, directory)
    assert "grete migrate" in row["way"]
    before = state(code_, directory)
    told = grete("migrate", code_, asked).splitlines()
    assert "spread/last\t35 entries" in told
    assert "count/counts\t35 entries" in told
    assert state(code_, directory) == state(code_, tmp_path / "new") != before
    assert plan(code_, directory) == (0, [])
    for each in (directory, tmp_path / "new"):
        run(code_, each, *AGAIN)
    assert state(code_, directory) == state(code_, tmp_path / "new")
    counts = grete("state", "scan", code_, "counts", asked).splitlines()
    assert len(counts) == 35
    assert {'"1"\t3', '"0.5"\t2'} <= {*counts}
    grete("replay", code_, asked)  # the changelogs give what the stores have
    grete("migrate", code_, asked)  # says that nothing is to be done


def test_keys_are_in_the_partition_that_their_records_come_to(directory: Path, tmp_path: Path) -> None:
    """Some of them are in another one than before, since the bytes of a key say where its records go."""
    code_ = code(tmp_path)
    before = state(code_, directory)
    grete("migrate", code_, f"--directory={directory}")
    now = state(code_, directory)
    for number in range(2):
        assert all(partition_of(key, 2) == number for key in now[f"count-{number}"][COUNTS])
    sizes = [len(found[f"count-{number}"][COUNTS]) for found in (before, now) for number in range(2)]
    assert sum(sizes[:2]) == sum(sizes[2:]) == 35
    assert sizes[:2] != sizes[2:]


def test_an_equal_state_only_changes_the_pin(tmp_path: Path) -> None:
    """No entry is written if each key has its one form already; from then on equal keys are one key."""
    plain = ("price, by_hour = json(Decimal), json(dict[int, int])", "price, by_hour = json(Decimal), int64")
    hours = ("hours = {7: self.hours.get(key, {}).get(7, 0) + 1, 3: 0}", "hours = count")
    code_ = code(tmp_path, plain, hours)
    asked = f"--directory={tmp_path / 'job'}"
    begin_before(code_, tmp_path / "job")
    run(code_, tmp_path / "job", *(str(n) for n in range(25)))
    before = state(code_, tmp_path / "job")
    assert grete("migrate", code_, asked) == ""
    assert state(code_, tmp_path / "job") == before
    run(code_, tmp_path / "job", "1.00")
    assert '"1"\t2' in grete("state", "scan", code_, "counts", asked).splitlines()


REFUSED: dict[str, tuple[tuple[tuple[str, str], ...], list[str], tuple[str, ...], str]] = {
    "two keys are one": (
        (),
        ["1.0", "1.00", *PRICES[2:]],
        (),
        """the keys b'"1.0"' and b'"1.00"' are equal, and both would be b'"1"': only the code knows""",
    ),
    "too few keys": ((), ["1.0", "2"], (), "if you know that they are, add --assume-keyed"),
    "not keyed as the records": (
        (('counts = Store("counts", key=price', 'counts = Store("counts", key=utf8'),
         ("self.counts.get(key, 0)", "self.counts.get(record.value, 0)"),
         ("self.counts.put(key, count)", "self.counts.put(record.value, count)")),
        ["1.0"],
        ("--assume-keyed",),
        "store count/counts has keys of serde utf8, and the records of topic by-price have keys of json(Decimal)",
    ),
    "deterministic": (
        (("partitions=2)", 'partitions=2, mode="deterministic")'),),
        ["1.0"],
        ("--assume-keyed",),
        "is deterministic: a replay makes its outputs again from its history, to the byte",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "prices", "options", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_migrated_is_refused(
    tmp_path: Path,
    changes: tuple[tuple[str, str], ...],
    prices: list[str],
    options: tuple[str, ...],
    said: str,
) -> None:
    """With the keys and the reason, before anything is written; the job goes on with version 1."""
    code_, directory = code(tmp_path, *changes), tmp_path / "job"
    begin_before(code_, directory)
    run(code_, directory, *prices)
    with closing(EmbeddedLog(directory / "log.db")) as log:
        ends = {wiring: log.bounds(wiring.changelog) for wiring in all_wirings(load_job(code_))}
    assert said in grete("migrate", code_, f"--directory={directory}", *options, fails=ConfigError)
    with closing(EmbeddedLog(directory / "log.db")) as log:
        assert {wiring: log.bounds(wiring.changelog) for wiring in ends} == ends
    run(code_, directory, "1.00")


def test_a_migration_that_is_killed_at_any_step_counts_as_a_whole_or_not_at_all(ran: Path, tmp_path: Path) -> None:
    """Each copy has the state of before and version 1, or the one of now and version 2; to ask again ends it."""
    code_ = code(tmp_path)
    made = subprocess.run(
        [sys.executable, "-m", "tests.cli.killed_applies", str(ran), str(tmp_path), code_, "migrate"],
        check=True,
        capture_output=True,
        text=True,
    )
    steps = [line.split()[-1] for line in made.stdout.splitlines() if line[:1].isdecimal()]
    assert steps[-1] == "0"
    assert set(steps[:-1]) == {"killed"}
    before, now = state(code_, ran), state(code_, tmp_path / str(len(steps)))
    assert before != now
    sides = []
    for number in range(1, len(steps) + 1):
        copy = tmp_path / str(number)
        _, rows = plan(code_, copy)
        sides.append(not rows)
        assert state(code_, copy) == (before if rows else now)
    first = sides.index(True)
    assert 0 < first < len(sides) - 1
    assert sides == [False] * first + [True] * (len(sides) - first)
    for number in (first, first + 1):  # before the outcome, and right behind it
        copy = tmp_path / str(number)
        grete("migrate", code_, f"--directory={copy}")
        assert state(code_, copy) == now
        run(code_, copy, "1")
        assert '"1"\t2' in grete("state", "scan", code_, "counts", f"--directory={copy}").splitlines()


def test_a_worker_that_compared_before_is_fenced_and_refused_behind_it(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write keys of version 1: one at work on another machine, and one that has only read the pins."""
    monkeypatch.setattr("grete.state.write.migrate.refuse_if_owned", lambda *_: None)
    code_, job = code(tmp_path), load_job(code(tmp_path))
    with closing(EmbeddedReader(directory / "log.db")) as log:
        know_graph(job, log)
    options = ("--set=checkpoint_interval_ms=50", f"--state-directory={tmp_path / 'elsewhere'}")
    with WorkerUnderTest(directory, *options, reference=code_, partition=0, task="spread-0") as worker:
        worker.running()
        grete("migrate", code_, f"--directory={directory}")
        assert worker.ends() == ExitCode.FENCED
    with closing(EmbeddedReader(directory / "log.db")) as log:
        for wiring in all_wirings(job):
            at = last_commit(log, wiring.changelog)
            assert at is not None
            with pytest.raises(ConfigError, match="was made under a graph of fingerprint"):
                check_commit(wiring, at.commit)


def test_readers_are_told_what_is_of_before(directory: Path, tmp_path: Path) -> None:
    """A checkpoint of before, and a local store that no worker has brought up, would be asked by the new bytes."""
    code_, asked = code(tmp_path), f"--directory={directory}"
    with closing(EmbeddedReader(directory / "log.db")) as log:
        at = last_commit(log, TopicPartition("prices.count.changelog", 0))
    assert at is not None
    grete("migrate", code_, asked)
    assert grete("state", "get", code_, "counts", '"1.000"', asked) == "1\n"
    older = f"--checkpoint={at.commit.checkpoint_id}"
    assert "or before grete migrate" in grete("state", "get", code_, "counts", '"1.0"', asked, older, fails=ConfigError)
    with closing(EmbeddedReader(directory / "log.db")) as log:
        copy_pinned(log.read_metadata("prices"), directory / "state")
    job = load_job(code_)
    counts = next(iter(job.stage("count").stores.values()))
    with LocalReader(directory / "state", job) as reader, pytest.raises(ConfigError, match="is from before grete mig"):
        reader.get(counts, Decimal(1))


def test_changes_are_the_old_keys_and_the_new_ones(directory: Path, tmp_path: Path) -> None:
    """A reader of a store's raw changes sees a delete of the old key and a put of the new one."""
    code_, found = code(tmp_path), list[tuple[bytes, bytes | None]]()
    before, after = load_job(code_), load_job(code_)
    with closing(EmbeddedReader(directory / "log.db")) as log:
        know_graph(before, log)
        start = position_at(log, before, before.stage("count"), None, aligned=True)
    grete("migrate", code_, f"--directory={directory}")
    with closing(EmbeddedReader(directory / "log.db")) as log:
        know_graph(after, log)
        stage = after.stage("count")
        end = position_at(log, after, stage, None, aligned=True)
        for _, part in ranges(log, after, stage, start, end):
            for each in changes(log, part, COUNTS):
                for data in map(decode_data, each.messages):
                    rows = zip(data.stores, data.keys, data.values, strict=True)
                    found += [(key, value) for store, key, value in rows if store == COUNTS]
    assert {key for key, value in found if value is None} == {f'"{price}"'.encode() for price in PRICES}
    assert {Decimal(key.decode().strip('"')) for key, value in found if value is not None} == {*map(Decimal, PRICES)}


@pytest.mark.kafka
def test_a_job_is_migrated_on_kafka(kafka_broker: Broker, tmp_path: Path) -> None:
    """Its keys are found again, in whichever spelling they come."""
    topics = [(f'Topic("{topic}"', f'Topic("{tmp_path.name}-{topic}"') for topic in ("orders", "totals")]
    name, log = f"prices-{tmp_path.name.replace('_', '-')}", f"kafka://{kafka_broker.bootstrap}"
    code_ = code(tmp_path, ('"prices"', f'"{name}"'), *topics)
    inputs = {"log": log, "topic": f"{tmp_path.name}-orders"}
    options = [f"--log={log}", f"--directory={tmp_path / 'job'}"]
    run(code_, tmp_path / "job", **inputs)
    pin_before(tmp_path / "job", name, log)
    run(code_, tmp_path / "job", *PRICES, **inputs)
    grete("migrate", code_, *options)
    run(code_, tmp_path / "job", *AGAIN, **inputs)
    counts = grete("state", "scan", code_, "counts", *options).splitlines()
    assert len(counts) == 35
    assert {'"1"\t3', '"0.5"\t2'} <= {*counts}
