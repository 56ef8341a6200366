"""Questions about the state of a job, as a URL puts them: checked, and written in the bytes of the stores."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.api.serdes.key import Key
from grete.api.serdes.serde import bytes_serde, utf8
from grete.api.stateful.declaration import Stateful
from grete.api.stateful.windows import WindowStore
from grete.api.store import Store
from grete.errors import ConfigError, FrameworkError
from grete.quoting import shows_keys
from grete.state.read.checkpoints.nearest import AsOf, as_of
from grete.state.read.local_reader import key_bytes, place_of, places_of, prefix_bytes, store_named
from grete.state.read.shown import from_text

ROWS, ROWS_MAX = 100, 1_000  # of an answer, if the question names no limit, and at most
_DIGITS_MAX = 18  # of a number that is read: any with these fits into 64 bits
_ONE = ("stage", "partition", "checkpoint")
_SCAN = (*_ONE, "from", "to", "after", "limit")
_KEYED = (*_SCAN, "prefix")


class NotAnsweredError(FrameworkError):
    """A question that has no answer; ``status``: of HTTP. The text says why, and what to ask."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Question(NamedTuple):
    """The entries of ``partitions``, in this order, whose stored keys begin with ``prefix``, begin <= key < end.

    ``end`` b"": without an end. ``after``: where to go on in the first of the partitions. ``one``: the first entry
    alone. ``key``: of windows, the encoded key that their records have, None: any. ``starts``: of windows, the first
    start that is wanted, and the first that is not any more.
    """

    store: Store[Any, Any]
    name: str
    partitions: Sequence[int]
    prefix: bytes = b""
    begin: bytes = b""
    end: bytes = b""
    after: bytes = b""
    one: bool = False
    window: WindowStore[Any, Any] | None = None
    key: bytes | None = None
    starts: tuple[int | None, int | None] = (None, None)
    limit: int = ROWS
    as_of: AsOf | None = None


def entry_question(job: Job, name: str, key: str, arguments: Mapping[str, str]) -> Question:
    """Return the question for the entry of a key of a store. Raises NotAnsweredError."""
    asked = _begun(job, name, arguments, _ONE)
    _refuse_kept_within(job, asked.store)
    wanted = _bytes_of(job, asked.store, "the key", key, whole=True)
    order = places_of(job, asked.store, wanted)
    partitions = [each for each in order if each in asked.partitions]
    return asked._replace(partitions=partitions, prefix=wanted, begin=wanted, end=wanted + b"\0", one=True)


def scan_question(job: Job, name: str, arguments: Mapping[str, str]) -> Question:
    """Return the question for the entries of a store, of a ``prefix``, or ``from`` a key up to another one.

    Raises NotAnsweredError.
    """
    asked = _begun(job, name, arguments, _KEYED)
    store = asked.store
    if not any(arguments.get(each) for each in ("prefix", "from", "to")):
        return asked
    _refuse_kept_within(job, store)
    prefix, begin, end = (
        _bytes_of(job, store, each, text) if (text := arguments.get(each, "")) else b""
        for each in ("prefix", "from", "to")
    )
    if prefix and not (isinstance(store.key, Key) or store.key in (utf8, bytes_serde)):
        raise NotAnsweredError(
            400, f"prefix: keys of serde {store.key.name} have no beginning of their own: ask with from and to"
        )
    if prefix and (begin or end):
        raise NotAnsweredError(400, "prefix, and from or to: give one of the two")
    return asked._replace(prefix=prefix, begin=begin, end=end)


def window_question(job: Job, name: str, key: str | None, arguments: Mapping[str, str]) -> Question:
    """Return the question for the windows of a declaration that begin ``from`` a time in ms on, up to another one.

    ``key``: None: of all keys. Raises NotAnsweredError.
    """
    asked = _begun(job, name, arguments, _SCAN)
    window = _owner(job, asked.store)
    if not isinstance(window, WindowStore):
        raise NotAnsweredError(404, f"{name!r} is no window: ask for /state/{name}")
    since, until = (_number(arguments, each, signed=True) for each in ("from", "to"))
    begin, end = (b"" if at is None else window.begin_at(at) for at in (since, until))
    wanted = None if key is None else _bytes_of(job, window.panes, "the key", key, whole=True, serde_of=window)
    if wanted is not None and window.key_at == (0, None):
        begin, end = wanted, wanted + b"\0"
    return asked._replace(begin=begin, end=end, window=window, key=wanted, starts=(since, until))


