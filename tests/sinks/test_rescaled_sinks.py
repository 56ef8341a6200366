"""A rescale of jobs that write tables and call services: what a task keeps of its sinks stays with it."""

import sqlite3
from collections import Counter
from pathlib import Path

from tests.cli.test_run import start
from tests.sinks.test_shared_folder import run

JOB = """
from grete import Http, Input, Job, Key, Output, Record, Store, Table, Task, Topic, int64, json, utf8

sales = Topic("sales", key=utf8, value=json(tuple[str, int]))  # by shop: article, pieces


class Sum(Task):
    sales = Input(sales)
    pieces = Store("pieces", key=Key(utf8, utf8), value=int64)
    out = Output(TARGET)

    def process(self, record: Record[str, tuple[str, int]]) -> None:
        article, more = record.value
        total = self.pieces.get((record.key, article), 0) + more
        self.pieces.put((record.key, article), total)
        self.out.send(None, {"article": f"{record.key}/{article}", "pieces": total})


job = Job("sums", stages=[Sum], partitions=COUNT)
"""
TABLE = 'Table("sums.db", "sums", json, key=["article"], columns=["article", "pieces"])'
SALES = [(f"shop{n % 30}", f"article{n % 4}", n) for n in range(240)]


def written(folder: Path, target: str, partitions: int) -> str:
    """Write the job's file; return its name."""
    path = folder / f"sums{partitions}.py"
    path.write_text(JOB.replace("TARGET", target).replace("COUNT", str(partitions)))
    return path.name


def sold(folder: Path, reference: str, sales: list[tuple[str, str, int]]) -> tuple[int, str]:
    """Run the job over these sales; return its exit code and what it said."""
    lines = [f'{shop}\t["{article}", {more}]' for shop, article, more in sales]
    (folder / "sales.tsv").write_text("".join(f"{line}\n" for line in lines))
    return run(folder, "run", reference, "--input=sales=sales.tsv", "--keys")


def counted(count: int) -> dict[str, int]:
    """Return the pieces of each article after as many sales."""
    found = Counter[str]()
    for shop, article, more in SALES[:count]:
        found[f"{shop}/{article}"] += more
    return dict(found)


def test_a_table_is_written_by_more_tasks(tmp_path: Path) -> None:
    """Tasks of before go on with their accounts, new ones begin theirs: each row is that of the last sale."""
    with sqlite3.connect(tmp_path / "sums.db") as database:
        database.execute("CREATE TABLE sums (article TEXT PRIMARY KEY, pieces INTEGER NOT NULL)")
    two, six = (written(tmp_path, TABLE, partitions) for partitions in (2, 6))
    for reference, begin, count in ((two, 0, 120), (six, 120, 240)):
        if reference is six:
            told = run(tmp_path, "rescale", two, "--partitions=6")
            assert told[0] == 0, told
        told = sold(tmp_path, reference, SALES[begin:count])
        assert told[0] == 0, told
        rows = dict(database.execute("SELECT article, pieces FROM sums"))
        assert rows == counted(count)
    tasks = database.execute("SELECT count(*) FROM grete_applied").fetchone()[0]
    database.close()
    assert tasks == 6, "a task has no account of its own"


def test_a_fork_has_accounts_of_its_own(tmp_path: Path) -> None:
    """The first job's say that the table has its checkpoints; a second one with them would halt."""
    with sqlite3.connect(tmp_path / "sums.db") as database:
        database.execute("CREATE TABLE sums (article TEXT PRIMARY KEY, pieces INTEGER NOT NULL)")
    two, three = (written(tmp_path, TABLE, partitions) for partitions in (2, 3))
    (tmp_path / three).write_text((tmp_path / three).read_text().replace('"sums", stages', '"other", stages'))
    for reference, begin, count in ((two, 0, 120), (three, 120, 240)):
        if reference is three:
            told = run(tmp_path, "fork", two, three)
            assert told[0] == 0, told
        told = sold(tmp_path, reference, SALES[begin:count])
        assert told[0] == 0, told
        assert dict(database.execute("SELECT article, pieces FROM sums")) == counted(count)
    database.close()


def test_outputs_that_wait_for_a_service_are_named(tmp_path: Path) -> None:
    """The error has the task and the checkpoint, and the job goes on as it was."""
    one = written(tmp_path, 'Http("http://127.0.0.1:9/sums", json)', 1)
    sales = (f'{shop}\t["{article}", 1]\n' for shop, article, _ in SALES[:20])  # few: they come in one batch
    (tmp_path / "sales.tsv").write_text("".join(sales))
    process = start("run", one, "--input=sales=sales.tsv", "--keys", "--set=shutdown_timeout_ms=1000", cwd=tmp_path)
    assert process.stdout is not None
    assert any("waits for its sink: web service http://127.0.0.1:9" in line for line in process.stdout)
    process.terminate()
    process.communicate(timeout=60)
    status, said = run(tmp_path, "rescale", one, "--partitions=6")
    assert status == 2, said
    assert "has outputs that its file, table or service has not got yet (checkpoint " in " ".join(said.split())
