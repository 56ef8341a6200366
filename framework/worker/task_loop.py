"""The tasks of one process take turns in one thread, over the log that all of them share."""

from collections.abc import Callable, Sequence

from framework.errors import FrameworkError
from framework.execution.driver import TaskDriver
from framework.ports import Delivery, Log

TURN_MS = 5  # of one task before the next one's turn and the log's; a turn never ends inside of a batch of records


class TaskLoop:
    """The loop of a process. An error of one task leaves it: the process ends, and its tasks with it.

    What they have sent is in one client, in doubt for all of them together.
    """

    def __init__(self, drivers: Sequence[TaskDriver], log: Log, mono_ms: Callable[[], float]) -> None:
        """``drivers``: that of each task, at the index by which the log knows it as the owner of a send."""
        self.turn_of: TaskDriver | None = None  # after an error: whose turn it was
        self._drivers, self._log, self._mono_ms = drivers, log, mono_ms
        # sources come last in a round: the records that reached the others let them advance at once
        self._sources = [driver for driver in drivers if driver.wiring.is_source]
        self._behind = [driver for driver in drivers if not driver.wiring.is_source]
        self._observed = 0  # the last logical time that has reached a task here
        self._busy_ms = {id(driver): 0.0 for driver in drivers}
        self._turn_began: tuple[TaskDriver, float] | None = None  # whose turn is under way, since when

    @property
    def over(self) -> bool:
        """Whether all tasks have ended as they were asked to."""
        return all(driver.exit is not None for driver in self._drivers)

    def busy_s(self, driver: TaskDriver) -> float:
        """Return how long a task's turns were, in seconds, the one under way included. Any thread may ask."""
        began = self._turn_began
        under_way_ms = self._mono_ms() - began[1] if began is not None and began[0] is driver else 0.0
        return (self._busy_ms[id(driver)] + under_way_ms) / 1_000

    def go_round(self) -> bool:
        """Let each task do what it can, and take the log's answers; return whether there is more to do at once.

        Raises what a task or the log raises; a FrameworkError in a turn says in ``task`` whose turn it was.
        """
        more = False
        for driver in self._behind:
            more |= self._turn(driver)
        self._tell()
        for driver in self._sources:
            more |= self._turn(driver)
        return self._poll() or more

    def _turn(self, driver: TaskDriver) -> bool:
        """Let a task do what it can, for a while; return whether there is more to do at once."""
        more, begun = False, self._mono_ms()
        ends = begun + TURN_MS
        self.turn_of, self._turn_began = driver, (driver, begun)
        try:
            while driver.tick():
                if driver.urgent:
                    driver.urgent = False
                    more |= self._poll()
                if self._mono_ms() > ends:
                    more = True
                    break
        except FrameworkError as error:
            error.task = error.task or driver.wiring.name  # below, a log or a store does not know whose turn it is
            raise
        self.turn_of = self._turn_began = None
        self._busy_ms[id(driver)] += self._mono_ms() - begun
        return more

    def _poll(self) -> bool:
        """Push out the sends, and report the deliveries; return whether a task can do something about it."""
        more, answers = False, dict[int, list[Delivery]]()
        for delivery in self._log.poll():
            answers.setdefault(delivery.owner, []).append(delivery)
        for owner, deliveries in answers.items():
            more |= self._drivers[owner].delivered(*deliveries)
        return more

    def _tell(self) -> None:
        """Tell the sources here the last logical time: a task waits for them."""
        observed = max(driver.mode.observed for driver in self._drivers)
        if observed > self._observed:
            self._observed = observed
            for driver in self._drivers:
                driver.mode.observe(observed)
