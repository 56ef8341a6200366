"""Keeps a table of a database up to date, and an archive of files beside it. Each shows every checkpoint once."""

import msgspec

from grete import Files, Input, Job, Output, Record, Table, Task, Topic, json, utf8


class Stock(msgspec.Struct, frozen=True):
    """The number of pieces left of an item: a row of the table."""

    item: str
    pieces: int


stock = Topic("stock", key=utf8, value=json(Stock))


class Export(Task):
    """Writes each record to both sinks. With ``key`` the table keeps the last row of an item; without, it gets each."""

    stock = Input(stock)
    table = Output(Table("shop.db", "stock", json(Stock), key=["item"]))  # or postgresql://…, or env:NAME_OF_A_VARIABLE
    archive = Output(Files("archive", json(Stock)))

    def process(self, record: Record[str, Stock]) -> None:
        self.table.send(None, record.value)
        self.archive.send(None, record.value)


job = Job("stock-export", stages=[Export])
