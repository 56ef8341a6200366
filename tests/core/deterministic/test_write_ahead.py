"""A large checkpoint is sent in parts before it is closed: inputs are decided and outputs leave meanwhile (D5)."""

from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest

from grete.core import actions as do
from grete.core import events as on
from grete.core.deterministic import write_ahead
from grete.protocol.changelog import ChangelogHeader, ChangelogType, decode_changelog_header, encode_data
from tests.core.deterministic.scenario import Logical, Writer
from tests.core.scenario import LIMITS
from tests.core.streams import A0, SINK, Log, encoded


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a part ahead as soon as two records are dirty; each claims 10 bytes."""
    monkeypatch.setattr(write_ahead, "FREEZE_PART_BYTES_MIN", 10)


class Sink(Logical):
    """A sink whose data goes to the changelog one key at a time."""

    def __init__(self, log: Log, limits: Any = LIMITS) -> None:
        super().__init__(log, SINK, sink=True, limits=limits)
        self.unsent: list[str] = []
        self.digest = 0

    def _answer(self, action: do.Action) -> None:
        match action:
            case do.FreezePart():
                self._freeze()
            case do.Freeze():
                self._freeze()
            case do.ApplyFrozen():
                super()._answer(action)
                self.frozen, self.digest = [], 0
            case _:
                super()._answer(action)

    def _freeze(self) -> None:
        self.frozen, self.unsent, self.open = self.frozen + self.open, self.unsent + self.open, []

    def _write_data(self, action: do.WriteData) -> None:
        names, self.unsent = self.unsent[:1], self.unsent[1:]
        messages = []
        if names:
            header = ChangelogHeader(ChangelogType.DATA, action.generation, action.first_seq, 0)
            values = [str(self._dirty()[name]).encode() for name in names]
            messages = [encode_data(header, [0], encoded(names), values)]
            self.digest = crc32(messages[0], self.digest)
        self.log.append(self.task.changelog, *messages)
        more = bool(self.unsent)
        self._tell(on.DataWritten(len(messages), self.digest, b"", round_done=True, more=more))

    def _run(self, records: Any, next_offset: int = -1) -> None:
        self.open += [name for name, _, _ in records]
        super()._run(records, next_offset)

    def send_slice(self) -> None:
        """Do the slice that is held."""
        action = self.holding(do.WriteData)
        self.held.clear()
        self.done.append(action)
        self._answer(action)
        self._settle()


def sink(**limits: int) -> tuple[Sink, Writer]:
    """Return a sink, running, and one of its producers; the other one has announced a lot."""
    log = Log()
    (b0, partition), (b1, _) = SINK.channels
    Writer(log, b1, partition).progress(100_000)
    task = Sink(log, replace(LIMITS, **limits))
    task.start()
    task.tick(0)
    assert len(task.all(do.Freeze)) == 2  # the genesis, and what the log's clock has made due since
    return task, Writer(log, b0, partition)


def process(task: Sink, b0: Writer, t: int, *names: str) -> None:
    """Let the sink take records, the first at logical time ``t``."""
    b0.send(*((name, t + number, A0) for number, name in enumerate(names)))
    b0.progress(t + len(names))
    task.read()


def kinds(task: Sink) -> list[str]:
    """Return the types of the messages in the task's changelog behind its first claim and commits."""
    values = [value for _, value in task.log.rows[task.task.changelog]]
    return [decode_changelog_header(value).type.name for value in values][3:]


def test_outputs_leave_while_a_part_is_sent() -> None:
    """Outputs made between two slices of a large checkpoint are released between them; the commit closes them all."""
    task, b0 = sink()
    process(task, b0, 100, "a", "b", "c", "d")
    task.hold = {do.WriteData}
    task.tick(100)
    for number, name in enumerate("wxyz"):
        process(task, b0, 200 + 10 * number, name)
        task.send_slice()
        assert task.outside[-1] == name
    task.release()
    assert kinds(task)[1:] == [*["DATA", "OUTPUT_RELEASE"] * 4, *["DATA"] * 4, "COMMIT"]
    assert task.state == ["a", "b", "c", "d", "w", "x", "y", "z"]
    successor = task.successor(same_host=False).start()
    assert successor.store == task.store
    assert successor.core.start_up.fold.since.released == {}


