"""`make demo`: indexes a folder while workers are killed; then the proof that nothing was lost or doubled."""

import contextlib
import os
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from grete.cli import report_errors
from grete.cli.feeding import Feeding, described, show
from grete.cli.job_target import JobTarget
from grete.cli.options import Directory, KafkaConfig, Set
from grete.cli.output.progress import Screen
from grete.cli.settings_file import settings_of
from grete.cli.stop_signal import StopSignal
from grete.errors import ConfigError, ExitCode
from grete.feeds.folder import FolderFeed
from grete.job.directory import JobDirectory, digest
from grete.logs.address import KAFKA, LogAddress, check_address
from grete.protocol.ids import TopicPartition
from grete.settings import Settings, with_texts
from grete.state.read.local_reader import LocalReader
from grete.testing.broker import find_broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tasks.demo import watch
from tasks.demo.kills import Chaos
from tasks.demo.recount import Audit, audit, recorded
from tasks.demo.search import Lookup, found
from tasks.inverted_index import WORD, documents, job

REFERENCE = "tasks.inverted_index"
QUERIES = ('"import os"', '"exactly once"', "thread lock", 'sqlite3 "with open"')
GUARANTEES = ("exactly-once", "at-least-once")
OWN_BROKER = "kafka"
SMALL_WORK = 10  # documents: with fewer there is no time for kills


@dataclass(frozen=True)
class Work:
    """The result of the demonstration's first part."""

    documents: int
    seconds: float
    commits: int
    kills: Chaos


def demo(
    folder: Path | None,
    guarantee: str,
    directory: Path | None,
    *,
    address: LogAddress,
    spark: str,
    follow: bool,
    query: str,
    kills: int,
    sets: Sequence[str] | None,
) -> None:
    """Run the demonstration. Raises typer.Exit if the index differs although exactly once was asked for."""
    if address.url != OWN_BROKER:
        check_address(address)
    audited = _audit_on_spark() if spark not in ("", "0") else None
    root = (Path(sysconfig.get_path("stdlib")) if folder is None else folder).absolute()
    if not root.is_dir():
        raise ConfigError(f"DIR={root}: no such folder: name one with text files in it")
    if guarantee not in GUARANTEES:
        raise ConfigError(f"GUARANTEE={guarantee}: it is {' or '.join(GUARANTEES)}")
    settings = with_texts(settings_of(sets, None), {"processing_guarantee": guarantee})
    directory = _default_directory(root, guarantee, address) if directory is None else directory
    screen = Screen(Console())
    screen.say(f"Indexing {root}\nin {directory}, {guarantee}, {job.partitions} worker processes")
    stop = StopSignal()
    with (
        _log(address, directory, screen) as found,
        LocalJob(
            job,
            REFERENCE,
            job_directory := JobDirectory(directory, address=found),
            settings,
            inputs=OutsideInputs([documents.name]),
        ) as local,
        LocalReader(job_directory.state_directory, job) as reader,
    ):
        feed = FolderFeed(local.metadata, documents.name, root, exclude=job_directory.directory)
        work = _index(local, feed, screen, stop, kills)
        if stop.asked:
            local.stop()
            screen.say("stopped; the next run goes on from here")
            return
        if not follow:
            local.stop()
        ok = _prove(local, reader, screen, work, settings, default=folder is None)
        if audited is not None:
            ok = audited(JobTarget(job, REFERENCE, job_directory, settings), local, screen) and ok
        if follow and ok:
            feed = FolderFeed(local.metadata, documents.name, root, exclude=job_directory.directory)
            watch.follow(local, feed, Lookup(reader), query, screen, stop)
            screen.say("stopping …")
            local.stop()
    if not ok:
        raise typer.Exit(ExitCode.FAILED)


def _audit_on_spark() -> Callable[[JobTarget, LocalJob, Screen], bool]:
    """Return the audit at the end of the job. Raises ConfigError, before anything is done: Spark is not installed."""
    from grete.spark import require_extra

    require_extra()
    from tasks.demo.spark_audit import demonstrate

    return demonstrate


@contextlib.contextmanager
def _log(address: LogAddress, directory: Path, screen: Screen) -> Iterator[LogAddress]:
    """Yield the log's address; ``kafka`` is a broker that lives as long as the demonstration, and its data longer."""
    if address.url != OWN_BROKER:
        yield address
        return
    screen.say("Starting a Kafka broker (the first time, it is fetched) …")
    with find_broker(directory / OWN_BROKER, keep=True) as broker:
        screen.say(f"Kafka: {broker.bootstrap} ({broker.how})")
        yield LogAddress(KAFKA + broker.bootstrap, address.config)


def _default_directory(root: Path, guarantee: str, address: LogAddress) -> Path:
    log = b"" if address.embedded else address.url.encode()
    return Path(".grete") / f"demo-{digest(os.fsencode(root) + guarantee.encode() + log)}"