def _begun(job: Job, name: str, arguments: Mapping[str, str], known: Sequence[str]) -> Question:
    """Return the question with what all have: the store, its partitions, the checkpoint, and where to go on."""
    if not shows_keys():
        raise NotAnsweredError(403, "the setting show_records is none: state has keys and values alone")
    for each in arguments:
        if each not in known:
            raise NotAnsweredError(400, f"there is no parameter {each!r} here: there are {', '.join(known)}")
    stage = arguments.get("stage", "")
    try:
        store = store_named(job, f"{stage}/{name}" if stage else name)
        there = range(place_of(job, store)[0].partitions)
    except ConfigError as error:
        hint = "" if stage else "; ?stage=STAGE chooses where several stages have one of the name"
        raise NotAnsweredError(404, f"{error}{hint}") from error
    partition = _number(arguments, "partition")
    if partition is not None and partition not in there:
        raise NotAnsweredError(404, f"{name} has {len(there)} partitions, counted from 0: there is no {partition}")
    limit = _number(arguments, "limit")
    if limit is not None and not 1 <= limit <= ROWS_MAX:
        raise NotAnsweredError(400, f"limit = {limit}: give 1 to {ROWS_MAX}, and go on with after=NEXT")
    partitions = there if partition is None else range(partition, partition + 1)
    first, after = _cursor(arguments.get("after", ""), partitions)
    return Question(
        store,
        name,
        range(first, partitions[-1] + 1),
        after=after,
        limit=ROWS if limit is None else limit,
        as_of=_as_of(arguments.get("checkpoint", "")),
    )


def _owner(job: Job, store: Store[Any, Any]) -> Stateful | None:
    """Return the window or join that keeps what it knows in a store, None: it is a task's own."""
    stages: Sequence[StageGraph] = job.stages
    owners = (each for stage in stages for each in stage.stateful.values())
    return next((each for each in owners if any(store is own for own in each.stores().values())), None)


def _refuse_kept_within(job: Job, store: Store[Any, Any]) -> None:
    owner = _owner(job, store)
    if owner is None:
        return
    instead = (
        f"/windows/{store.shown}/KEY" if isinstance(owner, WindowStore) else f"/state/{store.shown}, which has all"
    )
    raise NotAnsweredError(400, f"store {store.shown!r} is of a {owner.what}, which has keys of its own: ask {instead}")


def _bytes_of(
    job: Job,
    store: Store[Any, Any],
    what: str,
    text: str,
    *,
    whole: bool = False,
    serde_of: WindowStore[Any, Any] | None = None,
) -> bytes:
    """Return the bytes of a key, or of its first parts unless ``whole``, written as `grete state get` takes it."""
    serde = store.key if serde_of is None else serde_of.key
    try:
        value = from_text(serde, text)
        if serde_of is not None:
            return serde.encode(value)
        return key_bytes(job, store, value) if whole else prefix_bytes(job, store, value)
    except (FrameworkError, ValueError, TypeError) as error:
        raise NotAnsweredError(400, f"{what}: {error}: write it as grete state get takes it") from error


def _number(arguments: Mapping[str, str], name: str, *, signed: bool = False) -> int | None:
    text = arguments.get(name, "")
    if not text:
        return None
    digits = text.removeprefix("-") if signed else text
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _DIGITS_MAX:
        raise NotAnsweredError(400, f"{name} = {text!r}: give a number of at most {_DIGITS_MAX} digits")
    return int(text)


def _as_of(text: str) -> AsOf | None:
    """Return the checkpoint, or the time, whose state is asked for; None: the newest."""
    try:
        return as_of(text) if text else None
    except ValueError as error:
        raise NotAnsweredError(400, f"checkpoint = {text!r}: {error}") from error


def _cursor(text: str, partitions: range) -> tuple[int, bytes]:
    """Return (partition, key to begin with) of the ``next`` of an answer, "": the first."""
    if not text:
        return partitions[0], b""
    number, _, raw = text.partition(":")
    try:
        if int(number) in partitions:
            return int(number), bytes.fromhex(raw)
    except ValueError:
        pass
    raise NotAnsweredError(400, f"after = {text!r}: give the next of the answer before, with the same question")
