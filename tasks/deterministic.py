"""Raises an alert after three failed logins in a row, in deterministic mode: the alert leaves before the next commit.

The mode asks that outputs depend on the records alone. So a task takes the time, random numbers and identifiers from
``self.ctx``, which gives the same ones when a record is processed again after a crash.
"""

import msgspec

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, json, utf8

FAILURES = 3


class Login(msgspec.Struct, frozen=True):
    """An attempt of a user to log in."""

    user: str
    ok: bool


class Alert(msgspec.Struct, frozen=True):
    """The output: ``at`` is the time (ms) at which the job took the last attempt in."""

    id: str
    at: int


logins = Topic("logins", key=utf8, value=json(Login))  # session → attempt
by_user = Topic("logins-by-user", key=utf8, value=json(bool))  # user → whether it went well
alerts = Topic("alerts", key=utf8, value=json(Alert))  # user → alert


class ByUser(Task):
    """Sends each attempt to the partition of its user."""

    logins = Input(logins)
    out = Output(by_user)

    def process(self, record: Record[str, Login]) -> None:
        self.out.send(record.value.user, record.value.ok)


class Watch(Task):
    """Counts failures in a row."""

    attempts = Input(by_user)
    failures = Store("failures", key=utf8, value=int64)
    out = Output(alerts)

    def process(self, record: Record[str, bool]) -> None:
        n = 0 if record.value else self.failures.get(record.key, 0) + 1
        self.failures.put(record.key, n)
        if n == FAILURES:
            self.out.send(record.key, Alert(str(self.ctx.uuid()), self.ctx.now()))


job = Job("login-alerts", stages=[ByUser, Watch], partitions=2, mode="deterministic")
