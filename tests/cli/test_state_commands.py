"""Rescale, fork, replay and reading as of a checkpoint, by their commands: jobs with real workers before and after."""

import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grete.api.jobs.job import Job
from grete.cli.main import app
from grete.cli.moved_state import standing_still
from grete.errors import ConfigError, FrameworkError, TransientError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import IN_DIRECTORY
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import commits, id_of_all, snapshots
from grete.state.read.local_reader import LocalReader
from grete.worker.supervisor.local_job import LocalJob
from tests.state.pair_bulk_writes import counts, feed, run
from tests.support import forking

CODE = Path("tests/state/pair_job.py").read_text()
REFUSED = ConfigError
WORDS = " ".join(f"w{number}" for number in range(40))


pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]  # many workers, one after another


def code(tmp_path: Path, name: str, **changes: str) -> str:
    """Write the code of the job with other words in it; return its path."""
    text = CODE
    for old, new in changes.items():
        text = text.replace(f"{old}=2", f"{old}={new}") if old == "partitions" else text.replace(old, new)
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def grete(*arguments: str, fails: type[FrameworkError] | None = None) -> str:
    """Run a command in this process; return what it printed, or the error that it must end with."""
    done = CliRunner().invoke(app, list(arguments))
    if fails is None:
        assert done.exit_code == 0, repr(done.exception)
        return done.stdout
    assert isinstance(done.exception, fails), (done.output, done.exception)
    return str(done.exception)


def scan(reference: str, directory: Path, checkpoint: int | str) -> dict[str, int]:
    """Return the counts as ``grete state scan --checkpoint`` prints them."""
    text = grete("state", "scan", reference, "counts", f"--directory={directory}", f"--checkpoint={checkpoint}")
    return {word: int(count) for word, count in (line.split("\t") for line in text.splitlines())}


def test_a_job_is_rescaled_and_goes_on(tmp_path: Path) -> None:
    """From 2 to 5 partitions: every count is where its word goes now, and is counted on; twice is refused."""
    two, five, directory = code(tmp_path, "two.py"), code(tmp_path, "five.py", partitions="5"), tmp_path / "job"
    lines = [(f"k{number}", WORDS) for number in range(25)]
    before = run(two, directory, *lines)
    assert before == {f"w{number}": 25 for number in range(40)}
    older = newest_of(two, directory)
    told = grete("rescale", two, "--partitions=5", f"--directory={directory}")
    assert told.splitlines() == ["count/counts\t40 entries", "split/lines\t25 entries"]
    assert "has 5 partitions, not 2" in grete("run", two, f"--directory={directory}", fails=REFUSED)
    assert (
        counts(load_job(two), directory / "state") == before
    )  # the local stores are as they were, until a worker has read the changelog
    after = run(five, directory, *lines)
    assert after == {f"w{number}": 50 for number in range(40)}
    for partitions in (5, 3):
        refused = grete("rescale", five, f"--partitions={partitions}", f"--directory={directory}", fails=REFUSED)
        assert "has 5 partitions, and topics cannot lose any" in refused
        assert refused.endswith("and: grete fork")
    assert scan(two, directory, older) == before
    newest = [f"--directory={directory}", f"--checkpoint={newest_of(five, directory)}"]
    refused = grete("state", "scan", two, "counts", *newest, fails=REFUSED)
    assert "with other stages or another number of partitions (its changelog has 5): read it with the" in refused
    with LocalReader(directory / "state", load_job(five)) as reader:
        per_task = [len(list(reader.all(reader.store("counts"), number))) for number in range(5)]
    assert sum(per_task) == 40
    assert all(0 < number < 40 for number in per_task)
    verified = grete("changelog", "verify", five, f"--directory={directory}")
    assert verified.count("\tok\t") == 10


