"""Breaks the order of a driver's actions once, on purpose, and tells whether the job notices.

The test kit runs a job with the real drivers, cores, overlay and log. In one task one action is held back; if the core
would wait for its answer, it is given the answer all the same. Once the action that should come after it was performed,
the one that was held back is performed, or the process dies before or after it could be.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.core import actions as do
from grete.core import events as on
from grete.core.deterministic import write_ahead
from grete.execution.build import assemble
from grete.execution.engine.driver import TaskDriver
from grete.protocol.changelog_position import ChangelogPosition, decode_changelog_position, encode_changelog_position
from grete.replay import history
from grete.settings import Settings
from grete.stores.memory import MemoryDisk
from grete.stores.sorted_view import SortedView
from grete.testing import Kit, job_host
from tests.core.streams import A0, A1, Producer
from tests.execution.driving import STORE, Driven

Then = Literal["performed late", "never performed", "performed late, and the process dies at its next commit"]
THEN: tuple[Then, ...] = (
    "performed late",
    "never performed",
    "performed late, and the process dies at its next commit",
)

lines = Topic("lines", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=utf8)
totals = Topic("totals", key=utf8, value=int64)


class Split(Task):
    """Lines to words."""

    input = Input(lines)
    seen = Store("seen", key=utf8, value=int64)
    output = Output(words)

    def process(self, record: Record[str, str]) -> None:
        """Count the line, send its words."""
        self.seen.put(record.value, self.seen.get(record.value, 0) + 1)
        for word in record.value.split():
            self.output.send(word, word)


class Count(Task):
    """Words to totals."""

    input = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    output = Output(totals)

    def process(self, record: Record[str, str]) -> None:
        """Count the word, send the total."""
        total = self.counts.get(record.value, 0) + 1
        self.counts.put(record.value, total)
        self.output.send(record.value, total)


class World(NamedTuple):
    """A way to run the job."""

    mode: Literal["aligned", "deterministic"]
    settings: dict[str, Any]


WORLDS = {
    "aligned, early frames on disk": World("aligned", {"early_memory_bytes_max": 0}),
    "aligned, early frames skipped": World("aligned", {"early_memory_bytes_max": 0, "early_bytes_max": 0}),
    "deterministic": World("deterministic", {}),
    "deterministic, sequenced": World("deterministic", {"output_delivery": "sequenced"}),
}


ALONE = "a task alone"
ANOTHER_LIFE = encode_changelog_position(ChangelogPosition(1, 1, 1, b"another life's 1"))


class Killed(Exception):
    """The process died."""


def answer_to(driver: TaskDriver, action: do.Action) -> on.Event | None:
    """Return the answer to an action that was not performed; None: the core waits for none."""
    open_bytes, end = driver.parts.io.overlay.open_bytes, driver.parts.io.log.bounds(driver.wiring.changelog)[1]
    now = int(driver.parts.io.mono_ms())
    match action:
        case do.AppendChangelog():
            return on.ChangelogAppended(end + len(action.before), now, now, fenced=False, mono_us=now * 1_000)
        case do.Send() | do.Produce():
            return on.Acked(action.token)
        case do.Process():
            return on.Processed(open_bytes)
        case do.ProcessRecords() | do.ProcessExternal():
            return on.Ran(open_bytes)
        case do.FlushOutputs():
            return on.OutputFrames(())
        case do.WriteData():
            return _written_ahead(driver, action)
        case do.ApplyFrozen():
            return on.Applied()
        case _:
            return None


def _written_ahead(driver: TaskDriver, action: do.WriteData) -> on.DataWritten:
    """Return the answer to a slice; when it is performed after all, it is the same one."""
    data = driver._frozen.slices
    made, write = data.next(action), data.next
    data.next = lambda action: made if action is late else write(action)
    late = action
    return made[1]


class Exchange:
    """Two actions in the wrong order, once: at the ``turn``-th of ``earlier``. ``made``: it has come to that."""

    def __init__(self, earlier: type[do.Action], later: type[do.Action], turn: int, then: Then) -> None:
        self.earlier, self.later, self.turn, self.then = earlier, later, turn, then
        self.asked = Counter[type[do.Action]]()
        self.held: do.Action | None = None
        self.made = False

    def drive(self, *arguments: Any, **named: Any) -> TaskDriver:
        """Return a driver as ``assemble`` makes it, which makes the exchange."""
        driver = assemble(*arguments, **named)
        self.install(driver)
        return driver

    def install(self, driver: TaskDriver) -> None:
        """Let a driver make the exchange."""
        perform, take = driver._perform_next, driver.parts.tell
        known = Counter[type[on.Event]]()  # answers that were given before their time: the true ones are left out
        dies = False

        def report(event: on.Event) -> None:
            if known[type(event)] and not isinstance(event, on.OutputFrames):
                known[type(event)] -= 1
            else:
                take(event)

        def perform_next() -> bool:
            nonlocal dies
            action = driver.parts.todo[0]
            self.asked[type(action)] += 1
            if isinstance(action, self.earlier) and self.held is None and self.asked[self.earlier] > self.turn:
                self.held = driver.parts.todo.popleft()
                answer = answer_to(driver, action)
                if answer is not None:
                    known[type(answer)] += 1
                    take(answer)
                return True
            done = perform()
            if dies and isinstance(action, do.Committed):
                raise Killed
            if self.held is not None and not self.made and done and isinstance(action, self.later):
                self.made = True
                if self.then == "never performed":
                    raise Killed
                driver.parts.todo.appendleft(self.held)
                dies = self.then != "performed late"
            return done

        driver.parts.tell, driver._perform_next = report, perform_next


@contextmanager
def driven_by(make: Callable[..., TaskDriver]) -> Iterator[None]:
    """Let the kit make its drivers so, and give up on a job that comes to no rest after a few checkpoints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "assemble", make)
        patch.setattr(job_host, "INTERVALS_MAX", 40)
        patch.setattr(write_ahead, "FREEZE_PART_BYTES_MIN", 0)  # each deterministic checkpoint is sent ahead
        yield


