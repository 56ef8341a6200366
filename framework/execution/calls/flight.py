"""The records of a task with ``async def process``: many wait for calls at a time, each takes effect in its turn.

A record's code begins as soon as a place is free and no record of the same key is before it. What it writes and sends
is kept apart (effects.py) until it has ended and every record before it has had its turn. If one of those has changed
what it had read, it runs again from its beginning, as the only one: so the result is that of one record at a time.

No event loop is needed: code may await nothing but calls, so each step of it is a plain call from the task's thread.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any

from grete.api.tasks.calls import AnyCall
from grete.errors import FrameworkError, Halted, TaskError
from grete.execution.calls.answer import ONLY_CALLS, Answer, explained, returned
from grete.execution.calls.effects import Draws, Effects, NoDraws, Place, conflicts
from grete.execution.calls.ports import Caller, Pending, TurnsAndTimers
from grete.execution.limits import MESSAGE_BYTES_MAX
from grete.halts import HaltCode
from grete.protocol.ids import TopicPartition
from grete.protocol.notes import CallResult, CallsNote
from grete.protocol.record_batch import RecordBatch

RESULTS_BYTES_MAX = 512 * 1024  # of one record: what is recorded of it is one message of the changelog
CHANGED_MIN = 1_024  # entries: less than 200 KB
DRAWS = 32  # bits: a record's count of random numbers begins at its number, shifted by as many


class RecordInFlight:
    """One record, or with ``begin`` None another step that has its turn in order."""

    __slots__ = (
        "alone", "begin", "code", "done", "effects", "key", "number", "place", "since", "turn", "waits",
    )  # fmt: skip

    def __init__(
        self,
        turn: Callable[["RecordInFlight"], None],
        begin: Callable[[], Coroutine[Any, Any, object]] | None = None,
        key: bytes | None = None,
        place: Callable[[], Callable[[], None]] = lambda: lambda: None,
    ) -> None:
        """``place`` moves the task's clock to the record, and returns the way back. ``turn`` takes its effects."""
        self.turn, self.begin, self.key, self.place = turn, begin, key, place
        self.number = -1
        self.since = -1  # as many turns before it began
        self.code: Coroutine[Any, Any, object] | None = None
        self.waits: Answer | None = None
        self.done = begin is None
        self.alone = False  # it runs while it has its turn: nothing can change behind its back
        self.restart(0)

    def restart(self, draws: int) -> None:
        """Forget what was done so far."""
        self.effects = Effects(draws)


