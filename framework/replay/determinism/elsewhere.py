"""Replays a stretch of history in another process, in which a task finds nothing that it did not put into a store (D3).

The first replay begins where the history does, so a list of the module, say, fills as it did the first time. This one
begins at a later checkpoint, as the successor of a killed worker does. Texts have other hashes and objects other
addresses; the time zone is one in which no machine is.
"""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec

from grete import python_start
from grete.errors import ConfigError
from grete.job.loader import load_job
from grete.logs.address import LogAddress, open_reader
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition
from grete.replay.determinism.replay import ReplayResult, replay
from grete.settings import Settings
from grete.state.pins.graph_pinning import know_graph

HASHES_MAX = 4_294_967_295  # the greatest PYTHONHASHSEED
TIME_ZONE = "NOWHERE-9:17"  # 9:17 hours east of Greenwich: the time zone of no place
MEMORY = "memory:"  # in place of the url of a log: the rows of one are in a file

_Kept = list[tuple[str, int, int, list[LogRow]]]  # topic, partition, its start, its rows


class ReplaySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replay's parameters as one JSON object. ``path``: an embedded log's file, or one by ``keep_rows``.

    ``name``: what the job is called in its module. ``partitions``: in place of the job's.
    """

    job: str
    name: str = "job"
    partitions: int | None = None
    path: str
    log: str
    kafka_config: str | None
    settings: Settings
    since: int


def keep_rows(data: MemoryLogData, path: Path) -> None:
    """Write all that a log in memory holds to a file, for another process."""
    kept: _Kept = [(at.topic, at.partition, part.start, part.rows) for at, part in data.partitions.items()]
    path.write_bytes(msgspec.msgpack.encode(kept))


def _kept_rows(path: Path) -> MemoryLog:
    data = MemoryLogData(lambda: 0)
    log = MemoryLog(data)
    kept = msgspec.msgpack.decode(path.read_bytes(), type=_Kept)
    for topic, count in Counter(topic for topic, *_ in kept).items():
        log.create_topic(topic, count)
    for topic, partition, start, rows in kept:
        into = data.partition(TopicPartition(topic, partition))
        into.start, into.rows = start, rows
    return log


def replay_elsewhere(spec: ReplaySpec) -> ReplayResult:
    """Replay in a process of its own; return what it has shown. Raises ConfigError if it could not."""
    started_as = getattr(sys.modules["__main__"], "__spec__", None)
    if started_as is not None and started_as.name == __spec__.name:  # each such process would start the next one
        raise ConfigError(
            f"{spec.job} checks its determinism when it is imported, and a check imports it: move the check into a "
            "function, or behind if __name__ == '__main__'"
        )
    hashes = random.randint(1, HASHES_MAX)  # noqa: S311  # any but 0, the one of workers
    path = python_start.environment_with_path()  # a test has its modules from there
    ran = subprocess.run(  # noqa: S603  # our own interpreter, and a spec of the same user
        python_start.python("grete.replay.determinism.elsewhere"),
        env=path | {"PYTHONHASHSEED": str(hashes), "TZ": TIME_ZONE},
        input=msgspec.json.encode(spec),
        stdout=subprocess.PIPE,
        check=False,
    )
    if ran.returncode:
        raise ConfigError(
            f"the replay from checkpoint {spec.since} in another process ended with exit code {ran.returncode}; what "
            "it has printed is above"
        )
    return msgspec.json.decode(ran.stdout, type=ReplayResult)


def main() -> None:
    """Replay as standard input says, and write to standard output what that has shown."""
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=ReplaySpec)
    result = os.dup(1)
    os.dup2(2, 1)  # what the job prints
    job = load_job(spec.job, spec.name)
    job = job if spec.partitions is None else job.of(spec.partitions)
    if spec.log == MEMORY:
        kept = _kept_rows(Path(spec.path))
        job.count_broadcast(kept.partitions)
        found = replay(job, kept, spec.settings, spec.since)
    else:
        config = None if spec.kafka_config is None else Path(spec.kafka_config)
        log = open_reader(LogAddress(spec.log, config), Path(spec.path))
        try:
            know_graph(job, log)
            found = replay(job, log, spec.settings, spec.since)
        finally:
            log.close()
    with os.fdopen(result, "wb") as out:
        out.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
