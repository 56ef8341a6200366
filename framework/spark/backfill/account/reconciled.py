"""The account of a history: what its files hold, what the job took of that, and what the log gave."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from grete.errors import Halted
from grete.halts import HaltCode
from grete.protocol.ids import TopicPartition
from grete.spark.backfill.account.file_rows import FileRange, FileRows
from grete.spark.backfill.account.seams import Seam, Seams
from grete.spark.backfill.history import TopicHistory
from grete.spark.backfill.history_checks import known_of
from grete.spark.backfill.ranges import InputRanges


class InputAccount(msgspec.Struct, frozen=True):
    """One partition of an input. Rows of files are ``taken``, ``refused``, ``twice`` or ``left_out``.

    ``refused``: no records. ``twice``: an offset that had been there. ``left_out``: before ``start=``, or for the live
    job. ``in_no_file``: offsets between those of the files. ``from_log``: offsets that were read from the log.
    ``goes_on``: the offset at which the job is live. Times are in ms. ``log_offset``, ``log_ms``: the first record of
    the log behind the files, whose last are ``last_offset`` and ``last_ms``. ``log_keys``: of the first records there;
    ``known_keys`` of them are in the files, by bytes.
    """

    topic: str
    partition: int
    rows: int
    taken: int
    refused: int
    twice: int
    left_out: int
    in_no_file: int
    first_ms: int | None
    last_ms: int | None
    from_log: int
    goes_on: int
    last_offset: int | None = None
    log_offset: int | None = None
    log_ms: int | None = None
    log_keys: int = 0
    known_keys: int = 0


class FileAccount(msgspec.Struct, frozen=True):
    """The rows of one partition in one file, by the fields of a FileRange."""

    topic: str
    partition: int
    file: str
    rows: int
    first_ms: int | None
    last_ms: int | None
    first_offset: int | None
    last_offset: int | None


class HistoryAccount(msgspec.Struct, frozen=True):
    """All of a history."""

    inputs: list[InputAccount]
    files: list[FileAccount]


def reconciled(
    taken: Mapping[TopicPartition, FileRows],
    histories: Mapping[str, TopicHistory],
    covered: InputRanges,
    begun: Collection[str],
    seams: Seams,
) -> HistoryAccount:
    """Return the account; ``taken``: from files; ``begun``: topics whose history begins at a time (``start=``).

    Raises Halted if rows of files are neither taken nor refused, and nothing says why.
    """
    tails = {partition: tail.end - tail.begin for (_, partition), tail in covered.tails.items()}
    inputs, files, known = list[InputAccount](), list[FileAccount](), known_of(taken.values())
    for source, goes_on in sorted(covered.resume.items()):
        found, history = taken.get(source, FileRows(*source)), histories.get(source.topic)
        ranges = list(_ranges(found, history))
        account = _account(source, found, ranges, tails.get(source, 0), goes_on)
        if (seam := seams.get(source)) is not None:
            account = _with_seam(account, seam, known.get(source.topic, ()))
        lost = account.left_out and (history is None or history.ends is None) and source.topic not in begun
        if lost or account.left_out < 0:
            raise Halted(
                f"{source}: the files have {account.rows:,} rows, and the job took {account.taken:,}: "
                f"{account.refused:,} were refused, {account.twice:,} came twice",
                code=HaltCode.BACKFILL_INCOMPLETE,
            )
        inputs.append(account)
        files += [FileAccount(*source, **msgspec.structs.asdict(each)) for each in ranges]
    return HistoryAccount(inputs, files)


def _ranges(found: FileRows, history: TopicHistory | None) -> Iterator[FileRange]:
    if history is not None and history.ends is not None:
        yield from history.files.get(found.partition, ())
    else:
        yield from (found.files[file] for file in sorted(found.files))


def _with_seam(account: InputAccount, seam: Seam, known: Collection[bytes]) -> InputAccount:
    offset, at_ms = (None, None) if seam.first is None else (seam.first.offset, seam.first.timestamp_ms)
    return msgspec.structs.replace(
        account, log_offset=offset, log_ms=at_ms, log_keys=len(seam.keys), known_keys=seam.known(known)
    )


def _account(
    source: TopicPartition, found: FileRows, ranges: Sequence[FileRange], from_log: int, goes_on: int
) -> InputAccount:
    rows = sum(each.rows for each in ranges)
    return InputAccount(
        *source,
        rows=rows,
        taken=found.records,
        refused=found.refused_rows,
        twice=found.twice,
        left_out=rows - found.records - found.refused_rows - found.twice,
        in_no_file=sum(hole.end - hole.begin for hole in found.holes),
        first_ms=found.first_ms,
        last_ms=found.reached_ms,
        from_log=from_log,
        goes_on=goes_on,
        last_offset=max((each.last_offset for each in ranges if each.last_offset is not None), default=None),
    )
