"""`grete dlq`: dead letters are counted, shown, and sent to their topic again, once, wherever the command dies."""

import json
import os
import signal
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete.clients import Client
from grete.logs.address import LogAddress, open_reader
from grete.logs.partition_reader import rows_left
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.testing.broker import Broker
from tests.cli.test_kafka import Cluster
from tests.cli.test_run import ROOT, grete
from tests.support import forking
from tests.worker.workers import LIMIT_S

JOB = """
from grete import DeadLetter, Input, Job, Output, Record, Store, Task, Topic, int64, json, utf8
orders = Topic("NAME-orders", key=utf8, value=json(dict[str, int]))
parts = Topic("NAME-parts", key=utf8, value=int64)
refused = Topic("NAME-refused", key=utf8, value=utf8)
broken = Topic("NAME-broken", key=utf8, value=utf8)

class Split(Task):
    orders = Input(orders, errors=DeadLetter(refused))
    out = Output(parts)
    def process(self, record: Record[str, dict[str, int]]) -> None:
        self.out.send(record.key, record.value["amount"])

class Total(Task):
    parts = Input(parts, errors=DeadLetter(broken))
    sums = Store("sums", key=utf8, value=int64)
    def process(self, record: Record[str, int]) -> None:
        if record.value < 0:
            raise ValueError(f"{record.value} is below zero")
        self.sums.put(record.key, self.sums.get(record.key, 0) + record.value)

job = Job("NAME", stages=[Split, Total], partitions=2)
"""
MENDED = ('record.value["amount"]', 'record.value.get("amount", record.value.get("amuont", 0))')
ORDERS = [("ann", {"amount": 5}), ("bob", {"amuont": 1}), ("ann", {"amuont": 2}), ("cid", {"amount": -1})]

# Dies by SIGKILL in the second transaction: on Kafka when the broker has its records, on a file before or after it.
KILLED = """
import os, signal, sys
from grete.cli import command_line
from grete.job import dead_letters
from grete.logs.embedded import EmbeddedLog
from grete.logs.kafka.write.whole_writer import WholeWriter
dead_letters.REDRIVE_RECORDS = 20
when, seen = sys.argv.pop(1), []
def die():
    os.kill(os.getpid(), signal.SIGKILL)
produce, call = EmbeddedLog.produce_with_meta, WholeWriter._call
def file(log, records, meta, *, sync=False):
    seen.append(1)
    if when == "before" and len(seen) == 2:
        die()
    produce(log, records, meta, sync=sync)
    if when == "after" and len(seen) == 2:
        die()
    return -1
def kafka(writer, function, doing):
    seen.append(doing)
    second = doing == "committing" and seen.count(doing) == 2
    if second and when == "before":
        writer._producer.flush(60)
        die()
    call(writer, function, doing)
    if second:
        die()
EmbeddedLog.produce_with_meta, WholeWriter._call = file, kafka
sys.exit(command_line())
"""


class Shop:
    """A job with letters of two stages, in a folder of its own."""

    def __init__(self, folder: Path, name: str = "shop", log: str = "embedded", code: str = JOB) -> None:
        self.folder, self.name, self.log = folder, name, log
        (folder / "shop.py").write_text(code.replace("NAME", name))

    def feed(self, orders: list[tuple[str, dict[str, int]]]) -> None:
        """Run the job over these orders."""
        lines = "".join(f"{customer}\t{json.dumps(order)}\n" for customer, order in orders)
        self("run", "shop.py", f"--input={self.name}-orders=-", "--keys", stdin=lines)

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Run a command to its good end; return what it printed."""
        return grete(*arguments, f"--log={self.log}", cwd=self.folder, stdin=stdin)

    def dlq(self, command: str, *options: str) -> str:
        """Run a command about dead letters."""
        return self("dlq", command, "shop.py", *options)

    def orders(self) -> "Counter[tuple[bytes | None, bytes | None]]":
        """Return the records of the input, each with how often it is there."""
        found = Counter[tuple[bytes | None, bytes | None]]()
        with closing(open_reader(LogAddress(self.log), self.folder / ".grete" / self.name / "log.db")) as log:
            for number in range(log.partitions(f"{self.name}-orders") or 0):
                at = TopicPartition(f"{self.name}-orders", number)
                found.update((row.key, row.value) for row in rows_left(log, at, *log.bounds(at)))
        return found


def sums(shop: Shop) -> dict[str, str]:
    """Return the totals by customer."""
    lines = shop("state", "scan", "shop.py", "sums").splitlines()
    return dict(line.split("\t") for line in lines)


def test_letters_are_counted_shown_and_sent_again(tmp_path: Path) -> None:
    """The job is mended, the letters go back, each once; those of a stream between stages cannot."""
    shop = Shop(tmp_path)
    shop.feed(ORDERS)
    counts = {(row["dlq"], row["error"]): row for row in map(json.loads, shop.dlq("list", "--json").splitlines())}
    assert counts["shop-refused", "KeyError"]["letters"] == 2
    assert counts["shop-broken", "ValueError"]["topic"] == "shop-parts"
    shown = [
        json.loads(line) for line in shop.dlq("show", "--json", "--where=error=amount", "--where=key=bob").splitlines()
    ]
    assert [(each["key"], each["value"], each["topic"]) for each in shown] == [("bob", '{"amuont": 1}', "shop-orders")]
    assert 'in process\n    self.out.send(record.key, record.value["amount"])' in shown[0]["traceback"]
    code = (tmp_path / "shop.py").read_text()
    (tmp_path / "shop.py").write_text(code.replace(*MENDED))
    assert shop.dlq("redrive", "--where=key=bob") == "shop-orders: sent again: 1\n"
    said = shop.dlq("redrive").splitlines()
    assert said[0] == "shop-orders: sent again: 1"
    assert said[1].startswith("shop-parts: left: 1: the job reads no topic of this name from outside")
    assert shop.dlq("redrive").splitlines() == said[1:]
    shop("run", "shop.py")
    assert sums(shop) == {"ann": "7", "bob": "1"}
    assert {
        row["sent_again"]
        for row in map(json.loads, shop.dlq("list", "--json").splitlines())
        if row["dlq"] == "shop-refused"
    } == {2}


TIMED = """
from grete import *
visits = Topic("visits", key=utf8, value=utf8)
refused = Topic("refused", key=utf8, value=utf8)

