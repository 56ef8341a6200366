"""State on the move beside real workers, on both logs: none is fenced by mistake, and nothing is lost (C1)."""

import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from grete.api.jobs.job import Job
from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.ports import JobLog
from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.state.pins.prepare import prepare
from grete.state.read.checkpoints.commits import all_wirings, last_commit
from grete.state.read.checkpoints.snapshots import Snapshot, contents, live, segments, snapshots
from grete.state.write import fork as fork_module
from grete.state.write import rescale as rescale_module
from grete.state.write.moving import entries
from grete.worker.supervisor.local_job import LocalJob
from tests.state.test_bulk_write_workers import CODE, SETTINGS, STORE, Scene, scene
from tests.support.kafka_topics import widen
from tests.worker.workers import LIMIT_S

__all__ = ["scene"]
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]  # workers start and end, on a broker at that


def before_the_claim(log: JobLog, happens: Callable[[], None]) -> JobLog:
    """Return a log on which something happens just before the first claim that a command makes."""
    send, left = log.send, [happens]

    def claiming(owner: int, token: int, partition: Any, value: bytes, **named: Any) -> None:
        if decode_changelog_header(value).type is ChangelogType.CLAIM and left:
            left.pop()()
        send(owner, token, partition, value, **named)

    log.send = claiming
    return log


def until_committed(scene: Scene, local: LocalJob, orders: int) -> None:
    """Let workers run until that many orders are part of a commit."""
    deadline = time.monotonic() + LIMIT_S
    (wiring,) = all_wirings(scene.job)
    while (last := last_commit(scene.log, wiring.changelog)) is None or last.commit.external[0].offset < orders:
        assert time.monotonic() < deadline, f"not committed: {last}"
        local.poll(20)


def sums(log: JobLog, job: Job) -> dict[bytes, int]:
    """Return the sums that all tasks of a job have committed."""
    found: dict[bytes, int] = {}
    for snapshot in snapshots(log, job):
        keys, values, _ = live(contents(segments(log, snapshot), frozenset({STORE}))[STORE])
        found |= {key: int.from_bytes(value, "big") for key, value in zip(keys, values, strict=True)}
    return found


def give_two_partitions(scene: Scene) -> None:
    """Let the topic of the inputs have as many partitions as the job gets: on Kafka it is others'."""
    if not scene.job_directory.address.embedded:
        admin = AdminClient({"bootstrap.servers": scene.job_directory.address.url.removeprefix("kafka://")})
        widen(admin, scene.orders.topic, 2)


def rescale(scene: Scene, log: JobLog) -> entries.MovedEntries:
    """Rescale the job from one partition to two."""
    return rescale_module.rescale(
        log, scene.job, 2, SETTINGS, own_topics=scene.job_directory.address.embedded, assume_keyed=True
    )


def test_what_a_worker_commits_between_the_read_and_the_claim_is_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last commit before the claim is the one whose state is spread, though another one had been read (C1)."""
    monkeypatch.setattr(
        rescale_module, "refuse_if_owned", lambda *_: None
    )  # a worker that is not seen: it starts just then
    scene.order(1)
    with scene.started() as local:
        until_committed(scene, local, 1)
        give_two_partitions(scene)

        def one_more() -> None:
            scene.order(10)
            until_committed(scene, local, 2)
            local.stop()

        racing = before_the_claim(scene.open(), one_more)
        rescale(scene, racing)
    assert sums(scene.log, scene.job.of(2)) == {b"a": 11}


def test_an_input_that_comes_between_the_read_and_the_claim_is_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process has read it: the bulk write does not count, and the job goes on as it was, with all of its input."""
    monkeypatch.setattr(rescale_module, "refuse_if_owned", lambda *_: None)
    scene.order(1)
    scene.work(1)
    give_two_partitions(scene)
    racing = before_the_claim(scene.open(), lambda: scene.order(10))
    with pytest.raises(ConfigError, match="has records from offset 1 on that the job has not read"):
        rescale(scene, racing)
    assert scene.state() == {b"a": 1}


