"""`grete dlq redrive` after a rescale of a job whose keys have several parts."""

import json
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from grete.logs.address import LogAddress, open_reader
from grete.logs.partition_reader import rows_left
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from tests.cli.test_dlq import MENDED, Shop

KEYED = """
from grete import ById, DeadLetter, Input, Job, Key, Output, Record, Store, Task, Topic, int64, json, utf8
ARTICLE = Key(utf8, utf8)
orders = Topic("NAME-orders", key=ARTICLE, value=json(dict[str, int]))  # shop, article
totals = Topic("NAME-totals", key=utf8, value=int64)
refused = Topic("NAME-refused", key=ARTICLE, value=utf8)

class Total(Task):
    orders = Input(
        orders,
        errors=DeadLetter(refused),
        deduplicate=ById(lambda record: (record.key[0], str(record.value["id"])), 60_000, key=ARTICLE),
    )
    shops = Store("shops", key=utf8, value=int64)
    articles = Store("articles", key=ARTICLE, value=int64)
    out = Output(totals)
    def process(self, record: Record[tuple[str, str], dict[str, int]]) -> None:
        amount = record.value["amount"]
        self.articles.put(record.key, self.articles.get(record.key, 0) + amount)
        self.shops.put(record.key[0], total := self.shops.get(record.key[0], 0) + amount)
        self.out.send(record.key[0], total)

job = Job("NAME", stages=[Total], partitions=2)
"""


@pytest.mark.test  # it runs seven commands, each with workers or without
def test_after_a_rescale_letters_come_to_the_tasks_of_their_keys(tmp_path: Path) -> None:
    """Keys of several parts, with ids that were seen: each record is processed once, in the task that has its shop."""
    shop = Shop(tmp_path, code=KEYED)
    code, count = (tmp_path / "shop.py").read_text(), "partitions=2"
    orders = [((f"shop{n % 11}", f"article{n % 3}"), {"id": n, "amuont" if n % 2 else "amount": n}) for n in range(88)]

    def feed(some: list[tuple[tuple[str, str], dict[str, int]]]) -> None:
        lines = "".join(f"{json.dumps(key)}\t{json.dumps(order)}\n" for key, order in some)
        shop("run", "shop.py", "--input=shop-orders=-", "--keys", stdin=lines)

    feed(orders[:66])
    shop("rescale", "shop.py", "--partitions=6", "--assume-keyed")
    (tmp_path / "shop.py").write_text(code.replace(count, "partitions=6"))
    feed(orders[66:])  # the code is not mended: some letters are of tasks that there were not before
    (tmp_path / "shop.py").write_text(code.replace(*MENDED).replace(count, "partitions=6"))
    assert shop.dlq("redrive", '--where=key=["shop1", "article1"]') == "shop-orders: sent again: 2\n"
    assert shop.dlq("redrive") == "shop-orders: sent again: 42\n"
    assert "no letter to send" in shop.dlq("redrive")
    shop("run", "shop.py")
    assert max(shop.orders().values()) == 2
    expected = Counter[str]()
    for (name, _), order in orders:
        expected[name] += order["id"]
    rows = [line.split("\t") for line in shop("state", "scan", "shop.py", "shops").splitlines()]
    assert sorted(rows) == sorted([name, str(total)] for name, total in expected.items())
    with closing(open_reader(LogAddress("embedded"), tmp_path / ".grete" / "shop" / "log.db")) as log:
        for number in range(6):
            at = TopicPartition("shop-orders", number)
            names = {(row.key or b"").partition(b"\0")[0] for row in rows_left(log, at, *log.bounds(at))}
            before = {number + 2, number + 4} if number < 2 else set[int]()  # where they belonged under 2 partitions
            assert {partition_of(name, 6) for name in names} <= {number} | before
