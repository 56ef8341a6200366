"""The invariants of deterministic mode, each with a name: what is decided, sent, sent again and let out (D1-D5).

In a mixed world they hold for its deterministic tasks, those of aligned mode for the others, and some between them.
"""

from collections.abc import Mapping, Sequence

from grete.api.topics.reader import origin_of
from grete.core.deterministic.logical_watermarks import step_at
from grete.core.events import Advance
from grete.ports import ExternalRecord, LogRow
from grete.protocol.changelog import (
    ChangelogType,
    decode_changelog_header,
    decode_input_decision,
    decode_output_release,
    decode_time_lease,
)
from grete.protocol.commit import Commit, DeterministicCommit
from grete.protocol.control import PROGRESS, ProgressMessage, Watermark, decode_watermark, progress_of
from grete.protocol.envelope import Header, MessageType, decode_header
from grete.protocol.frames import decode_columns, decode_headers, digest_records
from grete.protocol.ids import TopicPartition
from grete.protocol.notes import IdleNote, decode_note
from tests.verification.simulation.early_checks import EarlyFiles
from tests.verification.simulation.idents import OF_TIMER
from tests.verification.simulation.invariants import Checker
from tests.verification.simulation.log import SharedLog
from tests.verification.simulation.made import Made
from tests.verification.simulation.oracle import Recorder, TaskHistory, Violation
from tests.verification.simulation.plan import JOB, Plan
from tests.verification.simulation.reference import LogicalHistory, reference
from tests.verification.simulation.reference_checks import Channel, Reference
from tests.verification.simulation.sink import EarlyAccount
from tests.verification.simulation.stage_codes import stage_code

Copy = tuple[int, ExternalRecord, object, bool]  # its offset, its sender, whether a successor had looked before it came


