"""The reference of the metrics: a table made from their catalog."""

from docs.hooks.markdown import code, table
from grete.monitor.catalog import (
    COMMIT_SECONDS,
    COMMIT_TEXT,
    COMMIT_WORRY,
    JOB_METRICS,
    TASK_METRICS,
    WORKER_METRICS,
)
from grete.replay.audit.metrics import AUDIT_METRICS


def part() -> str:
    """Return the tables of tasks' and of workers' metrics."""
    columns = ("metric", "kind", "label", "meaning", "when to worry")
    tasks = [(code(m.name), m.kind, code(m.by), m.text, m.worry) for m in TASK_METRICS]
    commit = (code(COMMIT_SECONDS), "histogram", "", COMMIT_TEXT, COMMIT_WORRY)
    workers = [(code(m.name), m.kind, code(m.by), m.text, m.worry) for m in WORKER_METRICS]
    jobs = [(code(m.name), m.kind, code(m.by), m.text, m.worry) for m in JOB_METRICS]
    audits = [(code(m.name), m.kind, code(m.by), m.text, m.worry) for m in AUDIT_METRICS]
    return "\n\n".join(
        [
            "## Of each task",
            "Each has the labels `job`, `stage` and `partition`.",
            table(columns, [*tasks, commit]),
            "## Of each worker process",
            "Each has the labels `job` and `worker`, its number; and `partition`, if it hosts one alone.",
            table(columns, workers),
            "## Of the process that serves",
            "Each has the label `job`.",
            table(columns, jobs),
            "## Of an audit that goes on",
            "`grete audit JOB --follow --http PORT` serves them. Each has the label `job`.",
            table(columns, audits),
        ]
    )
