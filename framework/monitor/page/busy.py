"""The share of its worker's time that each task takes, of the last seconds."""

from collections import deque
from collections.abc import Mapping, Sequence

from grete.monitor.job_view import WorkerView

WINDOW_S = 10.0  # longer than most pauses of a job, shorter than a person's patience
_SAMPLE_S = 1.0  # between two samples of busy time


class Busy:
    """Busy time: ``shares`` is each task's share of the last seconds of its worker."""

    def __init__(self) -> None:
        self.shares: Mapping[str, float] = {}
        self._samples: deque[tuple[float, dict[tuple[str, int], float]]] = deque()

    def look(self, workers: Sequence[WorkerView], now_s: float) -> None:
        """Take a sample, if it is time for one. A worker that was started again begins from nothing."""
        if self._samples and now_s - self._samples[-1][0] < _SAMPLE_S:
            return
        sample = {(name, worker.starts): task.busy_s for worker in workers for name, task in worker.tasks.items()}
        self._samples.append((now_s, sample))
        while len(self._samples) > 1 and now_s - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()
        began_s, first = self._samples[0]
        past_s = now_s - began_s
        self.shares = (
            {}
            if past_s < WINDOW_S / 2
            else {key[0]: min(1.0, (busy_s - first[key]) / past_s) for key, busy_s in sample.items() if key in first}
        )
