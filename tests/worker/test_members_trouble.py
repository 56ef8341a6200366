"""Members of one job that do not fit each other, or whose machine is not well: clear words, and nothing is lost."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from grete.protocol.members import (
    Heartbeat,
    HeldPartition,
    JobAssignment,
    Leave,
    MemberReport,
    MembersMessage,
    PartitionPlace,
    decode_members_message,
    encode_members_message,
)
from grete.testing.broker.find import Broker
from tests.monitor.test_server import get, url_in
from tests.support import forking
from tests.support.kafka_topics import create
from tests.support.waiting import pause, until
from tests.verification.chaos.troubles_of_disks import can_mount, fill, small_disk
from tests.worker.test_members import ASK_S, LIMIT_S, PARTITIONS, Machines

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.timeout(400)]

ONE_MORE_STORE = (
    ('seen = Store("seen"', 'last = Store("last", key=utf8, value=utf8)\n    seen = Store("seen"'),
    ("self.seen.put(record.key, count)", 'self.seen.put(record.key, count); self.last.put("last", record.key)'),
)
CLOCK = """
import os, time
off_s, now, now_ns = int(os.environ["CLOCK_OFF_S"]), time.time, time.time_ns
time.time, time.time_ns = lambda: now() + off_s, lambda: now_ns() + off_s * 10**9
"""


@pytest.fixture
def machines(kafka_broker: Broker, tmp_path: Path) -> Iterator[Machines]:
    """A job on a broker, without a machine yet."""
    with ExitStack() as opened:
        made = Machines(kafka_broker, tmp_path)
        opened.callback(made.close)
        yield made


def change(machines: Machines, *changes: tuple[str, str]) -> None:
    """Let the machines that start from now on have other code."""
    code = machines.job.read_text()
    for old, new in changes:
        assert old in code
        code = code.replace(old, new)
    machines.job = machines.directory / "changed.py"
    machines.job.write_text(code)


def said(machines: Machines, machine: str) -> str:
    """Return the output of a machine."""
    return (machines.directory / f"{machine}.log").read_text()


def workers(machines: Machines, machine: str) -> set[int]:
    """Return the worker processes of a machine: those that write its logs."""
    logs = str(machines.directory / machine / "logs")
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if output_of(path).startswith(logs)}


def output_of(process: Path) -> str:
    """Return the file that a process has as standard output, "" if it has ended."""
    try:
        return str((process / "fd" / "1").readlink())
    except OSError:
        return ""


def ended(machines: Machines, machine: str) -> int:
    """Wait for the end of a `grete up`; return its exit code."""
    try:
        return machines.ups[machine].wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{machine} did not end\n{machines.logs()}")


def written(machines: Machines, begin: int = 0) -> list[Heartbeat | JobAssignment]:
    """Return the heartbeats and assignments in the members' topic, from an offset on."""
    consumer = Consumer({"bootstrap.servers": machines.bootstrap, "group.id": "looks", "enable.partition.eof": False})
    at = KafkaPartition(f"{machines.name}.members", 0, begin)
    _, end = consumer.get_watermark_offsets(at, timeout=LIMIT_S)
    consumer.assign([at])
    rows = []
    while begin < end:
        message = consumer.poll(LIMIT_S)
        assert message is not None
        assert message.error() is None, message.error()
        begin = (message.offset() or 0) + 1
        rows.append(decode_members_message(message.value() or b""))
    consumer.close()
    return [row for row in rows if isinstance(row, (Heartbeat, JobAssignment))]


def different_code(url: str) -> list[dict[str, Any]]:
    """Return the findings that members have different code."""
    return [each for each in json.loads(get(url, "/status.json")[1])["findings"] if "different code" in each["what"]]


def has_joined(machines: Machines, machine: str, begin: int) -> bool:
    """Return whether a machine has written to the members' topic behind an offset."""
    assert machines.ups["stays"].poll() is None
    return any(isinstance(row, Heartbeat) and row.machine == machine for row in written(machines, begin))


