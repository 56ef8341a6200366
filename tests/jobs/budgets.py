"""Calls of models with a budget: a customer has a number of tokens for each model, and one for all of them."""

from grete import Input, Job, Key, Output, Record, Store, Task, Topic, int64, json, repartition, utf8

OF_MODEL, IN_ALL = 500, 900  # tokens
MODEL = Key(utf8, utf8)  # customer, model
Wish = tuple[str, str, int]  # request, model, tokens

wanted = Topic("wanted", key=utf8, value=json(Wish))  # by customer
calls = Topic("calls", key=MODEL, value=json(Wish))
answers = Topic("answers", key=utf8, value=utf8)


class Allow(Task):
    calls = Input(calls)
    of_model = Store("of-model", key=MODEL, value=int64)
    in_all = Store("in-all", key=utf8, value=int64)
    out = Output(answers)

    def process(self, record: Record[tuple[str, str], Wish]) -> None:
        (customer, _), (request, _, tokens) = record.key, record.value
        used, used_in_all = self.of_model.get(record.key, 0) + tokens, self.in_all.get(customer, 0) + tokens
        allowed = used <= OF_MODEL and used_in_all <= IN_ALL
        if allowed:
            self.of_model.put(record.key, used)
            self.in_all.put(customer, used_in_all)
        self.out.send(request, "allowed" if allowed else "refused")


by_model = repartition(wanted, to=calls, key=lambda record: (record.key, record.value[1]))
job = Job("budgets", stages=[by_model, Allow], partitions=2)
