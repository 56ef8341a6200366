"""The contract of every sink of an outbox (grete.api.sinks.sink, rule S2)."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pytest

from grete.api.sinks.sink import EarlySink, Entry, Owner, Released, Sink
from grete.errors import Fenced, Halted, TransientError
from grete.testing.contracts.clauses import Contract

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

    def early(self, generation: int, owner: Owner = OWNER) -> tuple[EarlySink, Released]:
        """Return the sink as a process of a generation has it, and how far it is released."""
        sink = self.sink(owner)
        assert isinstance(sink, EarlySink), f"{type(sink).__name__} has no last_released and release"
        return sink, sink.last_released(generation)

    def close(self) -> None:
        """Close all of them."""
        for sink in self._opened:
            sink.close()


def entries(numbers: Iterable[int], task: str = "a") -> list[Entry]:
    """Return the outputs that an outbox hands to a sink for these numbers."""
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
        """The checkpoints that one task has applied are independent of another's."""
        first, second = world.sink(), world.sink(Owner("job", "stage-1", "nonce"))
        assert apply(first, 5, 1, task="a")
        assert apply(second, 4, 1, task="b")
        assert apply(second, 5, 2, task="b")
        assert world.content() == {"a": [1], "b": [1, 2]}

    @pytest.mark.parametrize("owner", [Owner("second", "stage-0", "b"), Owner("job", "stage-0", "b")])
    def test_a_second_job_is_taken_or_refused(self, world: SinkWorld, owner: Owner) -> None:
        """One whose task has the same name, and the job itself started afresh: nothing counts as applied for both."""
        first = world.sink()
        assert apply(first, 1, 1, 2)
        try:
            assert apply(world.sink(owner), 1, 3, task="b"), "the first job's checkpoint counts for the second one"
        except Halted:
            assert world.content() == {"a": [1, 2]}
        else:
            assert world.content() == {"a": [1, 2], "b": [3]}
        assert apply(first, 2, 4)


NOTHING = Released(0, 0, 0)


def released(seq: int) -> Released:
    """Return the note that the tests write beside the outputs up to a seq: its time and digest are made up."""
    return Released(seq, 1_700_000_000_000_000 + seq, 0xFFFF0000 + seq)


class EarlySinkContract(Contract):
    """The contract of a sink that takes outputs ahead of their checkpoint. Subclass it beside SinkContract.

    Its fixture ``world`` is that of SinkContract.
    """

    port = "early sink"

    @pytest.fixture
    def world(self) -> SinkWorld:
        """Return an empty place. Your class overrides this fixture."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `world` that returns a SinkWorld")

    @pytest.fixture(autouse=True)
    def _closed(self, world: SinkWorld) -> Iterator[None]:
        yield
        world.close()

    def test_a_release_shows_at_once_and_says_how_far_it_goes(self, world: SinkWorld) -> None:
        """A reader sees each release in its order; a successor learns seq, time and digest of the last one."""
        sink, at = world.early(1)
        assert at == NOTHING
        sink.release(0, released(500), entries(range(500)))
        assert world.content() == {"a": list(range(500))}
        assert world.early(2)[1] == released(500)
        sink, at = world.early(3)
        sink.release(at.seq, released(501), entries([500]))
        sink.release(501, released(503), entries([501, 502]))
        assert world.early(3)[1] == released(503)
        assert world.content() == {"a": list(range(503))}

    def test_seqs_that_other_sinks_got_are_left_out(self, world: SinkWorld) -> None:
        """The numbers are those of all outputs of the task: a sink gets some of them."""
        sink, _ = world.early(1)
        sink.release(0, released(10), entries([1]))
        sink.release(10, released(20), entries([2]))
        assert world.early(2)[1] == released(20)
        assert world.content() == {"a": [1, 2]}

    def test_an_instance_that_sleeps_over_a_takeover_changes_nothing(self, world: SinkWorld) -> None:
        """Once a higher generation has taken over, no lower one writes, whatever the successor has written since."""
        for number in range(3):  # the successor has released: nothing, the same, more
            zombie, at = world.early(10 * number + 1)
            after, numbers = at.seq, [at.seq + 1, at.seq + 2]
            successor, found = world.early(10 * number + 2)
            assert found == at
            for each in numbers[:number]:
                successor.release(each - 1, released(each), entries([each]))
            before = world.content()
            with pytest.raises((Fenced, TransientError)):
                zombie.release(after, released(numbers[-1]), entries(numbers))
            assert world.content() == before
            with pytest.raises(Fenced):  # after trouble it opens its sink again
                zombie.open(OWNER)
                zombie.last_released(10 * number + 1)
            assert world.content() == before
            successor.release(after + number, released(after + 3), entries(range(after + number + 1, after + 4)))
        assert world.content() == {"a": list(range(1, 10))}

    def test_a_release_that_does_not_go_on_is_refused(self, world: SinkWorld) -> None:
        """The sink goes on from the seq at which it is: outputs that it has are not written again."""
        sink, _ = world.early(1)
        sink.release(0, released(2), entries([1, 2]))
        sink.release(2, released(3), entries([3]))
        for after in (0, 1, 2):
            with pytest.raises(Halted):
                sink.release(after, released(4), entries([4]))
            assert world.content() == {"a": [1, 2, 3]}
            sink.open(OWNER)
            assert sink.last_released(1) == released(3)

    def test_a_process_that_ends_between_two_releases_leaves_nothing_half_done(self, world: SinkWorld) -> None:
        """Its successor goes on behind what was released, whether the sink was closed or not."""
        for generation in (1, 2, 3):
            sink, at = world.early(generation)
            assert at == (NOTHING if generation == 1 else released(generation - 1))
            sink.release(at.seq, released(generation), entries([generation]))
            if generation == 2:
                sink.close()
        assert world.content() == {"a": [1, 2, 3]}

    def test_outputs_of_another_owner_are_refused(self, world: SinkWorld) -> None:
        """A job that begins again counts from 1; where its earlier life has released, it must not go on from there."""
        sink, _ = world.early(1, Owner("job", "stage-0", "a start without a commit"))
        assert isinstance(sink, EarlySink)
        sink, at = world.early(1)
        assert at == NOTHING, "nothing was released, so the place is free"
        sink.release(0, released(1), entries([1]))
        with pytest.raises(Halted):
            world.early(5, Owner("job", "stage-0", "another life"))
        assert world.content() == {"a": [1]}

    def test_tasks_do_not_fence_one_another(self, world: SinkWorld) -> None:
        """Generations and seqs are those of a task."""
        first, _ = world.early(7)
        second, at = world.early(1, Owner("job", "stage-1", "nonce"))
        assert at == NOTHING
        first.release(0, released(1), entries([1], "a"))
        second.release(0, released(9), entries([1, 2], "b"))
        assert first.last_released(7) == released(1)
        assert second.last_released(1) == released(9)
        assert world.content() == {"a": [1], "b": [1, 2]}

    def test_releases_go_on_where_checkpoints_were_applied(self, world: SinkWorld) -> None:
        """The place of a job that got checkpoints before; an application that comes late finds its checkpoint there."""
        assert apply(world.sink(), 5, 1, 2)
        sink, at = world.early(1)
        assert at == NOTHING
        sink.release(0, released(1), entries([3]))
        assert not apply(sink, 5, 1, 2)
        assert sink.last_released(1) == released(1)
        assert world.content() == {"a": [1, 2, 3]}
