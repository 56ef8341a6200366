"""A job as its monitor sees it, made by hand."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from grete.execution.commit_times import BUCKETS_S
from grete.monitor.job_view import JobView, WorkerView

AT_MS = 1_800_000_000_000


def status(**changed: Any) -> dict[str, Any]:
    """Return what a task says that is up to date, but for what is ``changed``."""
    measures = {
        "records_in": 7,
        "records_out": 5,
        "dead_letters": 1,
        "released": 0,
        "commits": 3,
        "commit_counts": [2, 1, *[0] * (len(BUCKETS_S) - 1)],
        "commit_sum_s": 0.02,
        "commit_steps_s": {"outputs": 0.005, "data": 0.015},
        "changelog_bytes": 100,
        "restored": 4,
        "restore_left": 0,
        "uncommitted_bytes": 10,
        "unacknowledged_bytes": 20,
        "held_bytes": 30,
        "early_bytes": {"memory": 40, "disk": 50},
        "sink_bytes": 60,
        "held_up": False,
        "event_time_ms": AT_MS - 2_500,
    }
    return {
        "status": "running",
        "generation": 2,
        "checkpoint_id": AT_MS - 1_500,
        "rests_ms": None,
        "positions": {"orders[0]": 90, "orders[1]": 10, "prices[0]": 4},
        "lag_from": {"orders[0]": 90, "orders[1]": 10, "prices[0]": 4},
        "restore": [8, 8],
        "dropped": {"late": 2, "duplicate": 0, "failed": 0},
        "timers": 6,
        "sink_trouble": None,
        "waits": None,
        "last_failure": "",
        "busy_s": 0.5,
        "measures": measures,
        "worker": {
            "busy_s": 1.25,
            "rocksdb_memory_bytes": 1_000,
            "state_disk_bytes": 2_000,
            "log_trouble": None,
            "in_line": "",
        },
        **changed,
    }


def view(tasks: Mapping[str, Mapping[str, Any]], **changed: Any) -> JobView:
    """Return a job of one worker with these tasks."""
    worker = replace(WorkerView(number=0, partitions=(0,), running=True, tasks=tasks), **changed)
    ends = {"orders[0]": 100, "orders[1]": 10}
    return JobView(
        job="shop", at_ms=AT_MS, workers=(worker,), checkpoint_interval_ms=200, ends=ends, disk_free_bytes=1 << 40
    )
