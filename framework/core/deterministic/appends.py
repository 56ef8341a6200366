"""Changelog appends of a deterministic task: log first, send later (D2, D5)."""

from grete.core.actions import Action
from grete.core.deterministic.call_results import CallResults
from grete.core.deterministic.logical_clock import LogicalClock
from grete.core.deterministic.outputs import LogicalSender
from grete.core.deterministic.source import Source
from grete.core.lifecycle import CommitStep
from grete.core.task_changelog import TaskChangelog
from grete.protocol.changelog import (
    ChangelogType,
    TimeLease,
    encode_input_decision,
    encode_output_release,
    encode_time_lease,
)
from grete.protocol.notes import IdleNote, encode_calls, encode_note


class Appends:
    """Time leases, input decisions, results of calls and output releases, and when a commit goes before them."""

    def __init__(
        self,
        changelog: TaskChangelog,
        time: LogicalClock,
        source: Source,
        outputs: LogicalSender,
        results: CallResults,
        *,
        releases: bool,
        durable: bool,
    ) -> None:
        """``durable``: what is appended survives a power loss, as outputs that leave outside of the log do."""
        self._changelog, self._ownership, self._commits = changelog, changelog.ownership, changelog.commits
        self._time, self._source, self._outputs, self._results = time, source, outputs, results
        self._releases, self._durable = releases, durable

    @property
    def committing(self) -> bool:
        """Whether a checkpoint is frozen, and its commit not valid yet: a restart may still read from before it."""
        pending = self._commits.pending
        return pending is not None and pending.step is not CommitStep.APPLY

    def next(self, mono_us: int, *, running: bool, leases: bool, gathers: bool) -> list[Action]:
        """Append what is due, if nothing is on its way; between a freeze and its commit only the commit.

        ``running``: the task is; ``leases``: time must be leased here; ``gathers``: all but a lease waits for more.
        """
        if self._changelog.appending is not None or self._commits.writing:
            return []
        if self.committing:
            return self._changelog.commit()
        if not running:
            return []
        messages, header = [], self._ownership.header
        lease = self._time.next_lease(mono_us) if leases else None
        if lease is not None:
            messages.append(encode_time_lease(header(ChangelogType.TIME_LEASE), TimeLease(lease)))
        elif gathers and not self._results.waits:
            return []
        for decision in self._source.log(processed=self._releases and not self._results.waits):
            if isinstance(decision, IdleNote):
                messages.append(encode_note(header(ChangelogType.NOTE), decision))
            else:
                messages.append(encode_input_decision(header(ChangelogType.INPUT_DECISION), decision))
        messages += [encode_calls(header(ChangelogType.NOTE), note) for note in self._results.log()]
        count = 0
        if self._outputs.held:  # all of it is decided by now
            count, release = self._outputs.release()
            messages.append(encode_output_release(header(ChangelogType.OUTPUT_RELEASE), release))
        # without output releases a power loss takes what came of a message, too, if that is in the log
        sync = self._releases or self._durable
        return [self._changelog.append(messages, outputs=count, sync=sync)] if messages else []
