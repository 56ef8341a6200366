"""The port of a sink, as the outbox uses it. framework/testing/contracts/sink.py has what each must keep, as tests."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Owner(NamedTuple):
    """Whose outputs a sink takes. ``nonce``: of the state they come from; it tells two jobs of one name apart."""

    job: str
    task: str
    nonce: str


Entry = tuple[str, bytes]  # attribute of the task's Output, encoded value


class Sink(Protocol):
    """One destination of one task. Calls come one at a time; after one has raised, ``open`` is the next.

    ``begin``, ``write`` and ``commit`` apply a checkpoint as a whole or not at all, however often they are repeated,
    and even if another instance does the same: an instance of the task, alive or only asleep (S2). They raise
    TransientError for trouble that may pass, and Halted for what a person must heal.
    """

    name: str  # for people: no secrets

    def open(self, owner: Owner) -> int | None:
        """Drop what is half done, connect, check; return the last checkpoint applied, None if that is not kept.

        Raises ConfigError, with what to do, if the sink cannot take what it is declared for.
        """
        ...

    def begin(self, checkpoint_id: int) -> bool:
        """Begin to apply a checkpoint; False, and nothing begun, if it or a later one has been applied."""
        ...

    def write(self, entries: Sequence[Entry]) -> None:
        """Write some of the checkpoint's outputs, in their order. Nothing is visible yet."""
        ...

    def commit(self) -> None:
        """Make the checkpoint visible, at once and durably."""
        ...

    def close(self) -> None:
        """Give up what is half done, as a crash would. Raises nothing."""
        ...
