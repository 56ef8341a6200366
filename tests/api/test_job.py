"""Job: which graph the declarations make, and which are refused."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from grete import (
    Call,
    DeadLetter,
    Files,
    Input,
    Job,
    Output,
    Record,
    Store,
    Task,
    Timers,
    Topic,
    TumblingWindow,
    int64,
    json,
    utf8,
)
from grete.api.jobs.graph import stage_name
from grete.api.tasks.methods import METHODS
from grete.core.graph.topology import Stage, Stream
from grete.errors import ConfigError, GraphError

A, B, C = (Topic(name, key=utf8, value=utf8) for name in ("a", "b", "c"))


def _ignore(_self: Task, _record: Record[Any, Any]) -> None:
    """Do nothing with a record."""


def stage(name: str, reads: Any = (A,), writes: Any = (), **attributes: Any) -> type[Task]:
    """Return a task class that reads and writes these topics."""
    members: dict[str, Any] = {"name": name, "process": _ignore}
    members |= {f"in_{i}": topic if isinstance(topic, Input) else Input(topic) for i, topic in enumerate(reads)}
    members |= {f"out_{i}": Output(topic) for i, topic in enumerate(writes)}
    return type(name, (Task,), members | attributes)


def test_word_count_is_one_stage_between_external_topics() -> None:
    """A topic that is only read is a source, one that is only written a sink; neither is a stream."""

    class CountWords(Task):
        lines = Input(A)
        out = Output(B)

        def process(self, record: Record[str, str]) -> None: ...

    job = Job("word-count", stages=[CountWords], partitions=3)
    topology = job.topology()
    assert topology.stages == (Stage("count-words", 0, 3),)
    assert topology.streams == ()
    assert topology.externals_of(0) == ("a",)
    assert job.external_sinks() == {"b": B}
    assert topology.is_source(0)
    assert topology.changelog(0) == "word-count.count-words.changelog"


def test_a_shared_topic_is_a_stream_per_edge() -> None:
    """Two producers and two consumers of a topic are four streams, each named after its edge."""
    job = Job("j", [stage("p", [A], [B]), stage("q", [C], [B]), stage("r", [B]), stage("s", [B, A])], partitions=2)
    topology = job.topology()
    assert topology.streams_into(2) == (Stream("j.p.b.r", 0, 2, 2, "b"), Stream("j.q.b.r", 1, 2, 2, "b"))
    assert [stream.topic for stream in topology.streams_out_of(0)] == ["j.p.b.r", "j.p.b.s"]
    assert topology.external_inputs == {0: ("a",), 1: ("c",), 3: ("a",)}
    assert job.external_sinks() == {}


def test_stages_need_not_be_listed_in_order_of_flow() -> None:
    """Ordinals are indexes of the list, whichever way the records go."""
    topology = Job("j", [stage("last", [B]), stage("first", [A], [B])]).topology()
    assert [(stream.producer, stream.consumer) for stream in topology.streams] == [(1, 0)]


def test_store_ids_follow_the_declarations() -> None:
    """Ids below 10 are reserved; stores, then windows, follow in order of declaration, those of base classes first."""

    class Base(Task):
        z = Store("z", key=utf8, value=utf8)

    class Later(Base):
        lines = Input(A)
        b = Store("b", key=utf8, value=utf8)
        w = TumblingWindow("w", 1000, key=utf8, value=int64)
        a = Store("a", key=utf8, value=utf8)

        def process(self, record: Record[str, str]) -> None: ...

        def on_window(self, window: Any) -> None: ...

    ids = Job("j", [Later]).stages[0].store_ids()
    assert {name: number for name, number in ids.items() if number >= 10} == {"z": 10, "b": 11, "a": 12, "w": 13}
    assert all(name.startswith("_") for name, number in ids.items() if number < 10)


@pytest.mark.parametrize(
    ("name", "stage_is"),
    [("CountWords", "count-words"), ("HTTPLog", "http-log"), ("A", "a"), ("Step2Join", "step2-join"), ("X_y", "x_y")],
)
def test_stages_are_named_after_their_class(name: str, stage_is: str) -> None:
    """A class name becomes kebab case."""
    assert stage_name(type(name, (Task,), {})) == stage_is


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "no stages": (lambda: Job("j", []), "has no stages"),
    "a class": (lambda: Job("j", stage("x")), "stages is a class and no list: stages="),  # type: ignore[arg-type]  # the mistake
    "an instance": (lambda: Job("j", [stage("x")()]), "stages are subclasses of Task"),  # type: ignore[list-item]  # the mistake
    "no inputs": (lambda: Job("j", [stage("x", [])]), "stage 'x' has no input"),
    "no process": (lambda: Job("j", [stage("x", process=None)]), "has no process method"),
    "both processes": (lambda: Job("j", [stage("x", process_batch=print)]), "both process and process_batch"),
    "a cycle": (
        lambda: Job("j", [stage("src", [A], [B]), stage("x", [B, C], [B]), stage("y", [B], [C])]),
        "has a cycle, x → x",
    ),
    "a long cycle": (lambda: Job("j", [stage("x", [A, C], [B]), stage("y", [B], [C])]), "x → y → x"),
    "two stores of a name": (
        lambda: Job("j", [stage("x", s=Store("s", utf8, utf8), t=Store("s", utf8, utf8))]),
        "stage 'x': store 's' clashes with 's'",
    ),
    "stores that differ by case": (
        lambda: Job("j", [stage("x", s=Store("s", utf8, utf8), t=Store("S", utf8, utf8))]),
        "'S' clashes with 's'",
    ),
    "a window named as a store": (
        lambda: Job("j", [stage("x", s=Store("s", utf8, utf8), w=TumblingWindow("s", 1, utf8, utf8), on_window=print)]),
        "'s' clashes with 's'",
    ),
    "two timers": (lambda: Job("j", [stage("x", t=Timers(), u=Timers(), on_timer=print)]), "Timers() twice"),
    "no on_timer": (lambda: Job("j", [stage("x", t=Timers())]), "no on_timer(self, timer)"),
    "no on_window": (
        lambda: Job("j", [stage("x", w=TumblingWindow("w", 1, utf8, utf8))]),
        "no on_window(self, window)",
    ),
    "two serdes": (
        lambda: Job("j", [stage("x", [A], [B]), stage("y", [Topic("b", key=utf8, value=json)])]),
        "topic 'b' has two value serdes, utf8 and json (stage 'y')",
    ),
    "two stages of a name": (lambda: Job("j", [stage("x"), stage("X")]), "stage 'X' clashes with 'x'"),
    "a bad job name": (lambda: Job("a b", [stage("x")]), "job name 'a b' is refused"),
    "a bad stage name": (lambda: Job("j", [stage("a/b")]), "stage name 'a/b' is refused"),
    "a bad store name": (lambda: Job("j", [stage("x", s=Store("_s", utf8, utf8))]), "'_s' is refused"),
    "a bad topic name": (lambda: Job("j", [stage("x", [Topic("", utf8, utf8)])]), "topic name '' is refused"),
    "topics that differ by case": (lambda: Job("j", [stage("x", [A, Topic("A", utf8, utf8)])]), "'A' clashes with 'a'"),
    "one topic read twice": (lambda: Job("j", [stage("x", [A, A])]), "input topic 'a' clashes"),
    "a dead letter that comes back": (
        lambda: Job("j", [stage("x", [Input(A, errors=DeadLetter(B))]), stage("y", [B])]),
        "dead-letter topic 'b' of stage 'x' is an input of stage 'y'",
    ),
    "an unknown policy": (lambda: Job("j", [stage("x", [Input(A, errors="skip")])]), "errors='skip'"),  # type: ignore[arg-type]  # the mistake
    "an unknown policy of timers": (
        lambda: Job("j", [stage("x", [A], t=Timers(errors="skip"), on_timer=print)]),  # type: ignore[arg-type]  # the mistake
        "'t': errors='skip': need 'fail', 'drop' or DeadLetter",
    ),
    "an input of a name": (lambda: Job("j", [stage("x", [Input("a")])]), "need a Topic"),  # type: ignore[arg-type]  # the mistake
    "an output of a name": (
        lambda: Job("j", [stage("x", [A], ["b"])]),
        "need a Topic, a TopicPattern, Files, a Table, Http or External",
    ),
    "an output of a store that hides a topic": (
        lambda: Job("j", [stage("x", [A], [(hidden := Store("b", utf8, utf8))], b=hidden)]),
        "output 'out_0' is of the Store 'b' of the same class, which hides what is called 'b' outside of it",
    ),
    "two outputs to a directory": (
        lambda: Job("j", [stage("x", [A], [Files("d", utf8), Files("d", json)])]),
        "output directory 'd' clashes",
    ),
    "no partitions": (lambda: Job("j", [stage("x")], partitions=0), "partitions = 0"),
    "too many partitions": (lambda: Job("j", [stage("x")], partitions=1001), "partitions = 1001"),
    "internal names that are one": (
        lambda: Job(
            "j",
            [
                stage("a", [A], [Topic("b.c", utf8, utf8)]),
                stage("a.b", [A], [C]),
                stage("d", [Topic("b.c", utf8, utf8), C]),
            ],
        ),
        "internal stream 'j.a.b.c.d' clashes",
    ),
    "an external topic named as a changelog": (
        lambda: Job("j", [stage("x", [Topic("j_x.changelog", utf8, utf8)])]),
        "'j.x.changelog' clashes with 'j_x.changelog'",
    ),
    "a name too long for Kafka": (
        lambda: Job("j" * 100, [stage("x" * 100, [A], [B]), stage("y" * 100, [B])]),
        "over 249",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_graphs_are_refused_by_name(case: str) -> None:
    """A graph that cannot run is a GraphError, a ConfigError, that names what is wrong, when the job is built."""
    build, text = BAD[case]
    with pytest.raises(GraphError) as caught:
        build()
    assert text in str(caught.value)
    assert isinstance(caught.value, ConfigError)


def test_stages_are_found_by_name() -> None:
    """An unknown stage's error lists the known ones."""
    job = Job("j", [stage("x"), stage("y")])
    assert job.stage("y").ordinal == 1
    with pytest.raises(GraphError, match="it has x, y"):
        job.stage("z")


