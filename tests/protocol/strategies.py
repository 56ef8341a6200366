"""Hypothesis strategies of protocol values: every value that the formats can hold."""

from hypothesis import strategies as st

from grete.protocol.changelog import ChangelogHeader, ChangelogType, Data
from grete.protocol.commit import (
    ChannelCommit,
    Commit,
    DeterministicCommit,
    ExternalInput,
    Frontier,
    InputCommit,
    OutputCommit,
    ProducerRollbacks,
    RoundStart,
)
from grete.protocol.envelope import Header, MessageType
from grete.protocol.frames import encode_headers
from grete.protocol.ids import RollbackEntry
from grete.protocol.record_batch import RecordBatch

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), INT32_MAX)
int64s = st.integers(-(2**63), INT64_MAX)
naturals32 = st.integers(0, INT32_MAX)
uint32s = st.integers(0, 2**32 - 1)
naturals64 = st.integers(0, INT64_MAX)
cells = st.binary(max_size=12)
nullable_cells = st.none() | cells
texts = st.text(max_size=8)
user_headers = st.lists(st.tuples(texts, nullable_cells), max_size=3).map(tuple)
rollback_histories = st.lists(st.builds(RollbackEntry, naturals32, st.integers(-1, INT64_MAX)), max_size=4).map(tuple)


def headers(kind: MessageType) -> st.SearchStrategy[Header]:
    """Return headers of one type."""
    return st.builds(Header, st.just(kind), naturals32, naturals32, naturals64, naturals64)


def changelog_headers(kind: ChangelogType) -> st.SearchStrategy[ChangelogHeader]:
    """Return changelog headers of one type."""
    return st.builds(ChangelogHeader, st.just(kind), naturals32, naturals64, naturals32)


def _tuples(item: st.SearchStrategy[int], count: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(item, min_size=count, max_size=count).map(tuple)


@st.composite
def columns(draw: st.DrawFn) -> RecordBatch:
    """Return the records of a frame: any mixture of nulls, user headers and logical time."""
    count = draw(st.integers(1, 9))
    keys, values, user = (
        draw(st.lists(cell, min_size=count, max_size=count))
        for cell in (nullable_cells, nullable_cells, st.none() | user_headers.map(encode_headers))
    )
    logical = draw(st.none() | st.tuples(_tuples(int64s, count), _tuples(int32s, count)))
    digest = draw(st.integers(0, 2**32 - 1)) if logical else 0
    return RecordBatch(
        keys, values, draw(_tuples(int64s, count)), user if draw(st.booleans()) else None, logical, digest
    )


@st.composite
def data(draw: st.DrawFn) -> Data:
    """Return the writes of a data message, none included."""
    rows = draw(st.lists(st.tuples(int16s, cells, nullable_cells), max_size=9))
    stores, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
    return Data(stores, list(keys), list(values), draw(st.none() | st.lists(int16s, max_size=3).map(tuple)))


_channels = st.lists(st.builds(ChannelCommit, naturals32, naturals32, naturals64, naturals64, naturals64), max_size=3)
_frontiers = st.lists(st.builds(Frontier, texts, naturals32, naturals32, int64s, naturals32, naturals64), max_size=3)

commits = st.builds(
    Commit,
    producer=naturals32,
    generation=naturals32,
    checkpoint_id=naturals64,
    previous=st.integers(-1, INT64_MAX),
    rollback_history=rollback_histories,
    outputs=st.lists(st.builds(OutputCommit, texts, naturals32, naturals64), max_size=3).map(tuple),
    data_count=naturals64,
    data_digest=st.integers(0, 2**32 - 1),
    attempt=naturals32,
    cursor=cells,
    round_start=naturals64,
    base=naturals64,
    fingerprint=int64s,
    at_end=st.booleans(),
    inputs=st.lists(st.builds(InputCommit, texts, naturals32, naturals64, _channels.map(tuple)), max_size=3).map(tuple),
    known=st.lists(st.builds(ProducerRollbacks, naturals32, rollback_histories), max_size=3).map(tuple),
    external=st.lists(st.builds(ExternalInput, texts, naturals32, naturals64), max_size=3).map(tuple),
    deterministic=st.none() | st.builds(DeterministicCommit, naturals64, int64s, int64s, _frontiers.map(tuple)),
    bulk_write_id=st.none() | texts,
    nonce=st.binary(min_size=16, max_size=16),
    round_started_ms=naturals64,
    rounds=st.lists(st.builds(RoundStart, naturals64, naturals64), max_size=3).map(tuple),
)
