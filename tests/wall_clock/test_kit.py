"""Wall-clock timers in the kit: they fire whether records come or not, once in effect, through crashes and outages."""

from typing import Any

import pytest

from grete import DeadLetter, Input, Job, Output, Record, Task, Timer, Timers, Topic, utf8
from grete.api.tasks.mode import Mode
from grete.batch.check import left_out
from grete.errors import ConfigError, GraphError, TaskError
from grete.execution.timing.reserved_stores import TIMERS
from grete.execution.timing.timers import WALL, _encode
from grete.logs.memory import MemoryLog
from grete.ports import LogRow
from grete.replay.determinism.replay import replay
from grete.settings import Settings
from grete.state.write.moving.record_keys import key_of_entry
from grete.testing import Kit
from grete.testing.job_host import START_MS
from tests.support.local_batch import run_job
from tests.wall_clock.jobs import AFTER_MS, MINUTE, ORDERS, REMINDERS, SECOND, Remind, RemindBehind, reminding

MODES = pytest.mark.parametrize("mode", ["aligned", "deterministic"])
BEHIND = pytest.mark.parametrize("behind", [False, True], ids=["first", "behind"])
DELAY_MS = 1_000


def sent(kit: Kit) -> list[tuple[str, int]]:
    """Return the keys of the reminders, and when they were due."""
    return sorted(kit.pairs(REMINDERS))


@MODES
@BEHIND
def test_a_timer_fires_though_no_record_comes(mode: Mode, behind: bool) -> None:
    """Not before its time, and soon after it; one that is cancelled does not."""
    kit = Kit(reminding(mode, behind=behind))
    start = kit.now_ms
    kit.feed(ORDERS, "ann", "order")
    kit.feed(ORDERS, "bob", "order")
    kit.run()
    kit.feed(ORDERS, "bob", "paid")
    kit.advance(AFTER_MS - SECOND)
    assert sent(kit) == []
    kit.advance(SECOND + DELAY_MS)
    (reminder,) = sent(kit)
    assert reminder[0] == "ann"
    assert start + AFTER_MS <= reminder[1] <= start + AFTER_MS + DELAY_MS
    kit.advance(24 * 60 * MINUTE)
    assert len(sent(kit)) == 1


@MODES
@BEHIND
@pytest.mark.parametrize("seed", range(4))
def test_each_timer_fires_once_through_crashes(mode: Mode, behind: bool, seed: int) -> None:
    """Tasks die, with their disks and without, while timers are set and fire."""
    kit = Kit(reminding(mode, behind=behind, partitions=2))
    for number in range(60):
        kit.feed(ORDERS, f"k{number}", "order")
        if number % 15 == 0:
            kit.run(crashes=2, seed=seed + number)
            kit.advance(3 * SECOND)
    for _ in range(20):
        kit.advance(SECOND)
        kit.run(crashes=1, seed=seed)
    kit.advance(SECOND)
    assert [key for key, _ in sent(kit)] == sorted(f"k{number}" for number in range(60))
    assert kit.state(Remind.open, stage=RemindBehind if behind else Remind) == {}


@MODES
@BEHIND
def test_after_an_outage_of_an_hour_each_fires_once(mode: Mode, behind: bool) -> None:
    """Timers due during an outage fire at the start, in the order of their times: also more than one slice."""
    kit = Kit(reminding(mode, behind=behind))
    for number in range(2_500):
        kit.feed(ORDERS, f"k{number:04}", "order")
    kit.run()
    kit.stop()
    kit.now_ms += 60 * MINUTE
    kit.run()
    kit.advance(SECOND)
    reminders = [(record.value, record.key) for record in kit.outputs(REMINDERS)]
    assert reminders == sorted(reminders)
    assert [key for _, key in reminders] == [f"k{number:04}" for number in range(2_500)]


@MODES
def test_a_rollback_takes_timers_back(mode: Mode) -> None:
    """The stage before dies with what it has not committed: its timers are set again, and fire once."""
    kit = Kit(reminding(mode, behind=True))
    kit.run()
    kit.feed(ORDERS, "ann", "order")
    if mode == "aligned":
        kit.rollback(RemindBehind)
    kit.advance(AFTER_MS + DELAY_MS)
    assert [key for key, _ in sent(kit)] == ["ann"]


