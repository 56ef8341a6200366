"""A world of a kit's job in which tasks die, or sleep while a successor takes over, between any two steps of theirs."""

import random
from collections import Counter
from contextlib import suppress

from grete import Topic
from grete.errors import Fenced
from grete.replay.history import HostedTask, TaskProcess
from grete.testing.kit import Kit


class World:
    """Processes that die, or sleep while a successor takes over, between any two steps of any of them."""

    def __init__(self, kit: Kit, lines: Topic[str, str], seed: int) -> None:
        self.kit, self.lines, self.draw = kit, lines, random.Random(seed)
        self.tasks = list(self.kit._tasks.values())
        self.sleepers: list[TaskProcess] = []
        self.fed = 0
        self.seen: Counter[str] = Counter()

    def feed(self) -> None:
        for _ in range(self.draw.randint(0, 4)):
            self.kit.feed(self.lines, f"k{self.draw.randrange(5)}", f"r{self.fed}")
            self.fed += 1

    def strike(self, task: HostedTask) -> None:
        if task.process is not None and self.draw.random() < 0.5:
            self.sleepers.append(task.process)
            task.process = None
        else:
            task.crash(other_host=self.draw.random() < 0.3)
        self.seen["strikes"] += 1

    def steps(self, process: TaskProcess, count: int) -> bool:
        """Let a process take some steps; return whether it has ended."""
        try:
            for _ in range(count):
                if not process.driver.tick():
                    for delivery in process.log.poll():
                        process.driver.delivered(delivery)
        except Fenced:
            return True
        return False

    def wake(self) -> None:
        """Let one that slept go on, behind its successor's back."""
        sleeper = self.draw.choice(self.sleepers)
        if self.steps(sleeper, self.draw.randint(1, 40)):
            self.sleepers.remove(sleeper)
        self.seen["sleepers that woke up"] += 1

    def run(self) -> None:
        for _ in range(150):
            self.feed()
            task = self.draw.choice(self.tasks)
            if self.draw.random() < 0.06:
                self.strike(task)
            if self.sleepers and self.draw.random() < 0.2:
                self.wake()
            process = task.process or task.start()
            if self.steps(process, self.draw.randint(1, 60)):
                task.crash()
            self.kit.now_ms += self.draw.choice((0, 1, 5, 12))
        for _ in range(30):
            if self.sleepers:
                self.wake()
            self.kit.now_ms += 1
        for _ in self.tasks:  # one that slept may have claimed a task: its process gives up, and another takes it
            with suppress(Fenced):
                self.kit.run()
        self.kit.run()
