"""Adds up payments that come as Avro, with their schemas in a schema registry."""

import os

from grete import DeadLetter, Input, Job, Output, Record, SchemaRegistry, Store, Task, Topic, bytes_serde, int64, utf8

PAYMENT = {"type": "record", "name": "Payment", "fields": [{"name": "cents", "type": "long"}]}
TOTAL = {"type": "record", "name": "Total", "fields": [{"name": "cents", "type": "long"}]}

registry = SchemaRegistry(os.environ.get("SCHEMA_REGISTRY", "http://localhost:8081"))
payments = Topic("payments", key=utf8, value=registry.avro(PAYMENT))  # customer → payment
totals = Topic("totals", key=utf8, value=registry.avro(TOTAL))
refused = Topic("refused-payments", key=utf8, value=bytes_serde)  # no schema id, an unknown one, one that does not fit


class AddUp(Task):
    """Keeps the sum of each customer."""

    payments = Input(payments, errors=DeadLetter(refused))
    cents = Store("cents", key=utf8, value=int64)
    out = Output(totals)

    def process(self, record: Record[str, dict[str, int]]) -> None:
        total = self.cents.get(record.key, 0) + record.value["cents"]
        self.cents.put(record.key, total)
        self.out.send(record.key, {"cents": total})


job = Job("payments-in-avro", stages=[AddUp])