class Both(Task):
    """Timers of both clocks, and a report that sets itself again."""

    orders = Input(ORDERS)
    by_event = Timers()
    by_clock = Timers(errors=DeadLetter(Topic("letters", key=utf8, value=utf8)), clock="wall")
    out = Output(REMINDERS)

    def process(self, record: Record[str, str]) -> None:
        """Set what the value says."""
        clock, _, at = record.value.partition(" ")
        (self.by_event if clock == "event" else self.by_clock).schedule(int(at), record.key)

    def on_timer(self, timer: Timer) -> None:
        """Tell which it was."""
        if timer.key == "bad":
            raise ValueError("told to")
        self.out.send(f"{timer.clock} {timer.key}", timer.at)
        if timer.key == "again":
            self.by_clock.schedule(timer.at + MINUTE, "again")


@MODES
def test_both_clocks_in_one_task(mode: Mode) -> None:
    """Each timer goes by its own clock, and one that sets itself again goes on."""
    kit = Kit(Job("both", stages=[Both], mode=mode))
    start = kit.now_ms
    kit.feed(ORDERS, "a", f"event {start + 50}", timestamp=start)
    kit.feed(ORDERS, "b", f"wall {start + MINUTE + 50}", timestamp=start)
    kit.feed(ORDERS, "again", f"wall {start + MINUTE}", timestamp=start)
    kit.run()
    kit.advance(3 * MINUTE + SECOND)
    assert kit.pairs(REMINDERS) == [
        ("wall again", start + MINUTE),
        ("wall b", start + MINUTE + 50),
        ("wall again", start + 2 * MINUTE),
        ("wall again", start + 3 * MINUTE),
    ]
    kit.feed(ORDERS, "late", f"event {start}", timestamp=start + 50)
    kit.run()
    assert kit.pairs(REMINDERS)[4:] == [("event late", start), ("event a", start + 50)]


@MODES
def test_a_timer_that_fails_follows_its_policy(mode: Mode) -> None:
    """A letter names the timer; with "fail" the task stops, and says which timer it was."""
    kit = Kit(Job("both", stages=[Both], mode=mode))
    at = kit.now_ms + SECOND
    kit.feed(ORDERS, "bad", f"wall {at}")
    kit.advance(3 * SECOND)
    (letter,) = kit.outputs(Both.by_clock.errors.topic)  # type: ignore[union-attr]  # it is a DeadLetter
    assert (letter.key, letter.timestamp) == ("bad", at)
    assert dict(letter.headers)["grete.timer"] == str(at).encode()

    class Strict(Both):
        by_clock = Timers(clock="wall")

    kit = Kit(Job("both", stages=[Strict], mode=mode))
    at = kit.now_ms + SECOND
    kit.feed(ORDERS, "bad", f"wall {at}")
    with pytest.raises(TaskError, match=f"wall-clock timer 'bad' at {at}: ValueError: told to"):
        kit.advance(3 * SECOND)


def test_a_timer_that_is_always_due_lets_records_in() -> None:
    """A task that sets a timer for now, whenever one fires, goes on reading, and closes its checkpoints."""

    class Restless(Task):
        orders = Input(ORDERS)
        alarms = Timers(clock="wall")
        out = Output(REMINDERS)

        def process(self, record: Record[str, str]) -> None:
            self.out.send(record.key, 0)
            if record.value == "begin":
                self.alarms.schedule(self.ctx.now())
            else:
                self.stopped = True

        def on_timer(self, timer: Timer) -> None:
            if not getattr(self, "stopped", False):
                self.alarms.schedule(self.ctx.now(), f"{timer.key[:9]}+")

    kit = Kit(Job("restless", stages=[Restless]))
    kit.feed(ORDERS, "a", "begin")
    kit.feed(ORDERS, "b", "end")
    kit.run()
    assert kit.pairs(REMINDERS) == [("a", 0), ("b", 0)]


@BEHIND
def test_outputs_of_timers_leave_before_any_checkpoint(behind: bool) -> None:
    """In deterministic mode, as those of records do; after a kill the successor makes them again, and drops them."""
    kit = Kit(reminding("deterministic", behind=behind), settings=Settings(checkpoint_interval_ms=60 * MINUTE))
    kit.advance(SECOND)
    committed = {name: task.checkpoint_id for name, task in kit._tasks.items()}
    for key in ("ann", "bob"):
        kit.feed(ORDERS, key, "order")
        kit.advance(SECOND)
    kit.advance(AFTER_MS)
    before = kit.outputs(REMINDERS)
    assert [record.key for record in before] == ["ann", "bob"]
    assert {name: task.checkpoint_id for name, task in kit._tasks.items()} == committed
    for task in kit._tasks.values():
        task.crash()
    kit.advance(AFTER_MS)
    assert kit.outputs(REMINDERS) == before
    assert kit.state(Remind.open, stage=RemindBehind if behind else Remind) == {}


