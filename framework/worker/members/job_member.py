"""This machine as a member of a job: it hosts the partitions that the assignment gives it, and reports their state.

On Kafka only: an embedded log is on one machine.
"""

import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from grete.closable import Closable
from grete.core.members.membership import Duties
from grete.core.members.view import MemberId
from grete.core.supervision.assignment import Assignment, HostedState
from grete.core.supervision.process_end import WorkerEnd
from grete.errors import ConfigError, Halted
from grete.execution.build import store_names
from grete.halts import HaltCode
from grete.job.directory import JobDirectory
from grete.job.loader import code_digest
from grete.logs.address import KAFKA, read_options
from grete.protocol.members import EndedTask, HeldPartition
from grete.worker.members.member_news import MemberNews
from grete.worker.members.members_client import RELEASE_MARGIN_MS, MembersClient, membership
from grete.worker.supervisor.local_job import LocalJob

ID_BYTES = 6  # drawn: two of a million members are the same once in 500 jobs
POLL_MS = 50  # of waiting for workers while they are handed over


class MemberTroubles:
    """Tells, once each, what a person must look at on this machine or on another one."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._halted: dict[int, str] = {}
        self._shared = ""

    def tell_halted(self, halted: dict[int, str]) -> None:
        """Tell which partitions no member runs, when that changes. ``halted``: partition → where it did."""
        if halted != self._halted:
            self._halted = halted
            for partition, machine in halted.items():
                self._tell(
                    f"partition {partition} has halted on {machine}, and no member runs it: look there, and start that "
                    "member again; if there is no such member, stop all, delete the topic JOB.members, and start again"
                )

    def tell_shared(self, machine: str, directory: JobDirectory) -> None:
        """Tell of a machine with a member of this one's id, and let go of the id. ``machine`` "": there is none."""
        if machine and machine != self._shared:
            self._shared = machine
            directory.member_file.unlink(missing_ok=True)
            self._tell(
                f"a member on {machine} has the id of this one: {directory.directory} was copied, or is used by both. "
                "Each machine needs a directory of its own; this member has another id from its next start on"
            )


