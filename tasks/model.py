"""A model in a stream: tells how urgent each request for help is, for many requests in one call of the model.

The model is small and real: a logistic regression over words, trained from the examples below when a process of the
pool is first asked. Values are the texts of the requests.
"""

import math
from collections import defaultdict
from functools import cache

from grete import BatchCall, Input, Job, Output, Record, Task, Topic, json, utf8

requests = Topic("requests", key=utf8, value=utf8)
urgency = Topic("urgency", key=utf8, value=json)

EXAMPLES = {
    "the site is down": 1.0,
    "nobody can log in": 1.0,
    "payments fail since this morning": 1.0,
    "how do i change my name": 0.0,
    "please send me the invoice": 0.0,
    "thank you for the nice talk": 0.0,
}


@cache
def weights() -> dict[str, float]:
    """Return the trained weight of each word, once in each process: gradient descent, example by example."""
    trained = defaultdict[str, float](float)
    for _ in range(200):
        for text, wanted in EXAMPLES.items():
            error = wanted - probability(trained, text)
            for word in text.split():
                trained[word] += 0.5 * error
    return dict(trained)


def probability(of: dict[str, float], text: str) -> float:
    """Return the probability that the text is urgent, 0 to 1."""
    return 1 / (1 + math.exp(-sum(of.get(word, 0.0) for word in text.lower().split())))


def judge(texts: list[str]) -> list[float]:
    """Return the urgency of each text: what runs in the pool, for a batch at a time."""
    return [round(probability(weights(), text), 3) for text in texts]


class Judge(Task):
    """Begins a batch when 16 requests wait, or when the first of them has waited for 20 ms."""

    requests = Input(requests)
    judge = BatchCall(judge, min=16, max=64, wait_ms=20, pool="processes", workers=1)
    urgency = Output(urgency)

    async def process(self, record: Record[str, str]) -> None:
        """Tell how urgent one request is."""
        self.urgency.send(record.key, await self.judge(record.value))


job = Job("urgency", stages=[Judge])