@BEHIND
def test_a_replay_fires_each_timer_at_its_place(behind: bool) -> None:
    """The history alone makes all reminders again, also those behind the last record."""
    kit = Kit(reminding("deterministic", behind=behind, partitions=2))
    for number in range(40):
        kit.feed(ORDERS, f"k{number}", "order")
        if number % 10 == 0:
            kit.run(crashes=2, seed=number)
            kit.advance(AFTER_MS // 2)
    kit.advance(2 * AFTER_MS)
    found = replay(kit.job, MemoryLog(kit._data), kit.settings)
    assert (found.halted, found.difference, found.records) == (None, None, 40)
    assert found.compared >= len(kit.outputs(REMINDERS)) == 40


def test_a_timer_set_for_the_past_waits_for_the_next_millisecond() -> None:
    """One that sets itself for now goes on with time, and lets records in."""

    class Restless(Task):
        orders = Input(ORDERS)
        alarms = Timers(clock="wall")
        out = Output(REMINDERS)

        def process(self, record: Record[str, str]) -> None:
            self.alarms.schedule(0, record.key)

        def on_timer(self, timer: Timer) -> None:
            self.out.send(timer.key, self.ctx.now_us())
            if self.ctx.now() < START_MS + 5:
                self.alarms.schedule(self.ctx.now() - 1, timer.key)

    kit = Kit(Job("restless", stages=[Restless], mode="deterministic"))
    kit.feed(ORDERS, "a", "begin")
    kit.run()
    kit.advance(SECOND)
    times = [value for _, value in kit.pairs(REMINDERS)]
    assert times == [(START_MS + ms) * 1_000 for ms in range(times[0] // 1_000 - START_MS, 6)]
    assert len(times) > 1


def test_init_sets_no_timer_in_deterministic_mode() -> None:
    """It runs at each start: a restart would change what follows."""

    class Eager(Remind):
        def init(self) -> None:
            self.alarms.schedule(self.ctx.now() + MINUTE)

    with pytest.raises(TaskError, match="init sets a wall-clock timer"):
        Kit(Job("eager", stages=[Eager], mode="deterministic")).run()
    Kit(Job("eager", stages=[Eager])).run()


def test_history_sets_timers_and_the_live_task_lets_them_fire() -> None:
    """A backfill takes records at the times of their timestamps, and fires nothing."""
    job = reminding("deterministic")
    rows = [LogRow(n, START_MS, START_MS + n * MINUTE, b"k%d" % n, b"order", None) for n in range(3)]
    (result,) = run_job(job, lambda _source: rows).values()
    assert sum(store == TIMERS for store, _, _ in result.state) == 3
    assert not result.external


class Twice(Remind):
    """Two of one clock."""

    more = Timers(clock="wall")


class Asks(Remind):
    """Its process is async."""

    async def process(self, record: Record[str, int]) -> None:  # type: ignore[override]  # of another kind
        """Do nothing."""


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Job("j", stages=[Asks]), "has an async process and declares Timers"),
        (lambda: Job("j", stages=[Twice]), "'alarms' and 'more': keep one"),
        (lambda: left_out(reminding(), is_recorded=True), "stage remind has wall-clock timers"),
        (lambda: Timers(clock="sun"), "need one of 'event', 'wall'"),  # type: ignore[arg-type]  # that is refused
        (lambda: Kit(reminding(), processing_guarantee="none").run(), "a timer could fire twice"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, told: str) -> None:
    """Two timers of one clock, a clock that there is not, and at most once."""
    with pytest.raises((ConfigError, GraphError), match=told):
        make()


def test_at_least_once_fires_too() -> None:
    """There are no markers: what timers send goes at once."""
    kit = Kit(reminding(behind=True), processing_guarantee="at-least-once")
    kit.feed(ORDERS, "ann", "order")
    kit.run()
    kit.advance(AFTER_MS + DELAY_MS)
    assert [key for key, _ in sent(kit)] == ["ann"]


def test_a_rescaled_timer_stays_with_its_key() -> None:
    """The key of a timer is where it is of a timer in event time: what moves it by its key finds it."""
    assert key_of_entry(TIMERS, _encode(WALL, 5, "ann")) == b"ann"
