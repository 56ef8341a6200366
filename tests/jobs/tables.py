"""Changes of three tables of a shop, joined: what each customer's orders come to. All are placed by the customer."""

from grete import Input, Job, Key, Output, Record, Store, Task, Topic, int64, json, on, utf8

ORDER, LINE = Key(utf8, int64), Key(utf8, int64, int64)  # customer, order, line
Row = dict[str, str] | None  # None: it was deleted

customers = Topic("customers", key=utf8, value=json(dict[str, str]))
orders = Topic("orders", key=ORDER, value=json(dict[str, str]))
items = Topic("items", key=LINE, value=json(dict[str, int]))
totals = Topic("totals", key=utf8, value=json(tuple[str | None, int]))  # name, cents


class Join(Task):
    customers = Input(customers)
    orders = Input(orders)
    items = Input(items)
    names = Store("names", key=utf8, value=utf8)
    states = Store("states", key=ORDER, value=utf8)
    cents = Store("cents", key=LINE, value=int64)
    out = Output(totals)

    @on(customers)
    def customer(self, record: Record[str, Row]) -> None:
        self.names.put(record.key, record.value["name"] if record.value else "")
        self.tell(record.key)

    @on(orders)
    def order(self, record: Record[tuple[str, int], Row]) -> None:
        self.states.put(record.key, record.value["state"] if record.value else "cancelled")
        self.tell(record.key[0])

    @on(items)
    def item(self, record: Record[tuple[str, int, int], dict[str, int] | None]) -> None:
        if record.value is None:
            self.cents.delete(record.key)
        else:
            self.cents.put(record.key, record.value["cents"])
        self.tell(record.key[0])

    def tell(self, customer: str) -> None:
        due = [order for order, state in self.states.prefix((customer,)) if state != "cancelled"]
        total = sum(cents for order in due for _, cents in self.cents.prefix(order))
        self.out.send(customer, (self.names.get(customer), total))


job = Job("tables", stages=[Join], partitions=2)
