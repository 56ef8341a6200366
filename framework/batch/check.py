"""Selection of the stages that an audit cannot recompute, with the reasons."""

from collections.abc import Iterable

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.batch.channels import stages_in_order
from grete.batch.no_calls import not_recorded
from grete.errors import ConfigError

_INSTEAD = {
    "aligned": "Compare what the stage has sent with a computation of your own, or audit the job in deterministic mode",
    "deterministic": "grete check-determinism replays the recent history of such stages",
}


def left_out(job: Job, *, is_recorded: bool) -> dict[str, str]:
    """Return stage → why an audit leaves it out: its state depends on what no log holds, or it reads of such a stage.

    ``is_recorded``: the changelogs have all input decisions of deterministic tasks. Raises ConfigError: no stage is
    left.
    """
    reasons: dict[str, str] = {}
    for stage in stages_in_order(job):
        if reason := _unknown(stage, is_recorded=is_recorded):
            reasons[stage.name] = reason
            continue
        producers = [job.stages[stream.producer].name for stream in job.topology().streams_into(stage.ordinal)]
        if (before := next((name for name in producers if name in reasons), None)) is not None:
            reasons[stage.name] = f"reads what stage {before} sends"
    if len(reasons) < len(job.stages):
        return reasons
    name = next(iter(reasons))
    raise ConfigError(f"stage {name} {reasons[name]}. {_INSTEAD[job.stage(name).mode]}", stage=name)


def _unknown(stage: StageGraph, *, is_recorded: bool) -> str | None:
    """Return the part of a stage's history that is recorded nowhere; None: nothing that its state depends on."""
    if stage.mode != "deterministic":
        where = "which aligned mode does not record"
    elif not is_recorded:
        where = "which the changelogs do not hold any more (setting changelog_retention_ms)"
    else:
        return None
    if "wall" in stage.timers:
        return (
            "has wall-clock timers: it depends on the moment at which each has fired, before or after which records, "
            f"{where}"
        )
    if intake := [topic for topic, time in stage.topics_timed().items() if time == "intake"]:
        return f"gives the records of topic {intake[0]} the time at which it took them in (time='intake'), {where}"
    if has_timed_batches(stage):
        return (
            "has process_batch and a store with ttl_ms: its entries live from the latest timestamp of the batch that "
            f"put them, and so depend on how its records came in batches, {where}"
        )
    return None


def has_timed_batches(stage: StageGraph) -> bool:
    """Tell whether it is state in which batch a record came: entries live from the latest timestamp of theirs."""
    return stage.batch and bool(stage.expiring_ids())


def check_calls(stages: Iterable[StageGraph], *, is_recorded: bool) -> None:
    """Refuse an audit that could only make calls again. Raises ConfigError. ``is_recorded``: of deterministic tasks."""
    for stage in stages:
        if stage.awaits and stage.mode != "deterministic":
            raise not_recorded(stage.name, "is aligned, so the results of its calls are not recorded")
        if stage.awaits and not is_recorded:
            raise not_recorded(
                stage.name,
                "makes calls whose results the changelogs do not hold any more (setting changelog_retention_ms)",
            )


def check_no_calls(stages: Iterable[StageGraph]) -> None:
    """Refuse a dry run that would make calls: a service would do what it is asked for. Raises ConfigError."""
    for stage in stages:
        if stage.awaits:
            raise ConfigError(
                f"stage {stage.name} makes calls, and a dry run makes none, so what comes of them is not known: leave "
                "--dry-run out; a backfill makes them",
                stage=stage.name,
            )
