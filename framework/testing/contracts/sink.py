"""What every sink of an outbox must keep (framework.sinks.sink, rule S2)."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pytest

from framework.errors import TransientError
from framework.sinks.sink import Entry, Owner, Sink
from framework.testing.contracts.clauses import Contract

OWNER = Owner("job", "stage-0", "nonce")


class SinkWorld:
    """One empty place. ``connect`` returns another sink to it, not yet open, as another process would have it.

    ``content`` reads the place as a stranger does. The sink gets rows such as ``{"task": "a", "number": 1}`` in JSON,
    of the output ``out``; ``content`` returns the numbers of each task, in their order.
    """

    def __init__(self, connect: Callable[[], Sink], content: Callable[[], Mapping[str, Sequence[int]]]) -> None:
        self.content = content
        self._connect = connect
        self._opened: list[Sink] = []

    def sink(self, owner: Owner = OWNER) -> Sink:
        """Return the sink as another process has it, open. It is closed with the world."""
        self._opened.append(self._connect())
        self._opened[-1].open(owner)
        return self._opened[-1]

    def close(self) -> None:
        """Close all of them."""
        for sink in self._opened:
            sink.close()


def entries(numbers: Iterable[int], task: str = "a") -> list[Entry]:
    """Return what an outbox hands to a sink for these numbers."""
    return [("out", json.dumps({"task": task, "number": number}).encode()) for number in numbers]


def apply(sink: Sink, checkpoint_id: int, *numbers: int, task: str = "a") -> bool:
    """Apply a checkpoint; return whether there was anything to do."""
    if not sink.begin(checkpoint_id):
        return False
    for number in numbers:
        sink.write(entries([number], task))
    sink.commit()
    return True


class SinkContract(Contract):
    """The contract of a sink. Subclass it in a test module, and override the fixture ``world``.

    class TestMySink(SinkContract):
        @pytest.fixture
        def world(self, tmp_path):
            return SinkWorld(lambda: MySink(tmp_path), lambda: numbers_in(tmp_path))
    """

    port = "sink"

    @pytest.fixture
    def world(self) -> SinkWorld:
        """Return an empty place. Your class overrides this fixture."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `world` that returns a SinkWorld")

    @pytest.fixture(autouse=True)
    def _closed(self, world: SinkWorld) -> Iterator[None]:
        yield
        world.close()

    def test_a_checkpoint_shows_as_a_whole_once_it_is_committed(self, world: SinkWorld) -> None:
        """Nothing is seen before the commit, everything after, in the order of the writes."""
        sink = world.sink()
        assert sink.begin(1)
        sink.write(entries(range(500)))
        sink.write(entries(range(500, 1000)))
        assert world.content() == {}
        sink.commit()
        assert world.content() == {"a": list(range(1000))}

    def test_a_checkpoint_applied_again_changes_nothing(self, world: SinkWorld) -> None:
        """By the same process or the next one, at once or when later checkpoints are there."""
        sink = world.sink()
        assert apply(sink, 1, 1, 2)
        assert not apply(sink, 1, 1, 2)
        assert apply(sink, 2, 3)
        for checkpoint_id in (1, 2):
            assert not apply(world.sink(), checkpoint_id, 1, 2)
        assert world.content() == {"a": [1, 2, 3]}

    @pytest.mark.parametrize("written", [False, True])
    def test_what_a_crash_left_half_done_is_not_seen_and_done_again(self, world: SinkWorld, *, written: bool) -> None:
        """A process that ends between begin and commit leaves nothing, and nothing in the way of the next one."""
        sink = world.sink()
        sink.begin(1)
        if written:
            sink.write(entries([1, 2]))
        sink.close()
        assert world.content() == {}
        assert apply(world.sink(), 1, 1, 2)
        assert world.content() == {"a": [1, 2]}

    def test_a_sink_opened_again_forgets_what_was_half_done(self, world: SinkWorld) -> None:
        """After trouble the same process opens its sink again and starts the checkpoint from its first output."""
        sink = world.sink()
        sink.begin(1)
        sink.write(entries([1]))
        sink.open(OWNER)
        assert apply(sink, 1, 1, 2)
        assert world.content() == {"a": [1, 2]}

    def test_an_instance_that_sleeps_over_its_checkpoint_changes_nothing(self, world: SinkWorld) -> None:
        """Two instances apply the same checkpoint, and the first one falls asleep before any step.

        Each output is there once all the same.
        """
        for asleep_at in range(3):
            checkpoint_id, numbers = 10 * asleep_at + 10, [10 * asleep_at + 1, 10 * asleep_at + 2]
            zombie = world.sink()
            if asleep_at > 0:
                assert zombie.begin(checkpoint_id)
            if asleep_at > 1:
                zombie.write(entries(numbers))
            with contextlib.suppress(TransientError):  # a database makes it wait for the one who sleeps …
                apply(world.sink(), checkpoint_id, *numbers)
            with contextlib.suppress(TransientError):
                if asleep_at == 0:
                    apply(zombie, checkpoint_id, *numbers)
                else:
                    if asleep_at == 1:
                        zombie.write(entries(numbers))
                    zombie.commit()  # … who does it, or finds that it was done
            successor = world.sink()
            apply(successor, checkpoint_id, *numbers)
            apply(successor, checkpoint_id + 1, numbers[1] + 1)
            zombie.open(OWNER)
            assert not apply(zombie, checkpoint_id, *numbers)
        assert world.content() == {"a": [1, 2, 3, 11, 12, 13, 21, 22, 23]}

    def test_tasks_do_not_disturb_one_another(self, world: SinkWorld) -> None:
        """What one task has applied says nothing about another's checkpoints."""
        first, second = world.sink(), world.sink(Owner("job", "stage-1", "nonce"))
        assert apply(first, 5, 1, task="a")
        assert apply(second, 4, 1, task="b")
        assert apply(second, 5, 2, task="b")
        assert world.content() == {"a": [1], "b": [1, 2]}