class Records:
    """The records in flight of one task. ``current`` is set while the code of one of them runs."""

    def __init__(
        self, caller: Caller, in_flight_max: int, event_time: Callable[[], int], context: Draws | None = None
    ) -> None:
        """``context``: in deterministic mode. ``event_time`` tells the task's, in ms."""
        self.context: Draws = NoDraws() if context is None else context
        self.current: Effects | None = None
        self.turns = 0
        self.number = 0  # records that the task has ever begun to take: state in deterministic mode
        self.due: TurnsAndTimers | None = None  # they come between two turns (E10)
        self.reached: dict[TopicPartition, int] = {}  # behind the records that have had their turns
        self.records_results = context is not None
        self._recorded: Mapping[int, Sequence[CallResult]] = {}  # number → what its calls have returned before
        self._recorded_numbers = range(0)  # of the records that have had their turns then
        self._made: list[tuple[int, tuple[CallResult, ...]]] = []  # the same of records that have had their turn
        self._caller, self._max, self._event_time = caller, in_flight_max, event_time
        self._running: RecordInFlight | None = None  # whose code runs
        self._halt: FrameworkError | None = None
        self._queue: deque[RecordInFlight] = deque()  # in the order of their turns
        self._begun: list[RecordInFlight] = []  # and not had their turn
        self._may_begin: list[tuple[int, RecordInFlight]] = []  # a heap: no record of the same key is before them
        self._of_key: dict[bytes, deque[RecordInFlight]] = {}
        self._changed: dict[Place, int] = {}  # → the turn in which it did, if a record had begun before
        self._prune_at = CHANGED_MIN  # as many: those that no record in flight can have read before are forgotten

    @property
    def count(self) -> int:
        """Return the number of records and other steps that have not had their turn."""
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether no more is to be read before some of them have had their turn."""
        return len(self._queue) >= self._max

    @property
    def may_stay(self) -> bool:
        """Whether a checkpoint may be closed now: none is in flight, or what is waits for timers that are due (E10)."""
        return not self._queue or self._held

    @property
    def _held(self) -> bool:
        return self.due is not None and self.due.holds

    def changed(self, place: Place) -> None:
        """Note that an entry has changed in this turn."""
        if self._begun:
            self._changed[place] = self.turns

    def saw_time(self) -> None:
        """Note that the record whose code runs, if any, has asked for the event time."""
        if self.current is not None:
            self.current.times.add(self._event_time())

    def take_reached(self) -> Mapping[TopicPartition, int]:
        """Return and forget the offset behind the last record that had its turn, by partition."""
        reached, self.reached = self.reached, {}
        return reached

    def clear(self) -> None:
        """Drop all records in flight, which come again: what their calls return is dropped (R4)."""
        self.reached = {}
        self.number = next((each.number for each in self._queue if each.number >= 0), self.number)
        for each in self._begun:
            self._end(each)
        for kept in (self._queue, self._begun, self._may_begin, self._of_key, self._changed):
            kept.clear()

    def recall(self, recorded: Mapping[int, Sequence[CallResult]], *, all_from_here: bool = False) -> None:
        """Take recorded results in place of calls: by the number of a record.

        ``all_from_here``: the records behind those so far have made these calls and no others.
        """
        self._recorded = recorded
        self._recorded_numbers = range(self.number, 1 << 63) if all_from_here else range(max(recorded, default=-1) + 1)

    def unused(self) -> Mapping[int, Sequence[CallResult]]:
        """Return the recorded results of records that have not come again; none is in flight."""
        self._recorded = {number: results for number, results in self._recorded.items() if number >= self.number}
        return self._recorded

    def add(self, record: RecordInFlight) -> None:
        """Take the next record of the task's order."""
        record.number = self.number
        self.number += 1
        self._queue.append(record)
        if record.key is not None:
            same = self._of_key.setdefault(record.key, deque())
            same.append(record)
            if len(same) > 1:
                return
        if record.number not in self._recorded_numbers:
            heappush(self._may_begin, (record.number, record))

    def take_results(self) -> list[CallsNote]:
        """Return and forget the results of calls for records that have had their turn, as notes of some size."""
        made, self._made = self._made, []
        notes: list[CallsNote] = []
        records: list[tuple[int, tuple[CallResult, ...]]] = []
        size = 0
        for number, results in made:
            records.append((number, results))
            size += sum(len(result.data) for result in results)
            if size >= MESSAGE_BYTES_MAX:
                notes.append(CallsNote(tuple(records)))
                records, size = [], 0
        return [*notes, CallsNote(tuple(records))] if records else notes

    def then(self, step: Callable[[], None]) -> None:
        """Do a step behind all records so far: at once, if there are none."""
        if self._queue:
            self._queue.append(RecordInFlight(lambda _: step()))
        else:
            step()

    def in_place(self, batch: RecordBatch, index: int, step: Callable[[], None]) -> None:
        """Do a step in the turn of a record that the code cannot take."""

        def turn() -> None:
            step()
            self.reached[batch.source] = batch.offset_at(index) + 1

        self.then(turn)

    def call(self, call: AnyCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
        """Begin a call for the record whose code runs, or take what was recorded of it. Raises TaskError elsewhere."""
        record = self._running
        if record is None:
            raise TaskError(f"the call of {call.name} is used outside of async def process: only that may await a call")
        try:
            answer = Answer(call, self._source(record, call, args, kwargs))
        except FrameworkError as error:
            self._halt = error
            raise
        record.effects.answers.append(answer)
        return answer

    def work(self) -> bool:
        """Begin, resume and finish what can be; return whether anything was. Raises what ends the task."""
        busy = False
        while self._resume() | self._begin() | self._take_turn():
            busy = True
        return busy

    # --- Steps ---

    def _source(self, record: RecordInFlight, call: AnyCall, *given: Any) -> Pending | CallResult:
        if record.number not in self._recorded_numbers:
            return self._caller.begin(call, *given)
        place, known = len(record.effects.answers), self._recorded.get(record.number, ())
        if place == len(known):
            raise self._not_the_same(record, f"calls {call.name} as one more")
        return known[place]

    def _begin(self) -> bool:
        went = False
        while self._may_begin and (len(self._begun) < self._max or self._may_begin[0][1] is self._queue[0]):
            self._start(heappop(self._may_begin)[1])
            went = True
        head = self._queue[0] if self._queue else None
        waits = head is not None and not (head.done or head.alone or self._held)
        if head is not None and waits and head.number in self._recorded_numbers:
            head.alone = went = True
            self._start(head)
        return went

    def _start(self, record: RecordInFlight) -> None:
        assert record.begin is not None
        self._begun.append(record)
        record.since = self.turns
        record.restart(record.number + 1 << DRAWS)
        self._run(record, record.begin)

    def _resume(self) -> bool:
        waiting = [each for each in self._begun if not each.done]
        went = False
        for record in waiting:
            if record.code is None:  # it has ended, but for calls that it has not awaited
                record.done = all(answer.done for answer in record.effects.answers)
                went |= record.done
            elif record.waits is not None and record.waits.done:
                self._run(record, None)
                went = True
        return went

    def _run(self, record: RecordInFlight, begin: Callable[[], Coroutine[Any, Any, object]] | None) -> None:
        """Run the code of a record up to the next answer that is not there, or to its end."""
        move_back = record.place()
        self.current, self._running, record.waits = record.effects, record, None
        drawn, self.context.calls = self.context.calls, record.effects.draws
        try:
            if begin is not None:
                record.code = begin()
            assert record.code is not None
            awaited = record.code.send(None)
            while isinstance(awaited, Answer) and awaited.done:
                awaited = record.code.send(None)
            if not isinstance(awaited, Answer):
                raise TaskError(ONLY_CALLS)
            record.waits = awaited
        except StopIteration as end:
            self._ended(record, returned(end.value))
        except Exception as error:
            if isinstance(error, FrameworkError) and not isinstance(error, TaskError):
                raise
            self._ended(record, explained(error))
        finally:
            record.effects.draws, self.context.calls = self.context.calls, drawn
            self.current = self._running = None
            move_back()
        if self._halt is not None:  # the code may have caught it
            raise self._halt

    def _ended(self, record: RecordInFlight, error: Exception | None) -> None:
        self._close(record)
        record.effects.error = error
        record.done = all(answer.done for answer in record.effects.answers)

    def _close(self, record: RecordInFlight) -> None:
        """Let code that waits come to its end: what it still does counts for nothing."""
        code, record.code = record.code, None
        if code is not None:
            self.current, self._running = Effects(0), None
            with suppress(Exception):
                code.close()
            self.current = None

    def _take_turn(self) -> bool:
        went = False
        while self._queue and (head := self._queue[0]).done and not self._held:
            went = True
            if head.begin is not None and not head.alone and conflicts(head.effects, self._changed, self._event_time()):
                head.alone, head.done = True, False
                head.restart(head.number + 1 << DRAWS)
                self._run(head, head.begin)
                continue
            self._check_results(head)
            if self.due is not None:
                self.due.begin_slice()
            head.turn(head)
            self.turns += 1
            self._had_turn(head)
        return went

    def _had_turn(self, record: RecordInFlight) -> None:
        head = self._queue.popleft()
        assert head is record, f"record {record.number} has had the turn of {head.number}"
        if record.begin is None:
            return
        self._begun.remove(record)
        if len(self._changed) > self._prune_at or not self._begun:
            oldest = min((each.since for each in self._begun), default=self.turns)
            self._changed = {place: turn for place, turn in self._changed.items() if turn >= oldest}
            self._prune_at = max(CHANGED_MIN, 2 * len(self._changed))
        if self.records_results and record.effects.answers and record.number not in self._recorded_numbers:
            self._made.append((record.number, tuple(answer.outcome for answer in record.effects.answers)))
        if record.key is not None:
            same = self._of_key[record.key]
            first = same.popleft()
            assert first is record, f"record {record.number} has its turn before {first.number} of the same key"
            if not same:
                del self._of_key[record.key]
            elif same[0].number not in self._recorded_numbers:
                heappush(self._may_begin, (same[0].number, same[0]))

    def _check_results(self, record: RecordInFlight) -> None:
        answers = record.effects.answers
        if self.records_results and sum(len(answer.outcome.data) for answer in answers) > RESULTS_BYTES_MAX:
            record.effects.error = TaskError(
                f"the calls of one record returned more than {RESULTS_BYTES_MAX} bytes: return what the task needs"
            )
        known = len(self._recorded.get(record.number, ()))
        if len(answers) < known:
            raise self._not_the_same(record, f"makes {len(answers)}")

    def _not_the_same(self, record: RecordInFlight, now: str) -> Halted:
        return Halted(
            f"the task is not deterministic: for its record {record.number} the changelog holds the results of "
            f"{len(self._recorded.get(record.number, ()))} calls, and now it {now}: the calls of a record "
            "must depend on the record and the state alone. Once its code does, start the job under another name",
            code=HaltCode.NOT_DETERMINISTIC,
        )

    def _end(self, record: RecordInFlight) -> None:
        for answer in record.effects.answers:
            answer.cancel()
        self._close(record)