class LogicalChecker(Checker):
    """Watches the log and the stores of a world with deterministic tasks. Raises Violation."""

    def __init__(self, plan: Plan, log: SharedLog, recorder: Recorder) -> None:
        super().__init__(plan, log, recorder)
        self.logical = {
            task: LogicalHistory(wiring, stage_code(plan, task), plan.external_start)
            for task, wiring in plan.wirings.items()
            if wiring.deterministic
        }
        self.histories |= self.logical
        self.made = {(task, p): Made() for task in self.logical for p in plan.wirings[task].outputs}
        self.outside: dict[Channel, list[bytes]] = {}
        self._early = EarlyFiles(plan, self.outside, self.seen, self.marks)
        self._copies: dict[Channel, list[Copy]] = {}  # of what left at once: the last of each seq
        self._by_name = {f"{JOB}/{wiring.name}": task for task, wiring in plan.wirings.items()}
        self._reached: tuple[int, int] | None = None  # last t, the checkpoint that holds all up to it

    # --- streams ------------------------------------------------------------------------------------------------------

    def _stream(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        header = decode_header(value)
        if header.type in PROGRESS:
            for each in progress_of(header.type, value):
                self._progress(partition, offset, each, value)
            return
        if header.producer not in self.logical:
            super()._stream(partition, offset, value)
            return
        made = self.made[header.producer, partition]
        name = f"{self.plan.wirings[header.producer].name} generation {header.generation} in {partition}"
        if header.seq > len(made.records) + 1:
            raise Violation("gap", f"{name}: {header.type.name} of seq {header.seq} after {len(made.records)}")
        made.after_a_damage(offset, value)
        if header.type is MessageType.FRAME:
            self._frame(name, made, header, value)
        elif header.type is MessageType.WATERMARK:
            merged = partition in self.plan.wirings[header.producer].merged_outputs
            self._watermark(name, made, decode_watermark(value), merged=merged)
        else:
            raise Violation("error", f"{name}: a {header.type.name} in deterministic mode")

    def _progress(self, partition: TopicPartition, offset: int, message: ProgressMessage, value: bytes) -> None:
        (header, t, _), made = message, self.made[message.header.producer, partition]
        history = self.logical[header.producer]
        valid = max(history.leases[-1][1], _last_t(history)) if history.wiring.is_source else t
        if header.seq > len(made.records) + 1 or t > valid:
            raise Violation("lease" if t > valid else "gap", f"{message} after {len(made.records)}, lease {valid}")
        made.after_a_damage(offset, value)
        made.advanced = max(made.advanced, t)

    def _watermark(self, name: str, made: Made, message: Watermark, *, merged: bool) -> None:
        """Check watermarks: the same each time, and before the time has passed that they belong to (E2)."""
        passed = made.records[-1][0] - 1 if merged and made.records else -1
        for number, (t, watermark) in enumerate(zip(message.times or (), message.watermarks, strict=True), 1):
            advance = Advance(t, watermark, message.idle and number == len(message.watermarks))
            before = made.told.setdefault(t, advance)
            self.seen["watermarks of deterministic tasks"] += 1
            self.seen["idle deterministic tasks"] += advance.idle
            if before != advance:
                raise Violation("again", f"{name}: {advance}, before it was {before}")
            if before is advance and t <= max(made.advanced, passed):
                raise Violation("time", f"{name}: {advance} behind {made.records[-1:]}, advanced to {made.advanced}")

    def _frame(self, name: str, made: Made, header: Header, value: bytes) -> None:
        keys, values, timestamps, headers, logical, digest = decode_columns(value)[:6]
        assert logical is not None
        if digest != made.digests[header.seq - 1]:
            raise Violation("digest", f"{name}: digest {digest:#x} before seq {header.seq}")
        for index, record in enumerate(zip(*logical, keys, (value or b"" for value in values), strict=True)):
            seq = header.seq + index
            if seq <= len(made.records):
                self.seen["records made again"] += 1
                if made.records[seq - 1] != record:
                    before = made.records[seq - 1]
                    raise Violation("again", f"{name}: seq {seq} is {record}, before it was {before}")
                continue
            if record[0] <= made.advanced or (made.records and record[:2] < made.records[-1][:2]):
                last = made.records[-1:]
                raise Violation("time", f"{name}: seq {seq} at {record[:2]} after {last}, advanced to {made.advanced}")
            history = self.logical[header.producer]
            by_time = record[3].startswith(OF_TIMER) and self.plan.wall  # a wall-clock timer needs no decision (E8)
            leased = history.leases[-1][1] if by_time else -1
            if history.wiring.is_source and record[0] > max(leased, _last_t(history)):
                raise Violation("decision", f"{name}: seq {seq} at {record[:2]}, decided up to {_last_t(history)}")
            made.records.append(record)
            made.values.append(record[3])
            one = slice(index, index + 1)
            cells = keys[one], values[one], timestamps[one], None if headers is None else headers[one]
            made.digests.append(digest_records(made.digests[-1], *cells, (logical[0][one], logical[1][one])))

    # --- changelogs ---------------------------------------------------------------------------------------------------

    def _changelog(self, task: int, offset: int, value: bytes, outputs: Sequence[ExternalRecord]) -> None:
        if task not in self.logical:
            super()._changelog(task, offset, value, outputs)
            return
        kind, generation, seq, _ = decode_changelog_header(value)
        claims, history = self.claims[task], self.logical[task]
        new = (generation, seq) not in claims.messages
        super()._changelog(task, offset, value, outputs)
        if not new or kind in (ChangelogType.CLAIM, ChangelogType.DATA, ChangelogType.COMMIT):
            return
        messages = f"{kind.name.lower().replace('_', ' ')}s"
        self.seen[messages] += 1
        if generation < claims.top:
            self.seen[f"rolled-back {messages}"] += 1
            if outputs:
                raise Violation("sink", f"{history.wiring.name}: {len(outputs)} outputs left with an invalid release")
        elif kind is ChangelogType.INPUT_DECISION:
            history.decided.append((offset, decode_input_decision(value)))
        elif kind is ChangelogType.NOTE:
            note = decode_note(value)
            if isinstance(note, IdleNote):
                history.decided.append((offset, note))
            else:
                history.calls.append((offset, note))
        elif kind is ChangelogType.TIME_LEASE:
            history.leases.append((offset, max(history.leases[-1][1], decode_time_lease(value).t)))
        else:
            self._let_out(task, outputs)
            for partition, last in decode_output_release(value).seqs:
                if last != len(self.outside.get((task, partition), ())):
                    raise Violation("release", f"{history.wiring.name}: says seq {last} of {partition} is out")

    def _let_out(self, task: int, outputs: Sequence[ExternalRecord]) -> None:
        """Check outputs that leave the job, with an output release or a commit: in order, each once."""
        for record in outputs:
            origin = origin_of(decode_headers(record.headers or b""))
            released = self.outside.setdefault((task, record.partition), [])
            if origin is None or origin.seq != len(released) + 1:
                name = self.plan.wirings[task].name
                raise Violation("release", f"{name}: {origin} into {record.partition} after {len(released)}")
            self._check_logged(task, origin.t)
            released.append(record.value or b"")
        self.marks.left(outputs)

    def _check_logged(self, task: int, t: int) -> None:
        """Check that the log knows how a source's output came about: by a decision, or as time has passed (D2, E8)."""
        history = self.logical[task]
        if history.wiring.is_source and t > max(history.leases[-1][1], _last_t(history)):
            raise Violation("decision", f"{history.wiring.name}: an output of {t} leaves, known is less")

    def produced(self, record: ExternalRecord, offset: int, sender: object, *, late: bool) -> None:
        """Check a record that left at once: in order, and twice only if one of the two came late (D5)."""
        origin = origin_of(decode_headers(record.headers)) if record.headers else None
        if origin is None:
            super().produced(record, offset, sender, late=late)
            return
        task, seq = self._by_name[origin.producer], origin.seq
        name, copies = self.plan.wirings[task].name, self._copies.setdefault((task, record.partition), [])
        if seq > len(copies):
            self._let_out(task, (record,))
            copies.append((offset, record, sender, late))
            return
        before, made, theirs, came_late = copies[seq - 1]
        if record != made:
            raise Violation("again", f"{name}: seq {seq} outside is {record}, before it was {made}")
        if theirs is sender or not (late or came_late):
            raise Violation("outside twice", f"{name}: seq {seq} is in {record.partition} at {before} and {offset}")
        self.seen["repeats outside, of zombies and late appends"] += 1
        copies[seq - 1] = offset, record, sender, late

    def early_account(self, task: int) -> EarlyAccount:
        """Return the account of the directory for the outputs of a task."""
        return self._early.account(task)

    def _commit(self, history: TaskHistory, commit: Commit, offset: int, outputs: Sequence[ExternalRecord]) -> None:
        before = history.resume.copy()
        super()._commit(history, commit, offset, outputs)
        name, time = f"{history.wiring.name} checkpoint {commit.checkpoint_id}", commit.deterministic
        seqs = {(c.producer, TopicPartition(i.topic, i.partition)): c.seq for i in commit.inputs for c in i.channels}
        self._frontiers(name, history, time, seqs)
        if not isinstance(history, LogicalHistory):
            return
        self._let_out(commit.producer, outputs)
        if time is None:
            raise Violation("frontier", f"{name}: says nothing of logical time")
        if history.wiring.is_source and (time.position, time.last_t) != (history.records, _last_t(history)):
            found = f"{history.records} records up to {_last_t(history)}"
            raise Violation(
                "frontier", f"{name}: says {time.position} records up to {time.last_t}, decided are {found}"
            )
        if not history.wiring.is_source and sum(seqs.values()) != history.records:
            raise Violation("seq", f"{name}: holds {history.records} records, its seqs are {seqs}")
        if commit.checkpoint_id > 0 and not self.damaged:  # or what was not included may be what was damaged
            after, history.resume, history.cursors = history.resume, before, seqs
            self._resume(name, history, commit)
            history.resume = after

    def _frontiers(
        self, name: str, history: TaskHistory, time: DeterministicCommit | None, seqs: Mapping[Channel, int]
    ) -> None:
        """Check what a commit says of channels from deterministic tasks."""
        frontiers = () if time is None else time.frontiers
        found = {(frontier.producer, TopicPartition(frontier.topic, frontier.partition)) for frontier in frontiers}
        if found != {key for key in seqs if key in self.made}:
            raise Violation("frontier", f"{name}: has frontiers of {sorted(found)}, reads {sorted(seqs)}")
        for frontier in frontiers:
            key = frontier.producer, TopicPartition(frontier.topic, frontier.partition)
            made = self.made[key]
            if frontier.digest != made.digests[seqs[key]]:
                raise Violation("digest", f"{name}: another digest of {key} after seq {seqs[key]}")
            if seqs[key] < len(made.records) and made.records[seqs[key]][0] <= frontier.t:
                raise Violation(
                    "frontier", f"{name}: has all of {key} up to {frontier.t}, not {made.records[seqs[key]]}"
                )
            told = made.last_told(frontier.t)
            if isinstance(history, LogicalHistory) and told > history.watermarks.get(key, -1):
                raise Violation("frontier", f"{name}: has all of {key} up to {frontier.t}, not {made.told[told]}")

    def _sent(self, producer: int, partition: TopicPartition) -> Sequence[bytes]:
        if producer in self.logical:  # what it has sent stays, committed or not
            return self.made[producer, partition].values
        return super()._sent(producer, partition)

    def _is_left_out(self, history: TaskHistory, partition: TopicPartition, header: Header, count: int) -> bool:
        if header.producer not in self.logical:
            return super()._is_left_out(history, partition, header, count)
        return header.seq + count - 1 > history.cursors[header.producer, partition]

    # --- the end, and what a power loss takes -------------------------------------------------------------------------

    def unmade(self, partition: TopicPartition, rows: Sequence[LogRow]) -> None:
        """Forget what was lost with the power; what left the job is not among it."""
        super().unmade(partition, rows)
        if not rows:
            return
        left = [row.value or b"" for row in self._log.partition(partition).rows if row.offset < rows[0].offset]
        lost = [row.value or b"" for row in rows]
        if self._changelogs.get(partition) in self.logical:
            history = self.logical[self._changelogs[partition]]
            history.decided = [entry for entry in history.decided if entry[0] < rows[0].offset]
            history.leases = [entry for entry in history.leases if entry[0] < rows[0].offset]
            history.calls = [entry for entry in history.calls if entry[0] < rows[0].offset]
        elif partition in self._readers:
            commit = self.histories[self._readers[partition]].commit
            inputs = () if commit is None else commit.inputs
            seqs = {c.producer: c.seq for i in inputs if i.topic == partition.topic for c in i.channels}
            for (producer, of), made in self.made.items():
                if of == partition:
                    key = producer, partition.topic, partition.partition
                    time = None if commit is None else commit.deterministic
                    frontiers = {(f.producer, f.topic, f.partition): f.t for f in (time.frontiers if time else ())}
                    theirs = [value for value in left if decode_header(value).producer == producer]
                    gone = [value for value in lost if decode_header(value).producer == producer]
                    made.take_back(seqs.get(producer, 0), frontiers.get(key, -1), theirs, gone)

    def loses(self, partition: TopicPartition, end: int) -> None:
        """Note that a damage takes what is in a stream from the offset ``end`` on."""
        rows = [(row.offset, row.value or b"") for row in self._log.partition(partition).rows]
        for (producer, of), made in self.made.items():
            if of == partition:
                theirs = [(offset, value) for offset, value in rows if decode_header(value).producer == producer]
                left = [value for offset, value in theirs if offset < end]
                lost = [value for offset, value in theirs if offset >= end]
                made.lose(left, lost, self._log.partition(partition).end)

    def all_at_end(self) -> bool:
        """Tell whether the commits say that the job is at its end, as a supervisor finds out (A2b)."""
        commits = {task: history.commit for task, history in self.histories.items() if history.commit is not None}
        if len(commits) < len(self.histories):
            return False
        sources = [commits[task] for task, history in self.logical.items() if history.wiring.is_source]
        last_t = step_at(max(c.deterministic.last_t for c in sources if c.deterministic is not None))
        frontiers = (f.t for c in commits.values() if c.deterministic for f in c.deterministic.frontiers)
        if any(history.left for history in self.logical.values()):
            return False
        if not all(c.at_end for c in sources) or min(frontiers, default=last_t) < last_t:
            return False
        return self._all_aligned_at_end(last_t)

    def _all_aligned_at_end(self, last_t: int) -> bool:
        """Tell whether all aligned tasks have committed the checkpoint by which the first of them were at the end."""
        aligned = [history for task, history in self.histories.items() if task not in self.logical]
        if self._reached is None or self._reached[0] != last_t:
            heads = [h for h in aligned if h.wiring.external or h.wiring.logical]
            if any(self._log.partition(p).has_rows(offset) for h in heads for p, offset in h.external.items()):
                return False
            self._reached = last_t, max((head.checkpoint_id for head in heads), default=0)
        return all(history.checkpoint_id >= self._reached[1] for history in aligned)

    def nothing_missing(self) -> bool:
        """Leave it to the marks, and to the reference."""
        return not self.missing

    def visible_uncommitted(self, task: int) -> int:
        """Return the number of outputs of a deterministic task that are visible and in no commit (D5)."""
        if task not in self.logical:
            return 0
        committed = self.logical[task].outside
        return sum(
            max(0, len(left) - len(committed.get(partition, ())))
            for (sender, partition), left in self.outside.items()
            if sender == task
        )

    def finish(self) -> None:
        """Check the world at rest: what was sent and what is outside begins as the reference does, byte for byte."""
        super().finish()
        rows = {p: {row.offset: row.value or b"" for row in self._log.partition(p).rows} for p in self.plan.inputs}
        found = Reference(*reference(self.plan, self.logical, rows))
        drained = self._log.inputs_end
        found.check_streams(self.made, drained=drained)
        found.check_outside(self.outside, drained=drained)
        for history in self.histories.values():
            found.check_frontiers(history, self.made)


def _last_t(history: LogicalHistory) -> int:
    return history.decided[-1][1].last_t if history.decided else 0
