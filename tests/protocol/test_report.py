"""Reports of workers: what comes back of a line, of one that was cut short, and of one that is newer."""

import msgspec
import pytest

from grete.core.lifecycle import TaskStatus
from grete.protocol.errors import UnsupportedFormat
from grete.protocol.ids import TopicPartition
from grete.protocol.report import (
    ENDED_STATES,
    Blocked,
    CodeAt,
    EndReport,
    ErrorPlace,
    StandbyReport,
    StandbyState,
    StandbyTaskReport,
    TaskState,
    WorkerReport,
    decode_standby_report,
    decode_worker_report,
    encode_report,
)
from tests.support.reports import OF_WORKER, task_report

STANDBY = StandbyTaskReport(
    stage="add-up",
    partition=3,
    status=StandbyState.RESTORING,
    checkpoint_id=5,
    position=7,
    read=9,
    end=11,
    behind=-1,
    trouble="",
)

END = EndReport(
    reason="task error",
    text="it failed",
    traceback="in process",
    place=ErrorPlace(stage="add-up", partition=3, topic="words", topic_partition=TopicPartition("words", 1), offset=7),
)

FIELDS_OF_A_TASK = [
    "began",
    "behind",
    "busy_s",
    "channels",
    "checkpoint_id",
    "commit",
    "counters",
    "covered_t",
    "dropped",
    "end",
    "ended_in",
    "ends",
    "generation",
    "idle_in",
    "inputs",
    "last_failure",
    "life",
    "measures",
    "partition",
    "read_up_to",
    "restore",
    "rests_ms",
    "rollbacks",
    "settled",
    "sink_trouble",
    "stage",
    "status",
    "timers",
    "waits",
    "wall_timers",
]


def test_a_report_comes_back_as_it_was() -> None:
    """Reports of a worker and of a standby do; a task has the name of its stage and partition."""
    at = CodeAt("/jobs/words.py", 7, "process")
    blocked = msgspec.structs.replace(OF_WORKER, blocked=Blocked(since_ms=1, at=at, inner=at), goes_on=False)
    worker = WorkerReport(tasks=(task_report("add-up-3"), task_report("split-words-0")), measures=blocked)
    assert decode_worker_report(encode_report(worker)) == worker
    assert [task.name for task in worker.tasks] == ["add-up-3", "split-words-0"]
    standby = StandbyReport(tasks=(STANDBY,))
    assert decode_standby_report(encode_report(standby)) == standby
    assert str(at) == "/jobs/words.py, line 7, in process"
    assert STANDBY.name == END.place.task == "add-up-3"
    assert ErrorPlace(stage="add-up").task is None


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_line_that_was_cut_short_is_no_report(cut: int) -> None:
    """Nor is an empty one: a sign of life."""
    assert decode_worker_report(encode_report(WorkerReport(tasks=(task_report(),)))[:cut]) is None
    assert decode_standby_report(encode_report(StandbyReport(tasks=(STANDBY,)))[:cut]) is None


def test_a_newer_worker_is_understood() -> None:
    """It says more than this supervisor knows: the rest is read as ever."""
    plain = msgspec.json.decode(encode_report(WorkerReport(tasks=(task_report(),), measures=OF_WORKER)))
    plain["of_tomorrow"] = plain["tasks"][0]["of_tomorrow"] = {"a": [1]}
    found = decode_worker_report(msgspec.json.encode(plain))
    assert found == WorkerReport(tasks=(task_report(),), measures=OF_WORKER)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("version", 2, "version 2, and this build knows version 1"), ("status", "of tomorrow", "of tomorrow")],
)
def test_a_report_of_another_build_is_refused(field: str, value: object, said: str) -> None:
    """To pass it over would leave a worker without a status for ever, and no person would know why."""
    plain = msgspec.json.decode(encode_report(WorkerReport(tasks=(task_report(),))))
    (plain if field == "version" else plain["tasks"][0])[field] = value
    with pytest.raises(UnsupportedFormat, match=said):
        decode_worker_report(msgspec.json.encode(plain))


def test_the_bytes_of_a_report_are_frozen() -> None:
    """A name that changes, or a field that goes, is another version; what came before ``end``, ``exit`` is."""
    line = (
        b'{"version":1,"tasks":[{"stage":"add-up","partition":3,"status":"restoring","checkpoint_id":5,"position":7,'
        b'"read":9,"end":11,"behind":-1,"trouble":"","counters":{}}]'
    )
    assert encode_report(StandbyReport(tasks=(STANDBY,))) == line + b',"end":null}'
    assert decode_standby_report(line + b"}") == StandbyReport(tasks=(STANDBY,))
    end = (
        b'{"version":1,"tasks":[],"measures":null,"end":{"reason":"task error","text":"it failed","code":"",'
        b'"traceback":"in process","place":{"stage":"add-up","partition":3,"topic":"words","topic_partition":'
        b'["words",1],"offset":7}}'
    )
    assert encode_report(WorkerReport(tasks=(), end=END, exit=1)) == end + b',"exit":1}'
    assert decode_worker_report(end + b"}") == WorkerReport(tasks=(), end=END)
    fields = sorted(msgspec.json.decode(encode_report(WorkerReport(tasks=(task_report(),))))["tasks"][0])
    assert fields == FIELDS_OF_A_TASK


def test_each_state_of_a_core_can_be_reported() -> None:
    """And no other, but those of a task that has ended alone."""
    assert {state.name for state in set(TaskState) - ENDED_STATES} == {status.name for status in TaskStatus}