def test_one_stage_is_rescaled_and_the_others_keep_their_number(tmp_path: Path) -> None:
    """The second stage from 2 to 5, then the source from 2 to 3: only their state moves; each is refused as it was."""
    two, directory = code(tmp_path, "two.py"), tmp_path / "job"
    lines = [(f"k{number}", WORDS) for number in range(25)]
    run(two, directory, *lines)
    told = grete("rescale", two, "--partitions=5", "--stage=count", f"--directory={directory}")
    assert told.splitlines() == ["count/counts\t40 entries", "split/lines\t25 entries"]
    refused = grete("run", two, f"--directory={directory}", fails=REFUSED)
    assert (
        "stage 'count' of job 'pair' has 5 partitions, not 2 as in this code: write partitions = 5 in class" in refused
    )
    own = {'"""Counts words."""': '"""Counts words."""\n\n    partitions = 5'}
    five = code(tmp_path, "five.py", **own)
    assert run(five, directory, *lines) == {f"w{number}": 50 for number in range(40)}
    assert "1 to 1000" in grete("rescale", five, "--partitions=1001", f"--directory={directory}", fails=FrameworkError)
    told = grete("rescale", five, "--partitions=3", f"--directory={directory}")
    assert told.splitlines() == ["count/counts\t40 entries", "split/lines\t25 entries"]
    three = code(tmp_path, "three.py", **own, partitions="3")
    assert run(three, directory, *lines) == {f"w{number}": 75 for number in range(40)}
    with LocalReader(directory / "state", load_job(three)) as reader:
        for name, per_task in (("counts", 5), ("lines", 3)):
            found = [len(list(reader.all(reader.store(name), number))) for number in range(per_task)]
            assert all(found)
            assert sum(found) == {"counts": 40, "lines": 25}[name]
        assert [number for number, _ in reader.find(reader.store("counts"), "w7")] == [partition_of(b"w7", 5)]
    tail = grete("changelog", "tail", three, "count", "4", f"--directory={directory}")
    assert "commit" in tail
    assert "stage 'split' has partitions 0 to 2, not 4" in grete(
        "changelog", "tail", three, "split", "4", f"--directory={directory}", fails=REFUSED
    )
    _forked(tmp_path, three, own, {f"w{number}": 75 for number in range(40)})


def _forked(tmp_path: Path, three: str, own: dict[str, str], counted: dict[str, int]) -> None:
    """Fork the job twice: with its numbers, and with another one of its second stage."""
    for name, numbers in (("same", own), ("other", {key: text.replace("5", "4") for key, text in own.items()})):
        second = code(tmp_path, f"{name}.py", **numbers, partitions="3", pair=name)
        directory = tmp_path / name
        grete("fork", three, second, f"--directory={tmp_path / 'job'}", f"--second-directory={directory}")
        assert run(second, directory) == counted


def test_what_cannot_be_rescaled_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    """Records that are not processed, keys that do not tell their partition, few keys, a job at work, one never run."""
    two, directory = code(tmp_path, "two.py"), tmp_path / "job"
    asked = ["rescale", two, "--partitions=3", f"--directory={directory}"]
    assert "no job has run" in grete(*asked, fails=REFUSED)
    run(two, directory, ("k", WORDS))
    assert "cannot tell from 1 key in 2 partitions whether the keys of store" in grete(*asked, fails=REFUSED)
    log = EmbeddedLog(directory / "log.db")
    job = load_job(two)
    with LocalJob(job, two, JobDirectory(directory), Settings(checkpoint_interval_ms=50)) as local:
        assert "already has a supervisor" in grete(*asked, "--assume-keyed", fails=REFUSED)
        local.stop()
    partition = TopicPartition("observed", partition_of(b"k", 2))
    log.produce_with_meta([ExternalRecord(partition, b"k", b"more", 1)], {})
    assert "has records from offset 1 on that the job has not read" in grete(*asked, "--assume-keyed", fails=REFUSED)
    run(two, directory)
    assert [log.partitions(topic) for topic in log.topics()] == [2] * len(log.topics())
    grete(*asked, "--assume-keyed")
    assert {log.partitions(topic) for topic in log.topics()} == {3}
    log.close()
    other = code(tmp_path, "other.py", pair="other", record_key="")
    text = Path(other).read_text().replace("self.lines.put(record.key", 'self.lines.put("x" + record.key')
    Path(other).write_text(text)
    run(other, tmp_path / "other", *((f"k{number}", "a") for number in range(25)))
    refused = grete(
        "rescale", other, "--partitions=3", f"--directory={tmp_path / 'other'}", "--assume-keyed", fails=ConfigError
    )
    assert "store split/lines: key b'xk" in refused
    assert "it is not keyed as the records are: it cannot be rescaled" in refused


