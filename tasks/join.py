"""Joins a stream with a table, a store that an input fills: each order goes out with the city of its customer."""

import msgspec

from grete import Input, Job, Output, Record, Store, Task, Topic, json, on, utf8


class Order(msgspec.Struct, frozen=True):
    """An order of one item by a customer."""

    customer: str
    item: str


orders = Topic("orders", key=utf8, value=json(Order))  # number of the order → order
customers = Topic("customers", key=utf8, value=utf8)  # customer → city; no text (None): the customer is gone
by_customer = Topic("orders-by-customer", key=utf8, value=utf8)  # customer → item
shipments = Topic("shipments", key=utf8, value=utf8)  # city → item


class ByCustomer(Task):
    """Sends each order to the partition of its customer."""

    orders = Input(orders)
    out = Output(by_customer)

    def process(self, record: Record[str, Order]) -> None:
        self.out.send(record.value.customer, record.value.item)


class Ship(Task):
    """Looks up the city. An order that comes before its customer waits in a store of its own."""

    orders = Input(by_customer)
    customers = Input(customers)
    cities = Store("cities", key=utf8, value=utf8)
    waiting = Store("waiting", key=utf8, value=json(list[str]))  # customer → items
    out = Output(shipments)

    @on(orders)
    def order(self, record: Record[str, str]) -> None:
        if (city := self.cities.get(record.key)) is None:
            self.waiting.put(record.key, [*self.waiting.get(record.key, []), record.value])
        else:
            self.out.send(city, record.value)

    @on(customers)
    def customer(self, record: Record[str, str | None]) -> None:
        if record.value is None:  # the customer is gone
            self.cities.delete(record.key)
        else:
            self.cities.put(record.key, record.value)
            for item in self.waiting.get(record.key, []):
                self.out.send(record.value, item)
            self.waiting.delete(record.key)


job = Job("shipments", stages=[ByCustomer, Ship], partitions=2)