def test_what_changes_meanwhile_is_the_next_part_until_little_is_left() -> None:
    """Each part is at most half of the one before: however fast records come, the checkpoint is closed."""
    task, b0 = sink()
    process(task, b0, 100, *(f"first {number}" for number in range(8)))
    task.hold = {do.WriteData}
    task.tick(100)
    process(task, b0, 200, *(f"second {number}" for number in range(4)))
    for _ in range(8):
        task.send_slice()
    assert len(task.all(do.FreezePart)) == 2
    process(task, b0, 300, *(f"third {number}" for number in range(3)))
    for _ in range(4):
        task.send_slice()
    assert (len(task.all(do.FreezePart)), len(task.all(do.Freeze))) == (2, 3)
    task.release()
    assert len(task.state) == 15


def test_little_is_sent_behind_the_freeze() -> None:
    """A part for a few keys would cost more than outputs wait for them."""
    task, b0 = sink()
    process(task, b0, 100, "a")
    task.tick(100)
    assert (task.all(do.FreezePart), task.state) == ([], ["a"])


@pytest.mark.parametrize("same_host", [True, False])
def test_a_crash_between_slices_leaves_the_last_commit(same_host: bool) -> None:
    """Data without a commit counts for nothing; what was released meanwhile is known (D5, R1)."""
    task, b0 = sink()
    process(task, b0, 100, "a", "b", "c")
    task.hold = {do.WriteData}
    task.tick(100)
    task.send_slice()
    process(task, b0, 200, "d")
    task.send_slice()
    after = task.successor(same_host=same_host).start()
    assert after.store == {}
    assert list(after.core.start_up.fold.since.released.values()) == [4]


def test_a_full_write_batch_waits_for_the_part() -> None:
    """The frozen part and the open part are each bounded: no input is taken before the part is sent (A9)."""
    task, b0 = sink(uncommitted_state_bytes_max=80)
    task.hold = {do.WriteData}
    process(task, b0, 100, "a", "b", "c", "d", "e")
    assert len(task.all(do.FreezePart)) == 1
    process(task, b0, 200, "f", "g", "h", "i", "j")
    wanted = [task.core.wants_input]
    task.release()
    wanted.append(task.core.wants_input)
    assert (wanted, len(task.state)) == ([False, True], 10)


def test_a_part_that_was_sent_is_committed_though_nothing_more_comes() -> None:
    """A checkpoint that is closed because it is full is closed behind its part, too: its state is in memory (A9)."""
    task, b0 = sink(uncommitted_state_bytes_max=80)
    process(task, b0, 100, "a", "b", "c", "d", "e")
    assert (len(task.all(do.FreezePart)), len(task.state)) == (1, 5)
    process(task, b0, 200, "f")
    assert len(task.all(do.FreezePart)) == 1


def test_parts_and_what_is_open_beside_them_keep_to_the_bound() -> None:
    """Parts sent ahead and the rest at the freeze stay in memory until the commit: no input (A9)."""
    task, b0 = sink(uncommitted_state_bytes_max=80)
    task.hold = {do.WriteData}
    process(task, b0, 100, "a", "b", "c", "d", "e")
    process(task, b0, 200, "f", "g", "h", "i")
    for _ in range(5):
        task.send_slice()
    task.hold.add(do.AppendChangelog)
    assert len(task.all(do.Freeze)) == 3
    wanted = [task.core.wants_input]
    task.release()
    wanted.append(task.core.wants_input)
    assert (wanted, len(task.state)) == ([False, True], 9)


def test_a_stop_sends_the_part_to_its_end_and_commits() -> None:
    """A graceful stop leaves nothing half done (R6)."""
    task, b0 = sink()
    process(task, b0, 100, "a", "b", "c")
    task.hold = {do.WriteData}
    task.tick(100)
    task.step(on.Stop())
    assert task.all(do.Exit) == []
    task.release()
    assert (len(task.all(do.Exit)), task.state) == (1, ["a", "b", "c"])
