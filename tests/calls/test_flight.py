"""Records in flight, stepped by hand: which begin, in which order they take effect, and what is refused."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import pytest

from grete import BatchCall, Input, Job, Store, Task, Topic, TumblingWindow, int64, utf8
from grete.api.tasks.calls import AnyCall, Call
from grete.errors import GraphError, Halted, TaskError
from grete.execution.calls.effects import IsolatedStore
from grete.execution.calls.flight import CHANGED_MIN, RecordInFlight, Records
from grete.protocol.notes import CallResult
from grete.stores.memory import MemoryStore
from grete.stores.overlay.overlay import Overlay

STORE = 10
Body = Callable[["Bench"], Awaitable[None]]


def echo(what: str) -> str:
    """Return the argument."""
    return what


ECHO = Call(echo, result=utf8)


class Bench:
    """A task's records, one store of it, and the calls that wait to be answered by the test."""

    def __init__(self, in_flight: int = 3, recorded: dict[int, tuple[CallResult, ...]] | None = None) -> None:
        self.asked: dict[str, Future[str]] = {}
        self.done: list[str] = []
        self.errors: list[Exception] = []
        self.records = Records(self, in_flight, lambda: 0)
        self.records.recall(recorded or {})
        overlay = Overlay(
            MemoryStore({STORE: "s"}), [STORE], uncommitted_state_bytes_max=1 << 20, read_cache_bytes_max=1 << 20
        )
        self.entries = overlay.store(STORE)
        self.store = IsolatedStore(STORE, self.entries, self.records)

    def begin(self, call: AnyCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[str]:
        """Keep a call for ``answer``."""
        future: Future[str] = Future()
        self.asked[args[0]] = future
        return future

    def ask(self, what: str) -> Awaitable[str]:
        """Call, as the code of a record does."""
        return self.records.call(ECHO, (what,), {})

    def add(self, name: str, body: Body, key: bytes | None = None) -> None:
        """Line a record up. In its turn its writes are done and its name is kept."""

        def turn(record: RecordInFlight) -> None:
            if record.effects.error is not None:
                self.errors.append(record.effects.error)
            for (_, at), value in record.effects.writes.items():
                self.store.delete(at) if value is None else self.store.put(at, value)
            self.done.append(name)

        self.records.add(RecordInFlight(turn, lambda: body(self), key))  # type: ignore[arg-type, return-value]  # any body does
        self.records.work()

    def answer(self, *what: str) -> None:
        """Let calls return."""
        for each in what:
            self.asked.pop(each).set_result(each)
        self.records.work()


def asks(name: str) -> Body:
    """Return code that makes one call."""

    async def body(bench: Bench) -> None:
        await bench.ask(name)

    return body


def counts(name: str) -> Body:
    """Return code that reads a total, makes a call, and adds one."""

    async def body(bench: Bench) -> None:
        total = int(bench.store.get(b"total") or 0)
        await bench.ask(name)
        bench.store.put(b"total", b"%d" % (total + 1))

    return body


def test_records_take_effect_in_their_order() -> None:
    """Records take effect in their order, however their calls return; steps between them have their turn in between."""
    bench = Bench()
    bench.add("a", asks("a"))
    bench.records.then(lambda: bench.done.append("step"))
    bench.add("b", asks("b"))
    bench.answer("b")
    assert (bench.done, bench.records.count) == ([], 3)
    bench.answer("a")
    assert (bench.done, bench.records.count) == (["a", "step", "b"], 0)


def test_records_of_one_key_run_one_after_the_other_and_a_bound_holds_the_others() -> None:
    """The first record of all may begin in any case."""
    bench = Bench(in_flight=2)
    for name, key in (("a", b"k"), ("b", b"k"), ("c", b"l"), ("d", b"m")):
        bench.add(name, asks(name), key)
    assert [*bench.asked] == ["a", "c"]
    assert bench.records.full
    bench.answer("a")
    assert [*bench.asked] == ["c", "b"]
    bench.answer("b")
    bench.answer("c")
    assert [*bench.asked] == ["d"]
    bench.answer("d")
    assert bench.done == ["a", "b", "c", "d"]


def test_a_record_that_has_read_what_another_changed_runs_again() -> None:
    """And makes its calls again: the total is that of one record after the other."""
    bench = Bench()
    for name in "abc":
        bench.add(name, counts(name))
    bench.answer("c", "b", "a")
    assert (bench.done, [*bench.asked]) == (["a"], ["b"])
    bench.answer("b")
    bench.answer("c")
    assert (bench.done, bench.entries.get(b"total")) == (["a", "b", "c"], b"3")


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_sees_the_own_writes_and_is_a_read_of_its_range(reverse: bool) -> None:  # a parameter
    """A change within the range makes the record run again, one beside it does not."""
    seen: list[list[tuple[bytes, bytes]]] = []

    def scans(name: str) -> Body:
        async def body(bench: Bench) -> None:
            bench.store.put(b"b", b"own")
            bench.store.delete(b"c")
            seen.append([*bench.store.scan(b"a", b"m", reverse=reverse)])
            assert bench.store.get_many([b"b", b"c", b"a"]) == [b"own", None, bench.entries.get(b"a")]
            await bench.ask(name)

        return body

    def writes(key: bytes) -> Body:
        async def body(bench: Bench) -> None:
            await bench.ask(key.decode())
            bench.store.put(key, b"theirs")

        return body

    bench = Bench(in_flight=4)
    bench.store.put(b"c", b"3")
    for name, body in (("z", writes(b"z")), ("one", scans("one")), ("d", writes(b"d")), ("two", scans("two"))):
        bench.add(name, body)
    bench.answer("z", "one", "d", "two")
    assert (bench.done, len(seen)) == (["z", "one", "d"], 3)
    bench.answer("two")
    ordered = [(b"b", b"own"), (b"d", b"theirs")]
    assert bench.done == ["z", "one", "d", "two"]
    assert seen[-1] == (ordered[::-1] if reverse else ordered)


def test_changes_that_no_record_can_have_missed_are_forgotten() -> None:
    """Memory is bounded, even if some record is in flight at each moment."""

    def writes(name: str) -> Body:
        async def body(bench: Bench) -> None:
            await bench.ask(name)
            bench.store.put(name.encode(), b"")

        return body

    bench = Bench()
    for number in range(3 * CHANGED_MIN):
        bench.add(str(number), writes(str(number)))
        if number:
            bench.answer(str(number - 1))
    assert bench.records.count == 1
    assert len(bench.records._changed) <= CHANGED_MIN + 1


def test_what_a_dropped_record_still_does_is_lost() -> None:
    """A rollback ends its code, and cancels its calls; nothing of it is left."""

    async def tidies(bench: Bench) -> None:
        try:
            await bench.ask("x")
        finally:
            bench.store.put(b"k", b"left")

    bench = Bench()
    bench.add("a", tidies)
    (future,) = bench.asked.values()
    bench.records.clear()
    assert (future.cancelled(), bench.records.count, bench.entries.get(b"k"), bench.done) == (True, 0, None, [])
    assert not bench.records.work()


def test_only_calls_may_be_awaited() -> None:
    """Anything else would have no time-out, and a replay would not know its result."""

    async def sleeps(_: Bench) -> None:
        await asyncio.sleep(1)

    async def yields(_: Bench) -> None:
        await asyncio.sleep(0)

    bench = Bench()
    bench.add("a", sleeps)
    bench.add("b", yields)
    assert [type(error) for error in bench.errors] == [TaskError, TaskError]
    assert all("declare NAME = Call(function)" in str(error) for error in bench.errors)
    with pytest.raises(TaskError, match="used outside of async def process"):
        bench.ask("x")


def result(*texts: str) -> tuple[CallResult, ...]:
    """Return recorded results."""
    return tuple(CallResult(ok=True, data=text.encode()) for text in texts)


def test_recorded_results_take_the_place_of_calls() -> None:
    """Up to the last record with one, each runs in its turn; behind it calls are made again."""
    bench = Bench(recorded={0: result("a"), 2: result("c")})

    async def none(_: Bench) -> None:
        """Make no call."""

    for name, body in (("a", asks("a")), ("b", none), ("c", asks("c")), ("d", asks("d"))):
        bench.add(name, body)
    assert (bench.done, [*bench.asked]) == (["a", "b", "c"], ["d"])


def test_another_number_of_calls_than_recorded_halts() -> None:
    """Even if the code catches what it is told."""

    async def catches(bench: Bench) -> None:
        try:
            await bench.ask("x")
            await bench.ask("y")
        except Exception:  # noqa: BLE001  # code that swallows everything
            pass

    with pytest.raises(Halted, match="of 1 calls, and now it calls echo as one more"):
        Bench(recorded={0: result("x")}).add("a", catches)
    with pytest.raises(Halted, match="of 2 calls, and now it makes 1"):
        Bench(recorded={0: result("x", "y")}).add("a", asks("x"))


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"window": TumblingWindow("w", 1, utf8, int64), "on_window": print}, "an async process and a TumblingWindow"),
        ({"store": Store("s", key=utf8, value=int64, ttl_ms=5)}, "an async process and a store with ttl_ms="),
        ({"in_flight": 0}, "in_flight = 0: need a whole number above 0"),
        ({"process": lambda *_: None, "ask": ECHO}, "declares the call 'ask' and awaits none"),
    ],
)
def test_what_cannot_be_beside_an_async_process_is_refused(members: dict[str, Any], text: str) -> None:
    """The job's build refuses declarations that do not fit an async process."""

    async def process(self: Any, record: Any) -> None:
        """Do nothing."""

    with pytest.raises(GraphError, match=text):
        Job("j", [type("T", (Task,), {"name": "t", "i": Input(Topic("i", utf8, utf8)), "process": process} | members)])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Call(echo, timeout_ms=0), "Call of echo: timeout_ms = 0: need a whole number above 0"),
        (lambda: BatchCall(list, min=3, max=2), "BatchCall of list: min = 3 is above max = 2"),
        (lambda: BatchCall(list, pool="fibres"), "pool = 'fibres': need 'threads' or 'processes'"),  # type: ignore[arg-type]  # wrong
    ],
)
def test_unfit_calls_are_refused(make: Callable[[], object], text: str) -> None:
    """The declaration of an unfit call is refused."""
    with pytest.raises(Exception, match=text):
        make()


class Waiting:
    """Timers that are due and left, until the test says otherwise."""

    holds = True

    def begin_slice(self) -> None:
        """Do nothing."""


def test_a_record_with_recorded_results_begins_behind_the_timers_before_it() -> None:
    """It runs alone: that a timer has changed what it had read would not be noticed (E10)."""
    bench, due, seen = Bench(recorded={0: result("x")}), Waiting(), list[bytes | None]()
    bench.records.due = due

    async def reads(bench: Bench) -> None:
        await bench.ask("x")
        seen.append(bench.store.get(b"k"))

    bench.add("a", reads)
    bench.store.put(b"k", b"of a timer")
    due.holds = False
    bench.records.work()
    assert (seen, bench.done) == ([b"of a timer"], ["a"])
