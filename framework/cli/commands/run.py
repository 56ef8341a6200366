"""`grete run`: a whole job on this machine, with progress, until its input is processed."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from grete.api.jobs.job import Job
from grete.cli.feeding import (
    MARGIN_S,
    Feeding,
    OpenLines,
    described,
    external_inputs,
    folder_topic,
    open_lines,
    options_of,
    step,
    tell,
    tell_timers,
    warn,
)
from grete.cli.job_command import job_command
from grete.cli.job_target import JobTarget, NamedJob
from grete.cli.options import LineOptions, Processes, StartTimes, path_named
from grete.cli.output.patient_output import end_unanswered, standard_output
from grete.cli.output.progress import Screen, counted
from grete.cli.starts import starts_of
from grete.cli.stop_signal import UNANSWERED, StopSignal
from grete.clients.pipe import spool_lines
from grete.clients.writer import Writer
from grete.core.supervision.assignment import HostedShare
from grete.errors import ConfigError
from grete.feeds.folder import FolderFeed
from grete.feeds.line_forms import LineForm
from grete.feeds.lines import feed_lines
from grete.logs.patience import Patience
from grete.protocol.ids import TopicPartition
from grete.worker.members.members_seen import refuse_members
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs

app = typer.Typer(add_completion=False)


class _Asked(NamedTuple):
    """The options of a run. ``follow``: until Ctrl-C; ``drain``: at the end fire what waits for a later record (E7)."""

    folder: Path | None
    lines: list[OpenLines]
    form: LineForm
    follow: bool
    drain: bool


@job_command(app)
def run(
    named: NamedJob,
    *,
    input_dir: Annotated[
        Path | None,
        typer.Option(
            parser=path_named,
            metavar="PATH",
            help="Feed the text files of this folder: a record for each, with its name as key and its text as value.",
        ),
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC=FILE|-",
            help="Feed the lines of a file, or of standard input (-): a record for each. "
            "Each run feeds the whole file again.",
        ),
    ] = None,
    lines: LineOptions = LineOptions(),
    follow: Annotated[
        bool, typer.Option("--follow", help="Run until Ctrl-C, and feed each change in the folder.")
    ] = False,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="At the end of the input fire the timers and windows that wait for a later record."
        ),
    ] = False,
    processes: Processes = None,
    starts: StartTimes = None,
) -> None:
    """Run all workers of a job on this machine until they have processed its input; restart those that die."""
    if drain and follow:
        raise ConfigError(
            "--drain acts at the end of the input, and with --follow there is none: leave one of them out"
        )
    found = named.target()
    asked = _Asked(input_dir, _open_lines(found.job, input or ()), lines.form, follow, drain)
    _run(found, asked, starts_of(found.job, starts or ()), processes)


def _run(found: JobTarget, asked: _Asked, begin: Mapping[str, datetime], processes: int | None) -> None:
    """Run the job until its inputs are processed, or until it is stopped; print a summary."""
    screen, folder = Screen(Console(file=standard_output())), asked.folder
    patience = Patience(say=screen.say)
    stop = StopSignal(partial(patience.end_within, found.settings.shutdown_timeout_ms / 1000))
    fed = [topic.name for topic, *_ in asked.lines] + ([] if folder is None else [folder_topic(found.job).name])
    begun: LocalJob | None = None
    with (
        stop.excuses(),
        _opened(found, patience, OutsideInputs(fed, begin), HostedShare(processes)) as local,
        ExitStack() as writers,
    ):
        feed, begun, local.completion.waits_for_idle = None, local, not asked.drain
        if folder is not None:
            feed = FolderFeed(
                local.metadata, folder_topic(found.job).name, folder, exclude=found.job_directory.directory
            )
        feeding = Feeding(local, feed, _line_feeds(found, local, asked.lines, writers, asked.form), follow=asked.follow)
        started_s = time.monotonic()
        ready_s: float | None = None  # when all tasks took input: a start is no part of a rate
        with screen:
            warn(found.job, screen)
            with stop.ends_within(found.settings.shutdown_timeout_ms / 1000 + MARGIN_S):
                while not stop.asked:
                    step(local, feeding, screen)
                    if ready_s is None and local.supervisor.takes_input:
                        ready_s = time.monotonic()
                    if not asked.follow:
                        local.require_all()
                        if feeding.idle and _done(local, feeding.ends(), screen, drain=asked.drain):
                            break
            ended_s = time.monotonic()
            screen.say("stopping …" if stop.asked else "all input is committed: stopping the workers …")
            local.stop()
            tell(local, screen)
            screen.dropped(local.reports.dropped, local.reports.failures, finally_=True)
        ready_s = ended_s if ready_s is None else ready_s
        how = "stopped" if stop.asked else "all input is processed"
        how = "its last outputs may not be written" if local.supervisor.core.failures else how
        _summary(screen, found, feeding, how, local.records_committed(), ready_s - started_s, ended_s - ready_s)
    if begun is None:
        screen.say(UNANSWERED)
    else:
        begun.require_stopped()
    if patience.waiting:
        end_unanswered()


def _opened(found: JobTarget, patience: Patience, inputs: OutsideInputs, share: HostedShare) -> LocalJob:
    """Return the job, on this machine alone. Raises ConfigError: it has members; LogAway."""
    instead = ", or start this machine as one more member: grete up"
    refuse_members(found.job, found.job_directory.address, found.settings, instead, patience)
    return LocalJob(
        found.job, found.reference, found.job_directory, found.settings, inputs=inputs, patience=patience, share=share
    )


def _done(local: LocalJob, ends: dict[TopicPartition, int], screen: Screen, *, drain: bool) -> bool:
    """Tell whether nothing is left to do; once all input is processed, begin to drain the job, or say what waits."""
    if not local.drained(ends):
        return False
    if drain and not local.completion.draining:
        timers = counted(local.waiting_timers(), "timer")
        screen.say(f"draining: firing what waits for a later record ({timers}) …")
        local.drain(ends)
        return False
    tell_timers(
        local, screen, ", set while the job was drained" if local.completion.draining else "; to fire them now: --drain"
    )
    return True


def _line_feeds(
    found: JobTarget, local: LocalJob, opened: Sequence[OpenLines], writers: ExitStack, form: LineForm
) -> dict[Iterator[int], int]:
    """Return feed → handle of what --input names: a file can be read again after a crash, a pipe is spooled."""
    address, feeds, by_topic = found.job_directory.address, dict[Iterator[int], int](), dict[str, Writer[Any, Any]]()
    for topic, handle, path in opened:
        if path is not None:
            feeds[feed_lines(local.metadata, topic, handle, form=form, path=path)] = handle
            continue
        if topic.name not in by_topic:
            by_topic[topic.name] = writer = Writer(
                found.job,
                topic,
                log=address.url,
                kafka_config=address.config,
                directory=found.job_directory.directory,
            )
            writers.callback(writer.close, 0.0)
        feeds[spool_lines(by_topic[topic.name], topic, handle, form)] = handle
    return feeds


def _open_lines(job: Job, options: Sequence[str]) -> list[OpenLines]:
    """Open what --input names, and tell the path of a regular file. The handles stay open. Raises ConfigError."""
    topics, opened = external_inputs(job), []
    for option in options:
        name, equals, source = option.partition("=")
        if not equals or name not in topics:
            raise ConfigError(f"--input {option}: write TOPIC=FILE or TOPIC=-, with TOPIC one of {', '.join(topics)}")
        opened.append(open_lines(topics[name], source, f"--input {option}"))
    return opened


def _summary(
    screen: Screen, found: JobTarget, feeding: Feeding, how: str, records: int, start: float, seconds: float
) -> None:
    say: Callable[[str], None] = screen.say
    for report in feeding.fed[:1]:
        say(f"read: {described(report)}")
    say(
        f"{found.job.name}: {how}; {counted(records, 'input record')} committed in {seconds:.1f} s "
        f"({records / max(seconds, 0.001):,.0f}/s), after a start of {start:.1f} s"
    )
    options = options_of(found)
    for stage in found.job.stages:
        for store in stage.all_stores():
            say(f"  grete state scan {found.reference} {stage.shown}/{store.shown}{options}")
    for topic in found.job.external_sinks():
        say(f"  grete topic read {found.reference} {topic}{options}")
    say(f"  grete checkpoints {found.reference}{options}")
