"""Two dashboards for Grafana, made from the tables here: `python -m docs.hooks.dashboards` writes them again."""

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[2] / "framework" / "monitor" / "grafana"
WIDTH, HEIGHT, COLUMNS = 12, 8, 2  # of a panel, in Grafana's grid of 24 columns
_OF = 'job=~"$job"'
_TASK = "{{stage}}-{{partition}}"


class Panel(NamedTuple):
    """A graph over time. ``queries``: PromQL → the name of its lines."""

    title: str
    unit: str
    text: str
    queries: dict[str, str]


ON_CALL = (
    Panel(
        "Age of the last checkpoint",
        "s",
        "The one number: whatever holds a task up makes it grow.",
        {f"grete_checkpoint_age_seconds{{{_OF}}}": _TASK},
    ),
    Panel(
        "Freshest and slowest task",
        "s",
        "The distance between them is what the slowest one costs those that wait for it.",
        {
            f"min by (job) (grete_checkpoint_age_seconds{{{_OF}}})": "freshest",
            f"max by (job) (grete_checkpoint_age_seconds{{{_OF}}})": "slowest",
        },
    ),
    Panel(
        "Input that waits",
        "short",
        "Offsets that are not committed yet.",
        {f"sum by (topic, stage) (grete_input_lag_records{{{_OF}}})": "{{topic}} → {{stage}}"},
    ),
    Panel(
        "Tasks that do not run",
        "short",
        "They start, restore or roll back.",
        {f"count by (stage) (grete_task_running{{{_OF}}} == 0) or vector(0)": "{{stage}}"},
    ),
    Panel(
        "Starts of workers, and generations",
        "short",
        "A start that you did not ask for is a crash; a generation is a start or a rollback of a task.",
        {
            f"increase(grete_worker_starts_total{{{_OF}}}[5m])": "starts of worker {{worker}}",
            f"changes(grete_generation{{{_OF}}}[5m])": f"generations of {_TASK}",
        },
    ),
    Panel(
        "What is left of a restore",
        "short",
        "Messages of the changelog.",
        {f"grete_restore_remaining_messages{{{_OF}}}": _TASK},
    ),
    Panel(
        "Back-pressure and sinks in trouble",
        "percentunit",
        "The share of time in which a task reads no input, and whether its sink refuses.",
        {
            f"avg_over_time(grete_backpressure{{{_OF}}}[1m])": f"held up: {_TASK}",
            f"grete_sink_trouble{{{_OF}}}": f"sink: {_TASK}",
        },
    ),
    Panel(
        "How busy the workers are",
        "percentunit",
        "1: the loop never waits, and could use no more of a core.",
        {f"rate(grete_worker_busy_seconds_total{{{_OF}}}[1m])": "worker {{worker}}"},
    ),
)
AUTHOR = (
    Panel(
        "Records in",
        "cps",
        "From outside and from other stages.",
        {f"sum by (stage) (rate(grete_records_in_total{{{_OF}}}[1m]))": "{{stage}}"},
    ),
    Panel(
        "Records out",
        "cps",
        "To topics and to other stages.",
        {f"sum by (stage) (rate(grete_records_out_total{{{_OF}}}[1m]))": "{{stage}}"},
    ),
    Panel(
        "What results miss",
        "short",
        "Records dropped, by reason, and dead letters.",
        {
            f"sum by (stage, reason) (increase(grete_records_dropped_total{{{_OF}}}[5m]))": "{{stage}}: {{reason}}",
            f"sum by (stage) (increase(grete_dead_letters_total{{{_OF}}}[5m]))": "{{stage}}: dead letters",
        },
    ),
    Panel(
        "Timers that wait",
        "short",
        "Those of windows among them.",
        {f"sum by (stage) (grete_timers_waiting{{{_OF}}})": "{{stage}}"},
    ),
    Panel(
        "Time of a commit",
        "s",
        "From the moment a checkpoint is closed until it is in the changelog and in the state store.",
        {
            f"histogram_quantile({q}, sum by (stage, le) (rate(grete_commit_seconds_bucket{{{_OF}}}[5m])))": (
                f"{{{{stage}}}}: {name}"
            )
            for q, name in ((0.5, "half"), (0.99, "99 of 100"))
        },
    ),
    Panel(
        "Where commits spend their time",
        "percentunit",
        "Outputs and commit wait for the log; data and apply are work of the machine.",
        {f"sum by (step) (rate(grete_commit_step_seconds_total{{{_OF}}}[5m]))": "{{step}}"},
    ),
    Panel(
        "State",
        "bytes",
        "On disk, in RocksDB's memory, and changed since the last checkpoint.",
        {
            f"sum(grete_state_disk_bytes{{{_OF}}})": "disk",
            f"sum(grete_rocksdb_memory_bytes{{{_OF}}})": "memory",
            f"sum by (stage) (grete_uncommitted_state_bytes{{{_OF}}})": "uncommitted: {{stage}}",
        },
    ),
    Panel(
        "What waits in a task",
        "bytes",
        "Records that came early, outputs that wait for a checkpoint or a sink, sends without an answer.",
        {
            f"sum by (stage) (grete_early_bytes{{{_OF}}})": "early: {{stage}}",
            f"sum by (stage) (grete_held_output_bytes{{{_OF}}})": "outputs: {{stage}}",
            f"sum by (stage) (grete_sink_waiting_bytes{{{_OF}}})": "sink: {{stage}}",
            f"sum by (stage) (grete_unacknowledged_bytes{{{_OF}}})": "sent: {{stage}}",
        },
    ),
    Panel(
        "Written to changelogs",
        "Bps",
        "Changes, rewrite and commits.",
        {f"sum by (stage) (rate(grete_changelog_bytes_total{{{_OF}}}[1m]))": "{{stage}}"},
    ),
    Panel(
        "Commits",
        "cps",
        "Idle tasks commit seldom.",
        {f"sum by (stage) (rate(grete_commits_total{{{_OF}}}[1m]))": "{{stage}}"},
    ),
)
DASHBOARDS = {
    "on-call": ("Grete: on call", ON_CALL),
    "job": ("Grete: a job", AUTHOR),
}


def dashboard(name: str) -> dict[str, Any]:
    """Return a dashboard as Grafana imports it: the data source and the job are chosen in it."""
    title, panels = DASHBOARDS[name]
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "uid": f"grete-{name}",
        "title": title,
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {
                    "name": "job",
                    "type": "query",
                    "datasource": source,
                    "query": "label_values(grete_task_running, job)",
                    "includeAll": True,
                    "multi": True,
                    "refresh": 2,
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": [
            {
                "id": number + 1,
                "type": "timeseries",
                "title": panel.title,
                "description": panel.text,
                "datasource": source,
                "gridPos": {
                    "x": number % COLUMNS * WIDTH, "y": number // COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT,
                },
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + at), "expr": expr, "legendFormat": legend, "datasource": source}
                    for at, (expr, legend) in enumerate(panel.queries.items())
                ],
            }
            for number, panel in enumerate(panels)
        ],
    }  # fmt: skip


def text(name: str) -> str:
    """Return the file of a dashboard."""
    return json.dumps(dashboard(name), indent=2) + "\n"


if __name__ == "__main__":
    for each in DASHBOARDS:
        (FOLDER / f"{each}.json").write_text(text(each), "utf-8")
