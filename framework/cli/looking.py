"""Commands that only read: state, checkpoints, changelogs, external topics."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from framework.api.serdes import Serde
from framework.api.topic import Topic
from framework.cli.moving import at_version, say
from framework.cli.screen import printable
from framework.cli.target import directory_of, existing_log
from framework.core.changelog import ChangelogFold
from framework.errors import ConfigError, Halted, SerdeError
from framework.logs.open import LogAddress
from framework.logs.partition_reader import rows_left
from framework.ports import LogReader, LogRow
from framework.runtime.inspect import all_wirings, last_commit
from framework.runtime.newest import NewestReader
from framework.runtime.past import PastReader
from protocol.changelog import ChangelogType, decode_changelog_header, decode_claim, decode_data, decode_verdict
from protocol.commit import decode_commit
from protocol.errors import DecodeError
from protocol.ids import TopicPartition


def _reader(
    reference: str, directory: Path | None, address: LogAddress, version: int | None
) -> NewestReader | PastReader:
    """Return what reads the newest state, from local stores that have it or from the changelogs, or an older one."""
    job, log = existing_log(reference, directory, address)
    if version is None:
        return NewestReader(log, job, directory_of(job, directory, address) / "state", say)
    return PastReader(log, job, at_version(job, log, version))


def state_get(
    reference: str, store: str, key: str, version: int | None, directory: Path | None, address: LogAddress
) -> int:
    """Print the value of a key as each partition has it; return 1 if none has."""
    with _reader(reference, directory, address, version) as reader:
        declared = reader.store(store)
        values = [value for _, value in reader.find(declared, _from_text(declared.key, key))]
    for value in values:
        print(_to_text(value))
    return 0 if values else 1


def state_scan(
    reference: str,
    store: str,
    prefix: str | None,
    limit: int,
    version: int | None,
    directory: Path | None,
    address: LogAddress,
) -> None:
    """Print key and value of each entry."""
    with _reader(reference, directory, address, version) as reader:
        declared = reader.store(store)
        rows = reader.all(declared) if prefix is None else reader.prefix(declared, _from_text(declared.key, prefix))
        for number, (key, value) in enumerate(rows):
            if number == limit:
                Console(stderr=True).print(f"… and more: --limit {10 * limit} shows the next ones", highlight=False)
                return
            print(f"{_to_text(key)}\t{_to_text(value)}")


def checkpoints(reference: str, directory: Path | None, address: LogAddress) -> None:
    """Print a table of the last commits."""
    job, log = existing_log(reference, directory, address)
    table = Table("task", "generation", "version", "age", "external inputs", "behind", box=None)
    for column in table.columns:
        column.no_wrap = True
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
            str(commit.version),
            f"{age_s:,.1f} s",
            ", ".join(positions) or "–",
            streams,
        )
    console = Console()
    console.print(table, markup=False, soft_wrap=not console.is_terminal)


def changelog_tail(
    reference: str, stage: str, partition: int, count: int, directory: Path | None, address: LogAddress
) -> None:
    """Print what the last messages of a changelog are."""
    job, log = existing_log(reference, directory, address)
    if not 0 <= partition < job.partitions:
        raise ConfigError(f"job {job.name!r} has partitions 0 to {job.partitions - 1}, not {partition}")
    changelog = TopicPartition(job.topology().changelog(job.stage(stage).ordinal), partition)
    _, end = log.bounds(changelog)
    for row in _rows(log, changelog, end - count):
        try:
            text = _message(row[4] or b"")
        except DecodeError as error:
            text = f"not a changelog message: {error}"
        print(f"{row[0]}\t{_clock(row[1])}\t{text}")


def changelog_verify(reference: str, directory: Path | None, address: LogAddress) -> None:
    """Fold every changelog as a restore does. Raises Halted if one is damaged."""
    job, log = existing_log(reference, directory, address)
    for wiring in all_wirings(job):
        start, end = log.bounds(wiring.changelog)
        fold = ChangelogFold(str(wiring.changelog), start)
        commits = messages = 0
        for row in _rows(log, wiring.changelog, start):
            segment = fold.feed(row[0], row[4] or b"")
            commits += segment is not None
            messages += 1 if segment is None else 0
        if commits and not fold.complete:
            raise Halted(
                f"{wiring.changelog}: trimmed, and no complete sweep round stands in it: it cannot be restored"
            )
        undecided = "" if fold.undecided is None else f", then the run {printable(fold.undecided)}, not decided"
        version = "nothing committed" if fold.last is None else f"version {fold.last.version}"
        print(
            f"{wiring.name}\tok\t{commits:,} commits, {messages:,} other messages, {fold.void_messages:,} void, "
            f"generation {fold.top}, {version}{undecided}, offsets {start:,} to {end:,}"
        )


def topic_read(reference: str, name: str, count: int, directory: Path | None, address: LogAddress) -> None:
    """Print the records of an external topic, of all partitions or of those that are left after trimming."""
    job, log = existing_log(reference, directory, address)
    topics: dict[str, Topic[Any, Any]] = dict(job.external_sinks())
    externals = {topic for stage in job.stages for topic in job.topology().externals_of(stage.ordinal)}
    topics |= {t.name: t for stage in job.stages for t in stage.topics_read() if t.name in externals}
    if name not in topics:
        raise ConfigError(f"job {job.name!r} has no external topic {name!r}: it has {', '.join(sorted(topics))}")
    topic = topics[name]
    for partition in range(log.partitions(name) or 0):
        at = TopicPartition(name, partition)
        for offset, _, _, key, value, _ in _last_rows(log, at, count) if count else _rows(log, at, 0):
            print(f"{partition}\t{offset}\t{_decoded(topic.key, key)}\t{_decoded(topic.value, value)}")


def _last_rows(log: LogReader, partition: TopicPartition, count: int) -> list[LogRow]:
    """Return the last records, oldest first. Offsets are no count: the ends of transactions take some, too."""
    window = count
    while True:
        start, end = log.bounds(partition)
        begin = max(start, end - window)
        found = list(_rows(log, partition, begin))
        if len(found) >= count or begin == start:
            return found[-count:]
        window *= 4


def _rows(log: LogReader, partition: TopicPartition, offset: int) -> Iterator[LogRow]:
    """Yield rows from ``offset`` on, or from where the log starts, up to the end as it is now."""
    start, end = log.bounds(partition)
    yield from rows_left(log, partition, max(offset, start), end)


def _message(value: bytes) -> str:
    header = decode_changelog_header(value)
    text = f"generation {header.generation}\tseq {header.seq}\t{header.type.name.lower()}"
    match header.type:
        case ChangelogType.DATA:
            data = decode_data(value)
            tombstones = sum(cell is None for cell in data.values)
            return f"{text}\t{len(data.keys):,} keys, {tombstones:,} of them deleted, {len(value):,} bytes"
        case ChangelogType.COMMIT:
            commit = decode_commit(value)
            run = "" if commit.run_id is None else f", of the run {printable(commit.run_id)}"
            return f"{text}\tversion {commit.version} after {commit.previous}, {commit.data_count:,} data messages{run}"
        case ChangelogType.VERDICT:
            verdict = decode_verdict(value)
            return f"{text}\tthe run {printable(verdict.run_id)} {'counts' if verdict.counts else 'is void'}"
        case ChangelogType.CLAIM:
            claim = decode_claim(value)
            return f"{text}\tprocess {claim.pid} on {printable(claim.host)}, started {_clock(claim.started_ms)}"
        case _:
            return text


def _clock(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000)) + f".{time_ms % 1000:03d}"


def _from_text(serde: Serde[Any], text: str) -> Any:
    """Return a key as its serde has it, from what stands on a command line. Raises ConfigError."""
    try:
        if serde.name == "utf8":
            return text.replace("\\0", "\0")  # no argument can hold a NUL
        if serde.name == "bytes":
            return bytes.fromhex(text)
        if serde.name == "int64":
            return int(text)
        return serde.decode(text.encode())  # JSON; other serdes know what to do with text, or refuse it
    except (ValueError, SerdeError) as error:
        raise ConfigError(f"{text!r} is not a key of serde {serde.name}: {error}") from error


def _decoded(serde: Serde[Any], data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return _to_text(serde.decode(data))
    except SerdeError:
        return f"{data.hex()} (not {serde.name})"  # a dead letter keeps the bytes that came


def _to_text(value: object) -> str:
    """Return a value in one line: text as it is but for control characters, anything else as JSON."""
    if isinstance(value, str):
        return printable(value).replace("\n", "\\n").replace("\t", "\\t")
    if isinstance(value, bytes):
        return value.hex()
    try:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
    except (TypeError, ValueError):
        return printable(repr(value))
