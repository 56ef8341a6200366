"""At most once: a record counts with all that follows from it, or not at all, whatever dies or wakes up."""

from collections import Counter
from collections.abc import Sequence

import pytest

from grete import (
    Input,
    Job,
    Output,
    Record,
    Store,
    Task,
    Timer,
    Timers,
    Topic,
    int64,
    utf8,
)
from grete.errors import ConfigError, TaskError
from grete.execution.task_code import firing
from grete.replay.audit.refused import refuse_losses
from grete.replay.incident.pack import PackRequest, pack
from grete.settings import Settings, with_texts
from grete.state.read.checkpoints.commits import all_wirings
from grete.testing.kit import Kit
from tests.execution.struck_world import World
from tests.state.moving_host import MovableJob

INTERVAL_MS = 20
letters = Topic("letters", key=utf8, value=utf8)
strings = Topic("strings", key=utf8, value=utf8)
shown = Topic("shown", key=utf8, value=utf8)


class Concat(Task):
    """The first stage: what it sends of a record depends on all records before it."""

    letters = Input(letters)
    state = Store("state", key=utf8, value=utf8)
    out = Output(strings)

    def process(self, record: Record[str, str]) -> None:
        string = f"{self.state.get(record.key, '')}{record.value};"
        self.state.put(record.key, string)
        self.out.send(record.key, string)


class Show(Task):
    """The second one: it counts what it shows."""

    strings = Input(strings)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(shown)

    def process(self, record: Record[str, str]) -> None:
        self.counts.put(record.key, self.counts.get(record.key, 0) + 1)
        self.out.send(record.key, record.value)


def a_kit(stages: Sequence[type[Task]] = (Concat, Show), partitions: int = 2) -> Kit:
    settings = Settings(processing_guarantee="at-most-once", checkpoint_interval_ms=INTERVAL_MS, batch_bytes_max=150)
    return Kit(Job("concatenating", stages, partitions=partitions), settings=settings)


def check_possible(kit: Kit) -> int:
    """Check that a run without failures over the records that the state has gives all outputs and states.

    Return how many records these are.
    """
    kept = {key: string.split(";")[:-1] for key, string in kit.state(Concat.state).items()}
    expected = {key: [";".join(each[:end]) + ";" for end in range(1, len(each) + 1)] for key, each in kept.items()}
    outputs: dict[str, list[str]] = {}
    for key, value in kit.pairs(shown):
        outputs.setdefault(key, []).append(value)
    assert outputs == expected
    assert kit.state(Show.counts) == {key: len(each) for key, each in kept.items()}
    for each in kept.values():
        assert each == sorted(set(each), key=lambda value: int(value[1:]))
    return sum(map(len, kept.values()))


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 25), marks=pytest.mark.prove)])
def test_results_are_those_of_a_part_of_the_input_whatever_dies_or_wakes_up(seeds: range) -> None:
    """A reader sees what a run without failures makes of the records that count, in the states of all stages."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        world = World(a_kit(), letters, seed)
        world.run()
        lost = world.fed - check_possible(world.kit)
        seen += world.seen
        seen["lost"] += lost
        seen["lost without a strike"] += 0 if world.seen["strikes"] else lost
    assert seen["strikes"] > 2 * len(seeds)
    assert seen["sleepers that woke up"] > 2 * len(seeds)
    assert seen["lost"] > 2 * len(seeds)
    assert seen["lost without a strike"] == 0


@pytest.mark.parametrize("dies", [(Concat,), (Show,), (Concat, Show)])
@pytest.mark.parametrize("other_host", [False, True])
@pytest.mark.parametrize("first", [0, pytest.param(3, marks=pytest.mark.prove)])
def test_no_output_contradicts_another_wherever_a_task_dies(
    dies: Sequence[type[Task]], other_host: bool, first: int
) -> None:
    """After `a`, `ac`, `acb`, `acbd` never comes `ace`: killed after each sixth number of steps."""
    kept = set[int]()
    for steps in range(first, 130, 6):
        kit = a_kit(partitions=1)
        for number in range(2):
            kit.feed(letters, "k", f"r{number}")
        kit.run()
        for number in range(2, 4):
            kit.feed(letters, "k", f"r{number}")
        for _ in range(steps):
            if kit.step() is None:
                kit.now_ms += 5
        for task in dies:
            kit.crash(task, other_host=other_host)
        kit.feed(letters, "k", "r4")
        kit.run()
        kept.add(check_possible(kit))
    assert 5 in kept
    assert (3 in kept) == (Concat in dies), "a source alone skips what it has read"


def test_a_crash_loses_no_more_than_was_read_in_two_intervals() -> None:
    """Those that a commit covers, and that were processed since, or had still to be."""
    kit, each = a_kit(), 7
    for number in range(10 * each):
        kit.feed(letters, f"k{number}", f"r{number}", partition=0)
        if number % each == each - 1:
            kit.advance(INTERVAL_MS)
    kit.crash(Concat, 0)
    kit.run()
    assert 0 < 10 * each - check_possible(kit) <= 2 * each


def test_a_graceful_stop_loses_nothing() -> None:
    """A source that is asked to stop first processes what it has read: no successor reads it again."""
    kit = a_kit()
    for number in range(30):
        kit.feed(letters, f"k{number % 5}", f"r{number}")
        if number % 10 == 9:
            kit.stop()
    kit.run()
    assert check_possible(kit) == 30


class Ticks(Concat):
    """A record that is far ahead makes a row of timers due; each timer says so before the next record."""

    name = "concat"
    timers = Timers()

    def process(self, record: Record[str, str]) -> None:
        super().process(record)
        self.timers.schedule(record.timestamp + 1)

    def on_timer(self, timer: Timer) -> None:
        self.state.put("k", f"{self.state.get('k', '')}t{timer.at};")


def test_a_stop_waits_for_what_was_read_behind_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One timer a slice: the rest of the batch that is covered runs behind them, and a stop loses none of it."""
    monkeypatch.setattr(firing, "SLICE_TIMERS", 1)
    kit = a_kit([Ticks], partitions=1)
    for at in (0, 1, 2, 100, 101):
        kit.feed(letters, "k", f"r{at}", timestamp=at)
    kit.stop()
    kit.run()
    assert kit.state(Ticks.state) == {"k": "r0;r1;t1;r2;t2;r100;t3;r101;t101;"}


