"""Reports of members on their machines: each page shows the whole job, in times of its own machine."""

import random
import zlib

import msgspec
import pytest
from msgspec.structs import replace

from grete import Input, Job, Output, Record, Task, Topic, utf8
from grete.core.members.view import MemberId
from grete.core.supervision.process_end import WorkerEnd
from grete.monitor.hiding import ELSEWHERE
from grete.monitor.job_view import Incident, JobView, MemberShown, StandbyView
from grete.monitor.job_views import machine_names
from grete.monitor.member_reports import (
    VIEW_BYTES_MAX,
    MemberReports,
    by_clock,
    decode_view,
    encode_view,
    pace_s,
    with_others,
)
from grete.monitor.page.causes import findings_of
from grete.monitor.page.history import History
from grete.monitor.page.job_graph import JobGraph, graph_of
from grete.monitor.page.live import live
from grete.monitor.page.problems import Problems
from grete.protocol.members import (
    REPORT_BYTES_MAX,
    Heartbeat,
    MemberReport,
    decode_members_message,
    encode_members_message,
)
from grete.protocol.report import Blocked, CodeAt
from grete.settings import Settings
from grete.worker.members.members_client import MemberRow, MembersClient, membership
from tests.monitor.views import view
from tests.support.reports import AT_MS, OF_WORKER, task_report
from tests.support.waiting import pause, until
from tests.worker.test_members_client import SETTINGS, LosingTopic

HOUR_MS = 3_600_000
PARTITIONS = 4


class AddUp(Task):
    """Passes on what it reads."""

    orders = Input(Topic("orders", key=utf8, value=utf8))
    sums = Output(Topic("sums", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        """Pass it on."""
        self.sums.send(record.key, record.value)


@pytest.fixture
def graph() -> JobGraph:
    """The graph of a job of one stage."""
    return graph_of(Job("shop", stages=[AddUp], partitions=PARTITIONS), Settings())


def machine(host: str, *partitions: int, at_ms: int = AT_MS, **changed: object) -> JobView:
    """Return the view of a machine that runs these partitions."""
    part = view({f"add-up-{number}": task_report() for number in partitions}, partitions=partitions, **changed)
    return replace(part, host=host, at_ms=at_ms, ends={})


def test_a_view_is_read_as_it_was_told() -> None:
    """All but what each reader knows itself, as the ends of inputs; of many incidents the last ones."""
    told = machine("b", 2, 3, last_end=WorkerEnd(reason="killed", text="signal 9", at_ms=AT_MS))
    told = replace(
        told,
        ends={"orders[0]": 7},
        busy={"add-up-2": 0.5},
        standbys=(StandbyView(partition=0, running=True),),
        members=(MemberShown(session="s", machine="b", owns=2),),
        incidents=tuple(Incident(number, "dead") for number in range(99)),
    )
    read = decode_view(encode_view(told))
    assert read is not None
    (worker,) = read.workers
    assert all(not task.measures.commit_counts for task in worker.tasks.values())
    assert read == replace(told, ends={}, members=None, incidents=told.incidents[-10:], workers=read.workers)
    assert worker == replace(told.workers[0], tasks=worker.tasks)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no zlib",
        encode_view(machine("b", 0))[:-1],
        zlib.compress(b"{}"),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b'{"job":"shop"}'),
        zlib.compress(bytes(VIEW_BYTES_MAX + 1)),
    ],
)
def test_what_is_no_view_is_passed_over(body: bytes) -> None:
    """Another build's, another program's, cut, or unpacked beyond all bounds: the others are shown all the same."""
    assert decode_view(body) is None


def test_times_of_another_machine_are_put_into_those_of_this_one() -> None:
    """Its clock is an hour ahead; ages stay what they were there."""
    blocked = Blocked(since_ms=AT_MS + HOUR_MS - 5_000, at=CodeAt("a.py", 1, "f"), inner=CodeAt("a.py", 2, "g"))
    theirs = machine(
        "b",
        1,
        at_ms=AT_MS + HOUR_MS,
        measures=replace(OF_WORKER, blocked=blocked, ahead_ms=HOUR_MS),
        last_end=WorkerEnd(reason="killed", text="signal 9", at_ms=AT_MS + HOUR_MS - 9_000),
    )
    theirs = replace(theirs, incidents=(Incident(AT_MS + HOUR_MS - 9_000, "worker 0 is dead"),))
    here = by_clock(theirs, AT_MS)
    (worker,) = here.workers
    assert worker.place == "worker 0 on b"
    assert worker.blocked is not None
    assert worker.last_end is not None
    assert (worker.blocked.since_ms, worker.last_end.at_ms) == (AT_MS - 5_000, AT_MS - 9_000)
    assert here.incidents == (Incident(AT_MS - 9_000, "b: worker 0 is dead"),)
    (task,) = worker.tasks.values()
    whole = with_others(machine("a", 0), [here])
    assert whole.age_s(task) == theirs.age_s(task)
    assert whole.ahead_ms == 0  # of this machine
    (found,) = (each for each in findings_of(whole) if each.what == "two clocks differ")
    assert found.where == "shop on b"
    assert "3,600 s ahead" in found.value


