"""The files that take the outputs of checkpoints: each is there once, and holds what its commit says (S2)."""

from collections import Counter
from collections.abc import Mapping

from tests.verification.simulation.oracle import TaskHistory, Violation
from tests.verification.simulation.outside import Outside


class CheckpointFiles:
    """The content of the files. ``marks``: those that have reached the outside."""

    def __init__(self, histories: Mapping[int, TaskHistory], marks: Outside, seen: Counter[str]) -> None:
        self._histories = histories
        self._marks = marks
        self._seen = seen
        self._files: dict[tuple[int, int], list[bytes]] = {}  # (task, checkpoint) -> what its file holds

    def applied(self, task: int, checkpoint_id: int, values: list[bytes]) -> None:
        """Check a file that is made: it has what the checkpoint holds, and is not there before its commit."""
        history = self._histories[task]
        name = f"{history.wiring.name}: file of checkpoint {checkpoint_id}"
        if values != history.files.get(checkpoint_id):
            raise Violation("sink", f"{name}: {values[:3]}, the commit says {history.files.get(checkpoint_id, [])[:3]}")
        self._seen["files written"] += 1
        if self._files.setdefault((task, checkpoint_id), values) is values:
            self._marks.written(values, name)
        else:
            self._seen["files written by two processes at once"] += 1

    def has(self, task: int, checkpoint_id: int) -> bool:
        """Tell whether the file of a checkpoint is there."""
        found = (task, checkpoint_id) in self._files
        self._seen["files found after a crash"] += found
        return found
