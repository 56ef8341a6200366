"""Tracing of tasks: contexts go through streams and outputs, spans join, and a replay makes the same of both."""

import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from grete import Call, DeadLetter, Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, int64, utf8
from grete.errors import ConfigError
from grete.execution.records.trace_context import CURRENT, context_of
from grete.settings import Settings
from grete.testing import Kit
from tests.tracing.exported import exported, ids

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
HEADER = ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
NOT_SAMPLED = ("traceparent", HEADER[1][:-1] + b"0")

LINES = Topic("lines", key=utf8, value=utf8)
WORDS = Topic("words", key=utf8, value=utf8)
OUT = Topic("out", key=utf8, value=utf8)
LETTERS = Topic("letters", key=utf8, value=utf8)


class Split(Task):
    lines = Input(LINES)
    out = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(word, record.key)


class Count(Task):
    words = Input(WORDS, errors=DeadLetter(LETTERS))
    counts = Store("counts", key=utf8, value=int64)
    timers = Timers()
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        if record.key == "poison":
            raise ValueError(record.key)
        n = self.counts.get(record.key, 0) + 1
        self.counts.put(record.key, n)
        self.timers.schedule(self.ctx.now() + 3, record.key)
        self.out.send(record.key, f"{n} {self.ctx.uuid()}")

    def on_timer(self, timer: Timer) -> None:
        self.out.send(timer.key, "timer")


def length(word: str) -> int:
    """Return the answer that a service would give."""
    return len(word)


class Ask(Task):
    words = Input(WORDS)
    ask = Call(length, result=int64)
    out = Output(OUT)

    async def process(self, record: Record[str, str]) -> None:
        found = await self.ask(record.key)
        self.out.send(record.key, f"{found}")
        self.out.send(record.key, "done", headers=record.headers)


COUNTING = Job("j", [Split, Count], partitions=2, mode="deterministic")
ASKING = Job("j", [Split, Ask], partitions=2, mode="deterministic")


def kit_of(mode: Any, last: type[Task] = Count, per_million: int = 0) -> Kit:
    """Return a kit with tracing on."""
    job = Job("j", [Split, last], partitions=2) if mode == "aligned" else COUNTING if last is Count else ASKING
    return Kit(job, settings=Settings(tracing="on", traced_per_million=per_million, checkpoint_interval_ms=50))


def contexts(kit: Kit, topic: Topic[Any, Any] = OUT) -> list[Any]:
    """Return the trace contexts of the outputs, each with key and value."""
    return [(record.key, record.value, context_of(record.headers)) for record in kit.outputs(topic)]


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("last", [Count, Ask])
def test_a_record_is_followed_from_the_source_to_the_sink(mode: Any, last: type[Task]) -> None:
    """Process, send, process, send: one chain of spans from the producer's, that the outputs' headers end."""
    with exported() as spans:
        kit = kit_of(mode, last)
        kit.feed(LINES, "a", "to be", headers=[HEADER])
        kit.feed(LINES, "b", "not this")
        kit.run()
        found = {ids(span)[1]: span for span in spans() if ids(span)[0] == TRACE}
    outputs = [each for each in contexts(kit) if each[2] is not None]
    assert {key for key, _, _ in outputs} == {"to", "be"}
    for _, value, context in outputs:
        assert context is not None
        names, at = list[str](), context.span_id
        while at != SPAN:
            names.append(found[at].name)
            at = ids(found[at])[2]
        assert (context.trace_id, value == "timer") == (TRACE, False)  # a timer is no record
        assert names == ["send out", "process words", "send words", "process lines"]
    assert len({context.span_id for _, _, context in outputs if context}) == len(outputs)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_a_context_that_is_not_sampled_goes_on_without_spans(mode: Any) -> None:
    """Its flag stays 00, for readers of the output."""
    with exported() as spans:
        kit = kit_of(mode)
        kit.feed(LINES, "a", "to", headers=[NOT_SAMPLED])
        kit.run()
        assert [span.name for span in spans()] == []
    context = contexts(kit)[0][2]
    assert (context.trace_id, context.sampled) == (TRACE, False)