class JobMember(Closable):
    """One `grete up` among several. ``poll`` must be called often; it tells what moves as the supervisor's news."""

    def __init__(self, local: LocalJob) -> None:
        """Join the members of the job, which ``local`` has prepared. Raises ConfigError: a right is missing."""
        from grete.logs.kafka.members_topic import KafkaMembersTopic

        self._local = local
        settings, directory = local.settings, local.job_directory
        address = directory.address
        options = None if address.config is None else read_options(address.config)
        self._me = MemberId(
            kept_id(directory),
            os.urandom(ID_BYTES).hex(),
            settings.machine or platform.node() or "unnamed",
            code_digest(local.job),
            settings.member_heartbeat_interval_ms,
            settings.member_timeout_ms,
            time.time_ns() // 1_000_000,
        )
        self._topic = KafkaMembersTopic(address.url.removeprefix(KAFKA), options, local.job.name, local.patience)
        core = membership(self._me, local.job.workers, settings)
        self.client = MembersClient(self._topic, core, settings, local.supervisor.wake)
        self._duties = Duties()
        self._said = -1  # how often something had changed here when it last said what it holds
        # partition → the last checkpoint that was seen here, 0: there are files of an earlier run
        self._positions = {p: 0 for p in range(local.job.workers) if _has_files(local, p)}
        self._halted: Sequence[int] = ()
        self._news = MemberNews(local.job.name, self._me.session, settings, local.supervisor.tell)
        self._troubles = MemberTroubles(local.supervisor.tell)
        self.last_move_ms = 0  # when a partition last came or went, in ms since 1970
        self._closed = False

    @property
    def session(self) -> str:
        """The session of this member, drawn at its start."""
        return self._me.session

    @property
    def machine(self) -> str:
        """The name of this machine: the setting ``machine``, or its host's name."""
        return self._me.machine

    def poll(self) -> None:
        """Host what the assignment says now. Raises ConfigError: the topic may not be read or written."""
        if self.client.error is not None:
            raise self.client.error
        supervisor = self._local.supervisor
        if supervisor.core.changes != self._said:
            for partition, state in supervisor.hosted().items():
                if state == HostedState.FENCED:
                    self.client.fenced(partition)
        duties = self.client.duties()
        if duties != self._duties or duties.again:
            self._tell_moves(duties)
            supervisor.assign(Assignment(duties.active, duties.standby, duties.coming), again=duties.again)
        self._duties = duties
        changes = supervisor.core.changes
        if changes != self._said:
            self._said = changes
            self.client.hold(self._held())
        if self.client.settled:
            self._news.look(self.client.members(), time.monotonic())
        self._troubles.tell_halted(self.client.halted())
        self._troubles.tell_shared(self.client.shared_with, self._local.job_directory)

    def hand_over(self) -> None:
        """Let others take what is here, partition by partition; return when they have, or cannot, or after a bound."""
        settings = self._local.settings
        deadline = time.monotonic() + (settings.shutdown_timeout_ms + RELEASE_MARGIN_MS) / 1000
        while self.client.begin_to_leave() and self._local.supervisor.workers and time.monotonic() < deadline:
            self._local.poll(POLL_MS)
            self.poll()

    def halt(self, error: Halted) -> None:
        """Say which partitions have halted here, and leave: no member is to run them until a person has looked.

        But not those that halted for a reason of this machine's: its disk is full, or its code is refused and others
        have other code. The others go on with them.
        """
        supervisor = self._local.supervisor
        ends = {p: worker.restarts.last for worker in supervisor.workers.values() for p in worker.partitions}
        halted = [partition for partition, state in supervisor.hosted().items() if state == HostedState.HALTED]
        if not halted and error.partition is not None:
            halted = [error.partition.partition]
        self._halted = [partition for partition in halted if not self._only_here(ends.get(partition))]
        self.close()

    def _only_here(self, end: WorkerEnd | None) -> bool:
        """Tell whether another machine may well run what has ended so."""
        if end is None:
            return False
        others = {row.code for row in self.client.members() if row.session != self._me.session}
        refused = end.code == HaltCode.CONFIGURATION.value
        return end.reason == "disk" or (refused and bool(others - {self._me.code, ""}))

    def close(self) -> None:
        """Leave. A second call does nothing."""
        if not self._closed:
            self._closed = True
            ended = self._local.supervisor.core.ended
            self.client.close(self._halted, [EndedTask(*each) for each in sorted(ended.items())])
            self._topic.close()

    def _held(self) -> list[HeldPartition]:
        """Return this machine's state of each partition."""
        supervisor = self._local.supervisor
        states = supervisor.hosted()
        for worker in supervisor.workers.values():
            for partition in worker.partitions:
                if worker.reports.checkpoint_id > 0:
                    self._positions[partition] = worker.reports.checkpoint_id
        standbys = supervisor.core.standbys.by_partition
        behind = {partition: each.behind for partition, each in standbys.items()}
        for partition, standby in standbys.items():
            if standby.checkpoint_id > 0:
                self._positions[partition] = standby.checkpoint_id
        held = []
        for partition in range(self._local.job.workers):
            position = self._positions.get(partition, -1)
            state = states.get(partition)
            if state is not None:
                ready = state == HostedState.STANDBY
                held.append(HeldPartition(partition, state.value, position, behind.get(partition, -1) if ready else -1))
            elif position >= 0:
                held.append(HeldPartition(partition, "stored", position))
        return held

    def _tell_moves(self, duties: Duties) -> None:
        come, gone = duties.active - self._duties.active, self._duties.active - duties.active
        if come or gone:
            self.last_move_ms = time.time_ns() // 1_000_000
        for partition in sorted(come):
            self._local.supervisor.tell(f"partition {partition} comes here")
        for partition in sorted(gone):
            self._local.supervisor.tell(f"partition {partition} goes to another member")


def _has_files(local: LocalJob, partition: int) -> bool:
    """Tell whether the state of a partition was on this machine once."""
    return any(
        store_names(stage) and local.job_directory.state(f"{stage.name}-{partition}").exists()
        for stage in local.job.stages
    )


def kept_id(directory: JobDirectory) -> str:
    """Return the id of the member in this directory, drawn at its first start. Raises ConfigError."""
    path = directory.member_file
    try:
        with suppress(FileNotFoundError):
            if found := path.read_text("utf-8").strip():
                return found
        drawn = os.urandom(ID_BYTES).hex()
        path.write_text(drawn, "utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot keep the member's id in {path}: {error}: check its owner, or delete it") from error
    return drawn
