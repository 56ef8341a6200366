"""Results that a task has taken from its changelog and not used yet, in its state: a commit ends what the log tells."""

from collections.abc import Mapping, Sequence

from grete.protocol.changelog import ChangelogHeader, ChangelogType
from grete.protocol.notes import CallResult, CallsNote, decode_note, encode_calls
from grete.stores.overlay.overlay_store import OverlayStore

RESULTS = b"results-"  # begins the keys in META; then comes the number of the record, 8 bytes
_END = b"results."  # behind all of them

ResultsByRecord = Mapping[int, Sequence[CallResult]]


def is_kept(key: bytes) -> bool:
    """Tell whether an entry of META is a result that a restarted task has not used yet."""
    return _END > key >= RESULTS


class KeptResults:
    """A restarted task may commit before its producers have sent it again what its predecessor had processed."""

    def __init__(self, meta: OverlayStore) -> None:
        self._meta = meta
        self._kept: dict[int, Sequence[CallResult]] = {}

    def load(self) -> ResultsByRecord:
        """Return the results in the state, by the number of the record."""
        notes = (decode_note(value) for _, value in self._meta.scan(RESULTS, _END))
        self._kept = {
            number: results for note in notes if isinstance(note, CallsNote) for number, results in note.records
        }
        return self._kept

    def save(self, unused: ResultsByRecord) -> None:
        """Let the state have just these."""
        for number in self._kept.keys() - unused.keys():
            self._meta.delete(_key(number))
        for number in unused.keys() - self._kept.keys():
            note = CallsNote(((number, tuple(unused[number])),))
            self._meta.put(_key(number), encode_calls(ChangelogHeader(ChangelogType.NOTE, 0, 0, 0), note))
        self._kept = dict(unused)


def _key(number: int) -> bytes:
    return RESULTS + number.to_bytes(8, "big")
