"""Replays a stretch of history in another process, in which a task finds nothing that it did not put into a store (D3).

The first replay begins where the history does, so a list of the module, say, fills as it did the first time. This one
begins at a later checkpoint, as the successor of a killed worker does. Texts have other hashes and objects other
addresses; the time zone is one in which no machine is.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec

from framework.errors import ConfigError
from framework.job.loader import load_job
from framework.logs.address import LogAddress, open_reader
from framework.replay.replay import Found, replay
from framework.settings import Settings
from framework.state.graph_pinning import know_graph

HASHES_MAX = 4_294_967_295  # the greatest PYTHONHASHSEED
TIME_ZONE = "NOWHERE-9:17"  # 9:17 hours east of Greenwich: the time zone of no place


class ReplaySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to replay, as one JSON object. ``path``: the file of an embedded log."""

    job: str
    path: str
    log: str
    kafka_config: str | None
    settings: Settings
    since: int


def replay_elsewhere(spec: ReplaySpec) -> Found:
    """Replay in a process of its own; return what it has shown. Raises ConfigError if it could not."""
    hashes = random.randint(1, HASHES_MAX)  # noqa: S311  # any but 0, the one of workers
    ran = subprocess.run(  # our own interpreter, and a spec of the same user
        [sys.executable, "-m", "framework.replay.elsewhere"],
        env={**os.environ, "PYTHONHASHSEED": str(hashes), "TZ": TIME_ZONE},
        input=msgspec.json.encode(spec),
        stdout=subprocess.PIPE,
        check=False,
    )
    if ran.returncode:
        raise ConfigError(
            f"the replay from checkpoint {spec.since} in another process ended with exit code {ran.returncode}; what "
            "it has printed is above"
        )
    return msgspec.json.decode(ran.stdout, type=Found)


def main() -> None:
    """Replay as standard input says, and write to standard output what that has shown."""
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=ReplaySpec)
    result = os.dup(1)
    os.dup2(2, 1)  # what the job prints
    job = load_job(spec.job)
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
