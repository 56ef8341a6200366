"""A job without tracing. It imports nothing that has tracing on."""

from grete import Input, Job, Output, Record, Task, Topic, utf8
from grete.testing import Kit

LINES = Topic("lines", key=utf8, value=utf8)
OUT = Topic("out", key=utf8, value=utf8)
HEADER = ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")


class Copy(Task):
    lines = Input(LINES)
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, record.value)


def run() -> None:
    """Run a record that has a context."""
    kit = Kit(Job("copy", [Copy]))
    kit.feed(LINES, "a", "b", headers=[HEADER])
    kit.run()
    (record,) = kit.outputs(OUT)
    assert record.headers == ()


def test_no_header_is_added() -> None:
    """By default outputs have the headers that the code gives them."""
    run()