def test_a_page_has_the_tasks_of_all_machines(graph: JobGraph) -> None:
    """With the machine of each; a machine of another build, which tells nothing, is named."""
    names = ("a", "b", "old")
    members = tuple(MemberShown(session=name, machine=name, owns=1, here=name == "a") for name in names)
    members = (members[0], replace(members[1], reported_s=1.5), members[2])
    other = replace(machine("b", 1, 2), standbys=(StandbyView(partition=0, running=True, behind=3),))
    whole = with_others(replace(machine("a", 0), members=members), [by_clock(other, AT_MS)])
    history = History(graph)
    history.take(whole)
    page = live(graph, history, Problems(), whole)
    assert [(row.state, row.host) for row in page.tasks] == [
        ("running", "a"),
        ("running", "b"),
        ("running", "b"),
        ("unknown", ""),
    ]
    assert [(row.machine, row.running, row.standbys, row.reported_s) for row in page.machines] == [
        ("a", 1, 0, None),
        ("b", 2, 1, 1.5),
        ("old", 0, 0, None),
    ]
    assert [row.disk_free_bytes is None for row in page.machines] == [False, False, True]
    assert [(row.partition, row.host) for row in page.standbys] == [(0, "b")]
    assert {row.place for row in page.workers} == {"worker 0", "worker 0 on b"}


def test_members_on_one_machine_have_names_that_differ() -> None:
    """Two `grete up` in two folders of a laptop: each has its tasks, and not those of both."""
    rows = [
        MemberRow("m1", "f00dcafe", "laptop", 1, leads=True, leaving=False, code="", timeout_ms=0),
        MemberRow("m2", "beefcafe", "laptop", 1, leads=False, leaving=False, code="", timeout_ms=0),
        MemberRow("m3", "cafe", "server", 1, leads=False, leaving=False, code="", timeout_ms=0),
    ]
    assert machine_names(rows) == {"f00dcafe": "laptop (f00d)", "beefcafe": "laptop (beef)", "cafe": "server"}


def test_a_task_that_two_machines_tell_of_is_where_it_is_newer(graph: JobGraph) -> None:
    """A partition moves: the report of before stays until the next one, and what is here is known best."""
    before = by_clock(machine("b", 0, 1), AT_MS - 2_000)
    after = by_clock(machine("c", 1), AT_MS - 1_000)
    whole = with_others(machine("a", 0), [before, after])
    history = History(graph)
    history.take(whole)
    assert [row.host for row in live(graph, history, Problems(), whole).tasks][:2] == ["a", "c"]
    assert len(list(whole.tasks())) == 2


def test_a_trouble_of_another_machine_is_named_with_it() -> None:
    """The process that is stopped there, and who waits for it here."""
    waiting = task_report("add-up-0", behind={"since_s": 9.0, "tasks": ["add-up-1"]})
    waiting = msgspec.convert(msgspec.to_builtins(waiting), type(waiting))
    here = machine("a", 0)
    here = replace(here, workers=(replace(here.workers[0], tasks={"add-up-0": waiting}),))
    there = by_clock(machine("b", 1, silent_s=12.0, stopped=True, pid=4711), AT_MS)
    (found,) = (each for each in findings_of(with_others(here, [there])) if each.level == "error")
    assert (found.where, found.what) == ("worker 0 on b", "a worker process is stopped")
    assert "pid 4711" in found.value
    assert "add-up-0" in found.value


@pytest.mark.parametrize(
    ("size", "members", "expected_s"),
    [(500, 1, 1.0), (16 << 10, 1, 2.0), (16 << 10, 4, 2.0), (16 << 10, 64, 32.0), (2_000, 200, 12.2)],
)
def test_reports_of_many_members_are_fewer(size: int, members: int, expected_s: float) -> None:
    """The topic, which each of them reads, has at most 32 KiB of them a second."""
    assert pace_s(size, members) == pytest.approx(expected_s, abs=0.1)


def test_a_report_is_told_and_read_by_another_member() -> None:
    """Through the thread of each; values are hidden if that is asked for, and what no broker takes is not sent."""
    topic = LosingTopic(lost=0)
    client = MembersClient(topic, membership(MemberId("a", "a", "a"), 1, SETTINGS), SETTINGS)
    here = MemberReports(client, hide_values=True)
    assert here.due
    secret = random.Random(1).randbytes(2 * REPORT_BYTES_MAX).hex()
    here.send(machine("a", 0, last_end=WorkerEnd(reason="task error", text=secret, at_ms=AT_MS)))
    until(lambda: any(isinstance(decode_members_message(row), MemberReport) for row in topic.rows))
    MemberReports(client, hide_values=False).send(
        replace(machine("a", 0), incidents=(Incident(AT_MS, secret),))
    )  # too large
    (told,) = (message for row in topic.rows if isinstance(message := decode_members_message(row), MemberReport))
    read = decode_view(told.body)
    assert read is not None
    assert read.workers[0].last_end is not None
    assert read.workers[0].last_end.text == ELSEWHERE
    bodies = {"b": encode_view(machine("b", 1)), "c": b"of another build"}

    def say() -> None:
        for name in bodies.keys() - client.reports().keys():  # one that says nothing more is dead before long
            topic.rows.append(encode_members_message(Heartbeat(member=name, session=name, machine=name)))
            topic.rows.append(encode_members_message(MemberReport(session=name, body=bodies[name])))
        pause()

    until(lambda: set(client.reports()) == {"b", "c"}, step=say)
    seen = machine("a", 0)
    assert [each.host for each in here.others(seen)] == ["b"]
    assert here.others(seen)[0] is here.others(seen)[0]  # it is read once
    client.close()
