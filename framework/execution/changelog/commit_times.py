"""Durations of a task's commits and of their steps. They are metrics; no decision depends on them."""

from bisect import bisect_left
from collections.abc import Callable

from grete.core.commit_pipeline import CommitPipeline
from grete.core.lifecycle import CommitStep
from grete.execution.task_code.ports import CommitTracing

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)  # upper bounds


class CommitTimes:
    """Times from the freeze of a checkpoint until it is in the store. ``counts``: by bucket, the last has no bound."""

    def __init__(self, mono_ms: Callable[[], float], spans: CommitTracing | None = None) -> None:
        """``mono_ms`` is a clock that only goes forward. ``spans`` are told of each step, too."""
        self.step: CommitStep | None = None  # that the commit on its way waits for
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0
        self.by_step_s = dict.fromkeys(CommitStep, 0.0)
        self._mono_ms, self._spans = mono_ms, spans
        self._begun_ms = self._since_ms = 0.0

    def follow(self, commits: CommitPipeline) -> None:
        """Note how far the commit on its way is, if it has come further."""
        pending = commits.pending
        if (None if pending is None else pending.step) is self.step:
            return
        self.moved(None if pending is None else pending.step)
        if self._spans is not None:
            last, frozen = commits.committed, None if pending is None else pending.checkpoint_id
            self._spans.moved(frozen, -1 if last is None else last.checkpoint_id)

    def moved(self, step: CommitStep | None) -> None:
        """Note that the commit on its way has come to another step, or to its end, and perhaps the next has begun."""
        now = self._mono_ms()
        assert now >= self._since_ms, f"the clock went back from {self._since_ms} to {now}"
        before, self.step = self.step, step
        if before is not None:
            self.by_step_s[before] += (now - self._since_ms) / 1_000
            if before is CommitStep.APPLY:
                seconds = (now - self._begun_ms) / 1_000
                self.counts[bisect_left(BUCKETS_S, seconds)] += 1
                self.sum_s += seconds
        if before in (None, CommitStep.APPLY):  # the first steps may pass within one call
            self._begun_ms = now
        self._since_ms = now
