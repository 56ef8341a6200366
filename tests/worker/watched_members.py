"""Members of a job, by one reader that stays at the end of their topic.

`grete members` opens clients each time, and reads the topic from its last rows on: half of the requests of a broker
were from tests that asked again and again.
"""

import time
from typing import Self

from grete.core.members.view import MemberId, MembersView
from grete.logs.kafka.members_topic import KafkaMembersTopic
from grete.logs.patience import Patience
from grete.protocol.members import Heartbeat
from grete.settings import Settings
from grete.worker.members.members_client import decoded
from tests.support.waiting import pause

LOOK_S = 0.2  # until a look returns that finds no new row


class WatchedMembers:
    """The last words of each member. One that is silent counts as gone after the time that `grete members` gives it."""

    def __init__(self, bootstrap: str, job: str) -> None:
        """Read nothing yet."""
        self._bootstrap, self._job = bootstrap, job
        self._topic: KafkaMembersTopic | None = None  # until a member has made it
        self._view = MembersView(MemberId("", ""), dead_beats=1)
        self._heard_s: dict[str, float] = {}  # session → when its last heartbeat was read
        settings = Settings()
        self._silent_s = (settings.member_timeout_ms + settings.member_heartbeat_interval_ms) / 1000

    def running(self) -> dict[str, list[int]]:
        """Take the rows that have come, or come now; return machine → the partitions that run there."""
        if self._topic is None:
            self._topic = self._opened()
            if self._topic is None:
                pause(LOOK_S)
                return {}
        for offset, _, data in self._topic.read(LOOK_S):
            message = decoded(data)
            self._view.row(offset, message)
            if isinstance(message, Heartbeat):
                self._heard_s[message.session] = time.monotonic()
        since_s = time.monotonic() - self._silent_s
        said = [member.heartbeat for member in self._view.live() if self._heard_s.get(member.session, 0.0) > since_s]
        return {each.machine: sorted(p.partition for p in each.held if p.state == "running") for each in said}

    def close(self) -> None:
        """Close the reader."""
        if self._topic is not None:
            self._topic.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self) -> KafkaMembersTopic | None:
        topic = KafkaMembersTopic(self._bootstrap, None, self._job, Patience(), write=False)
        if topic.there:
            return topic
        topic.close()
        return None
