"""Passes large payments on. What is no payment goes to a topic of its own, with the error in its headers."""

import msgspec

from grete import DeadLetter, Input, Job, Output, Record, Task, Topic, json, utf8

LARGE_CENTS = 100_000


class Payment(msgspec.Struct, frozen=True):
    """An amount of money that a customer has paid."""

    customer: str
    cents: int


payments = Topic("payments", key=utf8, value=json(Payment))  # number of the payment → payment
large = Topic("large-payments", key=utf8, value=json(Payment))
refused = Topic("refused-payments", key=utf8, value=utf8)  # the bytes as they came, and headers grete.*


class PickLarge(Task):
    """Filters. What raises here, and what cannot be decoded, becomes a dead letter; the job goes on."""

    payments = Input(payments, errors=DeadLetter(refused))
    out = Output(large)

    def process(self, record: Record[str, Payment]) -> None:
        payment = record.value
        if payment.cents <= 0:
            raise ValueError(f"a payment of {payment.cents} cents")
        if payment.cents >= LARGE_CENTS:
            self.out.send(record.key, payment)


job = Job("large-payments", stages=[PickLarge])
