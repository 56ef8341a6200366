"""Members of a job over one log in memory, step by step, with workers that claim: what the tests let go wrong."""

from collections import Counter
from dataclasses import dataclass, field

from grete.core.members.membership import Membership
from grete.core.members.view import MemberId
from grete.protocol.members import (
    Heartbeat,
    HeldPartition,
    MembersMessage,
    PartitionState,
    decode_members_message,
    encode_members_message,
)

INTERVAL = 5  # steps between two heartbeats of a member
DEAD_BEATS = 4
RELEASE_BEATS = 12
LEAVE_BEATS = 10
START_STEPS, STOP_STEPS, WARM_STEPS = 3, 3, 12  # of a worker


@dataclass
class SimWorker:
    """The state of one partition at a member. ``due``: the step at which the state is over."""

    state: PartitionState
    due: int = 0
    claim: int = 0


@dataclass
class SimMember:
    """A process: a core, what it hosts, what it has read and written."""

    core: Membership
    offset: int
    phase: int
    workers: dict[int, SimWorker] = field(default_factory=dict)
    stored: set[int] = field(default_factory=set)
    unread: list[int] = field(default_factory=list)  # offsets of own heartbeats that are on their way
    frozen_until: int = 0
    cut_until: int = 0  # it can neither read nor write until then
    loses: int = 0  # heartbeats that get lost
    doubles: int = 0  # heartbeats that arrive twice
    delay: int = 0  # steps until it reads a row
    done: bool = False

    @property
    def session(self) -> str:
        """The session."""
        return self.core.view.me.session


