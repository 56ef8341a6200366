"""The common scene of all scenarios: the chain job on a log, fed and checked, with one trouble at a time."""

import contextlib
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from grete.errors import FrameworkError
from grete.protocol.ids import TopicPartition
from tests.verification.chaos.campaign import Campaign
from tests.verification.chaos.chain import PARTITIONS
from tests.verification.chaos.crew import JOB, Crew
from tests.verification.chaos.outside import Outside, names_at, outside_of, place_of
from tests.verification.chaos.zygote import Zygote

INTERVAL_MS = 50
BACKLOG = 300
STOP_MS = 60_000  # of a worker that was never stuck: beside thirty busy processes 5 s were not enough
WAIT_S = 240.0  # of each wait: three brokers that elect again beside other tests took over 120


class Failed(AssertionError):
    """A scenario did not go as it must."""


class Scene:
    """The workers run; ``campaign.look`` restarts the dead, except those of ``held`` partitions."""

    def __init__(self, campaign: Campaign, outside: Outside, crew: Crew, rng: random.Random) -> None:
        self.entries = names_at(crew.job_directory).entries
        self.campaign, self.outside, self.crew, self.rng = campaign, outside, crew, rng

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Let everything go on until the condition holds. Raises Failed."""
        if not self.campaign.until(condition, WAIT_S):
            words = {partition: self.crew.last_words(partition) for partition in range(PARTITIONS)}
            raise Failed(f"{what}: not within {WAIT_S:.0f} s; deaths {list(self.campaign.deaths)[-5:]}; {words}")

    def feeding_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, and give inputs as long as few are not out: something is under way all the time.

        A log that has no room takes none: they are given again at the next look.
        """

        def fed() -> bool:
            if self.campaign.fed - self.campaign.checker.entries < BACKLOG:
                with contextlib.suppress(FrameworkError, sqlite3.Error):
                    self.campaign.feed(5)
            return condition()

        self.until(fed, what)

    def running(self) -> None:
        """Wait until all workers run."""
        self.until(self.crew.all_running, "all workers run")

    def flow(self, count: int) -> None:
        """Give inputs and wait until all have come out."""
        for _ in range(0, count, 20):
            self.campaign.feed(20)
        self.drained()

    def drained(self) -> None:
        """Wait until all that was given has come out."""
        self.until(lambda: self.campaign.checker.entries >= self.campaign.fed, "all comes out")

    def leave_open(self, count: int = 100) -> None:
        """Give inputs and wait until some of them are out, or at least processed: checkpoints are open everywhere."""
        before = self.campaign.checker.entries
        self.campaign.feed(count)
        self.until(lambda: self.campaign.checker.entries > before, "something comes out")
        self.campaign.feed(count)

    def kill(self, *partitions: int, hold: bool = False) -> None:
        """Kill workers; with ``hold`` they stay dead until ``back``."""
        if hold:
            self.campaign.held |= set(partitions)
        self.crew.kill(partitions)
        self.campaign.look()

    def back(self, *partitions: int) -> None:
        """Let held workers start."""
        self.campaign.held -= set(partitions)

    def restored(self, partition: int) -> int:
        """Wait until the tasks of a worker have said how they got their state; return how many had to restore it."""

        def said() -> bool:
            counters = [self.crew.counter(partition, name) for name in ("redos", "restores")]
            return sum(counters) == len(self.crew.job.stages)

        self.until(said, f"worker {partition} restores")
        return self.crew.counter(partition, "restores")

    def ends(self, partition: int, *codes: int) -> int:
        """Wait until a worker, or a zombie, of a partition has ended with one of the codes since the last call."""

        def found() -> list[int]:
            return [d.code for d in self.campaign.deaths if d.partition == partition and d.code in codes]

        self.until(lambda: bool(found()), f"worker {partition} ends with {codes}")
        code = found()[0]
        self.campaign.deaths.clear()
        return code

    def changelogs(self, partition: int) -> list[TopicPartition]:
        """Return the changelogs of a worker's tasks."""
        topology = self.crew.job.topology()
        return [TopicPartition(topology.changelog(ordinal), partition) for ordinal in range(len(self.crew.job.stages))]

    def judge(self) -> None:
        """End: let all come out, stop, compare. Raises Failed with the violations."""
        self.campaign.held.clear()
        self.campaign.finish()
        self.check_outputs()

    def check_outputs(self) -> None:
        """Raise Failed with what the checker has found."""
        if self.campaign.checker.violations:
            raise Failed("\n".join(self.campaign.checker.violations))


@contextlib.contextmanager
def scene(
    directory: Path,
    log: str,
    seed: int,
    *settings: str,
    config: Path | None = None,
    note: Callable[[str], None] = lambda _text: None,
) -> Iterator[Scene]:
    """Start the chain job in a directory on a log; ``settings`` are NAME=VALUE, ``config`` has Kafka options."""
    rng = random.Random(seed)
    place = place_of(directory, log, config)
    outside = outside_of(place)
    sets = [f"checkpoint_interval_ms={INTERVAL_MS}", f"shutdown_timeout_ms={STOP_MS}", *settings]
    with contextlib.closing(outside), Zygote(JOB) as zygote:
        crew = Crew(place, zygote, lambda: sets)
        campaign = Campaign(outside, crew, rng, INTERVAL_MS, note)
        campaign.faults = False
        yield Scene(campaign, outside, crew, rng)