class Hours(Task):
    visits = Input(visits)
    hours = TumblingWindow("hours", 10, key=utf8, value=json(dict[str, int]), errors=DeadLetter(refused))
    timers = Timers(errors=DeadLetter(refused))
    pairs = IntervalJoin("pairs", key=utf8, left=utf8, right=utf8, before_ms=0, after_ms=5, how="left",
                         errors=DeadLetter(refused))
    def process(self, record):
        self.pairs.put_left(record.key, record.timestamp, record.value)
        self.hours.update(record.key, record.timestamp, lambda before: {"n": 1 + (before or {"n": 0})["n"]})
        self.timers.schedule(record.timestamp + 1, f"of {record.key}")
    def on_timer(self, timer):
        raise ValueError(f"timer of {timer.key}")
    def on_window(self, window):
        window.value["n"] = -1  # the letter has what was there before
        raise LookupError(window.key)
    def on_join(self, pair):
        raise KeyError(pair.left)

job = Job("timed", stages=[Hours])
"""


def test_letters_of_timers_windows_and_joins_are_shown_and_not_sent(tmp_path: Path) -> None:
    """They are told apart by what failed, with key and value as the code declares them. No record can be sent again."""
    shop = Shop(tmp_path)
    (tmp_path / "shop.py").write_text(TIMED)
    lines = ["ann\thome\n", "bob\thome\n"]
    shop("run", "shop.py", "--input=visits=-", "--keys", stdin=lines[0])
    shop("run", "shop.py", "--input=visits=-", "--keys", stdin=lines[1])
    rows = {row["topic"]: row for row in map(json.loads, shop.dlq("list", "--json").splitlines())}
    assert {(name, row["error"], row["letters"]) for name, row in rows.items()} == {
        ("timer", "ValueError", 1),
        ("window hours", "LookupError", 1),
        ("join pairs", "KeyError", 1),
    }
    (join,) = (json.loads(line) for line in shop.dlq("show", "--json", "--where=join=pairs").splitlines())
    assert (join["key"], join["value"], join["side"]) == ("ann", "home", "left")
    (window,) = (json.loads(line) for line in shop.dlq("show", "--json", "--where=window=hours").splitlines())
    assert (window["key"], window["value"], window["final"]) == ("ann", '{"n": 1}', "true")
    assert "in on_window\n    raise LookupError(window.key)" in window["traceback"]
    (timer,) = (json.loads(line) for line in shop.dlq("show", "--json", "--where=error=timer of").splitlines())
    assert (timer["key"], timer["value"]) == ("of ann", "null")
    assert int(timer["timer"]) > 0
    assert shop.dlq("redrive").splitlines() == [
        "join pairs: left: 1: no record of an input failed",
        "timer: left: 1: no record of an input failed",
        "window hours: left: 1: no record of an input failed",
    ]


SHARED = """
from grete import DeadLetter, Input, Job, Store, Task, Topic, int64, json, utf8
orders = Topic("NAME-orders", key=int64, value=json)
rates = Topic("rates", key=int64, value=json)
refused = Topic("refused", key=int64, value=json)

class Convert(Task):
    orders = Input(orders, errors=DeadLetter(refused))
    rates = Input(rates, broadcast=True, errors=DeadLetter(refused))
    sums = Store("sums", key=int64, value=int64)
    def process(self, record):
        self.sums.put(record.key, self.sums.get(record.key, 0) + record.value["n"])

class Count(Task):
    orders = Input(orders, errors=DeadLetter(refused))
    def process(self, record):
        record.value["n"]

