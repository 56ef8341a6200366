"""The thread of a member over a topic that loses what it has acknowledged, or takes nothing."""

import time

from grete.core.members.view import MemberId
from grete.errors import FrameworkError
from grete.protocol.members import (
    Heartbeat,
    Leave,
    MemberReport,
    MembersMessage,
    decode_members_message,
    encode_members_message,
)
from grete.settings import Settings
from grete.worker.members.members_client import MembersClient, membership
from tests.support.waiting import pause, until

SETTINGS = Settings(member_heartbeat_interval_ms=10, member_timeout_ms=40)


class LosingTopic:
    """Rows in memory. ``lost``: how many are still acknowledged and then lost."""

    unwritten = 0
    failure: FrameworkError | None = None

    def __init__(self, lost: int) -> None:
        self.lost, self.rows, self.beats, self._read = lost, list[bytes](), list[int](), 0
        self.waits_s: list[float] = []  # for a row, at most

    def read(self, seconds: float) -> list[tuple[int, int, bytes]]:
        """Return the rows that have come."""
        self.waits_s.append(seconds)
        begin, self._read = self._read, len(self.rows)
        if begin == self._read:
            time.sleep(min(seconds, 0.001))
        return [(offset, 0, self.rows[offset]) for offset in range(begin, self._read)]

    def lose(self, count: int) -> None:
        """Take the last rows away; what comes later has their offsets."""
        del self.rows[-count:]
        self._read = min(self._read, len(self.rows))

    def write(self, data: bytes) -> None:
        """Append a message, or lose it."""
        message = decode_members_message(data)
        if isinstance(message, Heartbeat):
            self.beats.append(message.beat)
            if self.lost:
                self.lost -= 1
                return
        self.rows.append(data)

    def flush(self) -> None:
        """Nothing is on its way."""


def test_members_read_the_last_report_of_each_other() -> None:
    """Of several that wait only the newest is sent; who is gone has none."""
    topic = LosingTopic(lost=0)
    here = MembersClient(topic, membership(MemberId("a", "here", "one"), 1, SETTINGS), SETTINGS)
    until(lambda: here.duties().active == {0})
    assert here.reports() == {}
    here.report(b"mine")
    there: list[MembersMessage] = [Heartbeat(member="b", session="there", beat=0)]
    there += [MemberReport(session="there", body=body) for body in (b"1", b"2")]

    def say() -> None:
        if not here.reports():  # not yet, or it was taken for dead: it says nothing more
            topic.rows += map(encode_members_message, there)
        pause()

    until(lambda: [(name, each.body) for name, each in here.reports().items()] == [("there", b"2")], step=say)
    until(lambda: encode_members_message(MemberReport(session="here", body=b"mine")) in topic.rows)
    topic.rows.append(encode_members_message(Leave(member="b", session="there")))
    until(lambda: here.reports() == {})
    here.close()


def test_a_thread_that_ends_by_a_mistake_ends_the_member() -> None:
    """Else its process would go on without a heartbeat, and learn nothing of what is moved away from it."""
    topic = LosingTopic(lost=0)
    topic.read = lambda _: 1 // 0  # type: ignore[assignment, return-value]  # the mistake
    client = MembersClient(topic, membership(MemberId("a", "s", "one"), 1, SETTINGS), SETTINGS)
    until(lambda: client.error is not None)
    assert "ZeroDivisionError" in str(client.error)
    client.close()


def test_offsets_that_go_back_stop_no_member() -> None:
    """As after an unclean election of a leader, which may take the newest rows away."""
    topic = LosingTopic(lost=0)
    client = MembersClient(topic, membership(MemberId("a", "s", "one"), 1, SETTINGS), SETTINGS)
    until(lambda: client.duties().active == {0})
    beats = topic.beats[-1]
    topic.lose(3)
    until(lambda: topic.beats[-1] > beats + 3)
    assert client.error is None
    client.close()


def test_a_lost_heartbeat_is_sent_again() -> None:
    """Else its member would be silent for ever: it sends the next one when it has read the last."""
    topic = LosingTopic(lost=2)
    client = MembersClient(topic, membership(MemberId("a", "s", "one"), 1, SETTINGS), SETTINGS)
    until(lambda: client.duties().active == {0})
    until(lambda: topic.beats[-1] > 1)
    client.close()
    assert topic.beats[:3] == [0, 0, 0]


def test_a_member_whose_log_is_away_waits() -> None:
    """It took a whole core of each machine for as long as no broker answered."""
    topic = LosingTopic(lost=1_000_000)
    client = MembersClient(topic, membership(MemberId("a", "s", "one"), 1, SETTINGS), SETTINGS)
    until(lambda: len(topic.beats) > 3)  # the first one is sent again and again
    client.close()
    assert 0.0 not in topic.waits_s
