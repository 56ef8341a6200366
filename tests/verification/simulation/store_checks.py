"""The invariants of state: a store holds committed state alone, and a changelog restores what was committed."""

from collections.abc import Sequence

from grete.core.changelog.changelog_fold import ChangelogFold
from grete.errors import Halted
from grete.ports import LogRow, Write
from grete.protocol.changelog import decode_data
from grete.protocol.changelog_position import decode_changelog_position
from grete.stores.memory import MemoryDisk
from tests.verification.simulation.disk import content, is_seen
from tests.verification.simulation.expiry_kind import alive, is_expired
from tests.verification.simulation.oracle import TaskHistory, Violation


def check_stored(
    history: TaskHistory,
    checkpoint_id: int,
    disk: MemoryDisk,
    writes: Sequence[Write],
    changelog_position: bytes | None,
) -> None:
    """Check a write to a store by a process whose core holds ``checkpoint_id`` to be committed."""
    state = history.states.get(checkpoint_id)
    for store, key, value in writes:
        if state is None or (
            is_seen(store, key) and state.get((store, key)) != value and not is_expired(state, store, value)
        ):
            raise Violation(
                "uncommitted",
                f"{history.wiring.name}: {key!r} = {value!r} is not of committed checkpoint {checkpoint_id}",
            )
    if changelog_position is None:
        return
    decoded = decode_changelog_position(changelog_position)
    expected = history.states.get(decoded.checkpoint_id)
    if expected is None or history.generations[decoded.checkpoint_id] != decoded.generation:
        raise Violation("uncommitted", f"{history.wiring.name}: {decoded} is not a valid commit")
    if content(disk) != expected:
        found = sorted(content(disk).items() ^ expected.items())
        raise Violation("store", f"{history.wiring.name}: {decoded}: store and committed state differ: {found[:6]}")


def check_standby(
    history: TaskHistory, disk: MemoryDisk, writes: Sequence[Write], changelog_position: bytes | None
) -> None:
    """Check what a standby has written: with it the store is the committed state of the commit that it names."""
    name = f"standby of {history.wiring.name}"
    if changelog_position is None:
        raise Violation("standby", f"{name}: {len(writes)} writes without a changelog position")
    decoded = decode_changelog_position(changelog_position)
    expected = history.states.get(decoded.checkpoint_id)
    if expected is None or (history.offsets[decoded.checkpoint_id], history.generations[decoded.checkpoint_id]) != (
        decoded.offset,
        decoded.generation,
    ):
        raise Violation("standby", f"{name}: {decoded} is not a valid commit")
    if content(disk) != expected:
        found = sorted(content(disk).items() ^ expected.items())
        raise Violation("standby", f"{name}: {decoded}: store and committed state differ: {found[:6]}")


def check_restore(history: TaskHistory, rows: Sequence[LogRow], start: int, *, damaged: bool) -> None:
    """Restore from the changelog, which begins with ``rows`` at ``start``; compare with what was committed."""
    name = str(history.wiring.changelog)
    state: dict[tuple[int, bytes], bytes] = {}  # what the outbox holds is judged by what it does
    try:
        fold = ChangelogFold(history.wiring.changelog, start)
        for row in rows:
            segment = fold.feed(row.offset, row.value or b"")
            for message in () if segment is None else segment.messages:
                data = decode_data(message)
                for store, key, value in zip(data.stores, data.keys, data.values, strict=True):
                    if value is None or not is_seen(store, key):
                        state.pop((store, key), None)
                    else:
                        state[store, key] = value
    except Halted as error:
        if damaged:
            return
        raise Violation("restore", str(error)) from error
    if history.commit is None:
        return
    if not fold.complete or fold.last is None or fold.last.checkpoint_id != history.checkpoint_id:
        raise Violation(
            "restore",
            f"{name} from {start}: complete: {fold.complete}, last {fold.last}, committed {history.checkpoint_id}",
        )
    state = alive(state)
    if state != history.states[history.checkpoint_id]:
        found = sorted(state.items() ^ history.states[history.checkpoint_id].items())
        raise Violation(
            "restore",
            f"{name} from {start} gives another state than checkpoint {history.checkpoint_id}: {found[:6]}",
        )