def test_a_source_samples_what_has_no_context() -> None:
    """By topic, partition and offset; the trace begins with the source's span."""
    with exported() as spans:
        kit = kit_of("aligned", per_million=1_000_000)
        kit.feed(LINES, "a", "to")
        kit.run()
        found = spans()
    (context,) = [context for _, value, context in contexts(kit) if value != "timer"]
    (root,) = [span for span in found if ids(span)[0] == context.trace_id and not ids(span)[2]]
    assert root.name == "process lines"
    assert root.attributes is not None
    assert (root.attributes["grete.stage"], root.attributes["grete.offset"]) == ("split", 0)


def test_a_batch_has_links_and_a_checkpoint_one_trace() -> None:
    """The span of a batch links to its sampled records; commits of all tasks have one trace, from the source on."""
    with exported() as spans:
        kit = kit_of("aligned", per_million=1_000_000)
        for number in range(200):
            kit.feed(LINES, "a", f"{number}", headers=[HEADER])
        kit.run()
        found = spans()
    batches = [span for span in found if span.name == "batch lines"]
    records = {ids(span)[1] for span in found if span.name == "process lines"}
    assert 128 == max(len(span.links) for span in batches)  # bounded
    assert all(link.context.span_id in records for span in batches for link in span.links)
    commits = [span for span in found if span.name == "checkpoint"]
    by_id = {ids(span)[1]: span for span in commits}
    traces = Counter(ids(span)[0] for span in commits)
    assert max(traces.values()) == 4  # tasks
    for span in commits:
        assert span.attributes is not None
        if span.attributes["grete.stage"] == "count" and ids(span)[2] in by_id:
            before = by_id[ids(span)[2]]
            assert before.attributes is not None
            assert before.attributes["grete.stage"] == "split"
            assert before.attributes["grete.checkpoint_id"] == span.attributes["grete.checkpoint_id"]


@pytest.mark.parametrize("last", [Count, Ask])
def test_crashes_change_no_byte_of_a_deterministic_jobs_outputs(last: type[Task]) -> None:
    """Digests cover headers: a crash behind each step, and a replay elsewhere, make the same contexts."""
    kit = kit_of("deterministic", last, per_million=500_000)
    for number in range(6):
        kit.feed(LINES, f"{number}", f"to be {number}", headers=[HEADER] if number % 2 else [])
        kit.advance(20)
    kit.run(crashes=12, seed=5)
    assert sum(context is not None for _, _, context in contexts(kit)) > 6
    with exported() as spans:
        kit.check_determinism()
        assert spans() == []  # they were told before


def test_a_failed_record_is_found_by_its_trace() -> None:
    """A dead letter has the context of its record; the ids of log lines stay until the next record."""
    kit = kit_of("aligned")
    kit.feed(LINES, "a", "poison", headers=[HEADER])
    kit.run()
    (letter,) = kit.outputs(LETTERS)
    context = context_of(letter.headers)
    assert context is not None
    assert context.trace_id == TRACE
    assert CURRENT.logged is not None
    assert CURRENT.logged.trace_id == TRACE
    assert CURRENT.trace is None
    kit.feed(LINES, "a", "fine")
    kit.run()
    assert CURRENT.logged is None


def test_off_nothing_of_it_is_imported() -> None:
    """By default: no header, no span, no package of OpenTelemetry."""
    code = (
        "import sys; from tests.tracing import test_off as it; it.run();"
        "print([n for n in sys.modules if n.startswith('opentelemetry') or n == 'grete.execution.engine.tracing'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_on_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is missing: the job does not start."""
    monkeypatch.setitem(sys.modules, "grete.execution.engine.spans", None)
    monkeypatch.delitem(sys.modules, "grete.execution.engine.spans")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"pip install 'grete\[otel\]'"):
        kit_of("aligned").run()
