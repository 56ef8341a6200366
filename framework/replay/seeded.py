"""The messages of a changelog from which a task goes on at a commit: the state, and what was decided since."""

import zlib
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec.structs import replace

from grete.protocol.changelog import (
    ChangelogHeader,
    ChangelogType,
    Claim,
    InputDecision,
    encode_claim,
    encode_data,
    encode_input_decision,
)
from grete.protocol.commit import Commit, encode_commit
from grete.protocol.notes import CallsNote, IdleNote, encode_calls, encode_note
from grete.replay.recorded import State

_CLAIM = Claim(b"grete verify past", "verify", 0, 0)._replace(nonce=b"verify the past.")
_ENTRIES = 50_000  # of one data message


def changelog_of(begin: Commit, state: State) -> Iterator[bytes]:
    """Yield a changelog of one commit that holds the state, and the claim of the generation after it."""
    yield encode_claim(ChangelogHeader(ChangelogType.CLAIM, 1, 0, 0), _CLAIM)
    count = digest = 0
    entries = iter(state.items())
    while chunk := list(islice(entries, _ENTRIES)):
        count += 1
        header = ChangelogHeader(ChangelogType.DATA, 1, count, 0)
        stores, keys = [place[0] for place, _ in chunk], [place[1] for place, _ in chunk]
        message = encode_data(header, stores, keys, [value for _, value in chunk])
        digest = zlib.crc32(message, digest)
        yield message
    commit = replace(
        begin,
        generation=1,
        previous=-1,
        rollback_history=(),
        data_count=count,
        data_digest=digest,
        attempt=0,
        bulk_write_id=None,
        cursor=b"",
        round_start=0,
        base=0,
        rounds=(),
        nonce=_CLAIM.nonce,
    )
    yield encode_commit(ChangelogHeader(ChangelogType.COMMIT, 1, 1 + count, 0), commit)
    yield encode_claim(ChangelogHeader(ChangelogType.CLAIM, 2, 0, 0), _CLAIM)


def decided_after(decisions: Iterable[InputDecision | IdleNote | CallsNote]) -> Iterator[bytes]:
    """Yield the messages behind ``changelog_of``: the decisions on inputs since that commit, and results of calls."""
    for number, decision in enumerate(decisions, 1):
        if isinstance(decision, CallsNote):
            yield encode_calls(ChangelogHeader(ChangelogType.NOTE, 2, number, 0), decision)
        elif isinstance(decision, IdleNote):
            yield encode_note(ChangelogHeader(ChangelogType.NOTE, 2, number, 0), decision)
        else:
            yield encode_input_decision(ChangelogHeader(ChangelogType.INPUT_DECISION, 2, number, 0), decision)
