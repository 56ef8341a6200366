"""Changes of three tables of a shop, joined: what each customer's orders come to. All are placed by the customer."""

from typing import Any

from grete import Input, Job, Key, Output, Record, Store, Task, Topic, int64, json, utf8

customers = Topic("customers", key=utf8, value=json)
orders = Topic("orders", key=Key(utf8, int64), value=json)  # customer, order
items = Topic("items", key=Key(utf8, int64, int64), value=json)  # customer, order, line
totals = Topic("totals", key=utf8, value=json)


class Join(Task):
    customers = Input(customers)
    orders = Input(orders)
    items = Input(items)
    names = Store("names", key=utf8, value=utf8)
    states = Store("states", key=Key(utf8, int64), value=utf8)
    cents = Store("cents", key=Key(utf8, int64, int64), value=int64)
    out = Output(totals)

    def process(self, record: Record[Any, dict[str, Any] | None]) -> None:
        if record.topic == "customers":
            customer = record.key
            self.names.put(customer, record.value["name"] if record.value else "")
        elif record.topic == "orders":
            customer = record.key[0]
            self.states.put(record.key, record.value["state"] if record.value else "cancelled")
        else:
            customer = record.key[0]
            if record.value is None:  # the line was deleted
                self.cents.delete(record.key)
            else:
                self.cents.put(record.key, record.value["cents"])
        total = 0
        for order, state in self.states.prefix((customer,)):
            if state != "cancelled":
                total += sum(cents for _, cents in self.cents.prefix(order))
        self.out.send(customer, {"name": self.names.get(customer), "cents": total})


job = Job("tables", stages=[Join], partitions=2)
