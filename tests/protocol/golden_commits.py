"""Frozen bytes of commits, written by hand, field by field: a change is a new schema version, never an edit."""

from grete.protocol.changelog import ChangelogHeader, ChangelogType
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
from grete.protocol.ids import RollbackEntry

WHERE_HEX = "00000003 0000000000000005 00000000"
NONCE = bytes(range(16))
NONCE_HEX = "000102030405060708090a0b0c0d0e0f"

COMMIT_HEADER = ChangelogHeader(ChangelogType.COMMIT, 3, 5, 0)
SMALL = Commit(1, 3, 200, -1, (), (), 0, 0, 0, b"", 0, 0, -2, False, (), (), ())
SMALL_HEX = (
    f"19 {WHERE_HEX} 0001"  # schema version
    " 02 06 9003 01"  # producer, generation, checkpoint, previous: zigzag varints from here on
    " 00 00 00 00 00 00"  # rollback history, outputs, data count, digest, attempt, cursor
    " 00 00 03 00"  # round start, base, fingerprint, at end
    f" 00 00 00 00 00 {'00' * 16}"  # inputs, known, external, deterministic, run id, nonce
    " 00 00"  # round started, rounds
)
SMALL_2_HEX = (
    f"19 {WHERE_HEX} 0002 4fb3ddd8"  # schema version, crc32
    " dc0016 01 03 ccc8 ff"  # 22 fields: producer, generation, checkpoint, previous
    " 90 90 00 00 00 c400"  # rollback history, outputs, data count, digest, attempt, cursor
    " 00 00 fe c2"  # round start, base, fingerprint, at end
    f" 90 90 90 c0 c0 c410{'00' * 16}"  # inputs, known, external, deterministic, run id, nonce
    " 00 90"  # round started, rounds
)
LARGE = Commit(
    producer=1,
    generation=3,
    checkpoint_id=200,
    previous=100,
    rollback_history=(RollbackEntry(1, -1), RollbackEntry(3, 50)),
    outputs=(OutputCommit("o", 2, 9),),
    data_count=4,
    data_digest=0xFFFFFFFF,
    attempt=6,
    cursor=b"\x00c",
    round_start=10,
    base=11,
    fingerprint=12,
    at_end=True,
    inputs=(InputCommit("i", 0, 13, (ChannelCommit(1, 2, 3, 4, 14),)),),
    known=(ProducerRollbacks(1, (RollbackEntry(2, 15),)),),
    external=(ExternalInput("e", 1, 16),),
    deterministic=DeterministicCommit(17, 18, 19, (Frontier("i", 0, 1, 20, 21, 22),)),
    bulk_write_id="r",
    nonce=NONCE,
    round_started_ms=23,
    rounds=(RoundStart(24, 25),),
)
LARGE_HEX = (
    f"19 {WHERE_HEX} 0001 02 06 9003 c801"
    " 04 02 01 06 64 00"  # rollback history: 2 entries, end
    " 02 02 6f 04 12 00"  # outputs
    " 08 feffffff1f 0c 04 0063"  # data count, digest, attempt, cursor
    " 14 16 18 01"  # round start, base, fingerprint, at end
    " 02 02 69 00 1a 02 02 04 06 08 1c 00 00"  # inputs with channels
    " 02 02 02 04 1e 00 00"  # known
    " 02 02 65 02 20 00"  # external
    " 02 22 24 26 02 02 69 00 02 28 2a 2c 00"  # deterministic with fronts
    f" 02 02 72 {NONCE_HEX}"  # run id, nonce
    " 2e 02 30 32 00"  # round started, rounds
)
LARGE_2_HEX = (
    f"19 {WHERE_HEX} 0002 0d47684a dc0016 01 03 ccc8 64"
    " 92 9201ff 920332"  # rollback history: 2 entries
    " 91 93 a16f 920200 09"  # outputs: one table, of topic o: partitions, next seqs
    " 04 ceffffffff 06 c4020063"  # data count, digest, attempt, cursor
    " 0a 0b 0c c3"  # round start, base, fingerprint, at end
    " 91 94 a169 00 0d 91 95 920100 02 03 04 0e"  # inputs: one, with a table of channels
    " 91 92 91 92020f 920100"  # known: one rollback history, its producers
    " 91 93 a165 920100 10"  # external
    " 94 11 12 13 91 96 a169 00 920100 14 15 16"  # deterministic with fronts
    f" a172 c410{NONCE_HEX}"  # run id, nonce
    " 17 91 9218 19"  # round started, rounds
)
WIDE = Commit(
    1, 3, 200, 100, (), tuple(OutputCommit(topic, p, 7 + p) for topic in "ab" for p in range(2)), 0, 0, 0, b"", 0, 0,
    0, False, (InputCommit("i", 0, 13, tuple(ChannelCommit(p, 2, 3, 300 * p, 14) for p in range(1, 4))),),
    tuple(ProducerRollbacks(p, (RollbackEntry(2, p // 3),)) for p in range(1, 4)), (),
)  # fmt: skip
WIDE_HEX = (
    f"19 {WHERE_HEX} 0002 6cd6b8f7 dc0016 01 03 ccc8 64 90"
    " 92 93 a161 93000001 93070001 93 a162 93000001 93070001"  # outputs: a table for each topic; the least, differences
    " 00 00 00 c400 00 00 00 c2"
    " 91 94 a169 00 0d 91 95 9401000102"  # one input, its channels: producers 1 to 3,
    " 02 03 94cd012c00cd012ccd0258 0e"  # all of generation 2, checkpoint 3, their seqs 300, 600, 900, all at offset 14
    " 92 92 91 920200 93010001 92 91 920201 920300"  # known: producers 1 and 2 have one rollback history, 3 another
    f" 90 c0 c0 c410{'00' * 16} 00 90"
)
