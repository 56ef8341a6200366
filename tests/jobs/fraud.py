"""The features of a model of fraud: how often a card pays a merchant, how much in the last hour, and from where."""

from dataclasses import dataclass

from grete import Input, Job, Key, Output, Record, Store, Task, Topic, int64, json, utf8

HOUR_MS = 3_600_000


@dataclass
class Payment:
    merchant: str
    country: str
    cents: int


payments = Topic("payments", key=utf8, value=json(Payment))  # by card
features = Topic("features", key=utf8, value=json(list[int]))


class Features(Task):
    payments = Input(payments)
    merchants = Store("merchants", key=Key(utf8, utf8), value=int64)
    countries = Store("countries", key=Key(utf8, utf8), value=int64)
    spent = Store("spent", key=Key(utf8, int64), value=int64)  # card, time
    out = Output(features)

    def process(self, record: Record[str, Payment]) -> None:
        card, paid, at = record.key, record.value, record.timestamp
        self.merchants.put((card, paid.merchant), n := self.merchants.get((card, paid.merchant), 0) + 1)
        self.countries.put((card, paid.country), at)
        self.spent.put((card, at), paid.cents)
        for old, _ in self.spent.range((card, 0), (card, at - HOUR_MS + 1)):
            self.spent.delete(old)
        cents = sum(each for _, each in self.spent.range((card, at - HOUR_MS + 1), (card, at + 1)))
        seen_in = sum(1 for _ in self.countries.prefix((card,)))
        self.out.send(card, [n, cents, seen_in])


job = Job("fraud", stages=[Features], partitions=2)
