"""Jobs that an audit cannot follow: the log does not record their decisions, so a difference proves nothing."""

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.core.graph.task_topology import wire
from grete.errors import ConfigError
from grete.settings import Settings

_BATCH = "grete audit without --follow recomputes it from its history, and a deterministic job can be followed"


def refuse_losses(job: Job, settings: Settings) -> None:
    """Refuse a job that may have skipped records of its inputs: which ones, no log holds. Raises ConfigError."""
    if settings.loses:
        raise ConfigError(
            f"job {job.name!r} runs {settings.processing_guarantee}: a crash skips records, which an audit would tell "
            "as differences",
            setting="processing_guarantee",
        )


def check_follow(job: Job, settings: Settings, *, draws: bool) -> None:
    """Refuse a job whose steps its inputs alone do not tell; ``draws``: only records of drawn keys are made again.

    Raises ConfigError.
    """
    refuse_losses(job, settings)
    if not settings.aligned:
        raise ConfigError(
            f"job {job.name!r} runs {settings.processing_guarantee}: its tasks have no checkpoint in common, and "
            "repeat records after a crash, which an audit would tell as differences",
            setting="processing_guarantee",
        )
    if "," in job.modes:
        raise ConfigError(
            f"job {job.name!r} has stages of both modes: those that are deterministic commit each task for itself, and "
            f"the others together. {_BATCH}"
        )
    if draws and "deterministic" in job.modes:
        raise ConfigError(
            f"job {job.name!r} is deterministic: what its tasks see (ctx.random, results of calls) is counted over all "
            "records, not those of the drawn keys alone: leave --share out"
        )
    for stage in job.stages:
        if (why := _why_not(job, stage)) is not None:
            raise ConfigError(f"stage {stage.name} {why}", stage=stage.name)
        if draws and stage.goes_by_time and not job.topology().streams_out_of(stage.ordinal):
            raise ConfigError(
                f"stage {stage.name} goes by event time (windows, timers, ttl_ms or deduplicate=), which all records "
                "move, not those of the drawn keys alone: leave --share out",
                stage=stage.name,
            )


def _why_not(job: Job, stage: StageGraph) -> str | None:
    """Return the reasons why the steps of a stage cannot be made again."""
    if stage.mode == "deterministic":
        return None  # its changelogs tell in which order its inputs came, and what its calls have returned
    if stage.awaits:
        return "makes calls, and is aligned, so their results are not recorded: an audit would have to make them again"
    if stage.batch:
        return f"has process_batch, and how its records were cut into batches is not recorded: {_BATCH}"
    for name in (*sorted(stage.topics_broadcast()), *sorted(stage.topics_read_first())):
        return (
            f"shares the table {name} between its keys (broadcast=, bootstrap=), and which entries of it were there "
            f"when a record came is not recorded in aligned mode: {_BATCH}"
        )
    if len(stage.inputs) > 1:
        return (
            "has several inputs, and which record came first is not recorded in aligned mode: "
            f"{_BATCH}, in the order of time"
        )
    if any(_channels(job, stage, number) > 1 for number in range(stage.partitions)):
        return (
            "reads several partitions of a topic in each task, and which record came first is not recorded in aligned "
            f"mode: {_BATCH}, in the order of time"
        )
    if "wall" in stage.timers:
        return "has wall-clock timers, and between which records each has fired is not recorded in aligned mode"
    if "intake" in stage.topics_timed().values():
        return "has time='intake', and when a record was taken in is not recorded in aligned mode"
    if stage.goes_by_time and any(_channels(job, stage, number) != 1 for number in range(stage.partitions)):
        return (
            "goes by event time (windows, timers, ttl_ms or deduplicate=) and reads more than one partition from "
            f"outside, or another stage: what was late depended on which of them was ahead: {_BATCH}"
        )
    return None


def _channels(job: Job, stage: StageGraph, partition: int) -> int:
    """Return the number of partitions from outside that a task reads; 0 if it reads another stage."""
    wiring = wire(job.topology(), stage.ordinal, partition)
    return 0 if wiring.channels else len(wiring.external)
