"""The sorted view: scans see the dict as it was when they began."""

from hypothesis import given
from hypothesis import strategies as st

from grete.stores.sorted_view import SortedView

KEYS = st.binary(max_size=2)
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=1), st.booleans()), max_size=12)


def change(view: SortedView, key: bytes, value: bytes | None, gone: bool) -> None:
    """Change the dict as its owner does."""
    view.touch(key, gone=gone)
    if gone:
        view.values.pop(key, None)
    else:
        view.values[key] = value


@given(before=st.dictionaries(KEYS, KEYS), start=KEYS, end=st.none() | KEYS, first=CHANGES, later=CHANGES)
def test_a_scan_is_not_touched_by_changes(
    before: dict[bytes, bytes],
    start: bytes,
    end: bytes | None,
    first: list[tuple[bytes, bytes | None, bool]],
    later: list[tuple[bytes, bytes | None, bool]],
) -> None:
    """Two scans, begun at two times, read in turns with changes in between, each yield the dict of their time."""
    view = SortedView(dict(before))

    def expected() -> list[tuple[bytes, bytes | None]]:
        items = sorted(view.values.items(), key=lambda item: item[0])
        return [item for item in items if item[0] >= start and (end is None or item[0] < end)]

    scans = []
    for changes in (first, later):
        wanted = expected()
        scans.append((view.scan(start, end), wanted, list[tuple[bytes, bytes | None]]()))
        for key, value, gone in changes:
            change(view, key, value, gone)
            for scan, _, seen in scans:
                seen.extend(item for item in (next(scan, None),) if item is not None)
    for scan, wanted, seen in scans:
        assert seen + list(scan) == wanted
    assert [key for key, _ in view.scan(b"", None)] == sorted(view.values)
