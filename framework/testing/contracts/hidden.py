"""Clauses about messages that no reader sees yet."""

from grete.open_transaction import OpenTransaction
from grete.ports import Log
from grete.testing.contracts.log_world import A0, OUT, LogWorld, OnLogWorld, record, shown, values


class HiddenClauses(OnLogWorld):
    """A part of LogContract."""

    def test_what_an_open_transaction_hides_is_told(self, world: LogWorld, log: Log) -> None:
        """A stranger's transaction ends the bounds: what is behind is told, and read once that has ended."""
        log.produce(0, 0, [record(b"x")])
        log.poll()
        assert log.open_transactions([A0, OUT]) == log.open_transactions([]) == {}
        if world.begin is not None:
            commit = world.begin(record(b"s"))
            log.produce(0, 1, [record(b"y")])
            log.poll()
            assert log.open_transactions([A0, OUT]) == {OUT: OpenTransaction(1, 3, 7, b"k")}
            assert (log.bounds(OUT), values(log, OUT)) == ((0, 1), [b"x"])
            commit()
            assert shown(log, OUT, 3) == [b"x", b"s", b"y"]
            assert log.open_transactions([A0, OUT]) == {}
