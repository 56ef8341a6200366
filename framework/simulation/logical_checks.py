"""The invariants of deterministic mode, each with a name: what is decided, sent, sent again and let out (D1-D5)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from framework.ports import ExternalRecord, LogRow
from framework.simulation.invariants import Checker
from framework.simulation.log import SharedLog
from framework.simulation.logical import OF_TIMER
from framework.simulation.oracle import Recorder, TaskHistory, Violation
from framework.simulation.reference import LogicalHistory, Record, reference
from framework.simulation.usercode import stage_code
from framework.simulation.world import Plan
from protocol.changelog import ChangelogType, decode_changelog_header, decode_decision, decode_lease, decode_release
from protocol.commit import Commit
from protocol.control import decode_heartbeat
from protocol.envelope import Header, MessageType, decode_header
from protocol.frames import decode_columns, decode_headers, digest_records, frame_count
from protocol.ids import TopicPartition

Channel = tuple[int, TopicPartition]


@dataclass(slots=True)
class Made:
    """What one producer has put into one partition so far, whatever process of it."""

    records: list[Record] = field(default_factory=list)
    digests: list[int] = field(default_factory=lambda: [0])  # before the first record, after each
    promised: int = -1  # the time of the greatest heartbeat


class LogicalChecker(Checker):
    """Watches the log and the stores of a deterministic world. Raises Violation."""

    def __init__(self, plan: Plan, log: SharedLog, recorder: Recorder) -> None:
        super().__init__(plan, log, recorder)
        self.logical = {
            task: LogicalHistory(wiring, stage_code(plan, task), plan.external_start)
            for task, wiring in plan.wirings.items()
        }
        self.histories = dict[int, TaskHistory](self.logical)
        self.made = {(task, partition): Made() for task, w in plan.wirings.items() for partition in w.outputs}
        self.outside: dict[Channel, list[bytes]] = {}

    # --- streams ------------------------------------------------------------------------------------------------------

    def _stream(self, partition: TopicPartition, value: bytes) -> None:
        header = decode_header(value)
        made = self.made[header.producer, partition]
        name = f"{self.plan.wirings[header.producer].name} generation {header.generation} in {partition}"
        if header.seq > len(made.records) + 1:
            raise Violation("gap", f"{name}: {header.type.name} of seq {header.seq} after {len(made.records)}")
        if header.type is MessageType.HEARTBEAT:
            t, history = decode_heartbeat(value).t, self.logical[header.producer]
            if history.wiring.is_source and t > max(history.leases[-1][1], _last_t(history)):
                raise Violation("lease", f"{name}: heartbeat {t}, valid are a lease up to {history.leases[-1][1]}")
            made.promised = max(made.promised, t)
        elif header.type is MessageType.FRAME:
            self._frame(name, made, header, value)
        else:
            raise Violation("error", f"{name}: a {header.type.name} in deterministic mode")

    def _frame(self, name: str, made: Made, header: Header, value: bytes) -> None:
        keys, values, timestamps, headers, logical, digest = decode_columns(value)
        assert logical is not None
        if digest != made.digests[header.seq - 1]:
            raise Violation("digest", f"{name}: digest {digest:#x} before seq {header.seq}")
        for index, record in enumerate(zip(*logical, (value or b"" for value in values), strict=True)):
            seq = header.seq + index
            if seq <= len(made.records):
                self.seen["records made again"] += 1
                if made.records[seq - 1] != record:
                    before = made.records[seq - 1]
                    raise Violation("again", f"{name}: seq {seq} is {record}, before it was {before}")
                continue
            if record[0] <= made.promised or (made.records and record[:2] < made.records[-1][:2]):
                last = made.records[-1:]
                raise Violation("time", f"{name}: seq {seq} at {record[:2]} after {last}, promised {made.promised}")
            history = self.logical[header.producer]
            if history.wiring.is_source and not record[2].startswith(OF_TIMER) and record[0] > _last_t(history):
                raise Violation("decision", f"{name}: seq {seq} at {record[:2]}, decided up to {_last_t(history)}")
            made.records.append(record)
            one = slice(index, index + 1)
            cells = keys[one], values[one], timestamps[one], None if headers is None else headers[one]
            made.digests.append(digest_records(made.digests[-1], *cells, (logical[0][one], logical[1][one])))

    # --- changelogs ---------------------------------------------------------------------------------------------------

    def _changelog(self, task: int, offset: int, value: bytes, outputs: Sequence[ExternalRecord]) -> None:
        kind, generation, seq, _ = decode_changelog_header(value)
        claims, history = self.claims[task], self.logical[task]
        new = (generation, seq) not in claims.messages
        super()._changelog(task, offset, value, outputs)
        if not new or kind in (ChangelogType.CLAIM, ChangelogType.DATA, ChangelogType.COMMIT):
            return
        self.seen[f"{kind.name.lower()}s"] += 1
        if generation < claims.top:
            self.seen[f"void {kind.name.lower()}s"] += 1
            if outputs:
                raise Violation("sink", f"{history.wiring.name}: {len(outputs)} outputs left with a void release")
        elif kind is ChangelogType.DECISION:
            history.decided.append((offset, decode_decision(value)))
        elif kind is ChangelogType.LEASE:
            history.leases.append((offset, max(history.leases[-1][1], decode_lease(value).t)))
        else:
            self._let_out(task, outputs)
            for partition, last in decode_release(value).seqs:
                if last != len(self.outside.get((task, partition), ())):
                    raise Violation("release", f"{history.wiring.name}: says seq {last} of {partition} is out")

    def _let_out(self, task: int, outputs: Sequence[ExternalRecord]) -> None:
        """Check outputs that leave the job, with a release or a commit: in order, each once."""
        for record in outputs:
            headers = dict(decode_headers(record.headers or b""))
            released = self.outside.setdefault((task, record.partition), [])
            if int(headers["grete.seq"]) != len(released) + 1:
                name = self.plan.wirings[task].name
                seq = headers["grete.seq"].decode()
                raise Violation("release", f"{name}: seq {seq} into {record.partition} after {len(released)}")
            released.append(record.value or b"")
        self.produced(outputs)

    def _leaves(self, value: bytes, where: str) -> None:
        if not value.startswith(OF_TIMER):
            super()._leaves(value, where)

    def _commit(self, history: TaskHistory, commit: Commit, offset: int, outputs: Sequence[ExternalRecord]) -> None:
        before = history.resume.copy()
        super()._commit(history, commit, offset, outputs)
        self._let_out(commit.producer, outputs)
        name, time = f"{history.wiring.name} version {commit.version}", commit.deterministic
        assert isinstance(history, LogicalHistory)
        if time is None:
            raise Violation("front", f"{name}: says nothing of logical time")
        if history.wiring.is_source and (time.position, time.last_t) != (history.records, _last_t(history)):
            found = f"{history.records} records up to {_last_t(history)}"
            raise Violation("front", f"{name}: says {time.position} records up to {time.last_t}, decided are {found}")
        seqs = {(c.producer, TopicPartition(i.topic, i.partition)): c.seq for i in commit.inputs for c in i.channels}
        if not history.wiring.is_source and sum(seqs.values()) != history.records:
            raise Violation("seq", f"{name}: holds {history.records} records, its seqs are {seqs}")
        for front in time.fronts:
            key = front.producer, TopicPartition(front.topic, front.partition)
            made = self.made[key]
            if front.digest != made.digests[seqs[key]]:
                raise Violation("digest", f"{name}: another digest of {key} after seq {seqs[key]}")
            if seqs[key] < len(made.records) and made.records[seqs[key]][0] <= front.t:
                raise Violation("front", f"{name}: has all of {key} up to {front.t}, not {made.records[seqs[key]]}")
        if commit.version > 0:
            after, history.resume, history.cursors = history.resume, before, seqs
            self._resume(name, history, commit)
            history.resume = after

    def _is_left_out(self, history: TaskHistory, partition: TopicPartition, header: Header, count: int) -> bool:
        return header.seq + count - 1 > history.cursors[header.producer, partition]

    # --- the end, and what a power loss takes -------------------------------------------------------------------------

    def unmade(self, partition: TopicPartition, rows: Sequence[LogRow]) -> None:
        """Forget what was lost with the power; what left the job is not among it."""
        super().unmade(partition, rows)
        if not rows:
            return
        left = [row[4] or b"" for row in self._log.partition(partition).rows if row[0] < rows[0][0]]
        if partition in self._changelogs:
            history = self.logical[self._changelogs[partition]]
            history.decided = [entry for entry in history.decided if entry[0] < rows[0][0]]
            history.leases = [entry for entry in history.leases if entry[0] < rows[0][0]]
        elif partition in self._readers:
            commit = self.histories[self._readers[partition]].commit
            inputs = () if commit is None else commit.inputs
            seqs = {c.producer: c.seq for i in inputs if i.topic == partition.topic for c in i.channels}
            for (producer, of), made in self.made.items():
                if of == partition:
                    _cut(
                        made,
                        seqs.get(producer, 0),
                        [value for value in left if decode_header(value).producer == producer],
                    )

    def all_at_end(self) -> bool:
        """Tell whether the commits say that the job is at its end, as a supervisor finds out (A2b)."""
        commits = {task: history.commit for task, history in self.histories.items()}
        if any(commit is None or commit.deterministic is None for commit in commits.values()):
            return False
        sources = [c for task, c in commits.items() if c is not None and self.plan.wirings[task].is_source]
        last_t = max(c.deterministic.last_t for c in sources if c.deterministic is not None)
        fronts = (f.t for c in commits.values() if c and c.deterministic for f in c.deterministic.fronts)
        return all(c.at_end for c in sources) and min(fronts, default=last_t) >= last_t

    def nothing_missing(self) -> bool:
        """Leave it to the marks, and to the reference."""
        return not self.missing

    def finish(self) -> None:
        """Check the world at rest: what was sent and what is outside begins as the reference does, byte for byte."""
        super().finish()
        rows = {p: [row[4] or b"" for row in self._log.partition(p).rows] for p in self.plan.inputs}
        channels, outside = reference(self.plan, self.logical, rows)
        for key, made in self.made.items():
            _check_prefix(f"stream {key}", made.records, channels.get(key, []))
        for key, values in self.outside.items():
            _check_prefix(f"outside {key}", values, outside.get(key, []))


def _check_prefix(name: str, found: Sequence[object], expected: Sequence[object]) -> None:
    for index, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            raise Violation("prefix", f"{name}: record {index + 1} is {one!r}, the reference has {other!r}")
    if len(found) > len(expected):
        raise Violation("prefix", f"{name}: {found[len(expected)]!r} is not in the reference")


def _last_t(history: LogicalHistory) -> int:
    return history.decided[-1][1].last_t if history.decided else 0


def _cut(made: Made, committed: int, left: Sequence[bytes]) -> None:
    """Forget what no message that is left says, and its reader has not committed."""
    headers = [(decode_header(value), value) for value in left]
    ends = [h.seq + frame_count(value) - 1 for h, value in headers if h.type is MessageType.FRAME]
    end = max(ends, default=committed)
    del made.records[end:], made.digests[end + 1 :]
    made.promised = max((decode_heartbeat(v).t for h, v in headers if h.type is MessageType.HEARTBEAT), default=-1)
