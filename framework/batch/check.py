"""Which jobs a batch cannot compute."""

from framework.api.job import Job
from framework.batch.no_calls import not_recorded
from framework.errors import ConfigError

_INSTEAD = {
    "aligned": "Compare what the job has sent with a computation of your own",
    "deterministic": "grete check-determinism makes the outputs of recent history again, those of timers included",
}


def check_batch(job: Job) -> None:
    """Refuse a job whose state depends on what only its live tasks know. Raises ConfigError."""
    for stage in job.stages:
        intake = [topic for topic, time in stage.topics_timed().items() if time == "intake"]
        if intake and stage.mode != "deterministic":
            raise ConfigError(
                f"stage {stage.name} gives the records of topic {intake[0]} the time at which a task takes them in "
                "(time='intake'), which is not recorded, so such a stage cannot be recomputed in batch. Let the "
                "records have their timestamps, or a time of their value, in a job of another name",
                stage=stage.name,
            )
        if stage.batch and stage.expiring_ids():
            raise ConfigError(
                f"stage {stage.name} has process_batch and a store with ttl_ms: its entries live from the latest "
                "timestamp of a batch, and a batch computation has other batches. Start the job under another name "
                "instead: it reads its inputs from their first records",
                stage=stage.name,
            )


def check_audit(job: Job) -> None:
    """Refuse a job whose state depends on a clock, so that no history makes it again. Raises ConfigError."""
    for stage in job.stages:
        if "wall" in stage.timers:
            raise ConfigError(
                f"stage {stage.name} has wall-clock timers: which of them had fired before which record, and before "
                "the checkpoint, is not in the history, so an audit cannot tell a difference from another moment. "
                + _INSTEAD[stage.mode],
                stage=stage.name,
            )


def check_calls(job: Job, *, is_recorded: bool) -> None:
    """Refuse an audit that could only make calls again. Raises ConfigError. ``is_recorded``: of deterministic tasks."""
    for stage in job.stages:
        if stage.awaits and stage.mode != "deterministic":
            raise not_recorded(stage.name, "is aligned, so the results of its calls are not recorded")
        if stage.awaits and not is_recorded:
            raise not_recorded(
                stage.name,
                "makes calls whose results the changelogs do not hold any more (setting changelog_retention_ms)",
            )