def _index(local: LocalJob, feed: FolderFeed, screen: Screen, stop: StopSignal, kills: int) -> Work:
    """Feed the folder, run the job until it is drained, kill workers meanwhile."""
    feeding = Feeding(local, feed, {}, follow=False)
    commits, committed = local.commits(), sum(local.committed().values())
    feeding.step()  # lists the folder
    planned = feed.report.planned
    feed.batch_files_max = max(1, min(feed.batch_files_max, planned // 50))
    work = planned + sum(local.ends().values()) - committed
    chaos = Chaos(local, kills if work >= SMALL_WORK else 0, screen.say)
    if not work:
        screen.say("The folder is as it was at the last run: nothing to feed, nothing to do twice")
    elif work < SMALL_WORK:
        screen.say(f"{work:,} files to look at: too few for killing workers meanwhile")
    started_s = time.monotonic()
    with screen:
        while not stop.asked:
            done, backlog = feed.report.done, sum(feeding.ends().values()) - sum(local.committed().values())
            if chaos.may_feed(done, planned, backlog):
                feeding.step()
            local.poll(0 if not feeding.idle else 20)
            chaos.step(done / planned if planned else 1.0)
            show(local, feeding, screen)
            if feeding.idle and chaos.settled and local.drained(feeding.ends()):
                break
    seconds = time.monotonic() - started_s
    screen.say(f"Read: {described(feed.report)}")
    return Work(sum(local.committed().values()) - committed, seconds, local.commits() - commits, chaos)


def _prove(
    local: LocalJob, reader: LocalReader, screen: Screen, work: Work, settings: Settings, *, default: bool
) -> bool:
    """Show a summary and some searches, then compare the index with a plain pass; return whether all is right."""
    say = screen.say
    done, chaos = work.kills.done, work.kills
    rate = f" ({work.documents / work.seconds:,.0f} documents/s)" if work.documents else ""
    say(f"\nIndexed {work.documents:,} new, changed or deleted documents in {work.seconds:.1f} s{rate}")
    if done:
        restores = sum(kill.restoring for kill in done)
        rolled_back = sum(kill.rolled_back for kill in done)
        what = "rolled back" if local.settings.aligned else "sent again"
        say(
            f"Workers killed: {len(done)}, {chaos.effective} of them with {rolled_back:,} uncommitted records, now "
            f"{what}; {restores} in a restore"
        )
    if chaos.missed:
        say(f"{chaos.missed} more kills were planned, but no worker had anything to lose any more: the folder is small")
    lookup = Lookup(reader)
    for query in QUERIES if default else _queries(local):
        say(f"  {found(lookup, query)}")
    say("\nComparing with one plain pass over the recorded documents …")
    result = audit(local.log, reader)
    say(
        f"{result.documents:,} documents, {result.occurrences:,} words ({result.words:,} different), "
        f"{result.postings:,} postings; {work.commits:,} checkpoints committed by {len(job.stages) * job.partitions} "
        f"tasks"
    )
    return _outcome(screen, result, settings)


def _outcome(screen: Screen, result: Audit, settings: Settings) -> bool:
    say = screen.say
    if not result.differences:
        say("The index is identical.")
        if settings.processing_guarantee != "exactly-once":
            say("No damage this time: no kill hit records that had been sent and not committed. Try again.")
        return True
    say(
        f"The index differs in {result.differences:,} entries: {result.missing:,} postings missing, "
        f"{result.wrong:,} wrong, {result.extra:,} too many; {result.miscounted:,} words miscounted. The first:"
    )
    for sample in result.samples:
        say(f"  {sample}")
    if settings.processing_guarantee == "exactly-once":
        say("This must not happen: please report it, with the job's directory.")
        return False
    say("This is what exactly-once prevents: run it again without GUARANTEE.")
    return True


def _queries(local: LocalJob) -> list[str]:
    """Return searches for a folder that we know nothing of: words and a phrase of one of its documents."""
    for number in range(job.partitions):
        for text in recorded(local.log, TopicPartition(documents.name, number)).values():
            words = WORD.findall(text.lower())
            if len(words) >= 8:
                middle = len(words) // 2
                return [words[middle], f'"{" ".join(words[middle : middle + 3])}"']
    return []


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def command(
    *,
    dir: Annotated[Path | None, typer.Option(envvar="DIR", help="The folder. Default: Python's own library.")] = None,
    guarantee: Annotated[str, typer.Option(envvar="GUARANTEE", help="exactly-once or at-least-once.")] = "exactly-once",
    follow: Annotated[
        bool, typer.Option("--follow", envvar="FOLLOW", help="Go on: edit a file, watch a search.")
    ] = False,
    query: Annotated[str, typer.Option(envvar="QUERY", help="The search to watch.")] = '"import os"',
    kills: Annotated[int, typer.Option(help="Kills that rolled back something, and one in a restore on top.")] = 5,
    log: Annotated[
        str,
        typer.Option(envvar=["LOG", "GRETE_LOG"], help="'embedded'; kafka: a broker of its own; or kafka://host:port."),
    ] = "embedded",
    kafka_config: KafkaConfig = None,
    spark: Annotated[str, typer.Option(envvar="SPARK", hidden=True)] = "",
    directory: Directory = None,
    set: Set = None,
) -> None:
    """Index a folder while workers are killed, then compare the index with one made in a single plain pass."""
    demo(
        dir,
        guarantee,
        directory,
        address=LogAddress(log, kafka_config),
        spark=spark,
        follow=follow,
        query=query,
        kills=kills,
        sets=set,
    )


if __name__ == "__main__":
    report_errors(app)
