"""A member of a job as a thread: heartbeats go out and rows are read while the rest of the process is busy."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from grete.core.members.assignor import caught_up
from grete.core.members.membership import Duties, Membership
from grete.core.members.view import MemberId, MembersView
from grete.errors import FrameworkError, TransientError
from grete.protocol.errors import DecodeError
from grete.protocol.members import (
    EndedTask,
    HeldPartition,
    JobAssignment,
    MemberReport,
    MembersMessage,
    decode_members_message,
    encode_members_message,
)
from grete.settings import Settings
from grete.worker.members.partition_moves import PartitionMove, PartitionMoves

RELEASE_MARGIN_MS = 2_000  # beyond shutdown_timeout_ms: a supervisor kills what is late by then
LATE_SHARE = 0.5  # of member_timeout_ms that an own heartbeat took: others were not seen meanwhile either
READ_S_MAX = 0.1  # of waiting for a row: news of this process go out as soon
MOVING_READ_S_MAX = 0.005  # the same while a partition stops here: it rests until the next owner knows that it has
JOIN_S_MAX = 5.0  # for the thread to end


class MembersLog(Protocol):
    """The topic as a client needs it; see grete.logs.kafka.members_topic."""

    unwritten: int

    @property
    def failure(self) -> FrameworkError | None:
        """Return the error that keeps rows from being written."""

    def read(self, seconds: float) -> list[tuple[int, int, bytes]]:
        """Return rows as (offset, append time in ms, bytes), after ``seconds`` at the latest."""

    def write(self, data: bytes) -> None:
        """Send a message."""

    def flush(self) -> None:
        """Wait for what is on its way, a moment."""


class MemberRow(NamedTuple):
    """A live member, for a person."""

    member: str
    session: str
    machine: str
    owns: int  # partitions
    leads: bool
    leaving: bool
    code: str  # a digest of it, "": not known
    timeout_ms: int  # of silence, 0: not known
    since_ms: int = 0  # when its session began, in ms since 1970, 0: not known


class OtherReport(NamedTuple):
    """The last report of another member. ``at_s``: when it came, by the monotonic clock."""

    at_s: float
    body: bytes


def membership(me: MemberId, partitions: int, settings: Settings) -> Membership:
    """Return the core of a member with the bounds of the settings, counted in heartbeats."""
    interval = settings.member_heartbeat_interval_ms
    return Membership(
        me,
        partitions,
        dead_beats=-(-settings.member_timeout_ms // interval),
        release_beats=-(-(settings.shutdown_timeout_ms + RELEASE_MARGIN_MS) // interval),
        leave_beats=-(-settings.shutdown_timeout_ms // interval),
        standby_replicas=settings.standby_replicas,
        warms=True,
    )


def decoded(data: bytes) -> MembersMessage | None:
    """Return the message of a row; None: it is none that this build can read."""
    try:
        return decode_members_message(data)
    except DecodeError:
        return None


def _news(held: HeldPartition) -> tuple[int, str, bool]:
    """Return the news that others wait for: a partition runs, has stopped, or is ready to be moved."""
    return held.partition, held.state, caught_up(held)


class OwnHeartbeats:
    """The heartbeats of this member on their way: whether one is due, is lost, or was too long under way."""

    def __init__(self, settings: Settings) -> None:
        self.interval_s = settings.member_heartbeat_interval_ms / 1000
        self._late_s = settings.member_timeout_ms / 1000 * LATE_SHARE
        self._unread: tuple[int, float] | None = None  # the beat that is on its way, and since when
        self.sent_s = 0.0  # when anything of this member was last sent

    @property
    def unread(self) -> bool:
        """Whether a heartbeat was sent, and was not seen in the topic yet."""
        return self._unread is not None

    def beats(self, beat: int, now_s: float) -> None:
        """Note that this one was sent."""
        assert self._unread is None, f"heartbeat {beat} was sent before {self._unread} was read"
        self._unread = beat, now_s

    @property
    def late(self) -> bool:
        """Whether a heartbeat has been on its way for so long that the log may be away."""
        return self._unread is not None and time.monotonic() - self._unread[1] > self._late_s

    def is_lost(self, now_s: float) -> bool:
        """Whether the heartbeat is lost: a broker may lose what it acknowledged, and a client may give up."""
        return self._unread is not None and now_s - self.sent_s > self._late_s

    def read(self, view: MembersView) -> None:
        """Note whether it is in the topic; after an outage others must be seen first."""
        if self._unread is not None and view.began >= 0 and view.beats >= self._unread[0]:
            if self.late:
                view.forgive()
            self._unread = None


class ReportsOfMembers:
    """The reports of this member on its machine, and the last one of each other that lives; and ``moves``."""

    def __init__(self, session: str) -> None:
        """``session``: of this member."""
        self._session = session
        self._own: bytes | None = None  # still to be sent; a newer one takes its place
        self._others: dict[str, OtherReport] = {}
        self.moves = PartitionMoves()

    def give(self, body: bytes) -> None:
        """Send this with the next turn."""
        self._own = body

    def next(self) -> MemberReport | None:
        """Return the message that is to be sent, once."""
        body, self._own = self._own, None
        return None if body is None else MemberReport(session=self._session, body=body)

    def take(self, message: MembersMessage | None, at_ms: int, view: MembersView) -> None:
        """Keep a report, and forget those of members that are gone; note moves. The view does not have the row yet."""
        if isinstance(message, JobAssignment):
            self.moves.take(view, message, at_ms)
        if isinstance(message, MemberReport):
            if message.session != self._session:
                self._others[message.session] = OtherReport(time.monotonic(), message.body)
            self._others = self.of_live(view)

    def of_live(self, view: MembersView) -> dict[str, OtherReport]:
        """Return session → report of the others that live."""
        return {session: each for session, each in self._others.items() if view.is_live(session)}


class MembersClient:
    """Runs the core of one member. All methods may be called while the thread runs."""

    def __init__(
        self, topic: MembersLog, core: Membership, settings: Settings, wake: Callable[[], None] = lambda: None
    ) -> None:
        """Begin. The thread calls ``wake`` when there are other ``duties``, perhaps."""
        self._topic, self._core, self._wake = topic, core, wake
        self._own = OwnHeartbeats(settings)
        self._reports = ReportsOfMembers(core.view.me.session)
        self._lock = threading.Lock()
        self._held: tuple[HeldPartition, ...] = ()
        self._duties: Duties | None = None  # as long as they have not changed
        self._news = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="members", daemon=True)
        self.error: FrameworkError | None = None  # the thread has ended by it
        self._thread.start()

    def duties(self) -> Duties:
        """Return the partitions to host from now on; call ``hold`` once that is under way."""
        with self._lock:
            if self._duties is None or self._core.has_news:
                found = self._core.duties()
                self._duties = found._replace(again=frozenset())
                return found
            return self._duties

    def hold(self, held: Sequence[HeldPartition]) -> None:
        """Say what is hosted here now."""
        with self._lock:
            self._news |= list(map(_news, held)) != list(map(_news, self._held))
            self._held = tuple(held)

    def fenced(self, partition: int) -> None:
        """Say that another process has taken a partition."""
        with self._lock:
            self._core.fenced(partition)
            self._duties = None

    def begin_to_leave(self) -> bool:
        """Ask the others to take all that is here; return whether there are any, and they can be asked."""
        with self._lock:
            self._news |= not self._core.leaving
            self._core.leaving = True
            return not (self._own.late or self._core.alone or self.error)

    def members(self) -> list[MemberRow]:
        """Return the members that live, the one that began first coming first."""
        with self._lock:
            view = self._core.view
            leader = view.leader()
            owners = [place.owner for place in (view.assignment.places if view.assignment else ())]
            return [
                MemberRow(
                    member.heartbeat.member,
                    member.session,
                    member.heartbeat.machine,
                    owners.count(member.session),
                    member is leader,
                    member.heartbeat.leaving,
                    member.heartbeat.code or "",
                    member.heartbeat.timeout_ms or 0,
                    member.heartbeat.since_ms or 0,
                )
                for member in view.live()
            ]

    def report(self, body: bytes) -> None:
        """Tell the other members the state of this machine; what was not sent yet is left out."""
        with self._lock:
            self._reports.give(body)

    def reports(self) -> dict[str, OtherReport]:
        """Return session → last report of the other members that live; of one that has sent none, nothing."""
        with self._lock:
            return self._reports.of_live(self._core.view)

    def moves(self) -> tuple[PartitionMove, ...]:
        """Return the last moves of partitions, oldest first."""
        with self._lock:
            return tuple(self._reports.moves.last)

    @property
    def settled(self) -> bool:
        """Whether it is known which of the earlier members still live: rows of the topic may be old."""
        with self._lock:
            return self._core.view.settled

    @property
    def shared_with(self) -> str:
        """The machine of a live member with the id of this one."""
        with self._lock:
            return self._core.view.shared_with

    def halted(self) -> dict[int, str]:
        """Return partition → machine of those that no member runs, because they halted there."""
        with self._lock:
            view = self._core.view
            machines = {session: member.heartbeat.machine for session, member in view.sessions.items()}
            return {p: machines.get(halted.session, halted.member) for p, halted in view.halted.items()}

    def close(self, halted: Sequence[int] = (), ended: Sequence[EndedTask] = ()) -> None:
        """Leave; ``halted``: the partitions for which a person must look; ``ended``: what has run here, and ended."""
        self._ending.set()
        self._thread.join(JOIN_S_MAX)
        if self._topic.unwritten:
            self._topic.flush()  # a heartbeat may just be on its way
        if not (self._thread.is_alive() or self.error or self._topic.unwritten):  # else the log is away
            self._topic.write(encode_members_message(self._core.leave(halted, ended)))
            self._topic.flush()

    def _run(self) -> None:
        try:
            beat_s = time.monotonic()
            while not self._ending.is_set():
                beat_s = self._turn(beat_s)
        except Exception as error:  # noqa: BLE001  # else this member would be silent, and run on what others take over
            mistake = TransientError(f"the members' thread has ended: {type(error).__name__}: {error}: start again")
            self.error = error if isinstance(error, FrameworkError) else mistake

    def _turn(self, beat_s: float) -> float:
        """Write what is due, read what has come; return when the next heartbeat is due."""
        now_s = time.monotonic()
        if self._topic.failure is not None:
            raise self._topic.failure
        with self._lock:
            before = self._own.sent_s
            if now_s >= beat_s and not self._own.unread:
                self._send(self._core.heartbeat(self._held))
                self._own.beats(self._core.beat, now_s)
                beat_s = now_s + self._own.interval_s
            elif (self._news or self._own.is_lost(now_s)) and self._core.beat >= 0 and not self._topic.unwritten:
                self._send(self._core.report(self._held))
            elif self._core.beat >= 0 and not self._topic.unwritten and (told := self._reports.next()) is not None:
                self._topic.write(encode_members_message(told))
            stops = any(held.state == "stopping" for held in self._held)
            due_s = READ_S_MAX if self._own.unread else beat_s - now_s  # what is unread is read before the next one
        rows = self._topic.read(max(0.0, min(MOVING_READ_S_MAX if stops else READ_S_MAX, due_s)))
        with self._lock:
            for offset, at_ms, data in rows:
                message = decoded(data)
                self._reports.take(message, at_ms, self._core.view)
                self._core.row(offset, message)
            self._own.read(self._core.view)
            made = self._core.decide() if rows or self._own.sent_s > before else None  # it goes by what was read
            has_news = self._core.has_news
        if has_news:
            self._wake()
        if made is not None:
            self._topic.write(encode_members_message(made))
        return beat_s

    def _send(self, message: MembersMessage) -> None:
        self._news, self._own.sent_s = False, time.monotonic()
        self._topic.write(encode_members_message(message))
