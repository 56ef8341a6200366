"""Stages and stores that `grete apply` has dropped from a job. Their numbers and names are never used again.

A dropped stage keeps its number as a stage without tasks, so that all others keep theirs: the number is part of every
message of a task (1.2). It is part of the job definition, under ``dropped``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grete.api.jobs.graph import StageGraph
from grete.api.tasks.mode import Mode
from grete.api.tasks.task import Task
from grete.errors import ConfigError


class _Gone(Task):
    partitions = 0


@dataclass(frozen=True, slots=True)
class DroppedParts:
    """``stages``: number → name and mode; ``stores``: name of a stage that is there → name → id of its stores."""

    stages: Mapping[int, tuple[str, Mode]] = field(default_factory=dict)
    stores: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def refuse_again(self, stages: Sequence[StageGraph]) -> None:
        """Raise ConfigError for code that has one of them: it is the code of before, or uses a name again."""
        names = {name for name, _ in self.stages.values()}
        for stage in stages:
            if stage.partitions and stage.name in names:
                raise ConfigError(
                    f"stage {stage.name!r} was dropped from this job by grete apply, and its state is given up: start "
                    "the code without it; a new stage needs another name",
                    stage=stage.name,
                )
            for store in sorted({*stage.store_names()} & {*self.stores.get(stage.name, ())}):
                raise ConfigError(
                    f"store {stage.name}/{store} was dropped from this job by grete apply, and its state is given up: "
                    "start the code without it; a new store needs another name",
                    stage=stage.name,
                )

    def placed(self, stages: Sequence[StageGraph]) -> tuple[StageGraph, ...]:
        """Return the stages with their numbers, those of dropped ones left out, and a stage without tasks for each."""
        live, placed = [stage for stage in stages if stage.partitions], list[StageGraph]()
        while live or len(placed) in self.stages:
            number = len(placed)
            if number in self.stages:
                placed.append(_without_tasks(number, *self.stages[number]))
            else:
                stage = live.pop(0)
                placed.append(replace(stage, ordinal=number, dropped_ids=dict(self.stores.get(stage.name, {}))))
        return tuple(placed)


def _without_tasks(number: int, name: str, mode: Mode) -> StageGraph:
    """Return the placeholder of a dropped stage."""
    return StageGraph(name, number, _Gone, {}, {}, {}, {}, {}, batch=False, mode=mode, partitions=0)


def dropped_of(definition: Mapping[str, Any]) -> DroppedParts:
    """Return the dropped stages and stores of a job definition."""
    found = definition.get("dropped", {})
    stages = {each["number"]: (each["name"], each["mode"]) for each in found.get("stages", ())}
    return DroppedParts(stages, found.get("stores", {}))


def define_dropped(dropped: DroppedParts) -> dict[str, Any]:
    """Return the part of a job definition that says what was dropped; empty: nothing."""
    gone = [{"number": number, "name": name, "mode": mode} for number, (name, mode) in sorted(dropped.stages.items())]
    stores = {stage: dict(ids) for stage, ids in dropped.stores.items() if ids}
    return {"dropped": {"stages": gone, "stores": stores}} if gone or stores else {}
