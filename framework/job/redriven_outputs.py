"""Gives outputs that a sink has refused to that sink again: once, where the sink keeps what it has (S2b)."""

import os
from collections import Counter
from typing import Any

import msgspec

from grete.api.jobs.job import Job
from grete.api.sinks.external import External
from grete.api.sinks.http import Http
from grete.api.sinks.sink import Owner, Sink
from grete.api.sinks.table import Table
from grete.api.topics.topic import Output
from grete.core.changelog.damage import entry
from grete.errors import FrameworkError, OutputRefused
from grete.ports import JobMetadata
from grete.protocol.ids import TopicPartition
from grete.sinks.http import HttpSink
from grete.sinks.open import sql_sinks

_NONE = -1  # instead of an offset: no letter is on its way


class Turn(msgspec.Struct, frozen=True):
    """The last letter of a partition that was given to its sink, as the job's metadata has it.

    ``number``: the sink keeps it as it keeps checkpoints. ``offset``: of the letter, until it is known to be taken.
    ``owner``: the id of this row of letters, by which a sink tells it from that of a namesake.
    """

    number: int
    offset: int
    owner: str


class RedrivenOutputs:
    """The way of one run back to the sinks. ``refused``: letters whose output was refused again, by ``Letter.origin``.

    A turn is in the metadata before its sink has it. So a run that finds one takes it up under the same number, and a
    sink that has that number does nothing. A web service gets the key that the output had.
    """

    def __init__(self, job: Job, metadata: JobMetadata) -> None:
        """Open nothing."""
        self.refused = Counter[str]()
        self._job, self._metadata = job, metadata
        self._sinks: dict[tuple[TopicPartition, str, str], Sink] = {}

    def on_its_way(self, at: TopicPartition) -> int:
        """Return the offset of a letter that may be in its sink, and is not known to be; -1: there is none."""
        return self._turn(at).offset

    def goes_back(self, stage: str, attribute: str) -> bool:
        """Tell whether the code declares an output that takes its letters again."""
        output = self._output(stage, attribute)
        return output is not None and isinstance(output.target, Table | Http | External)

    def send(self, at: TopicPartition, offset: int, told: dict[str, str], value: bytes) -> bool:
        """Give a letter's output to its sink; return False if that refuses it again.

        ``told``: of the letter. Raises TransientError, Halted and ConfigError as the sink does.
        """
        turn, stage, attribute = self._turn(at), told["stage"], told["output"]
        if turn.offset != offset:
            assert turn.offset == _NONE, f"{at}: letter {turn.offset} is on its way, and {offset} overtakes it"
            turn = self._write(at, msgspec.structs.replace(turn, number=turn.number + 1, offset=offset))
        place = at, stage, attribute
        try:
            sink = self._sinks.get(place) or self._opened(at, stage, attribute, turn.owner)
            self._sinks[place] = sink
            if isinstance(sink, HttpSink):
                sink.send_again(value, told["idempotency_key"])
            elif sink.begin(turn.number):
                sink.write([(_name(attribute, self._output(stage, attribute)), value)])
                sink.commit()
        except OutputRefused:
            self._write(at, msgspec.structs.replace(turn, offset=_NONE))
            self._close(place)
            return False
        except FrameworkError:
            self._close(place)
            raise
        return True

    def taken(self, at: TopicPartition) -> dict[str, bytes | None]:
        """Return the metadata by which no letter of a partition is on its way, to be written with what was sent."""
        return {_key(at): msgspec.json.encode(msgspec.structs.replace(self._turn(at), offset=_NONE))}

    def close(self) -> None:
        """Let go of the sinks."""
        for place in list(self._sinks):
            self._close(place)

    def _close(self, place: tuple[TopicPartition, str, str]) -> None:
        if (sink := self._sinks.pop(place, None)) is not None:
            sink.close()

    def _turn(self, at: TopicPartition) -> Turn:
        with entry(_key(at)):
            raw = self._metadata.meta_get(_key(at))
            return Turn(0, _NONE, os.urandom(8).hex()) if raw is None else msgspec.json.decode(raw, type=Turn)

    def _write(self, at: TopicPartition, turn: Turn) -> Turn:
        self._metadata.produce_with_meta([], {_key(at): msgspec.json.encode(turn)}, sync=True)
        return turn

    def _output(self, stage: str, attribute: str) -> Output[Any, Any] | None:
        found = (each.outputs.get(attribute) for each in self._job.stages if each.name == stage)
        return next(found, None)

    def _opened(self, at: TopicPartition, stage: str, attribute: str, owner: str) -> Sink:
        output = self._output(stage, attribute)
        assert output is not None, f"{stage} has no output {attribute}"
        sink: Sink
        if isinstance(output.target, Table):
            sink = sql_sinks({attribute: output.target})[attribute]
        elif isinstance(output.target, Http):
            sink = HttpSink(attribute, output.target)
        else:
            assert isinstance(output.target, External), f"{output.target!r} has no letters"
            sink = output.target.connect()
        try:
            sink.open(Owner(self._job.name, f"{at.topic}/{at.partition}", owner))
        except FrameworkError:
            sink.close()
            raise
        return sink


def _key(at: TopicPartition) -> str:
    return f"redriving/{at.topic}/{at.partition}"


def _name(attribute: str, output: Output[Any, Any] | None) -> str:
    """Return the name under which a sink gets the outputs."""
    return output.target.name if output is not None and isinstance(output.target, External) else attribute
