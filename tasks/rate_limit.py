"""Lets each client make five requests a minute, in event time, and sends the others to a topic of their own."""

import msgspec

from grete import Input, Job, Output, Record, Store, Task, Topic, json, utf8

MINUTE_MS, ALLOWED = 60_000, 5
EACH_MS = MINUTE_MS // ALLOWED  # what a request takes of its client's minute, until that time has passed

requests = Topic("requests", key=utf8, value=utf8)  # client → what it asks for
allowed = Topic("allowed-requests", key=utf8, value=utf8)
refused = Topic("refused-requests", key=utf8, value=utf8)


class Bucket(msgspec.Struct, frozen=True):
    """The rest of a client's minute. In whole ms: fractions of a request would add up to slightly less than one."""

    left_ms: int
    at_ms: int  # when that was


class Limit(Task):
    """Keeps a bucket for each client."""

    requests = Input(requests)
    buckets = Store("buckets", key=utf8, value=json(Bucket))
    allowed = Output(allowed)
    refused = Output(refused)

    def process(self, record: Record[str, str]) -> None:
        bucket = self.buckets.get(record.key, Bucket(MINUTE_MS, record.timestamp))
        at = max(bucket.at_ms, record.timestamp)  # a request that comes late brings nothing back
        left = min(MINUTE_MS, bucket.left_ms + at - bucket.at_ms)
        is_allowed = left >= EACH_MS
        self.buckets.put(record.key, Bucket(left - EACH_MS * is_allowed, at))
        (self.allowed if is_allowed else self.refused).send(record.key, record.value)


job = Job("rate-limit", stages=[Limit])
