"""A job that reads one topic before another as long as it has records, and numbers what it has taken."""

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.api.tasks.mode import Mode


def topics_of(name: str) -> tuple[Topic[str, int], Topic[str, int], Topic[str, int]]:
    """Return a job's topics: alarms, readings, and what was taken: name of the topic and number → its place."""
    alarms, readings, taken = (
        Topic(f"{name}-{each}", key=utf8, value=int64) for each in ("alarms", "readings", "taken")
    )
    return alarms, readings, taken


def alarming(mode: Mode, name: str) -> Job:
    """Return the job in a mode, with one partition."""
    urgent, usual, taken = topics_of(name)

    class Take(Task):
        """Says of each record which one it is."""

        readings = Input(usual)
        alarms = Input(urgent, priority=1)
        count = Store("count", key=utf8, value=int64)
        out = Output(taken)

        def process(self, record: Record[str, int]) -> None:
            self.count.put("all", count := self.count.get("all", 0) + 1)
            self.out.send(f"{'alarm' if record.topic == urgent.name else 'reading'} {record.value}", count)

    return Job(name, [Take], mode=mode)
