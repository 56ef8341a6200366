"""A simulated directory of files: a checkpoint has one, by name, and it is there as a whole or not at all (S2)."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from grete.api.sinks.sink import Entry, Owner, Released
from grete.errors import Fenced, Halted
from grete.execution.sinks.outbox_executor import InlineExecutor
from tests.verification.simulation.boundary import Boundary

DIRECTORY = "files"
T = TypeVar("T")


class SlowSteps(Executor):
    """Takes its time for each step, as a thread does beside its process; ``sink_ms`` at most."""

    def __init__(self, now: Callable[[], int], draw: Callable[[], int], sink_ms: int) -> None:
        self.sink_ms = sink_ms
        self._now = now
        self._draw = draw
        self._steps: deque[tuple[int, Future[Any], Callable[[], Any]]] = deque()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Return the future of a step that ends later."""
        future: Future[T] = Future()
        due = self._now() + (self._draw() % self.sink_ms if self.sink_ms else 0)
        self._steps.append((due, future, lambda: fn(*args, **kwargs)))
        return future

    def work(self) -> bool:
        """Take the step that is due; False if none is."""
        if not self._steps or self._steps[0][0] > self._now():
            return False
        _, future, step = self._steps.popleft()
        done = InlineExecutor().submit(step)
        if error := done.exception():
            future.set_exception(error)
        else:
            future.set_result(done.result())
        return True


class EarlyAccount:
    """Progress of the simulated directory for one task, and the generation that has taken it over."""

    def __init__(self, name: str, released: Callable[[Released, Released, Sequence[bytes]], None]) -> None:
        """``released`` checks what becomes visible between two accounts."""
        self.generation = 0
        self.at = Released(0, 0, 0)
        self._name = name
        self._released = released

    def take_over(self, generation: int) -> Released:
        """Fence lower generations."""
        if generation < self.generation:
            raise Fenced(f"{self._name}: generation {self.generation} writes there now, this is {generation}")
        self.generation = generation
        return self.at

    def release(self, generation: int, after: int, upto: Released, values: Sequence[bytes]) -> None:
        """Make outputs visible, and note how far they go: one step."""
        self.take_over(generation)
        if after != self.at.seq:
            raise Halted(f"{self._name}: to be released behind {after}, and released up to {self.at.seq}")
        self._released(self.at, upto, values)
        self.at = upto


class SimSink:
    """grete.api.sinks.sink.Sink of one process. What is named survives everything, drafts survive nothing."""

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


class SimEarlySink(SimSink):
    """grete.api.sinks.sink.EarlySink of one process. What has become visible survives everything."""

    def __init__(self, boundary: Boundary, account: Callable[[], EarlyAccount]) -> None:
        super().__init__(boundary, lambda _: False, lambda _, values: None)
        self._account = account
        self._generation = 0

    def last_released(self, generation: int) -> Released:
        """Take over."""
        self._boundary.before("take over sink")
        self._generation = generation
        at = self._account().take_over(generation)
        self._boundary.after("take over sink")
        return at

    def release(self, after: int, upto: Released, entries: Sequence[Entry]) -> None:
        """Make entries visible."""
        self._boundary.before("release to sink")
        self._account().release(self._generation, after, upto, [value for _, value in entries])
        self._boundary.after("release to sink")