def give_another_disk(job: Kit) -> None:
    """Crash a task, and give it the disk of another life: a key that it never wrote, a position not in its log."""
    task = job._task(Count, 0)
    task.crash()
    assert task.disk.changelog_position is not None
    position = decode_changelog_position(task.disk.changelog_position)._replace(nonce=b"another life's 1")
    task.disk.stores[task.job_task.stage.store_ids()["counts"]] = SortedView({b"never": int64.encode(9)})
    task.disk.changelog_position = encode_changelog_position(position)


def story(job: Kit) -> Iterator[Callable[[], object]]:
    """Yield the steps of a job's life: early frames, a rollback, restores, a redo, a stop, an end on empty disks."""

    def feed() -> None:
        for number, line in enumerate(("a b c", "a d", "b e a")):
            job.feed(lines, str(number), line)

    yield feed
    yield job.run
    yield feed
    yield job.process
    yield lambda: job.crash(Split, 0)
    yield job.process
    yield lambda: job.advance(90)
    yield lambda: job.feed(lines, "0", "f g")
    yield job.process
    yield lambda: job.crash(Count, 1, other_host=True)
    yield job.run
    yield lambda: job.crash(Split, 1, other_host=True)
    yield lambda: job.crash(Count, 0)
    yield lambda: job.feed(lines, "1", "h a")
    yield job.run
    yield job.stop
    yield job.run
    yield lambda: give_another_disk(job)
    yield job.run
    yield lambda: job.crash_all(other_host=True)
    yield job.run


def live(name: str, exchange: Exchange) -> list[object]:
    """Run one of WORLDS, or ALONE, with an exchange; return what can be seen of it wherever it comes to rest."""
    if name == ALONE:
        return live_alone(exchange)
    world = WORLDS[name]
    with driven_by(exchange.drive):
        return live_together(world)


def live_together(world: World) -> list[object]:
    """Run the story of a whole job. A killed task starts again."""
    job = Kit(Job("j", [Split, Count], partitions=2, mode=world.mode), settings=Settings(**world.settings))
    seen: list[object] = []
    for step in story(job):
        with_deaths(step)
        if step == job.run:
            outputs = sorted((record.key, record.value) for record in job.outputs(totals))
            seen.append((job.state(Split.seen), job.state(Count.counts), outputs))
    return seen


def with_deaths(step: Callable[[], object]) -> None:
    """Take a step; if a process dies in it, take it again."""
    try:
        step()
    except Killed:
        step()


def live_alone(exchange: Exchange) -> list[object]:
    """Run a task whose producers are the test: frames and markers in one batch, an early frame that is rolled back.

    Seen are the state, the checkpoint of each output, and the order of its last markers and its end.
    """
    first = Driven(early_memory_bytes_max=0)
    exchange.install(first.driver)
    a0, a1 = Producer(first, A0), Producer(first, A1)
    for producer in (a0, a1):
        producer.rollback_marker(0)
    a0.send(1, "x")
    for producer in (a0, a1):
        producer.mark(1)
    first.start()
    disk = MemoryDisk(stores={STORE: SortedView({b"never": b"1"})}, changelog_position=ANOTHER_LIFE)
    second = Driven(data=first.data, disk=disk, nonce=b"the second one's", early_memory_bytes_max=0)
    exchange.install(second.driver)
    second.start()
    seen: list[object] = [first.keys(), second.keys()]
    a1.send(2, "y")
    a0.mark(2)
    a0.send(3, "early")
    second.run()
    a0.rollback_marker(2)
    second.run()
    for producer in (a0, a1):
        producer.mark(2)
    second.run()
    second.driver.stop()
    for producer in (a0, a1):
        producer.mark(3)
    second.run()
    ends = [step for task in (first, second) for step in task.trace if step.what in ("output", "marker", "close")]
    return [*seen, second.keys(), ends]
