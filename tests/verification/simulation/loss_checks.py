"""Invariants with held input: positions are committed first, and only records that successors skip are missing."""

from collections.abc import Sequence

from grete.ports import ExternalRecord
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.invariants import Checker
from tests.verification.simulation.oracle import TaskHistory, Violation
from tests.verification.simulation.plan import Plan
from tests.verification.simulation.steps import OUTSIDE, Step


class LossChecker(Checker):
    """A checker whose reference run has a part of the input: what each committed checkpoint has processed.

    ``history.external`` is how far that is, and skipped. The committed positions are ahead of it.
    """

    whole = True  # what a source skips leaves nothing behind

    def _commit(self, history: TaskHistory, commit: Commit, offset: int, outputs: Sequence[ExternalRecord]) -> None:
        last = history.commit
        if last is not None and last.nonce != commit.nonce:  # another process: it began at the committed positions
            for partition, position in _positions(last).items():
                self._skip(history, partition, position)
        super()._commit(history, commit, offset, outputs)

    def _skip(self, history: TaskHistory, partition: TopicPartition, position: int) -> None:
        log = self._log.partition(partition)
        for row in log.rows if self.whole else ():
            if history.external[partition] <= row.offset < position:
                self.marks.skipped(row.value or b"")
                self.seen["records skipped"] += 1
        history.external[partition] = max(history.external[partition], position)

    def _external(self, name: str, history: TaskHistory, commit: Commit, steps: Sequence[Step]) -> None:
        covered = {} if history.commit is None else _positions(history.commit)
        for step in steps:
            if step.producer != OUTSIDE or step.draw < 0:
                continue
            at = history.external[step.partition]
            if step.offset != self._log.next_row(step.partition, at):
                raise Violation("position", f"{name}: {step.partition} offset {step.offset} after {at - 1}")
            if step.offset >= covered.get(step.partition, 0):
                raise Violation(
                    "at most once", f"{name}: took {step.partition} offset {step.offset}, {covered} is committed"
                )
            history.external[step.partition] = step.offset + 1
        said = _positions(commit)
        for partition, position in said.items():
            if position < max(history.external[partition], covered.get(partition, 0)):
                raise Violation("position", f"{name}: says {said}, holds {history.external}, before it was {covered}")
            if (
                commit.at_end
                and self.ended_before[commit.nonce]
                and self._log.partition(partition).has_rows(history.external[partition])
            ):
                raise Violation("at end", f"{name}: says that its inputs have ended, and has done {history.external}")


class NoGuaranteeChecker(LossChecker):
    """Likewise of each task by itself: a state is that of its own steps, and nothing is taken or outside twice.

    Outputs of what a state lacks may be outside. Where nothing goes wrong nothing is missing.
    """

    whole = False

    @property
    def missing(self) -> set[bytes]:
        """The marks that are not outside yet and have to come."""
        return set() if self.plan.faults else self.marks.missing

    def nothing_missing(self) -> bool:
        """Tell whether the commits have the positions of all that the tasks read."""
        return all(self._used_up(history.commit) for history in self.histories.values())

    def _used_up(self, commit: Commit | None) -> bool:
        if commit is None:
            return False
        rest = any(self._log.partition(partition).has_rows(at) for partition, at in _positions(commit).items())
        streams = ((self._log.partition(TopicPartition(each.topic, each.partition)), each) for each in commit.inputs)
        return not rest and all(each.resume >= stream.end for stream, each in streams)


def checker_of(plan: Plan) -> type[LossChecker]:
    """Return the checker of a world whose tasks hold what they read."""
    return NoGuaranteeChecker if plan.settings.processing_guarantee == "none" else LossChecker


def _positions(commit: Commit) -> dict[TopicPartition, int]:
    return {TopicPartition(each.topic, each.partition): each.offset for each in commit.external}