def test_code_changes_one_machine_after_another(machines: Machines) -> None:
    """No stop: also not for the partition of a worker with the old code that dies, and that its machine cannot restart.

    The new code has a store more. The old code may not run what has that store; the machine with the new code may.
    """
    machines.up("a")
    machines.until(machines.shared_by("a"))
    machines.give()
    change(machines, *ONE_MORE_STORE)
    machines.up("b", "--http=0")
    machines.until(machines.shared_by("a", "b"))
    url = until(lambda: url_in(machines.directory / "b.log"))
    (found,) = until(lambda: different_code(url))
    by_code = dict(reversed(each.split(" on ")) for each in found["value"].split("; "))
    assert len(set(by_code.values())) == 2
    assert f'grete_members_by_code{{code="{by_code["a"]}"' in get(url, "/metrics")[1].decode()
    machines.give()
    for pid in workers(machines, "a"):
        os.kill(pid, signal.SIGKILL)
    assert ended(machines, "a") == 4, machines.logs()
    assert "store count/last (key utf8, value utf8) is gone or has another name" in said(machines, "a")
    machines.give()
    machines.until(machines.shared_by("b"))
    machines.up("a")
    machines.until(machines.shared_by("a", "b"))
    machines.require_exact()
    codes = {str(row["machine"]): str(row["code"]) for row in machines.members()}
    assert codes["a"] == codes["b"] == by_code["b"]
    until(lambda: not different_code(url))
    assert f"members run different code of job {machines.name!r}: " in said(machines, "b")
    assert f"; {codes['b']} on b. While the code changes" in said(machines, "b")


REFUSED: dict[str, tuple[tuple[tuple[str, str], ...], tuple[str, ...], str]] = {
    "another graph": (
        (("class Count(", "class Sum("), ("[Count]", "[Sum]")),
        (),
        "Two jobs of one cluster need two names",
    ),
    "other partitions": ((("partitions=4", "partitions=2"),), (), "has 4 partitions, not 2 as in this code"),
    "another mode": ((("partitions=4", 'partitions=4, mode="deterministic"'),), (), "was made with guarantee"),
    "another guarantee": ((), ("--set=processing_guarantee=none",), "was made with guarantee"),
}


def test_a_machine_that_does_not_fit_the_job_is_refused_and_told_why(machines: Machines) -> None:
    """It writes nothing, and those that run do not notice: of two jobs of one name the first one has it."""
    machines.up("a")
    machines.until(machines.shared_by("a"))
    here, job = workers(machines, "a"), machines.job
    assert len(here) >= PARTITIONS
    for name, (changes, options, _) in REFUSED.items():
        machines.job = job
        change(machines, *changes)
        machines.up(name.replace(" ", "-"), *options)
        assert ended(machines, name.replace(" ", "-")) == 2, machines.logs()
    assert {
        name: words in said(machines, name.replace(" ", "-")) for name, (_, _, words) in REFUSED.items()
    } == dict.fromkeys(REFUSED, True), machines.logs()
    assert "What each change does, and what can be done: grete plan JOB" in said(machines, "another-graph")
    machines.job = job
    machines.give()
    machines.require_exact()
    assert here <= workers(machines, "a")
    assert "of the job: a," not in said(machines, "a")


def test_the_partitions_of_a_machine_with_a_full_disk_go_to_the_other(machines: Machines) -> None:
    """Its member gives up, says that the disk is full, and ends with 4; nothing is lost."""
    if not can_mount():
        pytest.skip("no tmpfs can be mounted here: run it as root")
    with small_disk(machines.directory / "a", 48) as disk:
        machines.up("a", "--set=restarts_max=2", "--set=restart_backoff_ms=50")
        machines.up("b")
        machines.until(machines.shared_by("a", "b"))
        machines.give()
        fill(disk)

        def has_ended() -> bool:
            machines.give()  # as much as it can count meanwhile: all must come out
            return machines.ups["a"].poll() is not None

        until(has_ended, "the end of a", step=lambda: pause(ASK_S), saw=machines.logs)
        assert ended(machines, "a") == 4, machines.logs()
        machines.until(machines.shared_by("b"))
        machines.require_exact()
        assert "No space left on device" in said(machines, "a"), machines.logs()


def test_members_that_die_as_soon_as_they_join_move_nothing(machines: Machines) -> None:
    """Nothing moves, no worker stops, and the topic gets a few rows for each."""
    machines.up("stays")
    machines.until(machines.shared_by("stays"))
    begin, here = len(written(machines)), workers(machines, "stays")
    assert len(here) >= PARTITIONS
    for number in range(6):
        machines.up(f"dies-{number}")
        machines.give(1)
        name = f"dies-{number}"
        until(lambda name=name: has_joined(machines, name, begin), f"{name} joins")  # type: ignore[misc]  # mypy gives a default no type
        machines.kill(name)
    machines.require_exact()
    assert here <= workers(machines, "stays")
    assert "goes to another member" not in said(machines, "stays")
    rows = written(machines)
    beats = {(row.session, row.beat) for row in rows if isinstance(row, Heartbeat)}
    assert len(rows) <= 2 * len(beats) + 10  # news and assignments: not more than one for each beat


