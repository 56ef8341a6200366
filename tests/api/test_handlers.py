"""A method for each input: which records it gets, what is refused, and what a type checker sees."""

import pytest

from grete import Call, Input, Job, Output, Record, Store, Task, Topic, int64, on, utf8
from grete.errors import GraphError, TaskError
from grete.testing import Kit

orders = Topic("orders", key=utf8, value=int64)
names = Topic("names", key=utf8, value=utf8)
out = Topic("out", key=utf8, value=utf8)


class Named(Task):
    """Sends each order with the name of its key."""

    orders = Input(orders)
    names = Input(names, bootstrap=True)
    known = Store("known", key=utf8, value=utf8)
    out = Output(out)

    @on(orders)
    def order(self, record: Record[str, int]) -> None:
        """Send it."""
        self.out.send(record.key, f"{self.known.get(record.key, '?')} {record.value + 1}")

    @on(names)
    def name_of(self, record: Record[str, str | None]) -> None:  # it takes a deletion, too
        """Keep it."""
        if record.value is None:
            self.known.delete(record.key)
        else:
            self.known.put(record.key, record.value)


@pytest.mark.parametrize("seed", range(3))
def test_each_record_goes_to_the_method_of_its_input(seed: int) -> None:
    """As many as a crash repeats: what the two have done is undone together."""
    kit = Kit(Job("named", [Named], partitions=2))
    for key, name in (("a", "Ada"), ("b", "Bob"), ("b", None)):
        kit.feed(names, key, name)
    kit.run()
    for number, key in enumerate("abab"):
        kit.feed(orders, key, number)
    kit.run(crashes=5, seed=seed)
    assert sorted((row.key, row.value) for row in kit.outputs(out)) == [
        ("a", "Ada 1"), ("a", "Ada 3"), ("b", "? 2"), ("b", "? 4"),
    ]  # fmt: skip


def test_a_stream_of_the_job_has_its_method() -> None:
    """As a topic from outside has."""

    class Forward(Task):
        given = Input(orders)
        out = Output(Topic("between", key=utf8, value=int64))

        @on(given)
        def forward(self, record: Record[str, int]) -> None:
            self.out.send(record.key, record.value)

    class Show(Task):
        between = Input(Topic("between", key=utf8, value=int64))
        out = Output(out)

        @on(between)
        def show(self, record: Record[str, int]) -> None:
            self.out.send(record.key, str(record.value))

    kit = Kit(Job("chain", [Forward, Show]))
    kit.feed(orders, "k", 5)
    kit.run()
    assert kit.pairs(out) == [("k", "5")]


def test_one_method_may_take_several() -> None:
    """Decorators stand above one another."""

    class Both(Task):
        one = Input(Topic("one", key=utf8, value=utf8))
        two = Input(Topic("two", key=utf8, value=utf8))
        out = Output(out)

        @on(one)
        @on(two)
        def each(self, record: Record[str, str]) -> None:
            self.out.send(record.key, record.topic)

    kit = Kit(Job("both", [Both]))
    kit.feed(Both.one.topic, "k", "v")
    kit.feed(Both.two.topic, "k", "v")
    kit.run()
    assert sorted(row.value for row in kit.outputs(out)) == ["one", "two"]


def test_a_plain_method_beside_one_that_waits() -> None:
    """The one that waits for a call is an async def, the other need not be; both take effect in the order of a key."""

    class Asks(Task):
        orders = Input(orders)
        names = Input(names)
        twice = Call(lambda number: 2 * number)
        out = Output(out)

        @on(orders)
        async def order(self, record: Record[str, int]) -> None:
            self.out.send(record.key, str(await self.twice(record.value)))

        @on(names)
        def name_of(self, record: Record[str, str]) -> None:
            self.out.send(record.key, record.value)

    kit = Kit(Job("asks", [Asks]))
    kit.feed(orders, "k", 4)
    kit.run()
    kit.feed(names, "k", "after")
    kit.run()
    assert [row.value for row in kit.outputs(out)] == ["8", "after"]


def test_a_subclass_may_take_its_place() -> None:
    """With the decorator: without it no record would come to the method."""

    class Louder(Named):
        @on(orders)
        def order(self, record: Record[str, int]) -> None:
            self.out.send(record.key, "!")

    kit = Kit(Job("louder", [Louder]))
    kit.feed(orders, "k", 4)
    kit.run()
    assert [row.value for row in kit.outputs(out)] == ["!"]

    class Quiet(Named):
        def order(self, record: Record[str, int]) -> None:
            """Take nothing."""

    with pytest.raises(GraphError, match="no method takes topic 'orders': add one with @on"):
        Job("quiet", [Quiet])


def taking(*topics: Topic[str, str]) -> object:
    """Return a new method that takes these topics."""

    def method(self: Task, record: Record[str, str]) -> None: ...

    for topic in topics:
        on(topic)(method)
    return method


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ({"process": taking(), "a": taking(names)}, "has both process and @on"),
        ({"a": taking(names), "b": taking(names)}, "a and b both take topic 'names': keep one"),
        ({"process": taking(names)}, "Grete calls process by its name"),
        ({"a": taking(names), "b": taking(out)}, "b takes topic 'out', and no Input of the task reads it"),
    ],
)
def test_contradictions_are_refused(methods: dict[str, object], words: str) -> None:
    """A record has one method: the job says so when it is defined."""
    task = type("Odd", (Task,), {"names": Input(names), **methods})
    with pytest.raises(GraphError, match=words):
        Job("odd", [task])


class Proxy:
    """Stands for what is not there while a job is declared, as a request of a web framework."""

    def __getattr__(self, name: str) -> object:
        """Refuse to."""
        raise RuntimeError(f"outside of a request: {name}")


def test_class_attributes_are_not_asked_for_what_they_stand_for() -> None:
    """Only what @on has written itself is looked for."""
    assert Job("job", [type("Lazy", (Named,), {"client": Proxy()})]).stages[0].handlers["orders"] == "order"


def test_an_override_needs_on_too() -> None:
    """Its base class says which records come; the method that takes its place may be for others."""
    base = type("Base", (Task,), {"orders": Input(orders), "take": on(orders)(lambda _self, _record: None)})
    with pytest.raises(GraphError, match="one that overrides such a method needs @on, too"):
        Job("job", [type("Derived", (base,), {"take": lambda _self, _record: None})])


def test_what_is_no_topic_is_refused() -> None:
    """A name, or the decorator without an argument."""
    with pytest.raises(GraphError, match="write the topic, or the input"):
        on("orders")  # type: ignore[arg-type]  # that is the mistake


def test_a_value_that_is_returned_is_refused_by_name() -> None:
    """As of process: nothing reads it."""

    class Returns(Task):
        names = Input(names)

        @on(names)
        def name_of(self, record: Record[str, str]) -> str:
            return record.value

    kit = Kit(Job("returns", [Returns]))
    kit.feed(names, "k", "v")
    with pytest.raises(TaskError, match="name_of returned a value of type str"):
        kit.run()


def test_a_type_checker_sees_a_wrong_record() -> None:
    """The comment below is an error of its own once there is none."""

    class Wrong(Task):
        orders = Input(orders)

        @on(orders)  # type: ignore[arg-type]  # its values are numbers
        def order(self, record: Record[str, str]) -> None: ...

    assert Job("wrong", [Wrong]).stage("wrong").handlers == {"orders": "order"}
