"""Series on which each alert fires, for promtool, and those of a healthy job, on which none does."""

from typing import Any

TASK, WORKER = 'job="shop",stage="add-up",partition="0"', 'job="shop",partition="0"'
# Alert → (series, its values minute by minute in promtool's notation, when it is to fire).
FIRES = {
    "GreteProcessGone": ('up{job="grete",instance="host:8080"}', "1x2 0x10", "8m"),
    "GreteCheckpointTooOld": (f"grete_checkpoint_age_seconds{{{TASK}}}", "0+30x20", "10m"),
    "GreteTaskNotRunning": (f"grete_task_running{{{TASK}}}", "0x30", "20m"),
    "GreteRestoreStuck": (f"grete_restore_remaining_messages{{{TASK}}}", "500x20", "10m"),
    "GreteWorkerCrashes": (f"grete_worker_starts_total{{{WORKER}}}", "1+1x20", "15m"),
    "GreteHalted": (f'grete_worker_halted{{{WORKER},code="GRETE-H001"}}', "_x2 1x20", "5m"),
    "GreteDisk": ('grete_disk_free_bytes{job="shop"}', "2e9-1e8x30", "20m"),
    "GreteLogAway": (f"grete_log_away{{{WORKER}}}", "1x20", "5m"),
    "GreteWorkerSilent": (f"grete_worker_silent_seconds{{{WORKER}}}", "6+60x20", "5m"),
    "GreteCodeBlocks": (f"grete_worker_blocked_since_seconds{{{WORKER}}}", "1.7e9x20", "5m"),
    "GreteStageTooSlow": (f"grete_task_busy_seconds_total{{{TASK}}}", "0+60x30", "25m"),
    "GreteRollbacks": (f"grete_generation{{{TASK}}}", "1+1x20", "15m"),
    "GreteFenced": (f"grete_worker_fenced{{{WORKER}}}", "1x20", "10m"),
    "GreteSinkRefuses": (f"grete_sink_trouble{{{TASK}}}", "1x20", "10m"),
    "GreteInputLagGrows": (f'grete_input_lag_records{{{TASK},topic="orders"}}', "20000+100x90", "80m"),
    "GreteBackpressure": (f"grete_backpressure{{{TASK}}}", "1x30", "20m"),
    "GreteAuditDiffers": ('grete_audit_differences_total{job="shop",stage="add-up"}', "0x5 1x20", "10m"),
    "GreteAuditBehind": ('grete_audit_age_seconds{job="shop"}', "0+60x30", "20m"),
    "GreteDeadLetters": (f"grete_dead_letters_total{{{TASK}}}", "0x5 1x20", "10m"),
    "GreteRecordsDropped": (f'grete_records_dropped_total{{{TASK},reason="late"}}', "0x5 7x20", "10m"),
}
HEALTHY = {
    'up{job="grete",instance="host:8080"}': "1x90",
    f"grete_checkpoint_age_seconds{{{TASK}}}": "5x90",
    f"grete_task_running{{{TASK}}}": "0x3 1x87",  # a restore that ends
    f"grete_restore_remaining_messages{{{TASK}}}": "900-300x3 0x86",
    f"grete_worker_starts_total{{{WORKER}}}": "1x40 2x50",  # one crash
    f"grete_generation{{{TASK}}}": "1x40 2x50",
    f"grete_worker_fenced{{{WORKER}}}": "0x90",
    'grete_disk_free_bytes{job="shop"}': "5e10x90",
    f"grete_log_away{{{WORKER}}}": "0x40 1x1 0x50",
    f"grete_worker_silent_seconds{{{WORKER}}}": "0.2x40 7x1 0.1x50",
    f"grete_worker_blocked_since_seconds{{{WORKER}}}": "0x40 1.7e9x1 0x50",
    f"grete_task_busy_seconds_total{{{TASK}}}": "0+60x10 600+5x80",  # a backlog, then little to do
    f"grete_sink_trouble{{{TASK}}}": "0x40 1x1 0x50",  # a moment
    f'grete_input_lag_records{{{TASK},topic="orders"}}': "50000-100x90",  # it catches up
    f"grete_backpressure{{{TASK}}}": "0x30 1x5 0x60",
    'grete_audit_differences_total{job="shop",stage="add-up"}': "2x90",
    'grete_audit_age_seconds{job="shop"}': "0+30x10 0x80",  # it was behind, and has caught up
    f"grete_dead_letters_total{{{TASK}}}": "3x90",
    f'grete_records_dropped_total{{{TASK},reason="duplicate"}}': "0+5x90",
}


def promtool_tests(rules: str) -> dict[str, Any]:
    """Return the input of ``promtool test rules``. Of an alert that fires, promtool wants to know all of its texts."""
    fire = [
        _case({series: values}, [(f'count(ALERTS{{alertname="{name}",alertstate="firing"}})', at, 1)])
        for name, (series, values, at) in FIRES.items()
    ]
    moments = [('count(ALERTS{alertstate="firing"}) or vector(0)', f"{minute}m", 0) for minute in range(0, 90, 5)]
    return {"rule_files": [rules], "evaluation_interval": "1m", "tests": [*fire, _case(HEALTHY, moments)]}


def _case(series: dict[str, str], asked: list[tuple[str, str, int]]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": at, "exp_samples": [{"labels": "{}", "value": value}]}
            for query, at, value in asked
        ],
    }
