"""A job whose outputs show all that its state holds: each string is the one before, and one letter more."""

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

KEYS = 4


def letters_of(name: str) -> Topic[str, str]:
    """Return the topic of a job's letters."""
    return Topic(f"{name}-letters", key=utf8, value=utf8)


def shown_of(name: str) -> Topic[str, str]:
    """Return the topic of what its second stage shows."""
    return Topic(f"{name}-shown", key=utf8, value=utf8)


def concatenating(name: str) -> Job:
    """Return the job, with two stages and 2 partitions; a letter is a number, whose rest tells its string."""
    stream = Topic("strings", key=utf8, value=utf8)

    class Concat(Task):
        """Puts the letters of a string together."""

        letters = Input(letters_of(name))
        state = Store("state", key=utf8, value=utf8)
        out = Output(stream)

        def process(self, record: Record[str, str]) -> None:
            key = f"{record.partition} {int(record.value) // 2 % KEYS}"
            string = f"{self.state.get(key, '')}{record.value};"
            self.state.put(key, string)
            self.out.send(key, string)

    class Show(Task):
        """Shows how many strings there were of a key, and the last one."""

        strings = Input(stream)
        counts = Store("counts", key=utf8, value=int64)
        out = Output(shown_of(name))

        def process(self, record: Record[str, str]) -> None:
            self.counts.put(record.key, count := self.counts.get(record.key, 0) + 1)
            self.out.send(record.key, f"{count} {record.value}")

    return Job(name, [Concat, Show], partitions=2)
