"""The identity of a record: it begins the value, and goes with all that is made of the record."""

from zlib import crc32

from grete.api.record import Record

OF_A_SESSION = 9  # records, of who feeds a partition
OF_TIMER = b"~"  # begins the ident of what a timer or a window sends; then comes its time


def ident_of(record: Record[bytes | None, bytes]) -> bytes:
    """Return the mark that a record has in common with those that are made of it."""
    return record.value.partition(b";")[0]


def session_of(record: Record[bytes | None, bytes]) -> bytes:
    """Return the sender of a record: each session of a feeder of a partition sends a few."""
    stage, partition, number = ident_of(record).split(b".")
    return b"%s.%s.%d" % (stage, partition, int(number) // OF_A_SESSION)


def number_of(record: Record[bytes | None, bytes]) -> int:
    """Return a record's number in its session."""
    return int(ident_of(record).split(b".")[2]) % OF_A_SESSION


def stamp(value: bytes, disorder: int) -> int:
    """Return the timestamp of a record: it goes with the record wherever that goes. Some partitions are denser."""
    ident = b".".join(value.partition(b";")[0].split(b".")[:3])  # of a broadcast row without its reader
    if ident[:1] == OF_TIMER:
        return int(ident[1:])
    stage, partition, number = (*map(int, ident.split(b".")), 0, 0)[:3] if ident[:1].isdigit() else (0, 0, 0)
    return 100 + number * 3 * (1 + (partition + stage) % 3 * 2) - (crc32(ident) % disorder if disorder else 0)
