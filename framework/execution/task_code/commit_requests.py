"""The checkpoints that a task's code asks for by ``ctx.commit``, and how it learns that they are committed."""

from functools import partial

from grete.api.tasks.methods import run_now
from grete.api.tasks.task import Task
from grete.errors import TaskError
from grete.execution.limits import COMMIT_REQUEST_MS
from grete.execution.records.outputs import Outputs
from grete.stores.overlay.overlay import Overlay


class CommitRequests:
    """The tokens of one task. They are no state: after a rollback the records that are read again ask again."""

    def __init__(self) -> None:
        self.waiting = False  # the core has not been told of those in the open checkpoint
        self._open: dict[str, None] = {}  # in the order of the requests
        self._frozen: dict[str, None] = {}
        self._due_ms = 0.0  # when the core may be told again

    def ask(self, token: str = "") -> None:
        """Ask for a checkpoint. Raises TaskError for a token that is no str."""
        if not isinstance(token, str):
            raise TaskError(f"ctx.commit: token {token!r}: need a str")
        self.waiting |= not self._open
        self._open[token] = None

    def take(self, now_ms: float) -> bool:
        """Tell whether the core is to be told now; not more often than each COMMIT_REQUEST_MS."""
        if not self.waiting or now_ms < self._due_ms:
            return False
        self.waiting, self._due_ms = False, now_ms + COMMIT_REQUEST_MS
        return True

    def due_in_ms(self, now_ms: float) -> float:
        """Return in how many ms ``take`` may be true."""
        return max(0.0, self._due_ms - now_ms) if self.waiting else float("inf")

    def froze(self) -> None:
        """Count all requests so far as part of the frozen checkpoint."""
        self._frozen |= self._open
        self.forget()

    def forget(self) -> None:
        """The open checkpoint is taken back."""
        self._open, self.waiting = {}, False

    def committed(self, task: Task, overlay: Overlay, outputs: Outputs) -> None:
        """Tell the code what is committed. Raises TaskError if it changes state or sends, beside what it raises."""
        tokens, self._frozen = tuple(self._frozen), {}
        if not tokens:
            return
        collected = outputs.collected
        overlay.begin_undo()
        run_now("on_commit", partial(task.on_commit, tokens))
        changes = overlay.journal
        overlay.undo()
        if changes or outputs.collected != collected:
            raise TaskError(
                "on_commit has changed a store or timer, or has sent: it belongs to no record, so a replay would not "
                "do it again. Do that in process, and only read here"
            )
