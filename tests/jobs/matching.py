"""A matching engine: the book of a symbol is a store, best price first and then the order that came first."""

from typing import Literal

from grete import Input, Job, Key, Output, Record, Store, Task, Topic, int64, json, utf8

Side = Literal["buy", "sell"]

orders = Topic("orders", key=utf8, value=json(tuple[Side, int, int]))  # by symbol: side, price, pieces
trades = Topic("trades", key=utf8, value=json(tuple[int, int]))  # by symbol: price, pieces


class Match(Task):
    orders = Input(orders)
    book = Store("book", key=Key(utf8, utf8, int64, int64), value=int64)  # symbol, side, rank, number → pieces
    numbers = Store("numbers", key=utf8, value=int64)  # of a symbol's orders
    out = Output(trades)

    def process(self, record: Record[str, tuple[Side, int, int]]) -> None:
        symbol, (side, price, pieces) = record.key, record.value
        number = self.numbers.get(symbol, 0) + 1
        self.numbers.put(symbol, number)
        other, best = ("sell", 1) if side == "buy" else ("buy", -1)
        for entry, there in self.book.prefix((symbol, other)):
            if not pieces or entry[2] > best * price:
                break
            traded = min(pieces, there)
            pieces -= traded
            if traded == there:
                self.book.delete(entry)
            else:
                self.book.put(entry, there - traded)
            self.out.send(symbol, (best * entry[2], traded))
        if pieces:
            self.book.put((symbol, side, -best * price, number), pieces)


job = Job("matching", stages=[Match], partitions=2)
