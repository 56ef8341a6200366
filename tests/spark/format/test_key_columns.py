"""Keys of several parts are columns of their parts: in Spark, in exports, and for who reads their files by SQL."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from grete import Key, int64, utf8
from grete import json as json_serde
from grete.errors import SerdeError
from grete.spark.export.manifest import read_manifest
from grete.spark.export.read import read_export
from grete.spark.format.columns import column
from grete.spark.format.writer import partitioned
from tests.cli.test_run import grete

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark

JOB = """
from grete import Input, Job, Key, Output, Record, Store, Task, Topic, int64, utf8

ARTICLE = Key(utf8, int64, names=("shop", "article"))
sales = Topic("sales", key=ARTICLE, value=int64)
totals = Topic("totals", key=ARTICLE, value=int64)


class Total(Task):
    sales = Input(sales)
    pieces = Store("pieces", key=ARTICLE, value=int64)
    out = Output(totals)

    def process(self, record: Record[tuple[str, int], int]) -> None:
        self.pieces.put(record.key, total := self.pieces.get(record.key, 0) + record.value)
        self.out.send(record.key, total)


job = Job("totals", stages=[Total], partitions=2)
"""
SALES = [((f"shop{n % 5}", n % 3 - 1), n) for n in range(30)]

Found = dict[tuple[str, int], int]


def sold(folder: Path, sales: list[tuple[tuple[str, int], int]]) -> None:
    """Run the job over these sales."""
    rows = ({"key": key, "value": value} for key, value in sales)
    (folder / "sales.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    grete("run", "stock.py", "--input=sales=sales.jsonl", "--json-lines", cwd=folder)


def counted(sales: list[tuple[tuple[str, int], int]]) -> Found:
    """Return the totals."""
    found: Found = {}
    for key, value in sales:
        found[key] = found.get(key, 0) + value
    return found


def scanned(folder: Path) -> Found:
    """Return the store as `grete state scan` shows it."""
    rows = map(json.loads, grete("state", "scan", "stock.py", "pieces", "--json", cwd=folder).splitlines())
    return {(row["key"][0], row["key"][1]): row["value"] for row in rows}


def exported(folder: Path) -> list[str]:
    """Return the files of the export, as its manifest names them."""
    manifest = read_manifest(folder / "exported")
    assert manifest is not None
    assert manifest.stores[0].columns["key"] == "struct<shop:string,article:bigint>"
    return [str(folder / "exported" / file.path) for file in manifest.stores[0].files]


def test_a_key_is_the_same_in_spark_in_an_export_and_for_the_commands(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts have the names that the job gives them; Spark writes such keys, too, and places them by the first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stock.py").write_text(JOB)
    where: dict[str, str] = {"job": str(tmp_path / "stock.py"), "directory": str(tmp_path / ".grete" / "totals")}
    for some in (SALES[:20], SALES[20:]):
        sold(tmp_path, some)
        grete("export", "stock.py", "--to=exported", cwd=tmp_path)  # the second one has changes alone
    rows = spark.read.format("changelog").options(**where, store="pieces").load()
    assert {(row.key.shop, row.key.article): row.value for row in rows.collect()} == counted(SALES)
    assert rows.filter("key.shop = 'shop1' and key.article = 0").count() == 1
    table = read_export(tmp_path / "exported", "pieces").to_pylist()
    assert {(row["key"]["shop"], row["key"]["article"]): row["value"] for row in table} == counted(SALES)
    files = spark.read.parquet(*exported(tmp_path)).groupBy("partition", "key").agg({"value": "max"})  # it only grows
    assert {(*row.key,): row["max(value)"] for row in files.collect()} == scanned(tmp_path) == counted(SALES)
    sent = spark.read.format("topic").options(**where, topic="totals").load()
    assert max((*row.key, row.value) for row in sent.collect()) == ("shop4", 1, 29 + 14)

    schema = "key struct<shop:string,article:bigint>, value bigint"
    known = spark.createDataFrame([(("shop1", 0), 500), (("new", -7), 1)], schema)
    frame = partitioned(known, **where, store="pieces")
    frame.write.format("changelog").mode("append").options(**where, store="pieces").save()
    sold(tmp_path, [(("new", -7), 2), (("shop1", 0), 1)])
    assert scanned(tmp_path) == counted(SALES) | {("shop1", 0): 501, ("new", -7): 3}


def test_parts_come_back() -> None:
    """Nulls, NUL bytes, keys within keys and JSON among them; names are those of tuples where none are given."""
    serde = Key(Key(utf8, int64), json_serde, utf8)
    found = column("key", serde)
    keys: list[Any] = [(("a\0b", -1), {"n": 1}, ""), (("", 5), [2], "\0\1")]
    cells = [*map(serde.encode, keys), None]
    assert found.ddl == "key struct<_1:struct<_1:string,_2:bigint>,_2:string,_3:string>"
    shown = found.array(cells)
    assert shown.to_pylist() == [
        {"_1": {"_1": "a\0b", "_2": -1}, "_2": '{"n":1}', "_3": ""},
        {"_1": {"_1": "", "_2": 5}, "_2": "[2]", "_3": "\0\1"},
        None,
    ]
    assert found.cells(shown) == cells
    assert found.cells(shown.slice(1)) == cells[1:]
    assert found.array([]).to_pylist() == []


def test_what_is_no_key_is_refused() -> None:
    """Bytes of another serde, and a part that is null."""
    found = column("key", Key(utf8, utf8, names=("shop", "article")))
    with pytest.raises(SerdeError, match="column key: a cell is not key: these are no 2 parts"):
        found.array([b"ab"])
    nulls = pa.array([{"shop": "a", "article": None}], pa.struct([("shop", pa.string()), ("article", pa.string())]))
    with pytest.raises(SerdeError, match="column key: a cell cannot be key: article is null"):
        found.cells(nulls)
