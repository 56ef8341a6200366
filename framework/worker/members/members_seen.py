"""Reads the members of a job from outside of it, and writes nothing to their topic."""

import time
from collections.abc import Mapping
from contextlib import closing

from grete.api.jobs.job import Job
from grete.core.members.view import MemberId, MembersView
from grete.errors import ConfigError
from grete.logs.address import KAFKA, LogAddress, read_options
from grete.logs.patience import Patience
from grete.protocol.members import Heartbeat, Leave
from grete.settings import Settings
from grete.state.read.owners import NONE_ENDED
from grete.worker.members.members_client import decoded

READ_S = 0.1  # of waiting for rows
FIRST_S_MAX = 5.0  # until the rows that were there have come


class SeenMembers:
    """Members by the last rows of their topic.

    ``ages_ms``: by session, the time from its last row to the newest one. ``ended``: task → the highest generation that
    a member had claimed for it of which it has said, when it left, that its process has ended.
    """

    def __init__(self, job: Job, address: LogAddress, settings: Settings, patience: Patience | None = None) -> None:
        """Read what is there, then until each session has had time for a heartbeat. Raises ConfigError, LogAway."""
        from grete.logs.kafka.members_topic import KafkaMembersTopic

        self.view = MembersView(MemberId("", ""), dead_beats=1)
        self.fresh = set[str]()  # the sessions that have written while this one looked
        self.ended: dict[str, int] = {}
        self._said_ms: dict[str, int] = {}
        options = None if address.config is None else read_options(address.config)
        url = address.url.removeprefix(KAFKA)
        topic = KafkaMembersTopic(url, options, job.name, patience or Patience(), write=False)
        with closing(topic):
            self.there = topic.there
            if not self.there:
                return
            end, began_s = topic.end, time.monotonic()
            look_s = (settings.member_timeout_ms + settings.member_heartbeat_interval_ms) / 1000
            while time.monotonic() - began_s < (FIRST_S_MAX if self.view.position < end else look_s):
                if self.view.position >= end and self._waiting() <= self.fresh:
                    return  # all that may live have said so
                for offset, at_ms, data in topic.read(READ_S):
                    message = decoded(data)
                    self.view.row(offset, message)
                    if isinstance(message, Heartbeat):
                        self._said_ms[message.session] = at_ms
                        if offset >= end:
                            self.fresh.add(message.session)
                    if isinstance(message, Leave):
                        for each in message.ended or ():
                            self.ended[each.task] = max(each.generation, self.ended.get(each.task, 0))

    def _waiting(self) -> set[str]:
        """Return the sessions that have not said that they leave."""
        return {member.session for member in self.view.live()}

    @property
    def ages_ms(self) -> dict[str, int]:
        """Return the time in ms from each session's last row to the newest row, by the log's clock."""
        newest = max(self._said_ms.values(), default=0)
        return {session: newest - at_ms for session, at_ms in self._said_ms.items()}


def refuse_members(
    job: Job, address: LogAddress, settings: Settings, instead: str = "", patience: Patience | None = None
) -> Mapping[str, int]:
    """Raise ConfigError if members of the job live: a second process would take their partitions from them.

    Return the tasks whose processes have ended, with their generations, as ``SeenMembers`` has them.
    ``instead``: what else the person may do, for the message. ``patience``: with brokers that do not answer.
    """
    if not address.on_kafka:
        return NONE_ENDED
    seen = SeenMembers(job, address, settings, patience)
    if seen.fresh:
        machines = ", ".join(sorted({seen.view.sessions[session].heartbeat.machine for session in seen.fresh}))
        raise ConfigError(
            f"members of job {job.name!r} run on {machines}: stop them first (SIGTERM to each grete up){instead}. "
            f"To see them: grete members JOB --log {address.url}"
        )
    return seen.ended
