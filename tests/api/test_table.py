"""The declaration of a table: what it refuses, and what it shows of a url."""

from typing import Any

import msgspec
import pytest

from grete import Input, Job, Output, Record, Table, Task, Topic, json, utf8
from grete.errors import GraphError


class Order(msgspec.Struct):
    """A row."""

    id: int


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Table("mysql://u@h/d", "t", json(Order)), "url must be a file's path"),
        (lambda: Table("", "t", json(Order)), "url must be"),
        (lambda: Table("a.db", "a.b.c", json(Order)), "name or schema.name"),
        (lambda: Table("a.db", "t", json), "does not say what the columns are: use json(YourStruct)"),
        (lambda: Table("a.db", "t", json, columns=[]), "need at least one"),
        (lambda: Table("a.db", "t", json, columns={"a": "x", "b": "x"}), "each once"),
        (lambda: Table("a.db", "t", json(Order), key=["nr"]), "key=['nr']: need a list of its columns"),
        (lambda: Table("a.db", "t", json(Order), key="id"), "key='id': need a list"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(make: Any, text: str) -> None:
    """Url, table, columns and key are checked when the job is written down."""
    with pytest.raises(GraphError) as caught:
        make()
    assert text in str(caught.value)


def test_a_table_is_declared_once_in_a_stage() -> None:
    """Two outputs to the same table of a stage are one too many."""

    class Export(Task):
        lines = Input(Topic("lines", key=utf8, value=utf8))
        one = Output(Table("a.db", "t", json(Order)))
        other = Output(Table("a.db", "t", json(Order)))

        def process(self, record: Record[str, str]) -> None: ...

    with pytest.raises(GraphError, match="two outputs are Table"):
        Job("shop", stages=[Export])


def test_passwords_are_not_shown() -> None:
    """Neither a table's repr nor its errors have the password of its url, well formed or not."""
    secret = "s3cr3t"
    for url in (f"postgresql://u:{secret}" + "@h:5/d", f"postgresql://u:{secret}" + "@h:port/d?password=" + secret):
        assert secret not in repr(Table(url, "t", json(Order)))
    with pytest.raises(GraphError) as caught:
        Table(f"mysql://u:{secret}" + "@h/d", "t", json(Order))
    assert secret not in str(caught.value)
