"""Keys of several parts in a kit: an entry that is where the records of its first part do not come is reported."""

import pytest

from grete import Input, Job, Key, Record, SessionWindow, Store, Task, Topic, Window, int64, json, utf8
from grete.testing import Kit

ARTICLE = Key(utf8, utf8)
sales = Topic("sales", key=utf8, value=utf8)  # by shop: article
rates = Topic("rates", key=utf8, value=utf8)
SHOPS = [f"shop{n}" for n in range(12)]


class Right(Task):
    """Keeps articles by shop, in a store and in a window."""

    sales = Input(sales)
    pieces = Store("pieces", key=ARTICLE, value=int64)
    busy = SessionWindow("busy", 5, key=ARTICLE, value=int64, merge=int.__add__)

    def process(self, record: Record[str, str]) -> None:
        self.pieces.put(self.of(record), 1)
        self.busy.update(self.of(record), record.timestamp, lambda n: (n or 0) + 1)

    def on_window(self, window: Window[tuple[str, str], int]) -> None:
        """Send nothing."""

    def of(self, record: Record[str, str]) -> tuple[str, str]:
        """Return the key."""
        return record.key, record.value


class Wrong(Right):
    """Has the parts in the other order."""

    def of(self, record: Record[str, str]) -> tuple[str, str]:
        return record.value, record.key


class Whole(Wrong):
    """Reads a table whole as well: what it keeps of that is in each task."""

    rates = Input(rates, broadcast=True)


class Own(Task):
    """Keeps what belongs to a task by a serde without a place."""

    sales = Input(sales)
    pieces = Store("pieces", key=json(tuple[str, str]), value=int64)

    def process(self, record: Record[str, str]) -> None:
        self.pieces.put((record.value, record.key), 1)


def fed(task: type[Task], *, partitions: int = 3, by_hand: bool = False) -> Kit:
    """Return a kit of the task that was fed."""
    kit = Kit(Job("stock", stages=[task], partitions=partitions))
    for number, shop in enumerate(SHOPS):
        kit.feed(sales, shop, f"a{number}", partition=0 if by_hand else None)
    return kit


def test_an_entry_of_another_task_is_reported() -> None:
    """With the key, where it is and where it belongs."""
    with pytest.raises(AssertionError, match=r"store wrong/pieces: partition \d keeps the key \('a\d+', 'shop\d+'\), "):
        fed(Wrong).run()


@pytest.mark.parametrize("task", [Right, Whole, Own])
def test_what_belongs_there_passes(task: type[Task]) -> None:
    """So does what is not kept by the records' keys: of a topic that is read whole, or by another serde."""
    fed(task).run()


def test_where_nothing_tells_the_place_nothing_is_reported() -> None:
    """One task has all, and a test may feed records to a partition of its choice."""
    fed(Wrong, partitions=1).run()
    fed(Wrong, by_hand=True).run()