def _of_a_mixin(own: dict[str, Any]) -> None:
    """Make a task of a class beside it that has these attributes."""
    type("Count", (type("Mixin", (), own), Task), {})


@pytest.mark.parametrize("name", ["ctx", "name", "renamed_from", "mode", "partitions", "in_flight"])
@pytest.mark.parametrize("value", [Input(A), Store("s", key=utf8, value=utf8), Timers(), len])
def test_what_every_task_has_is_not_hidden(name: str, value: object) -> None:
    """A declaration or a method by the name of a setting is refused where the class is made, also below a mixin."""
    for make in (lambda: type("Count", (Task,), {name: value}), lambda: _of_a_mixin({name: value})):
        with pytest.raises(GraphError, match=f"task Count: {name!r} is a .* give yours another name"):
            make()


@pytest.mark.parametrize("name", METHODS)
def test_what_grete_calls_is_not_hidden(name: str) -> None:
    """A declaration by the name of a method is refused where the class is made; every form of a function is allowed."""
    for value in (Output(A), Store("s", key=utf8, value=utf8), Call(len, result=int64), "text", 5):
        with pytest.raises(GraphError, match=f"task Count: {name!r} is a {type(value).__name__}, and by this name"):
            type("Count", (Task,), {name: value})
    if hasattr(Task, name):
        with pytest.raises(GraphError, match=f"{name!r} is a NoneType"):
            type("Count", (Task,), {name: None})
    for function in (print, staticmethod(print), functools.partial(print), functools.partialmethod(print)):
        type("Count", (Task,), {name: function})
