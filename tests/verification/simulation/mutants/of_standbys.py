"""Mistakes of standbys: what reaches their stores, and when (R7)."""

from collections.abc import Sequence
from typing import Any

from grete.core.actions import Action, ApplySegment, WriteChangelogPosition
from grete.core.standby import StandbyCore
from grete.execution.changelog.standby import StandbyTask
from grete.protocol.changelog import ChangelogType, decode_changelog_header
from tests.verification.simulation.forms import with_standbys
from tests.verification.simulation.mutants.registry import mutant
from tests.verification.simulation.plan import Plan

_STORES = ("standby", "store", "uncommitted")


def _undamaged(plan: Plan) -> bool:
    return not plan.damaged


@mutant(StandbyCore, "row", *_STORES, shows=_undamaged, focus=with_standbys)
def standby_applies_uncommitted_data(row: Any) -> Any:
    """A standby applies data as it comes, and what is rolled back stays (R7)."""

    def mistaken(self: StandbyCore, event: Any) -> Sequence[Action]:
        actions: list[Action] = row(self, event)
        is_data = self.whole and decode_changelog_header(event.value).type is ChangelogType.DATA
        return [*actions, ApplySegment((event.value,), event.offset)] if is_data else actions

    return mistaken


@mutant(StandbyTask, "_perform", *_STORES, shows=_undamaged, focus=with_standbys)
def standby_position_before_data(perform: Any) -> Any:
    """The changelog position of a checkpoint is written ahead of its data: a crash leaves a store without it (R7)."""

    def mistaken(self: Any, action: Action) -> None:
        behind = self._todo[0] if self._todo else None
        if isinstance(action, ApplySegment) and isinstance(behind, WriteChangelogPosition):
            self._store.take_position(behind.changelog_position)
            self._store.write()
        perform(self, action)

    return mistaken


@mutant(StandbyTask, "_trimmed", *_STORES, shows=_undamaged, focus=with_standbys)
def standby_goes_on_behind_a_trim(trimmed: Any) -> Any:
    """A standby that a trim has overtaken keeps its store, and reads what is left (R7, K2)."""

    def mistaken(self: Any) -> bool:
        changelog = self._changelog
        start, _ = changelog.look()
        if start <= changelog.read or changelog.beginning.pending:
            return bool(trimmed(self))
        changelog.read = start
        return True

    return mistaken
