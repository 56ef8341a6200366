"""Second instances of a task that wait with their claim for the first one to claim for a rollback (C1, C6)."""

from collections import Counter
from collections.abc import Collection

from tests.verification.simulation.process import Process

LURKED = 150  # steps that a twin waits with its claim, at most


class Twins:
    """Those that wait."""

    def __init__(self) -> None:
        self._lurking: list[Process] = []

    def lurk(self, process: Process, step: int) -> None:
        """Let a process wait that is about to claim; not for ever."""
        process.lurks = False
        process.worker.pause(step + LURKED)
        self._lurking.append(process)

    def wake(self, processes: Collection[Process], step: int, seen: Counter[str]) -> None:
        """Let those go on whose task is being claimed for a rollback."""
        if not self._lurking:
            return
        self._lurking = [each for each in self._lurking if each.paused and each in processes]
        rolling_back = {each.task for each in processes if each.reclaiming}
        for process in [each for each in self._lurking if each.task in rolling_back]:
            process.worker.wake_at = step
            seen["twins that claim during a rollback"] += 1
