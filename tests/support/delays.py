"""A job whose stages send out of order: a timer, then a window with grace behind a repartition, then one behind it."""

from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, TumblingWindow, Window, int64, utf8

events = Topic("events", key=utf8, value=int64)
delayed = Topic("delayed", key=utf8, value=int64)
summed = Topic("summed", key=utf8, value=int64)
totalled = Topic("totalled", key=utf8, value=int64)

PATIENCE_MS = 70


class Delay(Task):
    """Sends each number at once, and once more later, with the time at which that was due."""

    source = Input(events)
    waiting = Store("waiting", key=utf8, value=int64)
    patience = Timers()
    out = Output(delayed)

    def process(self, record: Record[str, int]) -> None:
        """Send to one of five keys; a timer's time and key name what waits."""
        key = f"{record.key} {record.timestamp}"
        self.waiting.put(key, self.waiting.get(key, 0) + record.value)
        self.patience.schedule(record.timestamp + PATIENCE_MS, key)
        self.out.send(f"k{record.value % 5}", record.value)

    def on_timer(self, timer: Timer) -> None:
        """Send what has waited; others have gone out with newer timestamps since."""
        value = self.waiting.get(timer.key, 0)
        self.waiting.delete(timer.key)
        self.out.send(f"k{value % 5}", value)


class Sum(Task):
    """Adds up by window; what a window sends is older than event time by its grace."""

    source = Input(delayed)
    sums = TumblingWindow("sums", 10, key=utf8, value=int64, grace_ms=25)
    out = Output(summed)

    def process(self, record: Record[str, int]) -> None:
        """Add."""
        assert self.sums.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + record.value), "late"

    def on_window(self, window: Window[str, int]) -> None:
        """Send to another key."""
        self.out.send(f"l{window.start // 10 % 3}", window.value)


class Total(Task):
    """Adds up windows by window, without grace."""

    source = Input(summed)
    totals = TumblingWindow("totals", 40, key=utf8, value=int64)
    out = Output(totalled)

    def process(self, record: Record[str, int]) -> None:
        """Add."""
        assert self.totals.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + record.value), "late"

    def on_window(self, window: Window[str, int]) -> None:
        """Tell."""
        self.out.send(window.key, window.value)


job = Job("delays", stages=[Delay, Sum, Total], partitions=3)
