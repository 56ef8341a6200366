"""The port of a sink, as the outbox uses it. framework/testing/contracts/sink.py has what each must keep, as tests."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Owner(NamedTuple):
    """The owner of a sink's outputs. ``nonce``: of the state they come from; it tells two jobs of one name apart."""

    job: str
    task: str
    nonce: str


# the end of an error that stops a task, which may go on instead
WAYS = (
    "; to send what it refuses to a dead-letter topic: Output(…, errors=DeadLetter(Topic(…))); to drop and count it: "
    'errors="drop"'
)
Entry = tuple[str, bytes]  # attribute of the task's Output, or the name of External; encoded value


class Sink(Protocol):
    """One destination of one task. Calls come one at a time; after one has raised, ``open`` is the next.

    ``begin``, ``write`` and ``commit`` apply a checkpoint as a whole or not at all, however often they are repeated,
    and even if another instance does the same: an instance of the task, alive or only asleep (S2). They raise
    TransientError for trouble that may pass, and Halted for what a person must heal. Where ``write`` raises
    OutputRefused, and the output's ``errors=`` lets the task go on, it is called with the outputs behind that one.
    """

    name: str  # for people: no secrets

    def open(self, owner: Owner) -> int | None:
        """Drop what is half done, connect, check; return the last checkpoint applied, None if that is not kept.

        Raises ConfigError, with what to do, if the sink cannot take what it is declared for.
        """

    def begin(self, checkpoint_id: int) -> bool:
        """Begin to apply a checkpoint; False, and nothing begun, if it or a later one has been applied."""

    def write(self, entries: Sequence[Entry]) -> None:
        """Write some of the checkpoint's outputs, in their order. Nothing is visible yet."""

    def commit(self) -> None:
        """Make the checkpoint visible, at once and durably."""

    def close(self) -> None:
        """Give up what is half done, as a crash would. Raises nothing."""


class Released(NamedTuple):
    """Progress of a sink for one task: it has all outputs up to number ``seq``, from 1; 0: none.

    ``t``: the logical time of that output in µs, all of which the sink has; ``digest``: a checksum over all up to it.
    """

    seq: int
    t: int
    digest: int


@runtime_checkable
class EarlySink(Sink, Protocol):
    """A sink that takes outputs of a deterministic task before their checkpoint is committed (D5). Also a Sink.

    The outputs of a task have numbers. A sink keeps how far it has them, in the same transaction as the outputs. So a
    restarted task learns it, and an instance that sleeps over its successor's start changes nothing any more.
    """

    def last_released(self, generation: int) -> Released:
        """Return the sink's position, and take it over for ``generation``: from now on no lower one changes it.

        Comes after ``open``, and before any ``release``. Raises Fenced if a higher generation has taken it over,
        Halted if it has outputs of another owner.
        """

    def release(self, after: int, upto: Released, entries: Sequence[Entry]) -> None:
        """Make some outputs visible, and with them that the sink is at ``upto``: at once and durably, or not at all.

        ``after``: the seq at which the sink is. ``entries``: what it gets of the outputs behind that, in their order.
        Raises Fenced if a higher generation has taken it over, Halted if it is not at ``after``.
        """