def test_a_worker_at_work_is_named_and_not_fenced(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen by its process id, from another machine by what it writes; stopped, it is in no process's way."""
    scene.order(1)
    with scene.started() as local:
        until_committed(scene, local, 1)
        process = local.supervisor.process(0)
        assert process is not None
        who = rf"total-0 has a worker: process {process.pid} on {platform.node()}, started \d{{4}}-.*"
        with pytest.raises(ConfigError, match=rf"{who} is alive: stop the job's workers there first"):
            rescale(scene, scene.log)
        with monkeypatch.context() as patched:
            patched.setattr(platform, "node", lambda: "another-machine")
            with pytest.raises(ConfigError, match=rf"{who} has written offset [\d,]+ of .*: stop"):
                rescale(scene, scene.log)
        scene.order(10)
        until_committed(scene, local, 2)
        local.stop()
    give_two_partitions(scene)
    monkeypatch.setattr(platform, "node", lambda: "another-machine")
    rescale(scene, scene.open())
    assert sums(scene.log, scene.job.of(2)) == {b"a": 11}


class Second(NamedTuple):
    """The job that a fork makes."""

    job: Job
    job_directory: JobDirectory
    log: JobLog
    reference: str


def second_of(scene: Scene, directory: Path) -> Second:
    """Return a second job, which reads the same orders."""
    name = f"{scene.job.name}-second"
    reference = str(directory / f"{name}.py")
    orders = f"{scene.job.name}-orders"
    Path(reference).write_text(CODE.replace("NAME-orders", orders).replace("NAME", name))
    job_directory = JobDirectory(directory / "second", address=scene.job_directory.address)
    job, log = load_job(reference), job_directory.open_log()
    prepare(job, log, job_directory, SETTINGS, [orders])
    return Second(job, job_directory, log, reference)


def fork(scene: Scene, second: Second, found: list[Snapshot], log: JobLog | None = None) -> None:
    """Fork the job."""
    copy = scene.job_directory.address.embedded
    fork_module.fork(scene.log, scene.job, found, log or second.log, second.job, SETTINGS, copy=copy)


def test_a_fork_beside_a_live_job_loses_nothing(scene: Scene, tmp_path: Path) -> None:
    """Commits of the first job between the checkpoint's read and the claim are input of the second one."""
    second = second_of(scene, tmp_path)
    scene.order(1, 2)
    with scene.started() as local:
        until_committed(scene, local, 2)
        found = snapshots(scene.log, scene.job)
        scene.order(10)
        until_committed(scene, local, 3)
        fork(scene, second, found)
        assert sums(second.log, second.job) == {b"a": 3}
        local.poll(0)  # it was not fenced
        local.stop()
    with LocalJob(second.job, second.reference, second.job_directory, SETTINGS) as local:
        ends = local.ends()
        while not local.drained(ends):
            local.poll(20)
        local.stop()
    assert sums(second.log, second.job) == {b"a": 13}
    second.log.close()


def test_a_second_job_that_starts_meanwhile_keeps_what_it_has(scene: Scene, tmp_path: Path) -> None:
    """It has committed before the claim of the fork: nothing is written over it."""
    second = second_of(scene, tmp_path)
    scene.order(1)
    scene.work(1)

    def starts() -> None:
        with LocalJob(second.job, second.reference, second.job_directory, SETTINGS) as local:
            (wiring,) = all_wirings(second.job)
            while last_commit(second.log, wiring.changelog) is None:
                local.poll(20)
            local.stop()

    racing = before_the_claim(second.job_directory.open_log(), starts)
    with pytest.raises(ConfigError, match="has run already: total-0 has commits: give the second job a new name"):
        fork(scene, second, snapshots(scene.log, scene.job), racing)
    racing.close()
    second.log.close()
