"""Ranges of commits for an audit's steps in deterministic mode: each task has its own.

A producer's step ends where its consumers have not been yet, as they commit later. What it has sent beyond is carried
to their next step. A consumer's step ends at its last commit for which all is there.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from grete.api.jobs.job import Job
from grete.batch.channels import stages_in_order
from grete.ports import JobLogReader
from grete.protocol.ids import TopicPartition
from grete.replay.audit import steps
from grete.replay.audit.audited_task import AuditedTask
from grete.replay.audit.sent import SentUpTo, not_taken, numbered
from grete.replay.audit.state_copy import segments_between
from grete.replay.audit.steps import AuditStep, AuditTally, RemadeMessage, records_between
from grete.replay.follows import follows
from grete.state.read.checkpoints.commits import CommittedAt, all_wirings
from grete.state.read.checkpoints.snapshots import Snapshot, id_of_all, snapshot_at

CARRIED_BYTES_MAX = 64 << 20  # of one task, which then waits: it is in memory, and in the note of the place


class LogicalCourse:
    """A Course of a job all of whose stages are deterministic."""

    def __init__(self, job: Job, log: JobLogReader, tasks: Sequence[AuditedTask]) -> None:
        self._job, self._log, self._tasks = job, log, tasks
        self.carried: list[RemadeMessage] = []
        self.lost = ""
        self._wirings = all_wirings(job)
        self._begun: dict[int, Snapshot] = {}  # by producer id
        self._reached: dict[int, SentUpTo] = {}
        topology = job.topology()
        self._order = [
            number
            for stage in stages_in_order(job)
            for number in range(*job.tasks_of(stage.ordinal).indices(len(self._wirings)))
        ]
        self._consumers = {
            TopicPartition(stream.topic, number): job.tasks_of(stream.consumer).start + number
            for stream in topology.streams
            for number in range(stream.partitions)
        }

    def begin(self, newest: list[Snapshot]) -> list[Snapshot] | None:
        """As of Course: sources now, the others once they have committed all that those will not send again."""
        self.carried, self.lost = [], ""
        for number in self._order:
            wiring = self._wirings[number]
            producers = {producer for producer, _ in wiring.channels}
            if wiring.producer in self._begun or not producers <= self._begun.keys():
                continue
            commits = {producer: self._begun[producer].commit for producer in producers}
            if follows(newest[number].commit, commits, timed=wiring.keeps_time):
                self._begun[wiring.producer] = newest[number]
        if len(self._begun) < len(self._wirings):
            return None
        begun, self._begun = self._begun, {}
        return [begun[wiring.producer] for wiring in self._wirings]

    def step(self, base: list[Snapshot], newest: list[Snapshot]) -> tuple[AuditStep, list[Snapshot]] | None:
        """As of Course. Tasks whose consumers are far behind wait, unless all would."""
        held = Counter[int]()
        for each in self.carried:
            held[each.producer] += len(each.message)
        waiting = {producer for producer, size in held.items() if size > CARRIED_BYTES_MAX}
        made = self._step(base, newest, waiting)
        return self._step(base, newest, set()) if made is None and waiting else made

    def _step(
        self, base: list[Snapshot], newest: list[Snapshot], held: Collection[int]
    ) -> tuple[AuditStep, list[Snapshot]] | None:
        """Make the step of all tasks but those that are ``held``."""
        waiting: dict[int, list[RemadeMessage]] = {number: [] for number in self._order}
        for each in self.carried:
            waiting[self._consumers[TopicPartition(each.topic, each.partition)]].append(each)
        goal, tally = list(base), AuditTally()
        self._reached, caught_up = {}, True
        for number in self._order:
            task, before = self._tasks[number], base[number]
            is_held = task.wiring.producer in held
            after = before if is_held else self._goal(number, before, newest[number])
            caught_up = caught_up and after.offset == newest[number].offset
            if after.offset != before.offset:
                frames, compared = task.step(self._log, before.commit, after, waiting[number])
                tally.add(self._job.tasks()[number][0].name, compared)
                sent, following = numbered(frames, before.commit)
                if following != {TopicPartition(o.topic, o.partition): o.next_seq for o in after.commit.outputs}:
                    self.lost = f"{task.wiring.name} has sent another number of records than its code sends now"
                    break
                waiting[number] = not_taken(waiting[number], after.commit)
                for each in sent:
                    waiting[self._consumers[TopicPartition(each.topic, each.partition)]].append(each)
            goal[number] = after
            self._reached[task.wiring.producer] = task.reached(after)
        if not self.lost and all(after.offset == before.offset for before, after in zip(base, goal, strict=True)):
            return None
        self.carried = [each for left in waiting.values() for each in left]
        return tally.told(id_of_all(base), id_of_all(goal), caught_up=caught_up), goal

    def _goal(self, number: int, before: Snapshot, newest: Snapshot) -> Snapshot:
        """Return the last commit of a task for which all that it includes is there, and that is not too far."""
        goal = before
        if newest.offset <= before.offset:
            return goal
        for after in self._commits(number, before, newest):
            if not self._is_there(number, after):
                break
            if goal is not before and records_between(before, after) > steps.STEP_RECORDS_MAX:
                break
            goal = after
        return goal

    def _commits(self, number: int, before: Snapshot, newest: Snapshot) -> Iterator[Snapshot]:
        for segment in segments_between(self._log, before.offset, newest):
            yield snapshot_at(self._log, self._wirings[number], CommittedAt(segment.offset, 0, segment.commit))

    def _is_there(self, number: int, after: Snapshot) -> bool:
        wiring = self._wirings[number]
        return all(
            self._reached[producer].has_sent(after.commit, producer, timed=wiring.keeps_time)
            for producer in {producer for producer, _ in wiring.channels}
        )
