"""Lets each client make five requests a minute, in event time, and sends the others to a topic of their own."""

import msgspec

from grete import Input, Job, Output, Record, Store, Task, Topic, json, utf8

MINUTE_MS, ALLOWED = 60_000, 5

requests = Topic("requests", key=utf8, value=utf8)  # client → what it asks for
allowed = Topic("allowed-requests", key=utf8, value=utf8)
refused = Topic("refused-requests", key=utf8, value=utf8)


class Bucket(msgspec.Struct, frozen=True):
    """What a client has left: a token for each request, which come back evenly, up to ``ALLOWED``."""

    tokens: float
    at_ms: int  # when that was


class Limit(Task):
    """Keeps a bucket for each client."""

    requests = Input(requests)
    buckets = Store("buckets", key=utf8, value=json(Bucket))
    allowed = Output(allowed)
    refused = Output(refused)

    def process(self, record: Record[str, str]) -> None:
        bucket = self.buckets.get(record.key, Bucket(ALLOWED, record.timestamp))
        at = max(bucket.at_ms, record.timestamp)  # a request that comes late brings no tokens
        tokens = min(ALLOWED, bucket.tokens + (at - bucket.at_ms) * ALLOWED / MINUTE_MS)
        is_allowed = tokens >= 1
        self.buckets.put(record.key, Bucket(tokens - is_allowed, at))
        (self.allowed if is_allowed else self.refused).send(record.key, record.value)


job = Job("rate-limit", stages=[Limit])
