"""The invariants, by the simulator's names, as functions of the log: what a message may say, what a store may hold."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from zlib import crc32

from grete.protocol.changelog import ChangelogType, decode_changelog_header, decode_claim
from grete.protocol.commit import Commit, decode_commit
from grete.protocol.envelope import Header, MessageType, decode_header
from grete.protocol.frames import decode_columns, frame_count
from grete.protocol.ids import TopicPartition
from tests.verification.model.process import OUTSIDE, Row, Store, Witness
from tests.verification.model.world import World
from tests.verification.simulation.oracle import Violation

Log = Sequence[Sequence[Row]]  # by the index of the partition; a task's changelog is at the index of the task
NOTHING = Witness((), ())


@dataclass(slots=True)
class Judged:
    """The validity of a changelog by its order (C2): a second, simpler implementation than the core's."""

    top: int = 0
    restored: dict[int, int] = field(default_factory=dict)  # generation -> last valid checkpoint before its claim
    nonces: dict[int, set[bytes]] = field(default_factory=dict)  # generation -> who claimed it
    messages: dict[tuple[int, int], int] = field(default_factory=dict)  # (generation, ChangelogSeq) -> crc
    commits: list[tuple[Commit, Witness]] = field(default_factory=list)  # the valid ones
    wrong: Violation | None = None  # of the last message

    @property
    def checkpoint_id(self) -> int:
        """The last committed checkpoint; -1 before the genesis."""
        return self.commits[-1][0].checkpoint_id if self.commits else -1

    def add(self, row: Row) -> None:
        """Take the next message."""
        kind, generation, seq, _ = decode_changelog_header(row.value)
        if kind is ChangelogType.CLAIM:
            self.nonces.setdefault(generation, set()).add(decode_claim(row.value).nonce)
            if generation > self.top:
                self.top, self.restored[generation] = generation, max(self.checkpoint_id, 0)
                self.messages[generation, 0] = crc32(row.value)
            return
        said = f"generation {generation}, ChangelogSeq {seq}"
        if generation not in self.nonces:
            self.wrong = Violation("ownership", f"{said}: was never claimed")
        elif self.messages.setdefault((generation, seq), crc32(row.value)) != crc32(row.value):
            self.wrong = Violation("ownership", f"{said}: two different messages")
        if kind is ChangelogType.COMMIT and generation == self.top:
            commit = decode_commit(row.value)
            last = self.commits[-1][0] if self.commits else None
            if last is not None and not commit.checkpoint_id > last.checkpoint_id == commit.previous:
                self.wrong = Violation("order", f"{said}: checkpoint {commit.checkpoint_id} after {last.checkpoint_id}")
            self.commits.append((commit, row.witness or NOTHING))

    def is_rolled_back(self, header: Header) -> bool:
        """Tell whether a later claim has taken back what this generation made for this checkpoint (R3)."""
        return any(
            g > header.generation and checkpoint_id < header.checkpoint_id for g, checkpoint_id in self.restored.items()
        )

    def sent(self, partition: TopicPartition, checkpoint_id: int) -> list[bytes]:
        """Return all committed output to a partition with checkpoint ids up to a checkpoint.

        The checkpoint id of a record is the last checkpoint + 1.
        """
        return [v for c, w in self.commits if c.previous < checkpoint_id for p, v in w.outputs if p == partition]

    def taken(self, producer: int, partition: TopicPartition) -> list[bytes]:
        """Return all committed input from a channel."""
        return [s.value for _, w in self.commits for s in w.steps if (s.producer, s.partition) == (producer, partition)]

    def state(self, checkpoint_id: int) -> tuple[tuple[bytes, int], ...]:
        """Return the committed state of a checkpoint."""
        steps = [
            step.value
            for commit, witness in self.commits
            if commit.checkpoint_id <= checkpoint_id
            for step in witness.steps
        ]
        return tuple(sorted(Counter(steps).items()))


@lru_cache(maxsize=1 << 18)
def judged(changelog: tuple[Row, ...]) -> Judged:
    """Return the judgement of a changelog. Not to be changed."""
    result = Judged()
    for row in changelog:
        result.wrong = None
        result.add(row)
    return result


