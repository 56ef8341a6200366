"""Tells by the changelogs alone whether all tasks have committed a checkpoint."""

from grete.api.jobs.job import Job
from grete.ports import LogReader
from grete.state.read.checkpoints.commits import all_wirings, last_commit


def all_committed(log: LogReader, job: Job, checkpoint_id: int) -> bool:
    """Tell whether every aligned task has committed a checkpoint not below ``checkpoint_id``, by its changelog."""
    commits = (last_commit(log, wiring.changelog) for wiring in all_wirings(job) if not wiring.deterministic)
    return all(found is not None and found.commit.checkpoint_id >= checkpoint_id for found in commits)
