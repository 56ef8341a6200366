"""A change of the code that does not fit the state, and its refusal."""

from collections.abc import Sequence
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


def stage_changes(before: Sequence[str], now: Sequence[str]) -> list[Change]:
    """Return the changes of the stages' names and order, by their names: both are in the ids of tasks."""
    common = min(len(before), len(now))
    if now[:common] == before[:common]:
        return []  # some were added last; what the others have sent decides (grete.state.pins.graph_pinning)
    way = "; or give the job a new name (it starts from its inputs then)"
    changes = []
    for name, instead in zip(before, now, strict=False):
        if name not in now and instead not in before:
            what = f"stage {name!r} is called {instead!r} now"
            changes.append(Change(what, f'write renamed_from = "{name}" in the class, and it keeps its state{way}'))
    if not changes:
        what = f"the stages were {', '.join(before)} and are {', '.join(now)}"
        changes.append(Change(what, f"keep them in their order in Job(…, stages=[…]), and add new ones last{way}"))
    return changes