def test_a_stop_does_not_wait_for_timers_that_nothing_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the state that they are left, and the next start fires them."""
    monkeypatch.setattr(firing, "SLICE_TIMERS", 1)

    class Row(Ticks):
        """A timer each ms."""

        def on_timer(self, timer: Timer) -> None:
            super().on_timer(timer)
            self.timers.schedule(timer.at + 1)

    kit = a_kit([Row], partitions=1)
    for at in (0, 50):
        kit.feed(letters, "k", f"r{at}", timestamp=at)
    kit.stop()
    stopped = kit.state(Row.state)["k"]
    assert "r50;" in stopped
    assert stopped.count("t") < 50
    kit.run()
    assert kit.state(Row.state) == {"k": "r0;r50;" + "".join(f"t{at};" for at in range(1, 51))}


@pytest.mark.parametrize("guarantee", ["at-most-once", "none"])
def test_a_graceful_stop_does_not_wait_for_the_interval(guarantee: str) -> None:
    """Held records ask for the commit that releases them: the timer may be an hour away."""
    settings = with_texts(Settings(checkpoint_interval_ms=3_600_000), {"processing_guarantee": guarantee})
    kit = Kit(Job("concatenating", [Concat]), settings=settings)
    kit.process()
    kit.feed(letters, "k", "r0")
    before = kit.now_ms
    kit.stop()
    assert kit.now_ms - before < settings.checkpoint_interval_ms
    assert kit.state(Concat.state) == {"k": "r0;"}


def test_a_record_that_cannot_be_processed_is_not_tried_again() -> None:
    """Its checkpoint fails as a whole: what was processed in it before the record is skipped, too."""

    class Fails(Concat):
        """Fails on one record."""

        name = "concat"

        def process(self, record: Record[str, str]) -> None:
            if record.value == "r1":
                raise ValueError("bad")
            super().process(record)

    kit = a_kit([Fails, Show], partitions=1)
    for number in range(2):
        kit.feed(letters, "k", f"r{number}")
    with pytest.raises(TaskError, match="ValueError: bad"):
        kit.run()
    kit.feed(letters, "k", "r2")
    kit.run()
    assert kit.pairs(shown) == [("k", "r2;")]


def test_outputs_alone_are_committed() -> None:
    """A source that keeps no state and only writes outside commits what it has sent, and the job is at rest then."""

    class Passes(Task):
        """Has no store."""

        letters = Input(letters)
        out = Output(shown)

        def process(self, record: Record[str, str]) -> None:
            self.out.send(record.key, record.value)

    kit = a_kit([Passes])
    for number in range(5):
        kit.feed(letters, f"k{number}", f"r{number}")
    kit.run()
    assert sorted(value for _, value in kit.pairs(shown)) == [f"r{number}" for number in range(5)]


class Beside(Show):
    """Reads outside what no other stage sends, too."""

    name = "show"
    letters = Input(Topic("more", key=utf8, value=utf8))


class Whole(Concat):
    """Each of its tasks reads all records."""

    name = "concat"
    letters = Input(letters, broadcast=True)


class Again(Task):
    """Reads what another stage reads."""

    letters = Input(letters)

    def process(self, record: Record[str, str]) -> None:
        raise AssertionError(record)


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ([Concat, Beside], "stage 'show' reads topic more beside what other stages send"),
        ([Whole, Show], "stage 'concat' reads all of topic letters in each task"),
        ([Concat, Show, Again], "stage 'concat' reads topic letters, as 'again' does"),
    ],
)
def test_what_a_crash_would_skip_in_part_is_refused(stages: Sequence[type[Task]], why: str) -> None:
    """The sentence names stage, topic and a way."""
    with pytest.raises(ConfigError, match=f"{why}.*Read the topic in a first stage of its own"):
        a_kit(stages).run()


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "none"])
def test_a_deterministic_stage_has_its_own_guarantee(guarantee: str) -> None:
    """Another one would be no other mode of it: the sentence names the stage and both ways."""
    job = Job("concatenating", [Concat, Show], mode="deterministic")
    settings = with_texts(Settings(), {"processing_guarantee": guarantee})
    with pytest.raises(ConfigError, match=f"'concat' is deterministic.*processing_guarantee = {guarantee}, or the mod"):
        Kit(job, settings=settings).run()


def test_a_stopped_job_moves_to_other_numbers_of_partitions() -> None:
    """A rescale and a fork of it skip nothing; a fork says that one of a job that was killed does."""
    job = Job("concatenating", [Concat, Show], partitions=2)
    settings = Settings(
        processing_guarantee="at-most-once",
        checkpoint_interval_ms=INTERVAL_MS,
        idle_checkpoint_interval_ms=INTERVAL_MS,  # a rescale looks as long for workers of other machines
    )
    fed = [(b"k%d" % (number % 5), b"r%d" % number, 1_600_000_000_000) for number in range(60)]
    moving = MovableJob(job, settings).feed("letters", fed[:20]).run()
    moving = moving.moved(3).feed("letters", fed[20:40]).run()
    with pytest.MonkeyPatch.context() as patched:
        told: list[str] = []
        patched.setattr("grete.state.write.fork.logger.warning", lambda text, *values: told.append(text % values))
        second = moving.moved(1).feed("letters", fed[40:]).run()
    assert ["runs at-most-once: what its tasks had read and not processed" in each for each in told] == [True]
    ids = second.job.stages[0].store_ids()
    strings = [value for (store, _), value in second.state(0).items() if store == ids["state"]]
    assert sum(value.count(b";") for value in strings) == len(fed)


def test_what_no_log_tells_is_refused() -> None:
    """No log has the skipped records: an audit would call them differences, an incident begin behind its record."""
    job = Job("concatenating", [Concat, Show])
    settings = Settings(processing_guarantee="at-most-once")
    with pytest.raises(ConfigError, match="runs at-most-once: a crash skips records"):
        refuse_losses(job, settings)
    wanted = PackRequest("", None, 1, values=True, code=False, settings=settings, log="", options={}, error=None)
    with pytest.raises(ConfigError, match="concat-0 processes what it has read after the commit"):
        pack(job, MovableJob(job).log, all_wirings(job)[0], wanted, lambda *_: None)
