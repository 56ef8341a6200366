"""`grete checkpoints`: the last commit of each task."""

import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from framework.cli.job_target import existing_log
from framework.cli.tables import print_table
from framework.logs.address import LogAddress
from framework.state.commits import all_wirings, last_commit
from protocol.ids import TopicPartition


def checkpoints(reference: str, directory: Path | None, address: LogAddress) -> None:
    """Print a table of the last commits."""
    with existing_log(reference, directory, address) as (job, log):
        table = Table("task", "generation", "checkpoint", "age", "external inputs", "behind", box=None)
        now_ms = time.time_ns() // 1_000_000
        for wiring in all_wirings(job):
            last = last_commit(log, wiring.changelog)
            if last is None:
                table.add_row(wiring.name, "–", "nothing committed yet")
                continue
            commit = last.commit
            behind = sum(log.bounds(TopicPartition(i.topic, i.partition))[1] - i.resume for i in commit.inputs)
            external = [(TopicPartition(e.topic, e.partition), e.offset) for e in commit.external]
            positions = [f"{partition} {offset:,} of {log.bounds(partition)[1]:,}" for partition, offset in external]
            age_s = max(0, now_ms - last.append_time_ms) / 1000
            streams = f"{behind:,} messages" if commit.inputs else "–"
            table.add_row(
                wiring.name,
                str(commit.generation),
                str(commit.checkpoint_id),
                f"{age_s:,.1f} s",
                ", ".join(positions) or "–",
                streams,
            )
    print_table(Console(), table)