def test_a_machine_whose_clock_is_an_hour_off_is_a_member_like_any_other(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither it nor another member looks dead, and no record is lost or counted twice.

    The clock is that of Python, which is all that Grete reads: librdkafka's is written over by the broker's.
    """
    (machines.directory / "sitecustomize.py").write_text(CLOCK)
    path = f"{machines.directory}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    machines.up("a")
    machines.until(machines.shared_by("a"))
    machines.give()

    def up(machine: str, off_s: int) -> None:
        with monkeypatch.context() as patched:  # the interpreter reads its sitecustomize as it starts
            patched.setattr(subprocess, "Popen", forking.BY_EXEC)
            machines.up(machine, PYTHONPATH=path, CLOCK_OFF_S=str(off_s))

    up("b", 3600)
    machines.until(machines.shared_by("a", "b"))
    up("c", -3600)
    machines.until(machines.shared_by("a", "b", "c"))
    machines.give()
    machines.kill("b")
    machines.until(machines.shared_by("a", "c"))
    machines.ups["a"].send_signal(signal.SIGTERM)
    assert ended(machines, "a") == 0
    machines.give()
    machines.until(machines.shared_by("c"))
    machines.require_exact()
    logged = (machines.directory / "b" / "logs").glob("worker-*.log")
    off_s = [
        datetime.fromisoformat(json.loads(log.read_text().splitlines()[0])["timestamp"]).timestamp() for log in logged
    ]
    assert off_s
    assert all(1_800 < logged_s - time.time() for logged_s in off_s)  # its clock was off


def forged(session: str) -> list[bytes]:
    """Return messages that a stranger may write to the members' topic, in the name of a session and of others."""
    ghost = tuple(PartitionPlace("ghost", "ghost", ("ghost",)) for _ in range(100))
    everywhere = tuple(HeldPartition(partition, "running") for partition in range(PARTITIONS))
    said: list[MembersMessage] = [
        Heartbeat(member="m", session=session, beat=2**63 - 1, held=()),
        Heartbeat(member="ghost", session="ghost", began=0, beat=2**63 - 1, held=everywhere),
        Heartbeat(member="ghost", session="ghost", machine="\x1b[2J" * 40, leaving=True, follows=2**63 - 1),
        JobAssignment(session=session, places=ghost),
        JobAssignment(session="ghost", places=()),
        MemberReport(session="ghost", body=bytes(1 << 16)),
        Leave(member="x", session=session, halted=tuple(range(PARTITIONS, 65_536))),
    ]
    undecodable = [b"", b"{", b"\xff" * 900_000, b"[" * 100_000, b'{"type": "heartbeat", "v": 9}', b'{"type": "leave"}']
    return [*map(encode_members_message, said), *undecodable]


def test_forged_messages_stop_no_member(machines: Machines) -> None:
    """A stranger can move partitions, and no more: the members stay, and each record counts once."""
    machines.up("a")
    machines.up("b")
    machines.until(machines.shared_by("a", "b"))
    machines.give()
    sessions = {row.session for row in written(machines) if isinstance(row, Heartbeat)}
    for data in [each for session in sorted(sessions) for each in forged(session)]:
        machines.producer.produce(f"{machines.name}.members", data, partition=0)
    assert machines.producer.flush(LIMIT_S) == 0
    machines.give()
    machines.until(machines.shared_by("a", "b"))
    machines.give()
    machines.require_exact()
    assert [up.poll() for up in machines.ups.values()] == [None, None], machines.logs()
    assert "\x1b" not in said(machines, "a")


def test_members_go_on_in_a_topic_that_was_made_again(machines: Machines) -> None:
    """Somebody deletes the members' topic under them: nothing moves, and then partitions move as ever."""
    topic, admin = f"{machines.name}.members", AdminClient({"bootstrap.servers": machines.bootstrap})
    create(admin, NewTopic(topic, 1, 1))
    for _ in range(2_000):  # of a job that has run for long: its members began at offsets that do not come again soon
        machines.producer.produce(topic, b"", partition=0)
    machines.producer.flush(LIMIT_S)
    machines.up("a")
    machines.until(machines.shared_by("a"))
    machines.up("b")
    machines.up("c")
    machines.until(machines.shared_by("a", "b", "c"))
    machines.give()
    admin.delete_topics([topic])[topic].result(LIMIT_S)
    until(lambda: topic not in admin.list_topics(timeout=LIMIT_S).topics, f"the end of {topic}")
    create(admin, NewTopic(topic, 1, 1))
    machines.give()
    machines.until(machines.shared_by("a", "b", "c"))
    machines.kill("a")  # which led
    machines.until(machines.shared_by("b", "c"))
    machines.give()
    machines.require_exact()
    assert [machines.ups[each].poll() for each in "bc"] == [None, None], machines.logs()
