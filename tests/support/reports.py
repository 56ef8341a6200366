"""Reports of workers in tests: made by hand, and read from the line of a pipe."""

import json
from typing import Any

from msgspec.structs import replace

from grete.execution.changelog.commit_times import BUCKETS_S
from grete.protocol.report import (
    DropCounts,
    EarlyBytes,
    HotKeys,
    InputReport,
    Portion,
    TaskMeasures,
    TaskReport,
    TaskState,
    WorkerMeasures,
)

AT_MS = 1_800_000_000_000
MEASURES = TaskMeasures(
    records_in=7,
    records_out=5,
    dead_letters=1,
    released=0,
    commits=3,
    commit_counts=(2, 1, *[0] * (len(BUCKETS_S) - 1)),
    commit_sum_s=0.02,
    commit_steps_s={"outputs": 0.005, "data": 0.015},
    changelog_bytes=100,
    restored=4,
    restore_left=0,
    uncommitted_bytes=10,
    unacknowledged_bytes=20,
    held_bytes=30,
    early_bytes=EarlyBytes(40, 50),
    sink_bytes=60,
    held_up=False,
    event_time_ms=AT_MS - 2_500,
)
HOT = HotKeys(task="add-up-0", by_time=(("ann", 0.9), ("bob", 0.1)), by_count=(("bob", 1.0),))
OF_WORKER = WorkerMeasures(busy_s=1.25, rocksdb_memory_bytes=1_000, state_disk_bytes=2_000, hot=(HOT,))
_UP_TO_DATE = TaskReport(
    stage="add-up",
    partition=0,
    status=TaskState.RUNNING,
    generation=2,
    checkpoint_id=AT_MS - 1_500,
    covered_t=0,
    inputs=(
        InputReport(topic="orders", partition=0, offset=90, lag_from=90),
        InputReport(topic="orders", partition=1, offset=10, lag_from=10),
        InputReport(topic="prices", partition=0, offset=4, lag_from=4),
    ),
    began=(),
    read_up_to=None,
    restore=Portion(8, 8),
    counters={},
    rollbacks=0,
    dropped=DropCounts(late=2, duplicate=0, failed=0),
    last_failure="",
    idle_in=None,
    ended_in=None,
    timers=6,
    wall_timers=0,
    commit=None,
    rests_ms=None,
    channels=Portion(0, 0),
    settled=True,
    sink_trouble=None,
    measures=MEASURES,
    busy_s=0.5,
)


def task_report(name: str = "add-up-0", **changed: Any) -> TaskReport:
    """Return the report of a task that is up to date, but for the fields in ``changed``; of its measures, too."""
    stage, _, partition = name.rpartition("-")
    changed["status"] = TaskState(changed.get("status", TaskState.RUNNING))
    measured = {field: changed.pop(field) for field in MEASURES.__struct_fields__ if field in changed}
    measures = replace(MEASURES, **measured)
    return replace(_UP_TO_DATE, stage=stage, partition=int(partition), measures=measures, **changed)


def by_name(*tasks: TaskReport) -> dict[str, TaskReport]:
    """Return task → its report."""
    return {task.name: task for task in tasks}


def said_in(line: bytes) -> dict[str, dict[str, Any]]:
    """Return task → what a line of the pipe says of it, as plain values. Raises ValueError: the line was cut short."""
    return {f"{task['stage']}-{task['partition']}": task for task in json.loads(line)["tasks"]}


def positions(task: dict[str, Any]) -> dict[str, int]:
    """Return "topic[partition]" → the offset that a task has committed, of what was read from a pipe."""
    return {f"{each['topic']}[{each['partition']}]": each["offset"] for each in task["inputs"]}
