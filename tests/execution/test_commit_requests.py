"""A task asks for a checkpoint and is told that it is committed: early, gathered, and nothing that was rolled back."""

from collections import Counter
from typing import ClassVar

import pytest

from grete import Input, Job, Output, Record, Store, Task, Timers, Topic, int64, utf8
from grete.api.tasks.mode import Mode
from grete.errors import GraphError, TaskError
from grete.execution.limits import COMMIT_REQUEST_MS
from grete.execution.task_code.commit_requests import CommitRequests
from grete.settings import Settings
from grete.testing import Kit

INTERVAL_MS = 60_000
orders, middle, done = (Topic(name, key=utf8, value=utf8) for name in ("orders", "middle", "done"))


class Asks(Task):
    """Asks for a checkpoint where the value says so; keeps what it is told, and how far its state was then."""

    told: ClassVar[list[tuple[str, ...]]] = []
    seen: ClassVar[list[int]] = []
    orders = Input(orders)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(done)

    def process(self, record: Record[str, str]) -> None:
        self.counts.put("n", self.counts.get("n", 0) + 1)
        self.out.send(record.key, record.value)
        if record.value.startswith("ask"):
            self.ctx.commit(record.value)

    def on_commit(self, tokens: tuple[str, ...]) -> None:
        self.told.append(tokens)
        self.seen.append(self.counts.get("n", 0))


@pytest.fixture(autouse=True)
def empty() -> None:
    """Begin with nothing told."""
    Asks.told.clear()
    Asks.seen.clear()


def kit_of(*tasks: type[Task], mode: Mode = "aligned") -> Kit:
    """Return a job whose checkpoints come once a minute, behind its first one."""
    kit = Kit(Job("asks", [*tasks], mode=mode), settings=Settings(checkpoint_interval_ms=INTERVAL_MS))
    kit.advance(INTERVAL_MS)
    return kit


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_a_checkpoint_comes_when_it_is_asked_for(mode: Mode) -> None:
    """Its records are committed, with their outputs; others wait for the interval."""
    kit = kit_of(Asks, mode=mode)
    kit.feed(orders, "a", "plain")
    kit.advance(1_000)
    assert (kit.state(Asks.counts), Asks.told) == ({}, [])
    kit.feed(orders, "a", "ask 1")
    kit.advance(1_000)
    assert (kit.state(Asks.counts), Asks.told) == ({"n": 2}, [("ask 1",)])
    assert len(kit.outputs(done)) == 2
    kit.feed(orders, "a", "plain")
    kit.advance(1_000)
    assert kit.state(Asks.counts) == {"n": 2}
    kit.advance(INTERVAL_MS)
    assert (kit.state(Asks.counts), Asks.told, Asks.seen) == ({"n": 3}, [("ask 1",)], [2])


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_requests_are_gathered(mode: Mode) -> None:
    """A task that asks with each record has a checkpoint in COMMIT_REQUEST_MS at most; each token is told once."""
    kit, fed = kit_of(Asks, mode=mode), 0
    before = kit.counters["commits"]
    for _ in range(100):
        for _ in range(10):
            kit.feed(orders, "a", f"ask {fed // 2}")
            fed += 1
        kit.advance(10)
    kit.advance(100)
    assert kit.state(Asks.counts) == {"n": fed}
    assert 1_000 // COMMIT_REQUEST_MS // 3 <= kit.counters["commits"] - before <= 1_100 // COMMIT_REQUEST_MS + 1
    tokens = [token for each in Asks.told for token in each]
    assert list(dict.fromkeys(tokens)) == [f"ask {number}" for number in range(fed // 2)]
    assert max(Counter(tokens).values()) <= 2  # asked again behind a freeze
    assert sorted(Asks.seen) == Asks.seen


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_what_is_rolled_back_is_asked_again(mode: Mode) -> None:
    """A crash takes the requests of the open checkpoint with it, as it does the records."""
    kit = kit_of(Asks, mode=mode)
    kit.feed(orders, "a", "plain")
    kit.feed(orders, "a", "ask 1")
    kit.crash(Asks)
    kit.advance(1_000)
    assert (kit.state(Asks.counts), Asks.told) == ({"n": 2}, [("ask 1",)])


class First(Task):
    """Sends on what it reads."""

    orders = Input(orders)
    out = Output(middle)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, record.value)


class Behind(Asks):
    """The same, behind another stage."""

    orders = Input(middle)


def test_behind_an_aligned_stage_it_comes_with_the_markers() -> None:
    """No earlier; in deterministic mode each task commits for itself."""
    kit = kit_of(First, Behind)
    kit.feed(orders, "a", "ask 1")
    kit.advance(1_000)
    assert Asks.told == []
    kit.advance(INTERVAL_MS)
    assert Asks.told == [("ask 1",)]
    kit = kit_of(First, Behind, mode="deterministic")
    kit.feed(orders, "a", "ask 2")
    kit.advance(1_000)
    assert Asks.told == [("ask 1",), ("ask 2",)]


class Puts(Asks):
    def on_commit(self, tokens: tuple[str, ...]) -> None:
        self.counts.put("n", 0)


class Sends(Asks):
    def on_commit(self, tokens: tuple[str, ...]) -> None:
        self.out.send("a", "b")


class Schedules(Asks):
    timers = Timers()

    def on_timer(self, timer: object) -> None: ...

    def on_commit(self, tokens: tuple[str, ...]) -> None:
        self.timers.schedule(0)


@pytest.mark.parametrize("task", [Puts, Sends, Schedules])
def test_on_commit_changes_nothing(task: type[Asks]) -> None:
    """Writes of on_commit belong to no record, so they are refused, and undone."""
    kit = kit_of(task)
    kit.feed(orders, "a", "ask 1")
    with pytest.raises(TaskError, match=r"on_commit raised TaskError: on_commit has changed a store or timer, or has"):
        kit.advance(1_000)
    assert kit.state(task.counts) == {"n": 1}


class Returns(Asks):
    async def on_commit(self, tokens: tuple[str, ...]) -> None: ...  # type: ignore[override]  # that is what is tested


def test_what_is_no_request_is_refused() -> None:
    """A token that is no str, a task that does not run, an async on_commit."""
    with pytest.raises(TaskError, match=r"ctx.commit: token 5: need a str"):
        CommitRequests().ask(5)  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(TaskError, match=r"ctx.commit: the task is not running"):
        Asks().ctx.commit()
    with pytest.raises(GraphError, match=r"on_commit is an async def"):
        Job("returns", [Returns])
