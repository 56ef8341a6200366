"""Calls of models with a budget: a customer has a number of tokens for each model, and one for all of them."""

from grete import Input, Job, Key, Output, Record, Store, Task, Topic, int64, json, utf8

OF_MODEL, IN_ALL = 500, 900  # tokens
MODEL = Key(utf8, utf8)  # customer, model

wanted = Topic("wanted", key=utf8, value=json(tuple[str, str, int]))  # by customer: request, model, tokens
calls = Topic("calls", key=MODEL, value=json(tuple[str, int]))  # request, tokens
answers = Topic("answers", key=utf8, value=utf8)


class Allow(Task):
    calls = Input(calls)
    of_model = Store("of-model", key=MODEL, value=int64)
    in_all = Store("in-all", key=utf8, value=int64)
    out = Output(answers)

    def process(self, record: Record[tuple[str, str], tuple[str, int]]) -> None:
        customer, (request, tokens) = record.key[0], record.value
        used, used_in_all = self.of_model.get(record.key, 0) + tokens, self.in_all.get(customer, 0) + tokens
        if used > OF_MODEL or used_in_all > IN_ALL:
            self.out.send(request, "refused")
            return
        self.of_model.put(record.key, used)
        self.in_all.put(customer, used_in_all)
        self.out.send(request, "allowed")


class Send(Task):
    wanted = Input(wanted)
    out = Output(calls)

    def process(self, record: Record[str, tuple[str, str, int]]) -> None:
        request, model, tokens = record.value
        self.out.send((record.key, model), (request, tokens))


job = Job("budgets", stages=[Send, Allow], partitions=2)
