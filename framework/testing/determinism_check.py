"""Replays a job of the kit as `grete check-determinism` does: here, from later checkpoints, and in another process."""

import importlib.util
import sys
import tempfile
from pathlib import Path

from grete.api.jobs.job import Job
from grete.errors import ConfigError
from grete.logs.memory import MemoryLog
from grete.replay.determinism.elsewhere import MEMORY, ReplaySpec, keep_rows, replay_elsewhere
from grete.replay.determinism.replay import ReplayResult, replay
from grete.replay.determinism.report import is_same, report
from grete.settings import Settings

RESTARTS_MAX = 5  # later checkpoints to replay from: each costs as much as the run


def check_determinism(job: Job, declared: Job, log: MemoryLog, settings: Settings) -> int:
    """Return the number of outputs that were compared. ``declared``: the job as its module has it.

    Raises AssertionError with the first difference, ConfigError if the job cannot be replayed.
    """
    module, name = _place_of(declared)
    found = _checked(replay(job, log, settings), job, "a replay")
    restarts = found.restarts
    if len(restarts) > RESTARTS_MAX:
        restarts = tuple(restarts[number * len(restarts) // RESTARTS_MAX] for number in range(RESTARTS_MAX))
    for restart in restarts:
        _checked(replay(job, log, settings, restart), job, f"a replay from checkpoint {restart}")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows"
        keep_rows(log.data, path)
        since = restarts[len(restarts) // 2] if restarts else 0
        spec = ReplaySpec(
            job=module,
            name=name,
            partitions=job.partitions,
            path=str(path),
            log=MEMORY,
            kafka_config=None,
            settings=settings,
            since=since,
        )
        _checked(replay_elsewhere(spec), job, "a replay in another process")
    return found.compared


def _checked(found: ReplayResult, job: Job, what: str) -> ReplayResult:
    if not is_same(found):
        raise AssertionError("\n".join([f"{what} does not make the same outputs again", *report(found, job)]))
    return found


def _place_of(job: Job) -> tuple[str, str]:
    """Return the module, or its file, in which another process finds the job, and the job's name there."""
    for known_as, module in sorted(sys.modules.items(), key=lambda each: each[0] == "__main__"):  # that one last
        file = getattr(module, "__file__", None)
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is job and file is not None:
                return (known_as if _is_importable(known_as, file) else file), name
    raise ConfigError(
        f"job {job.name!r} is replayed in another process, too, which has to find it: give it a name in a module, "
        "as in job = Job(...)"
    )


def _is_importable(name: str, file: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a name that pytest has made up, or __main__
        return False
    return spec is not None and spec.origin == file
