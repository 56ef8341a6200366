"""Calls in batch: what is recorded of a live run is taken again, and what is not is called only by a backfill."""

import pytest

from grete import Call, Input, Job, Record, Store, Task, Topic, utf8
from grete.api.tasks.mode import Mode
from grete.batch.channels import channels_of
from grete.batch.check import check_no_calls
from grete.batch.history_task import HistoryTask
from grete.batch.logical_order import LogicalOrder, recorded_order
from grete.batch.record_order import pieces_of_rows
from grete.errors import ConfigError
from grete.execution.calls.kept_results import is_kept
from grete.execution.job_task import JobTask
from grete.execution.timing.reserved_stores import META
from grete.logs.memory import MemoryLog
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.spark.backfill.run.batch_task import BatchTask
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.recorded_task import recorded_task
from grete.testing import Kit
from tests.batch.test_deterministic import at_rest
from tests.calls.test_kit import RECORDS, One, Two, asked, numbers
from tests.support.http_server import serving
from tests.support.local_batch import run_job


def orders_of(kit: Kit) -> dict[int, LogicalOrder]:
    """Return the orders that the tasks of a kit have recorded, by producer id."""
    tasks = {w.producer: recorded_task(MemoryLog(kit._data), w.changelog) for w in all_wirings(kit.job)}
    return {producer: recorded_order(task, task.commits[-1]) for producer, task in tasks.items()}


def test_what_calls_have_returned_in_a_live_run_is_taken_again() -> None:
    """Every entry of every store is the same to the byte, and no call is made; through crashes, two stages."""
    kit = Kit(Job("draws", [One, Two], partitions=2, mode="deterministic"))
    for number in range(RECORDS):
        kit.feed(asked, f"k{number % 7}", str(number))
    kit.run(crashes=12, seed=5)
    kit.run()
    found = {
        (kit.job.stage(stage).ordinal, partition): {
            store: {key: value for key, value in view.values.items() if not (store == META and is_kept(key))}
            for store, view in hosted.disk.stores.items()
        }
        for (stage, partition), hosted in kit._tasks.items()
    }
    drawn = next(numbers)
    results = run_job(kit.job, lambda source: kit._data.partition(source).rows, orders=orders_of(kit))
    assert next(numbers) == drawn + 1
    made = {
        task: {store: {k: v for s, k, v in result.state if s == store} for store in found[task]}
        for task, result in results.items()
    }
    assert at_rest(made) == at_rest(found)


url = [""]


async def asks(what: str) -> str:
    """Ask the server, away from the loop."""
    import asyncio
    from urllib.request import urlopen

    def ask() -> str:
        with urlopen(f"{url[0]}/{what}", timeout=30) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(ask)


class Ask(Task):
    """Keeps the answer for each key, whatever its code makes of errors."""

    records = Input(Topic("asked", key=utf8, value=utf8))
    ask = Call(asks, result=utf8, attempts=3)
    answers = Store("answers", key=utf8, value=utf8)
    in_flight = 4

    async def process(self, record: Record[str, str]) -> None:
        """Ask."""
        try:
            self.answers.put(record.key, await self.ask(record.value))
        except Exception as error:  # noqa: BLE001  # as users write it
            self.answers.put(record.key, f"none: {error}")


def in_batch(mode: Mode, order: LogicalOrder, *, makes_calls: bool) -> dict[str, str]:
    """Run one task over twelve records; return the answers that it keeps."""
    job, source = Job("asks", [Ask], partitions=1, mode=mode), TopicPartition("asked", 0)
    declared = JobTask(job.stages[0], job.topology(), 0)
    task = BatchTask(HistoryTask(declared, Settings(), {}, order=order, makes_calls=makes_calls))
    try:
        rows = [LogRow(n, 0, n, b"k%d" % n, b"%d" % (n % 6), None) for n in range(12)]
        (channel,) = channels_of(job.topology(), 0, 0).values()
        pieces = pieces_of_rows(source, channel, rows, Settings().batch_bytes_max, None)
        if mode == "deterministic":
            pieces = order.of(source, 0, pieces, (), first=False)
        for sent in (*task.run(pieces), *task.finish()):
            assert not sent
        store = job.stages[0].stores["answers"]
        number = job.stages[0].store_ids()[store.name]
        return {k.decode(): v.decode() for s, k, v in task.state(1, outbox=False) if s == number}
    finally:
        task.close()


HISTORY = LogicalOrder(1_000_000)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_a_backfill_makes_each_call_once_bounded_and_again_if_it_fails(mode: Mode) -> None:
    """No more are under way than the task says; two that fail at first are made again."""
    failed = iter([500, 500])

    def answer(what: str) -> tuple[int, bytes]:
        return (next(failed, 200) if what == "3" else 200), b"<" + what.encode() + b">"

    with serving(answer) as server:
        url[0] = server.url
        found = in_batch(mode, HISTORY, makes_calls=True)
    assert found == {f"k{n}": f"<{n % 6}>" for n in range(12)}
    assert server.asked == {str(n): 4 if n == 3 else 2 for n in range(6)}
    assert server.most <= Ask.in_flight


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_an_audit_makes_no_call_that_is_not_recorded(mode: Mode) -> None:
    """It says what to do, also if the code of the task catches all errors."""
    with serving(lambda _: (200, b"")) as server:
        url[0] = server.url
        with pytest.raises(ConfigError, match=r"stage ask calls asks for a record of the history .*--make-calls"):
            in_batch(mode, HISTORY._replace(is_live=True), makes_calls=False)
    assert not server.asked


def test_a_dry_run_of_a_job_that_makes_calls_is_refused() -> None:
    """Before anything is read: it would make them, and a service would do what it is asked for."""
    with pytest.raises(ConfigError, match=r"^stage one makes calls, and a dry run makes none"):
        check_no_calls(Job("draws", [One, Two]).live)
    check_no_calls(Job("quiet", [Plain]).live)


class Plain(Task):
    """Makes no calls."""

    asked = Input(asked)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""
