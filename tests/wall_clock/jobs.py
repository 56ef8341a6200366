"""Jobs with wall-clock timers: a reminder some time after a record, and a report again and again."""

from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, int64, utf8
from grete.api.tasks.mode import Mode

SECOND = 1_000
MINUTE = 60 * SECOND
AFTER_MS = 10 * SECOND
EVERY_MS = MINUTE

ORDERS = Topic("orders", key=utf8, value=utf8)
REMINDERS = Topic("reminders", key=utf8, value=int64)
INNER = Topic("inner", key=utf8, value=utf8)


class Remind(Task):
    """A reminder ten seconds after an order, by the clock, unless it is paid before."""

    orders = Input(ORDERS)
    open = Store("open", key=utf8, value=int64)
    alarms = Timers(clock="wall")
    after_ms = AFTER_MS
    out = Output(REMINDERS)

    def process(self, record: Record[str, str]) -> None:
        """Set the timer, or cancel it."""
        if record.value == "order":
            due = self.ctx.now() + self.after_ms
            self.open.put(record.key, due)
            self.alarms.schedule(due, record.key)
        elif (at := self.open.get(record.key)) is not None:
            self.alarms.cancel(at, record.key)
            self.open.delete(record.key)

    def on_timer(self, timer: Timer) -> None:
        """Send the reminder, once."""
        assert timer.clock == "wall"
        assert self.open.get(timer.key) == timer.at
        self.open.delete(timer.key)
        self.out.send(timer.key, timer.at)


class PassOn(Task):
    """A stage in front of another one, or behind it."""

    orders = Input(ORDERS)
    out = Output(INNER)

    def process(self, record: Record[str, str]) -> None:
        """Send it on."""
        self.out.send(record.key, record.value)


class RemindBehind(Remind):
    """The same behind a stage."""

    orders = Input(INNER)


def reminding(mode: Mode = "aligned", *, behind: bool = False, partitions: int = 1) -> Job:
    """Return a job of the first stage alone, or of two."""
    return Job("reminding", stages=[PassOn, RemindBehind] if behind else [Remind], mode=mode, partitions=partitions)


def reminding_soon(name: str, mode: Mode) -> Job:
    """Return a job of two stages and partitions that reminds after 1.5 s; its topics bear its name."""
    fed, inner, sent = (Topic(f"{name}-{each.name}", key=utf8, value=each.value) for each in (ORDERS, INNER, REMINDERS))

    class First(PassOn):
        orders = Input(fed)
        out = Output(inner)

    class Second(RemindBehind):
        orders = Input(inner)
        out = Output(sent)
        after_ms = 1_500

    return Job(name, stages=[First, Second], mode=mode, partitions=2)
