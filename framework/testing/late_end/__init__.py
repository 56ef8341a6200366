"""A line to a Kafka broker on which the end of a transaction comes late: try any engine that writes in transactions.

A client that loses its connection while it ends a transaction (EndTxn) asks again on a new one. The first request may
still be under way: in a send buffer, in a proxy, in the kernel, which sends it again after a loss. Below version 5 of
EndTxn the broker cannot tell it from the end of the **next** transaction of the same producer, and ends that one in its
middle: what was sent so far is committed, the rest is not, or not with it.

:class:`LateEndLine` makes this happen on purpose. It takes one end off the line, closes the client's connection, lets
the client ask again, waits until one half of the next transaction is in the log, and delivers the first end there.
:attr:`LateEnd.code` is the broker's answer: 0 (done: the transaction is split), or an error, by which the broker has
told the two apart: 47 INVALID_PRODUCER_EPOCH, 90 PRODUCER_FENCED.

``python -m grete.testing.late_end --help`` does this between an engine of yours and a broker of yours. Clients must
reach the broker by the line alone, so give it a listener that advertises the line's port::

    listeners=PLAINTEXT://:9092,LATE://:9093,CONTROLLER://:9094
    advertised.listeners=PLAINTEXT://localhost:9092,LATE://localhost:19093
    listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LATE:PLAINTEXT,CONTROLLER:PLAINTEXT
    inter.broker.listener.name=PLAINTEXT

Here the line listens at 19093 and leads to 9093, and a reader of the outputs (``read_committed``) uses 9092.
"""

from grete.testing.late_end.line import LateEnd, LateEndLine, LateStage

__all__ = ["LateEnd", "LateEndLine", "LateStage"]