job = Job("NAME", stages=[Convert, Count], partitions=3)
"""


def test_a_record_that_several_tasks_refused_is_sent_once(tmp_path: Path) -> None:
    """Each task that reads a topic whole writes a letter, and so does each stage; a key is given as it is shown."""
    shop, code = Shop(tmp_path, "shared", code=SHARED), dict[str, Any]()
    exec(SHARED.replace("NAME", "shared"), code)
    with Client(code["job"], directory=tmp_path / ".grete" / "shared") as client:
        for number in (1, 2):
            client.send(code["rates"], number, {}, timestamp=5)
            client.send(code["orders"], number, {}, timestamp=5)
    shop("run", "shop.py")
    rows = [json.loads(line) for line in shop.dlq("list", "--json").splitlines()]
    assert Counter((row["stage"], row["topic"], row["letters"]) for row in rows) == Counter(
        [("convert", "rates", 6), ("convert", "shared-orders", 2), ("count", "shared-orders", 2)]
    )
    shown = [json.loads(line)["key"] for line in shop.dlq("show", "--json", "--where=topic=rates").splitlines()]
    assert shown.count("2") == 3
    assert shop.dlq("redrive", "--where=key=2", "--where=dlq=refused") == (
        "rates: sent again: 1\nshared-orders: sent again: 1\n"
        "rates: more letters of records that were sent: 2\nshared-orders: more letters of records that were sent: 1\n"
    )
    assert "no letter to send" in shop.dlq("redrive", "--where=key=2")
    assert shop.dlq("redrive", "--where=stage=count") == "shared-orders: sent again: 1\n"
    assert (
        shop.dlq("redrive", "--where=topic=shared-orders")
        == "shared-orders: more letters of records that were sent: 1\n"
    )
    assert len(shop.orders()) == 2
    assert set(shop.orders().values()) == {2}


def test_a_mistake_in_a_condition_names_the_fields(tmp_path: Path) -> None:
    """Before anything is read."""
    shop = Shop(tmp_path)
    with pytest.raises(AssertionError, match="write FIELD=TEXT, with one of the fields dlq, partition"):
        shop.dlq("redrive", "--where=amount=5")


def test_a_job_without_a_dead_letter_topic_is_told_how(tmp_path: Path) -> None:
    """Not an empty table."""
    shop = Shop(tmp_path)
    code = (tmp_path / "shop.py").read_text()
    for topic in ("refused", "broken"):
        code = code.replace(f", errors=DeadLetter({topic})", "")
    (tmp_path / "shop.py").write_text(code)
    shop.feed(ORDERS[:1])
    with pytest.raises(AssertionError, match=r"write Input\(…, errors=DeadLetter\(topic\)\)"):
        shop.dlq("list")


def killed(shop: Shop, when: str) -> None:
    """Kill a redrive at its second transaction, then repeat it: each letter is back once."""
    shop.feed([(f"customer {number}", {"amuont": number}) for number in range(100)])
    before = shop.orders()
    command = [*forking.TEXT, KILLED, when, "dlq", "redrive", "shop.py", f"--log={shop.log}"]
    done = subprocess.run(
        command,
        cwd=shop.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    shop.dlq("redrive")
    assert shop.orders() == before + before
    assert "no letter to send" in shop.dlq("redrive")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_redrive_is_repeated(tmp_path: Path, when: str) -> None:
    """On the embedded log: records and the note that they were sent are one transaction."""
    killed(Shop(tmp_path), when)


@pytest.mark.kafka
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_redrive_is_repeated_on_kafka(kafka_broker: Broker, tmp_path: Path, when: str) -> None:
    """On Kafka: the broker has the records of a transaction that was never committed, and drops them."""
    cluster = Cluster(kafka_broker.bootstrap, tmp_path)
    cluster.make(cluster.orders, 2)
    killed(Shop(tmp_path, cluster.name, cluster.log), when)


def test_after_a_rescale_a_record_goes_to_the_partition_of_its_key(tmp_path: Path) -> None:
    """Its letter names the one it came from, which is still there and has another task's keys now."""
    shop = Shop(tmp_path)
    code = (tmp_path / "shop.py").read_text()
    wrong, count = [(f"customer {number}", {"amuont": number}) for number in range(1, 13)], "partitions=2"
    shop.feed(wrong)
    shop("rescale", "shop.py", "--partitions=3")
    (tmp_path / "shop.py").write_text(code.replace(*MENDED).replace(count, "partitions=3"))
    assert shop.dlq("redrive") == "shop-orders: sent again: 12\n"
    with closing(open_reader(LogAddress("embedded"), tmp_path / ".grete" / "shop" / "log.db")) as log:
        for number in range(3):
            at = TopicPartition("shop-orders", number)
            start, end = log.bounds(at)
            again = [row for row in rows_left(log, at, start, end) if row.offset >= end - again_in(number, wrong, 3)]
            assert [partition_of(row.key or b"", 3) for row in again] == [number] * again_in(number, wrong, 3)
    shop("run", "shop.py")
    assert sums(shop) == {customer: str(order["amuont"]) for customer, order in wrong}


def again_in(number: int, orders: list[tuple[str, dict[str, int]]], partitions: int) -> int:
    """Return the number of the orders that belong to a partition."""
    return sum(partition_of(customer.encode(), partitions) == number for customer, _ in orders)
