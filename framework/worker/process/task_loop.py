"""The tasks of one process take turns in one thread, over the log that all of them share."""

from collections.abc import Callable, Iterable

from grete.errors import Fenced, FrameworkError, Halted, StoreCorrupted, TaskError
from grete.execution.engine.driver import TaskDriver
from grete.execution.engine.joint_progress import JointProgress
from grete.ports import Delivery, Log
from grete.worker.process.observed_checkpoints import ObservedCheckpoints

OWN = (Fenced, TaskError, Halted, StoreCorrupted)  # what is one task's own: nothing is known to be wrong with others
FEW = 16  # tasks of which each pushes out what is urgent in its own turn: each time the answers to all are looked for
PUSH_MS = 2  # between two such pushes where there are more tasks: less than a broker takes to answer
TURN_MS = 5  # of one task before the next one's turn and the log's; a turn never ends inside of a batch of records


class TurnTimes:
    """The times that the turns of each task took. Any thread may ask."""

    def __init__(self, mono_ms: Callable[[], float]) -> None:
        self._mono_ms = mono_ms
        self._ms: dict[str, float] = {}  # by task
        self._under_way: tuple[str, float] | None = None  # whose turn is under way, since when
        self._pushed_ms = 0.0

    def begin(self, name: str) -> float:
        """Take note that the turn of a task begins; return the time, in ms."""
        now_ms = self._mono_ms()
        self._under_way = name, now_ms
        return now_ms

    def end(self, name: str, begun_ms: float) -> None:
        """Take note that the turn is over which began then."""
        self._under_way = None
        self._ms[name] = self._ms.get(name, 0.0) + self._mono_ms() - begun_ms

    def pushes(self) -> bool:
        """Tell whether something urgent leaves in a turn of one of many tasks: not too soon after it last did."""
        now_ms = self._mono_ms()
        pushes = now_ms >= self._pushed_ms + PUSH_MS
        self._pushed_ms = now_ms if pushes else self._pushed_ms
        return pushes

    def seconds(self, name: str) -> float:
        """Return the total time of a task's turns, the one under way included."""
        turn = self._under_way
        under_way_ms = self._mono_ms() - turn[1] if turn is not None and turn[0] == name else 0.0
        return (self._ms.get(name, 0.0) + under_way_ms) / 1_000


