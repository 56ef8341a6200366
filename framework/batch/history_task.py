"""One task of a job over recorded input: its declaration, for a backfill as for an audit."""

from collections.abc import Mapping
from typing import NamedTuple

from grete.batch.channels import channels_of
from grete.batch.logical_order import LogicalOrder
from grete.batch.no_calls import NoCalls, not_recorded
from grete.execution.build import store_names
from grete.execution.calls.ports import Caller
from grete.execution.calls.shared import shared_calls
from grete.execution.job_task import JobTask
from grete.ports import StateStore
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.stores.overlay.overlay import Overlay


class HistoryTask(NamedTuple):
    """One task, its settings, and which of its effects count.

    ``outside``: partition counts of the topics that the job writes; without ``outputs``, only letters go there.
    Deterministic mode: ``order`` has given the pieces their times; unless ``is_recorded``, live ones had others. Unless
    ``makes_calls``, the results of all calls must be recorded.
    """

    job_task: JobTask
    settings: Settings
    outside: Mapping[str, int]
    outputs: bool = True
    order: LogicalOrder = LogicalOrder()
    is_recorded: bool = True
    makes_calls: bool = True

    @property
    def channels(self) -> dict[tuple[int, TopicPartition], int]:
        """See ``channels_of``."""
        return channels_of(self.job_task.topology, self.job_task.stage.ordinal, self.job_task.partition)

    @property
    def caller(self) -> Caller | None:
        """Return the one who makes the calls of its code; None: it makes none."""
        stage, what = (
            self.job_task.stage.name,
            "for a record of the history that a backfill began with, which records none",
        )
        if not self.job_task.stage.awaits:
            return None
        return shared_calls() if self.makes_calls else NoCalls(lambda call: not_recorded(stage, f"calls {call} {what}"))

    def overlay(self, store: StateStore) -> Overlay:
        """Return the overlay of its state above a store."""
        return Overlay(
            store,
            list(store_names(self.job_task.stage)),
            uncommitted_state_bytes_max=2 * self.settings.uncommitted_state_bytes_max,  # it spans many checkpoints
            read_cache_bytes_max=self.settings.read_cache_bytes_max,
        )
