"""The topics of ``parity``'s tasks."""

from grete import Topic, int64, utf8

PARTITIONS = 2
BEGIN_MS = 1_700_000_000_000  # of the first record
YEAR_MS = 365 * 24 * 3_600_000
FAR = 10  # a number that waits for years
START_MS = BEGIN_MS + 1_200  # where the stage with start= begins: in the middle of the history

events = Topic("events", key=utf8, value=int64)  # key → number
prices = Topic("prices", key=utf8, value=int64)  # key → price
visits = Topic("visits", key=utf8, value=int64, partitions=2 * PARTITIONS)
alarms = Topic("alarms", key=utf8, value=int64)
spread = Topic("spread", key=utf8, value=int64)  # between the stages of two rows
delayed = Topic("delayed", key=utf8, value=int64)  # the same
reminded = Topic("reminded", key=utf8, value=int64)  # the same
letters = Topic("letters", key=utf8, value=int64)


def told(name: str) -> Topic[str, int]:
    """Return the topic that a row's tasks write."""
    return Topic(f"told-{name}", key=utf8, value=int64)
