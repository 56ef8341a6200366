"""A change of the code that does not fit the state, and its refusal."""

from typing import NamedTuple

from grete.api.jobs.job import Job
from grete.errors import ConfigError

PLAN = "What each change does, and what can be done: grete plan JOB"


class Change(NamedTuple):
    """A change of the code that the stored state does not allow, and a way that works."""

    what: str
    way: str


def refuse_changes(job: Job, changes: list[Change]) -> None:
    """Raise ConfigError naming every change, if there is one."""
    ways: dict[str, list[str]] = {}
    for what, way in changes:
        ways.setdefault(way, []).append(what)
    if changes:
        texts = "; ".join(f"{', and '.join(whats)}: {way}" for way, whats in ways.items())
        raise ConfigError(
            f"the code of job {job.name!r} does not fit the state that it has: {texts}. {PLAN} "
            "(docs/guides/evolve.md lists what may change)"
        )