class World:
    """One log, some members. ``tail``: how many rows a member reads that joins."""

    def __init__(self, partitions: int = 4, *, warms: bool = False, standby_replicas: int = 0, tail: int = 200) -> None:
        self.partitions, self.warms, self.standby_replicas, self.tail = partitions, warms, standby_replicas, tail
        self.log: list[tuple[int, bytes]] = []  # when it was written, message
        self.members: list[SimMember] = []
        self.now = 0
        self.claims = Counter[int]()  # by partition
        self.owner_of_claim: dict[tuple[int, int], str] = {}
        self.assignments = 0
        self.idle_steps = Counter[int]()  # by partition: steps in which no member ran it

    def join(self, member: str = "", machine: str = "", stored: frozenset[int] = frozenset()) -> SimMember:
        """Start a member; of the same name as an earlier one: its next session."""
        number = len(self.members)
        name = member or f"m{number}"
        core = Membership(
            MemberId(name, f"{name}-{number}", machine or name),
            self.partitions,
            dead_beats=DEAD_BEATS,
            release_beats=RELEASE_BEATS,
            leave_beats=LEAVE_BEATS,
            standby_replicas=self.standby_replicas,
            warms=self.warms,
        )
        joined = SimMember(core, max(0, len(self.log) - self.tail), (self.now + 1) % INTERVAL, stored=set(stored))
        self.members.append(joined)
        return joined

    def kill(self, member: SimMember) -> None:
        """End a process and its workers without a word."""
        member.done = True
        member.workers.clear()

    def halt(self, member: SimMember, partition: int) -> None:
        """Let a partition halt: its member ends, and says so."""
        self.write(member.core.leave([partition]))
        self.kill(member)

    def write(self, message: MembersMessage) -> int:
        """Append a message; return its offset."""
        self.log.append((self.now, encode_members_message(message)))
        return len(self.log) - 1

    def run(self, steps: int) -> None:
        """Let time pass."""
        for _ in range(steps):
            self.now += 1
            for member in self.members:
                if not member.done and member.frozen_until < self.now:
                    self._step(member)
            running = {p for m in self.members if not m.done for p, w in m.workers.items() if w.state == "running"}
            self.idle_steps.update(p for p in range(self.partitions) if p not in running)

    def make_again(self) -> None:
        """Delete the topic, and make it again: all rows are gone, and offsets begin at 0."""
        self.log.clear()
        for member in self.members:
            member.offset = 0
            member.unread.clear()

    def live(self) -> list[SimMember]:
        """Return the processes that are there."""
        return [member for member in self.members if not member.done]

    def owners(self) -> dict[int, list[str]]:
        """Return partition → the sessions that run it, also those that only believe to."""
        found: dict[int, list[str]] = {partition: [] for partition in range(self.partitions)}
        for member in self.live():
            for partition, worker in member.workers.items():
                if worker.state == "running":
                    found[partition].append(member.session)
        return found

    def _step(self, member: SimMember) -> None:
        self._work(member)
        if member.cut_until >= self.now:
            return
        if member.cut_until:
            member.core.view.forgive()
            member.cut_until = 0
        while member.offset < len(self.log) and self.log[member.offset][0] <= self.now - member.delay:
            member.core.row(member.offset, decode_members_message(self.log[member.offset][1]))
            member.unread = [offset for offset in member.unread if offset > member.offset]
            member.offset += 1
        news = self._follow(member)
        if self.now % INTERVAL == member.phase and not member.unread:
            self._beat(member, member.core.heartbeat(self._held(member)))
        elif news and member.core.beat >= 0:  # as MembersClient: the first heartbeat has them, too
            self._beat(member, member.core.report(self._held(member)))
        member.core.check_invariants()
        made = member.core.decide()
        if made is not None:
            self.assignments += 1
            self.write(made)
        gone = not any(worker.state != "stored" for worker in member.workers.values())
        if member.core.leaving and (gone or member.core.alone):
            self.write(member.core.leave())
            self.kill(member)

    def _beat(self, member: SimMember, heartbeat: Heartbeat) -> None:
        if member.loses:
            member.loses -= 1
            return
        member.unread.append(self.write(heartbeat))
        if member.doubles:
            member.doubles -= 1
            self.write(heartbeat)

    def _follow(self, member: SimMember) -> bool:
        """Start and stop workers; return whether anything has changed."""
        before = {partition: worker.state for partition, worker in member.workers.items()}
        duties = member.core.duties()
        for partition in duties.active:
            worker = member.workers.get(partition)
            again = worker is not None and worker.state == "fenced" and partition in duties.again
            if worker is None or worker.state == "standby" or again:
                warm = worker is not None and worker.state == "standby"
                member.workers[partition] = SimWorker("starting", self.now + (1 if warm else START_STEPS))
        for partition in duties.standby:
            worker = member.workers.get(partition)
            if (
                worker is None or worker.state == "fenced"
            ):  # its worker is let go of: it is to run the partition no more
                member.workers[partition] = SimWorker("standby", self.now + WARM_STEPS)
        for partition, worker in list(member.workers.items()):
            if partition in duties.active or partition in duties.standby:
                continue
            if worker.state in ("running", "starting"):
                member.workers[partition] = SimWorker("stopping", self.now + STOP_STEPS)
            elif worker.state in ("standby", "fenced"):
                del member.workers[partition]
        return before != {partition: worker.state for partition, worker in member.workers.items()}

    def _work(self, member: SimMember) -> None:
        for partition, worker in list(member.workers.items()):
            if worker.claim and worker.claim < self.claims[partition] and worker.state == "running":
                member.workers[partition] = SimWorker("fenced")
                member.core.fenced(partition)
            elif worker.state == "starting" and self.now >= worker.due:
                self.claims[partition] += 1
                self.owner_of_claim[partition, self.claims[partition]] = member.session
                member.workers[partition] = SimWorker("running", claim=self.claims[partition])
                member.stored.add(partition)
            elif worker.state == "stopping" and self.now >= worker.due:
                del member.workers[partition]

    def _held(self, member: SimMember) -> list[HeldPartition]:
        held = [HeldPartition(p, "stored", 1) for p in sorted(member.stored - member.workers.keys())]
        for partition, worker in member.workers.items():
            behind = max(0, worker.due - self.now) * 10_000 if worker.state == "standby" else -1
            held.append(HeldPartition(partition, worker.state, 1, behind))
        return held
