"""The invariants, each with a name, checked when something reaches the log or a store: log order decides."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from zlib import crc32

from grete.ports import ExternalRecord, LogRow, Write
from grete.protocol.changelog import ChangelogType, decode_changelog_header, decode_claim
from grete.protocol.commit import Commit, decode_commit
from grete.protocol.envelope import Header, MessageType, decode_header
from grete.protocol.ids import TopicPartition
from grete.stores.memory import MemoryDisk
from tests.verification.simulation.checkpoint_files import CheckpointFiles
from tests.verification.simulation.claims import Claims
from tests.verification.simulation.drain_checks import check_ended
from tests.verification.simulation.first_checks import StartEnds, check_first
from tests.verification.simulation.log import SharedLog
from tests.verification.simulation.oracle import Recorder, TaskHistory, Violation
from tests.verification.simulation.outside import Outside
from tests.verification.simulation.plan import Plan
from tests.verification.simulation.resume_checks import check_resume
from tests.verification.simulation.seq_checks import check_seqs
from tests.verification.simulation.sink import EarlyAccount
from tests.verification.simulation.stage_codes import stage_code
from tests.verification.simulation.steps import NOT_TAKEN, OUTSIDE, TOLD, Step
from tests.verification.simulation.store_checks import check_restore, check_stored
from tests.verification.simulation.time_checks import check_timestamps, check_watermark, late_records


class Checker:
    """Watches log and stores. Raises Violation."""

    def __init__(self, plan: Plan, log: SharedLog, recorder: Recorder) -> None:
        self.plan = plan
        self.seen: Counter[str] = Counter()
        self.marks = Outside(plan, self.seen)
        start, tasks = plan.external_start, plan.wirings.items()
        self.histories = {task: TaskHistory(wiring, stage_code(plan, task), start) for task, wiring in tasks}
        self.claims = {task: Claims() for task in plan.wirings}
        self.start_ends = StartEnds()
        self.ended_before: dict[bytes, bool] = {}  # nonce -> all external input was there when the process started
        self._log = log
        self._recorder = recorder
        self._changelogs = {wiring.changelog: task for task, wiring in plan.wirings.items()}
        self._readers = {p: task for task, wiring in plan.wirings.items() for _, p in wiring.channels}
        self._said: dict[tuple[object, ...], object] = {}
        self.files = CheckpointFiles(self.histories, self.marks, self.seen)
        self.cut: set[int] = set()  # tasks whose changelog was truncated: a damage
        self.damaged = False

    # --- the log ------------------------------------------------------------------------------------------------------

    def appended(self, partition: TopicPartition, offset: int, value: bytes, outputs: Sequence[ExternalRecord]) -> None:
        """Check an internal message that is now in the log."""
        task = self._changelogs.get(partition)
        if task is None:
            self._stream(partition, offset, value)
        else:
            self._changelog(task, offset, value, outputs)

    def produced(self, record: ExternalRecord, offset: int, sender: object, *, late: bool) -> None:
        """Check a plain record that is now in the log."""
        self.marks.left((record,))

    def unmade(self, partition: TopicPartition, rows: Sequence[LogRow]) -> None:
        """Forget what left the job and was lost with the power: no commit relies on it."""
        if partition in self._readers or partition in self._changelogs:
            return
        self.marks.unmade(ExternalRecord(partition, row.key, row.value, row.timestamp_ms) for row in rows)

    @property
    def missing(self) -> set[bytes]:
        """The marks that are not outside yet."""
        return self.marks.missing

    def early_account(self, task: int) -> EarlyAccount:
        """Return the account of the directory for the outputs of a deterministic task."""
        raise AssertionError(f"{self.plan.wirings[task].name} is not deterministic")

    def trimmed(self, partition: TopicPartition, before: int) -> None:
        """Check a trim that is about to happen."""
        if before <= self._log.partition(partition).start:
            return
        if partition in self._changelogs:
            self.seen["changelog trims"] += 1
            self.audit(self._changelogs[partition], before)
            return
        self.seen["stream trims"] += 1
        reader = self.histories[self._readers[partition]]
        if before > reader.resume[partition]:
            raise Violation(
                "trim",
                f"{partition} is trimmed before {before}, {reader.wiring.name} resumes at {reader.resume[partition]}",
            )

    def _say(self, key: tuple[object, ...], what: object, text: str) -> None:
        if self._said.setdefault(key, what) != what:
            raise Violation("generation", f"{text}: {what}, before it was {self._said[key]}")

    def _stream(self, partition: TopicPartition, _offset: int, value: bytes) -> None:
        header = decode_header(value)
        task, generation, checkpoint_id = header.producer, header.generation, header.checkpoint_id
        name = f"{self.plan.wirings[task].name} generation {generation} in {partition}"
        history, restored = self.histories[task], self.claims[task].restored.get(generation)
        if header.type is MessageType.FRAME:
            self._say(
                (partition, task, generation, header.seq),
                (checkpoint_id, crc32(value)),
                f"{name}: frame of seq {header.seq}",
            )
            before = checkpoint_id - 1
            if before != restored and before not in self._recorder.closed.get((task, generation), ()):
                raise Violation(
                    "checkpoint", f"{name}: checkpoint id {checkpoint_id}, but checkpoint {before} was never closed"
                )
        elif header.type is MessageType.ROLLBACK_MARKER:
            fresh = (partition, task, generation) not in self._said
            self._say((partition, task, generation), (checkpoint_id, header.seq), f"{name}: restore")
            if restored != checkpoint_id or header.seq != history.sent_up_to(partition, checkpoint_id) + 1:
                raise Violation(
                    "rollback marker",
                    f"{name}: restore says checkpoint {checkpoint_id} seq {header.seq}, the log says {restored}",
                )
            reader = self.histories[self._readers[partition]]
            if (
                fresh
                and self.plan.aligned
                and generation == self.claims[task].top
                and checkpoint_id < reader.checkpoint_id
            ):
                raise Violation(
                    "revert", f"{name}: back to {checkpoint_id}, {reader.wiring.name} holds {reader.checkpoint_id}"
                )
        elif header.type is MessageType.WATERMARK:
            self.seen["watermarks"] += 1
        elif history.generations.get(checkpoint_id) != generation and restored != checkpoint_id:  # R6: said again
            raise Violation(
                "marker", f"{name}: marker of checkpoint {checkpoint_id}, valid commits: {history.generations}"
            )

    # --- changelogs ---------------------------------------------------------------------------------------------------

    def _changelog(self, task: int, offset: int, value: bytes, outputs: Sequence[ExternalRecord]) -> None:
        kind, generation, seq, _ = decode_changelog_header(value)
        claims, history = self.claims[task], self.histories[task]
        if kind is ChangelogType.CLAIM:
            claims.nonces.setdefault(generation, []).append(decode_claim(value).nonce)
            if generation > claims.top:
                claims.top = generation
                claims.restored[generation] = max(history.checkpoint_id, 0)
                claims.messages[generation, 0] = crc32(value)
            elif claims.messages.get((generation, 0)) != crc32(value):
                self.seen["claims that lost a race"] += 1
            return
        name = f"{history.wiring.name} generation {generation} ChangelogSeq {seq}"
        if generation not in claims.nonces:
            raise Violation("ownership", f"{name}: was never claimed")
        before = claims.messages.setdefault((generation, seq), crc32(value))
        if before != crc32(value):
            raise Violation("ownership", f"{name}: two different messages")
        if kind is not ChangelogType.COMMIT:
            return
        commit = decode_commit(value)
        if commit.checkpoint_id in history.offsets and history.generations[commit.checkpoint_id] == generation:
            return  # a repeat
        if generation < claims.top:
            self.seen["zombie commits that are invalid"] += 1
            if outputs and task not in self.cut:  # else the claim that fences it was lost with the changelog
                raise Violation("sink", f"{name}: {len(outputs)} outputs became visible with an invalid commit")
            return
        if commit.checkpoint_id in history.offsets:
            raise Violation("one commit", f"{name}: another of checkpoint {commit.checkpoint_id}")
        self._commit(history, commit, offset, outputs)

    def _commit(self, history: TaskHistory, commit: Commit, offset: int, outputs: Sequence[ExternalRecord]) -> None:
        name = f"{history.wiring.name} checkpoint {commit.checkpoint_id} generation {commit.generation}"
        steps = self._recorder.take(commit)
        before = history.commit
        if before is not None and not (
            commit.checkpoint_id > before.checkpoint_id == commit.previous and commit.generation >= before.generation
        ):
            raise Violation(
                "order",
                f"{name}: previous {commit.previous}, after checkpoint {before.checkpoint_id} generation "
                f"{before.generation}",
            )
        if self.plan.is_aligned(commit.producer):
            self._closure(name, history, commit)
            self._channels(name, history, commit, steps)
        else:
            history.received.update(step.value for step in steps if step.draw >= 0)
        ends = self.start_ends.of(commit.producer, commit.nonce, replays=history.wiring.deterministic)
        self.seen["rows read before all others"] += check_first(name, ends, history, steps, self._log.next_row)
        check_timestamps(name, steps, self.plan.disorder)
        self._external(name, history, commit, steps)
        check_ended(name, steps, history.external, self._log)
        if history.time is not None and (before is None or before.generation != commit.generation):
            history.time.restarted()
        expected = history.replay(steps)
        self.seen += history.seen
        history.seen.clear()
        self.seen["late records"] += late_records(name, self.plan, history) > 0
        if self.plan.is_aligned(commit.producer):
            # a letter's headers tell of this attempt
            if expected != [record._replace(headers=None) for record in outputs]:
                raise Violation(
                    "output", f"{name}: {len(outputs)} outputs are visible: {outputs[:3]}, expected {expected[:3]}"
                )
            self.marks.left(outputs)
            if commit.checkpoint_id > 0 and not self.damaged:  # or what was not included may be what was damaged
                self._resume(name, history, commit)
        history.close(commit, offset)
        check_seqs(name, history, commit, aligned=self.plan.is_aligned(commit.producer))
        self.seen["commits"] += 1
        self.seen["commits with a rewrite cursor"] += commit.cursor != b""

    def _closure(self, name: str, history: TaskHistory, commit: Commit) -> None:
        for producer, _ in history.wiring.channels:
            if (
                producer not in history.wiring.logical
                and 0 < commit.checkpoint_id > self.histories[producer].checkpoint_id
            ):
                theirs = f"{self.plan.wirings[producer].name} has committed {self.histories[producer].checkpoint_id}"
                raise Violation("closure", f"{name}: {theirs}")

    def _channels(self, name: str, history: TaskHistory, commit: Commit, steps: Sequence[Step]) -> None:
        for step in steps:
            partition, producer, offset, value, draw = step[:5]
            if draw == TOLD:
                self._told(name, step, history)
            if producer == OUTSIDE or draw < 0:
                continue
            sent, at = self._sent(producer, partition), history.cursors[producer, partition]
            if at >= len(sent) or sent[at] != value:
                kind = "duplicate" if value in sent[:at] else "lost" if value in sent else "rolled back"
                raise Violation(
                    kind,
                    f"{name}: {partition} offset {offset}: took {value!r} as number {at + 1} of producer {producer}",
                )
            history.cursors[producer, partition] = at + 1
        if commit.checkpoint_id == 0:
            return
        for (producer, partition), at in history.cursors.items():
            expected = self.histories[producer].sent_up_to(partition, commit.checkpoint_id)
            if at != expected and producer not in history.wiring.logical:
                kind = "lost" if at < expected else "ahead"
                raise Violation(
                    kind, f"{name}: holds {at} records of producer {producer} in {partition}, {expected} were committed"
                )

    def _told(self, name: str, step: Step, history: TaskHistory) -> None:
        record = history.cursors[step.producer, step.partition] + 1
        if not self.plan.wirings[step.producer].deterministic:
            check_watermark(name, step, record, self.histories[step.producer], self.claims[step.producer])
        self.seen["watermarks in committed checkpoints"] += 1

    def _sent(self, producer: int, partition: TopicPartition) -> Sequence[bytes]:
        return self.histories[producer].outputs[partition]

    def _external(self, name: str, history: TaskHistory, commit: Commit, steps: Sequence[Step]) -> None:
        for step in steps:
            if step.producer == OUTSIDE and step.draw >= 0 and step.offset != NOT_TAKEN:
                if step.offset != self._log.next_row(step.partition, history.external[step.partition]):
                    raise Violation(
                        "position",
                        f"{name}: {step.partition} offset {step.offset} after {history.external[step.partition] - 1}",
                    )
                history.external[step.partition] = step.offset + 1
        said = {TopicPartition(e.topic, e.partition): e.offset for e in commit.external}
        if said != history.external:
            raise Violation("position", f"{name}: says {said}, holds what is before {history.external}")
        if commit.at_end and self.ended_before[commit.nonce]:
            ends = {partition: self._log.partition(partition).end for partition in said}
            if any(self._log.partition(partition).has_rows(offset) for partition, offset in said.items()):
                raise Violation("at end", f"{name}: says that its inputs have ended at {said}, they end at {ends}")

    def _resume(self, name: str, history: TaskHistory, commit: Commit) -> None:
        for i in commit.inputs:
            partition = TopicPartition(i.topic, i.partition)
            rows, start = self._log.partition(partition).rows, self._log.partition(partition).start
            first, stop = history.resume[partition] - start, i.resume - start
            is_left_out = partial(self._is_left_out, history, partition)
            check_resume(
                name,
                (partition, i.resume),
                (rows[first:stop], rows[stop:]),
                is_left_out,
                partial(self._is_later, commit),
            )

    def _is_later(self, commit: Commit, header: Header) -> bool:
        claims = self.claims[header.producer]
        return header.checkpoint_id > commit.checkpoint_id and not claims.is_rolled_back(
            header.generation, header.checkpoint_id
        )

    def _is_left_out(self, history: TaskHistory, partition: TopicPartition, header: Header, count: int) -> bool:
        included = history.cursors[header.producer, partition]
        return header.seq + count - 1 > included and not self.claims[header.producer].is_rolled_back(
            header.generation, header.checkpoint_id
        )

    # --- stores and processes -----------------------------------------------------------------------------------------

    def stored(
        self, task: int, checkpoint_id: int, disk: MemoryDisk, writes: Sequence[Write], changelog_position: bytes | None
    ) -> None:
        """Check a write to a store by a process whose core holds ``checkpoint_id`` to be committed."""
        check_stored(self.histories[task], checkpoint_id, disk, writes, changelog_position)

    def audit(self, task: int, start: int) -> None:
        """Restore from the changelog as if it began at ``start``, and compare with what was committed."""
        if task in self.cut:
            return
        history = self.histories[task]
        rows = self._log.partition(history.wiring.changelog).rows
        check_restore(history, [row for row in rows if row.offset >= start], start, damaged=self.damaged)

    def fenced(self, task: int, generation: int, nonce: bytes, reason: str) -> None:
        """Check a process that gives up as fenced."""
        if task not in self.cut and not any(
            g >= generation and any(n != nonce for n in nonces) for g, nonces in self.claims[task].nonces.items()
        ):
            raise Violation(
                "fenced",
                f"{self.plan.wirings[task].name} generation {generation}, and no other has claimed it: {reason}",
            )

    def finish(self) -> None:
        """Check the world at rest."""
        for task, history in self.histories.items():
            self.audit(task, self._log.partition(history.wiring.changelog).start)
        if not self.plan.aligned and not self.nothing_missing():
            raise Violation("lost", "a record that was committed by its producer was not committed by its consumer")

    def all_at_end(self) -> bool:
        """Tell whether each task's last commit says that its inputs have ended (A2b)."""
        return all(history.commit is not None and history.commit.at_end for history in self.histories.values())

    def nothing_missing(self) -> bool:
        """Tell whether every record that a task has committed was committed by its consumers, too (1.5)."""
        return not any(
            set(self.histories[producer].outputs[partition]) - history.received
            for history in self.histories.values()
            for producer, partition in history.wiring.channels
        )