def test_a_rescale_that_is_killed_is_done_again(tmp_path: Path) -> None:
    """A real SIGKILL once the topics have grown, and at steps of the run: nothing is lost, asking again does it."""
    two, three, directory = code(tmp_path, "two.py"), code(tmp_path, "three.py", partitions="3"), tmp_path / "job"
    lines = [(f"k{number}", WORDS) for number in range(25)]
    before = run(two, directory, *lines)
    for left in (1, 5, 10, 17):  # 6 claims, 6 commits, the outcome, 5 copies; in the last one 3 rolls back, too
        script = (
            "import sys, tests.state.killed_bulk_writes as k, grete.logs.address as o;"
            "from grete.cli import command_line;"
            f"k.Deadly.left = {left}; o.EmbeddedLog = k.Deadly; command_line()"
        )
        asked = ["rescale", two, "--partitions=3", f"--directory={directory}"]
        done = subprocess.run([*forking.TEXT, script, *asked], capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        if left == 5:  # the topics of the job have grown, and most of its tasks are claimed
            assert run(two, directory) == before
    refused = grete(
        "rescale", two, "--partitions=3", f"--directory={directory}", fails=ConfigError
    )  # the last one had decided
    assert "has 3 partitions, and topics cannot lose any" in refused
    grete("run", three, f"--directory={directory}")  # its input, which others write, gets its partitions only now
    assert run(three, directory, *lines) == {word: 2 * count for word, count in before.items()}


def test_a_fork_goes_on_from_an_older_checkpoint(tmp_path: Path) -> None:
    """The second job has the state of that checkpoint, reads what came after it, and the first one does not notice."""
    first, second = code(tmp_path, "first.py"), code(tmp_path, "second.py", pair="pair-2")
    directory, forked = tmp_path / "job", tmp_path / "forked"
    old = run(first, directory, ("a", "x y"), ("b", "x"))
    job = load_job(first)
    log = JobDirectory(directory).open_log()
    checkpoint_id = id_of_all(snapshots(log, job))
    new = run(first, directory, ("a", "x z"))
    assert (old, new) == ({"x": 2, "y": 1}, {"x": 3, "y": 1, "z": 1})
    assert scan(first, directory, checkpoint_id) == old
    asked = ["fork", first, second, f"--directory={directory}", f"--second-directory={forked}"]
    grete(*asked, f"--checkpoint={checkpoint_id}")
    assert scan(second, forked, newest_of(second, forked)) == old
    assert run(second, forked) == new
    assert run(second, forked, ("a", "y")) == new | {"y": 2}
    assert counts(job, directory / "state") == new
    assert "has run" in grete(*asked, fails=REFUSED)
    assert "both jobs are called 'pair'" in grete("fork", first, first, f"--directory={directory}", fails=REFUSED)
    between = next(v + 1 for v in _checkpoint_ids(job, directory) if v and v + 1 not in _checkpoint_ids(job, directory))
    assert "nearest committed: " in grete(*asked, f"--checkpoint={between}", fails=REFUSED)
    every = _checkpoint_ids(job, directory)
    never = grete("state", "scan", first, "counts", f"--directory={directory}", "--checkpoint=999999999", fails=REFUSED)
    assert never.startswith("checkpoint 999999999 was not committed by every task of job 'pair': nearest committed: ")
    assert int(never.rpartition(", the last ")[2]) in every
    log.close()


@pytest.mark.parametrize(("partitions", "mode"), [(1, "aligned"), (3, "aligned"), (3, "deterministic")])
def test_a_fork_has_fewer_partitions_or_more(tmp_path: Path, partitions: int, mode: str) -> None:
    """Every key of a job of two goes where it belongs now, and is counted on; only if all input is processed."""
    first, directory = code(tmp_path, "first.py", partitions=f'2, mode="{mode}"'), tmp_path / "job"
    lines = [(f"k{number}", WORDS) for number in range(25)]
    before = run(first, directory, *lines)
    second = code(tmp_path, "second.py", pair="second", partitions=f'{partitions}, mode="{mode}"')
    asked = ["fork", first, second, f"--directory={directory}", f"--second-directory={tmp_path / 'second'}"]
    feed(directory, load_job(first), ("k1", "more"))
    assert "has records from offset" in grete(*asked, fails=REFUSED)
    before = run(first, directory)
    assert grete(*asked).splitlines() == ["count/counts\t41 entries", "split/lines\t25 entries"]
    lines.append(("k1", "more"))
    assert run(second, tmp_path / "second", *lines) == {word: 2 * count for word, count in before.items()}
    with LocalReader(tmp_path / "second" / "state", load_job(second)) as reader:
        for number in range(partitions):
            found = [word for word, _ in reader.all(reader.store("counts"), number)]
            assert found
            assert {partition_of(word.encode(), partitions) for word in found} == {number}
    assert "has run" in grete(*asked, fails=REFUSED)
    assert run(first, directory, *lines) == {word: 2 * count for word, count in before.items()}
    if mode == "deterministic":
        grete("check-determinism", second, f"--directory={tmp_path / 'second'}")


def _checkpoint_ids(job: Job, directory: Path) -> list[int]:
    log = JobDirectory(directory).open_log()
    found = [at.commit.checkpoint_id for at in commits(log, all_wirings(job)[2])]
    log.close()
    return found


def newest_of(reference: str, directory: Path) -> int:
    log = JobDirectory(directory).open_log()
    found = id_of_all(snapshots(log, load_job(reference)))
    log.close()
    return found


def test_a_replay_rebuilds_the_stores(tmp_path: Path) -> None:
    """Changelogs restore lost stores at any retained checkpoint, and workers continue from there."""
    two, directory, elsewhere = code(tmp_path, "two.py"), tmp_path / "job", tmp_path / "elsewhere"
    old = run(two, directory, ("a", "x y"), ("b", "x"))
    checkpoint_id = newest_of(two, directory)
    new = run(two, directory, ("a", "x z"))
    grete("replay", two, f"--checkpoint={checkpoint_id}", f"--into={elsewhere}", f"--directory={directory}")
    with LocalReader(elsewhere, load_job(two)) as reader:
        assert dict(reader.all(reader.store("counts"))) == old
    for file in (directory / "state").rglob("*.sst"):
        file.write_bytes(b"damaged")
    told = grete("replay", two, f"--directory={directory}")
    assert [line.split("\t")[0] for line in told.splitlines()] == ["split-0", "split-1", "count-0", "count-1"]
    assert counts(load_job(two), directory / "state") == new
    assert run(two, directory, ("a", "z")) == new | {"z": 2}
    with standing_still(JobDirectory(directory), load_job(two)):
        assert "is in use by another process" in grete("replay", two, f"--directory={directory}", fails=TransientError)


def test_a_fork_needs_the_same_stages(tmp_path: Path) -> None:
    """Stores in another order would be read wrongly: refused."""
    first, directory = code(tmp_path, "first.py"), tmp_path / "job"
    run(first, directory, ("a", "x"))
    renamed = code(tmp_path, "renamed.py", pair="pair-4", counts="totals")
    refused = grete(
        "fork", first, renamed, f"--directory={directory}", f"--second-directory={tmp_path}/4", fails=ConfigError
    )
    assert "store count/counts (key utf8, value int64) is gone or has another name" in refused


def test_a_standing_job_is_held(tmp_path: Path) -> None:
    """While state is moved no worker of this machine starts; a worker without a supervisor is seen as well."""
    two = load_job(code(tmp_path, "two.py"))
    job_directory = JobDirectory(tmp_path / "job", address=IN_DIRECTORY)
    with (
        standing_still(job_directory, two),
        pytest.raises(ConfigError, match="already has a supervisor"),
        standing_still(job_directory, two),
    ):
        pass
    with standing_still(job_directory, two):
        pass


def test_a_deterministic_job_is_forked_and_not_rescaled(tmp_path: Path) -> None:
    """Its state is read as of a checkpoint of each task (D4), and begins a second job, with times all later (0020)."""
    code_of = code(tmp_path, "det.py", partitions='2, mode="deterministic"')
    second = code(tmp_path, "second.py", partitions='2, mode="deterministic"', pair="second")
    aligned = code(tmp_path, "aligned.py", pair="aligned")
    directory, forked = tmp_path / "job", tmp_path / "second"
    before = run(code_of, directory, ("k", WORDS), ("l", WORDS))
    log = EmbeddedLog(directory / "log.db")
    newest = max(each.commit.checkpoint_id for each in snapshots(log, load_job(code_of)))
    log.close()
    assert scan(code_of, directory, newest) == before == {f"w{number}": 2 for number in range(40)}
    grete("replay", code_of, f"--directory={directory}", f"--into={tmp_path / 'again'}")
    assert counts(load_job(code_of), tmp_path / "again") == before
    where = f"--directory={directory}"
    refused = grete("rescale", code_of, "--partitions=4", where, fails=REFUSED)
    assert "is deterministic: it cannot be rescaled" in refused
    assert refused.endswith("with partitions=4, on Kafka with other input topics, too, and: grete fork")
    into = f"--second-directory={forked}"
    refused = grete("fork", code_of, aligned, where, f"--second-directory={tmp_path / 'a'}", fails=REFUSED)
    assert "'pair' is deterministic, 'aligned' aligned: need the same mode" in refused
    assert "count/counts\t40 entries" in grete("fork", code_of, second, where, into)
    assert run(second, forked, ("m", WORDS)) == {f"w{number}": 3 for number in range(40)}
    assert run(second, forked, ("n", WORDS)) == {f"w{number}": 4 for number in range(40)}
    assert "has run" in grete("fork", code_of, second, where, into, fails=REFUSED)
    grete("check-determinism", second, f"--directory={forked}")
    assert run(code_of, directory, ("m", WORDS)) == {f"w{number}": 3 for number in range(40)}