class Checks:
    """All that is checked when something reaches the log or a store, and at rest. Each raises Violation."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._index = {partition: n for n, partition in enumerate(world.partitions)}

    def _task(self, producer: int) -> int:
        return self.world.task_of(producer)

    def appended(self, log: Log, index: int, starts: int) -> None:
        """Check the last message of a partition; ``starts``: how often the task of a changelog was started."""
        if index < len(self.world.wirings):
            self._changelog(log, index, starts)
        else:
            self._stream(log, index)

    def _stream(self, log: Log, index: int) -> None:
        rows, partition = log[index], self.world.partitions[index]
        value = rows[-1].value
        header = decode_header(value)
        task = self._task(header.producer)
        name = f"{self.world.wirings[task].name} generation {header.generation} in {partition}"
        own = judged(tuple(log[task]))
        if header.type is MessageType.MARKER:
            if not any(
                c.checkpoint_id == header.checkpoint_id and c.generation <= header.generation for c, _ in own.commits
            ):
                raise Violation("marker", f"{name}: marker of checkpoint {header.checkpoint_id} without a valid commit")
            return
        for row in rows[:-1]:
            before = decode_header(row.value)
            same = before[:3] == header[:3] and (before.seq == header.seq or header.type is MessageType.ROLLBACK_MARKER)
            if same and row.value != value:
                what = header.type.name.lower()
                raise Violation("generation", f"{name}: two {what} messages of seq {header.seq} that differ")
        if header.type is MessageType.ROLLBACK_MARKER:
            expected = own.restored.get(header.generation), len(own.sent(partition, header.checkpoint_id)) + 1
            if (header.checkpoint_id, header.seq) != expected:
                said = f"checkpoint {header.checkpoint_id} seq {header.seq}"
                raise Violation("rollback marker", f"{name}: restore says {said}, the changelog says {expected}")

    def _changelog(self, log: Log, task: int, starts: int) -> None:
        own, wiring = judged(tuple(log[task])), self.world.wirings[task]
        name = f"{wiring.name} generation {own.top}"
        if own.wrong is not None:
            raise Violation(own.wrong.name, f"{wiring.name}: {own.wrong.args[1]}")
        producers = {self._task(producer) for producer, _ in wiring.channels}
        if own.top > starts * (1 + sum(judged(tuple(log[u])).top for u in producers)):
            raise Violation("liveness", f"{name}: a rollback marker makes it rollback again and again")
        kind, generation, _, _ = decode_changelog_header(log[task][-1].value)
        if kind is not ChangelogType.COMMIT or generation < own.top:
            return
        commit = own.commits[-1][0]
        name = f"{name} checkpoint {commit.checkpoint_id}"
        outside = [s.seq for _, witness in own.commits for s in witness.steps if s.producer == OUTSIDE]
        if outside != list(range(sum(e.offset for e in commit.external))):
            raise Violation("position", f"{name}: holds external records {outside}, says {commit.external}")
        if wiring.bootstrap:
            others = [s.producer != OUTSIDE for _, witness in own.commits for s in witness.steps]
            if others != sorted(others) or (any(others) and len(outside) < self.world.bounds.records):
                raise Violation("first", f"{name}: took a record of a stream before a row of its table")
        for o in commit.outputs:
            count = len(own.sent(TopicPartition(o.topic, o.partition), commit.checkpoint_id))
            if o.next_seq != count + 1:
                raise Violation("seq", f"{name}: next seq {o.next_seq} in {o.topic}[{o.partition}] after {count}")
        if commit.checkpoint_id > 0:
            self._inputs(log, name, own, commit)

    def _inputs(self, log: Log, name: str, own: Judged, commit: Commit) -> None:
        for i in commit.inputs:
            partition = TopicPartition(i.topic, i.partition)
            rows = log[self._index[partition]]
            for c in i.channels:
                producer = judged(tuple(log[self._task(c.producer)]))
                who = self.world.wirings[self._task(c.producer)].name
                if producer.checkpoint_id < commit.checkpoint_id:
                    raise Violation("closure", f"{name}: {who} has committed {producer.checkpoint_id}")
                taken, sent = own.taken(c.producer, partition), producer.sent(partition, commit.checkpoint_id)
                if taken != sent:
                    kind = _difference(rows, taken, sent, commit.checkpoint_id)
                    raise Violation(kind, f"{name}: holds {_text(taken)} of {who}, which has committed {_text(sent)}")
                if c.seq != len(taken):
                    raise Violation("seq", f"{name}: seq {c.seq} of {who}, holds {len(taken)}")
                for offset, row in enumerate(rows[: i.resume]):
                    header = decode_header(row.value)
                    ours = header.type is MessageType.FRAME and header.producer == c.producer
                    if (
                        ours
                        and header.seq + frame_count(row.value) - 1 > len(taken)
                        and not producer.is_rolled_back(header)
                    ):
                        raise Violation(
                            "resume", f"{name}: resumes {partition} at {i.resume}, {offset} is not included"
                        )

    def stored(self, changelog: Sequence[Row], task: int, store: Store, *, starting: bool) -> None:
        """Check what a store holds."""
        own, name = judged(tuple(changelog)), self.world.wirings[task].name
        changelog_position = store.changelog_position
        known = dict(own.state(own.checkpoint_id))
        if any(count > known.get(value, 0) for value, count in store.counts):
            raise Violation("uncommitted", f"{name}: the store holds {_text(dict(store.counts))}, committed: {known}")
        if changelog_position is None or starting:
            return
        if (changelog_position.checkpoint_id, changelog_position.generation) not in {
            (c.checkpoint_id, c.generation) for c, _ in own.commits
        }:
            raise Violation("uncommitted", f"{name}: {changelog_position} is not a valid commit")
        if store.counts != own.state(changelog_position.checkpoint_id):
            raise Violation(
                "store",
                f"{name}: the store at checkpoint {changelog_position.checkpoint_id} holds {_text(dict(store.counts))}",
            )

    def trimmed(self, changelog: Sequence[Row], task: int, partition: TopicPartition, before: int) -> None:
        """Check a trim of an input that is asked for."""
        own = judged(tuple(changelog))
        resume = {TopicPartition(i.topic, i.partition): i.resume for i in own.commits[-1][0].inputs}
        if before > resume.get(partition, 0):
            name = self.world.wirings[task].name
            raise Violation("trim", f"{name}: trims {partition} before {before}, resumes at {resume}")

    def fenced(self, changelog: Sequence[Row], task: int, generation: int, nonce: bytes, reason: str) -> None:
        """Check a process that gives up as fenced."""
        claims = judged(tuple(changelog)).nonces
        if not any(g >= generation and who - {nonce} for g, who in claims.items()):
            raise Violation("fenced", f"{self.world.wirings[task].name}: no other process has claimed it: {reason}")

    def at_rest(self, log: Log) -> None:
        """Check a world in which nothing is left to do: every checkpoint is committed, every record once a path."""
        wirings = self.world.wirings
        checkpoint_ids = {wirings[task].name: judged(tuple(log[task])).checkpoint_id for task in range(len(wirings))}
        if set(checkpoint_ids.values()) != {self.world.bounds.checkpoints}:
            raise Violation("liveness", f"nothing is left to do, and the committed checkpoints are {checkpoint_ids}")
        found: Counter[tuple[int, bytes]] = Counter()
        for task, wiring in enumerate(wirings):
            if not wiring.outputs:
                steps = [s for _, witness in judged(tuple(log[task])).commits for s in witness.steps]
                found.update((self.world.stage(task), step.value.partition(b">")[0]) for step in steps)
        expected = Counter(path for task, w in enumerate(wirings) if w.external for path in self.world.paths(task))
        if found != expected:
            raise Violation("exactly once", f"the sinks hold {dict(found)}, expected {dict(expected)}")


def _difference(rows: Sequence[Row], taken: list[bytes], sent: list[bytes], checkpoint_id: int) -> str:
    """Name what is wrong with what a commit holds of a channel."""
    at = next((n for n, (a, b) in enumerate(zip(taken, sent, strict=False)) if a != b), min(len(taken), len(sent)))
    if at == len(taken):
        return "lost"
    value = taken[at]
    if value in taken[:at]:
        return "duplicate"
    if value in sent:
        return "lost"
    frames = [row.value for row in rows if decode_header(row.value).type is MessageType.FRAME]
    ids = [decode_header(frame).checkpoint_id for frame in frames if value in decode_columns(frame).values]
    return "ahead" if min(ids, default=0) > checkpoint_id else "rolled back"


def _text(values: object) -> str:
    return str(values).replace("b'", "'")
