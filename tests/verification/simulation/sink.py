"""A simulated directory of files: a checkpoint has one, by name, and it is there as a whole or not at all (S2)."""

from collections.abc import Callable, Sequence

from framework.sinks.sink import Entry, Owner
from tests.verification.simulation.boundary import Boundary

DIRECTORY = "files"


class SimSink:
    """framework.sinks.sink.Sink of one process. What is named survives everything, drafts survive nothing."""

    def __init__(
        self, boundary: Boundary, exists: Callable[[int], bool], applied: Callable[[int, list[bytes]], None]
    ) -> None:
        self.name = DIRECTORY
        self._boundary = boundary
        self._exists = exists
        self._applied = applied
        self._version = -1
        self._draft: list[bytes] = []

    def open(self, _owner: Owner) -> None:
        """Drop the draft."""
        self._boundary.before("open sink")
        self._draft = []
        self._boundary.after("open sink")

    def begin(self, checkpoint_id: int) -> bool:
        """Begin a draft, unless the checkpoint has its file."""
        self._boundary.before("begin file")
        self._version, self._draft = checkpoint_id, []
        begun = not self._exists(checkpoint_id)
        self._boundary.after("begin file")
        return begun

    def write(self, entries: Sequence[Entry]) -> None:
        """Add to the draft."""
        self._boundary.before("write file")
        self._draft += [value for _, value in entries]
        self._boundary.after("write file")

    def commit(self) -> None:
        """Give the draft its name: if another process has been faster, it replaces the same by the same."""
        self._boundary.before("name file")
        self._applied(self._version, self._draft)
        self._boundary.after("name file")

    def close(self) -> None:
        """Forget the draft."""
        self._draft = []