class TaskLoop:
    """The loop of a process. An error of a task's own ends that task alone; any other leaves the loop, and ends all.

    What a task had sent is in the client of all, and arrives after its end. So it does not start again here before the
    log has answered all of that: the new one looks which of its outputs are there.
    """

    def __init__(
        self,
        drivers: Iterable[TaskDriver],
        log: Log,
        mono_ms: Callable[[], float],
        checkpoints: ObservedCheckpoints,
        joint: JointProgress,
    ) -> None:
        """``drivers``: those of the first tasks; ``joint``: what they announce together."""
        self.turn_of: TaskDriver | None = None  # after an error: whose turn it was
        self.worked = True  # whether a task has done something since this was last taken back
        self.ended: list[tuple[TaskDriver, FrameworkError]] = []  # by an error of their own; the caller takes them out
        self._log, self._mono_ms = log, mono_ms
        self._drivers: dict[int, TaskDriver] = {}  # by owner: what the log knows a task by
        # sources come last in a round: the records that reached the others let them advance at once
        self._sources: list[TaskDriver] = []
        self._behind: list[TaskDriver] = []
        self._leaving: dict[int, TaskDriver] = {}  # that have ended, and whose sends the log has not all answered
        self._checkpoints, self._joint = checkpoints, joint
        self._times = TurnTimes(mono_ms)
        for driver in drivers:
            self.add(driver)

    def add(self, driver: TaskDriver) -> None:
        """Let a task take turns. Its owner is no other task's, and none's that has ended: answers to that may come."""
        self._drivers[driver.parts.owner] = driver
        (self._sources if driver.wiring.is_source else self._behind).append(driver)

    def start(self, driver: TaskDriver, begin: Callable[[TaskDriver], None]) -> None:
        """Let a task begin."""
        self.turn_of = driver
        try:
            begin(driver)
        except OWN as error:
            self._end(driver, error)
        self.turn_of = None

    def _end(self, driver: TaskDriver, error: FrameworkError) -> None:
        """Let a task take no more turns, and no more answers of the log."""
        error.task = error.task or driver.wiring.name  # a log or a store does not know whose turn it is
        del self._drivers[driver.parts.owner]
        (self._sources if driver.wiring.is_source else self._behind).remove(driver)
        self.ended.append((driver, error))
        if not isinstance(error, Fenced | Halted):  # else it does not start again
            self._leaving[driver.parts.owner] = driver

    def remove(self, driver: TaskDriver) -> None:
        """Let a task take no more turns: it has stopped, or is given up."""
        del self._drivers[driver.parts.owner]
        (self._sources if driver.wiring.is_source else self._behind).remove(driver)
        self._leaving[driver.parts.owner] = driver

    @property
    def drivers(self) -> tuple[TaskDriver, ...]:
        """Those that take turns."""
        return tuple(self._drivers.values())

    @property
    def over(self) -> bool:
        """Whether all tasks have ended as they were asked to."""
        return all(driver.exit is not None for driver in self._drivers.values())

    def leaves(self, name: str) -> bool:
        """Whether a task has ended, and the log has still to answer some of what it has sent."""
        return any(driver.wiring.name == name for driver in self._leaving.values())

    def busy_s(self, name: str) -> float:
        """Return the total time of a task's turns in seconds, the one under way included. Any thread may ask."""
        return self._times.seconds(name)

    def go_round(self) -> bool:
        """Let each task do what it can, and take the log's answers; return whether there is more to do at once.

        Raises what the log raises, and of a task what is not its own; a FrameworkError in a turn says in ``task`` whose
        turn it was. LogAway: what a task that has ended had sent is not answered for too long.
        """
        more = False
        for driver in tuple(self._behind):
            more |= self._turn(driver)
        self._tell()
        for driver in tuple(self._sources):
            more |= self._turn(driver)
        self._joint.leave()
        more |= self._poll()
        for driver in tuple(self._leaving.values()):
            driver.parts.sends.pending.check(driver.parts.io.mono_ms())
            if driver.parts.sends.pending.empty:
                del self._leaving[driver.parts.owner]
        return more

    def _turn(self, driver: TaskDriver) -> bool:
        """Let a task do what it can, for a while; return whether there is more to do at once."""
        more, begun = False, self._times.begin(driver.wiring.name)
        ends = begun + TURN_MS
        self.turn_of = driver
        try:
            while driver.parts.owner in self._drivers and self._tick(driver):
                self.worked = True
                if driver.urgent:
                    driver.urgent = False
                    if len(self._drivers) <= FEW or self._times.pushes():
                        more |= self._poll()
                if self._mono_ms() > ends:
                    more = True
                    break
        except FrameworkError as error:
            error.task = error.task or driver.wiring.name  # below, a log or a store does not know whose turn it is
            raise
        self.turn_of = None
        self._times.end(driver.wiring.name, begun)
        return more

    def _tick(self, driver: TaskDriver) -> bool:
        try:
            return driver.tick()
        except OWN as error:
            self._end(driver, error)
            return False

    def _poll(self) -> bool:
        """Push out the sends, and report the deliveries; return whether a task can do something about it."""
        more, answers = False, dict[int, list[Delivery]]()
        for delivery in self._log.poll():
            answers.setdefault(delivery.owner, []).append(delivery)
        for owner, deliveries in answers.items():
            driver = self._drivers.get(owner)
            try:
                more |= driver is not None and driver.delivered(*deliveries)
            except OWN as error:
                assert driver is not None
                self._end(driver, error)
            if owner in self._leaving:
                for delivery in deliveries:
                    self._leaving[owner].parts.sends.pending.answered(delivery.token)
        return more

    def _tell(self) -> None:
        """Tell the sources here the last logical time, and the last checkpoint of others: a task waits for them."""
        self._checkpoints.tell(self._behind, self._sources)
        self._checkpoints.tell_time(self._drivers.values())
