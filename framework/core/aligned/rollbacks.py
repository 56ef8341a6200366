"""Rollbacks of a task's producers, and the messages that they make invalid (R3)."""

from collections.abc import Iterable

from grete.core.changelog.changelog_fold import is_rolled_back
from grete.protocol.commit import ProducerRollbacks
from grete.protocol.control import RollbackMarker
from grete.protocol.envelope import Header
from grete.protocol.ids import RollbackEntry


class Rollbacks:
    """The newest rollback history of each aligned producer. It survives a rollback of the task itself."""

    def __init__(self, producers: Iterable[int], fingerprints: frozenset[int]) -> None:
        self.known: dict[int, tuple[RollbackEntry, ...]] = dict.fromkeys(producers, ())
        self.fingerprints = fingerprints  # of the graphs whose producers are ours

    def is_rolled_back(self, header: Header) -> bool:
        """Tell whether a later incarnation of the producer has taken this message back (R3)."""
        return is_rolled_back(self.known[header.producer], header.generation, header.checkpoint_id)

    def is_new(self, header: Header) -> bool:
        """Tell whether a rollback marker is of a later generation than all that are known, in whichever channel."""
        history = self.known[header.producer]
        return not history or header.generation > history[-1].generation

    def takes_back(self, producer: int, included: dict[tuple[int, int], int]) -> bool:
        """Tell whether a producer has taken back some of what is included; see Inputs.included."""
        history = self.known[producer]
        return any(u == producer and is_rolled_back(history, g, checkpoint) for (u, g), checkpoint in included.items())

    def contradiction(self, marker: RollbackMarker) -> str | None:
        """Return the error text for a marker that contradicts itself, or what its generation has said before."""
        said = RollbackEntry(marker.header.generation, marker.header.checkpoint_id)
        if marker.rollback_history[-1:] != (said,):
            return f"its rollback history {marker.rollback_history[-3:]} does not end with itself"
        known = {each.generation: each.checkpoint_id for each in self.known[marker.header.producer]}
        if known.get(said.generation, said.checkpoint_id) == said.checkpoint_id:
            return None
        return (
            f"went back to checkpoint {said.checkpoint_id}, but generation {said.generation} has said "
            f"{known[said.generation]} before: its changelog was cut"
        )

    def other_graph(self, marker: RollbackMarker) -> str | None:
        """Return the error text for a producer that ran with a graph that is none of ours (1.2); None: it is."""
        if marker.fingerprint in self.fingerprints:
            return None
        ours = ", ".join(f"{each:#x}" for each in sorted(self.fingerprints))
        return (
            f"it announces itself under a graph of fingerprint {marker.fingerprint:#x}, and this code knows {ours}. "
            "If a worker runs other code of this job, start all with one: the one that has every stage that was ever "
            "added. Else something else wrote to the topic: take its right to write away"
        )

    def commit(self) -> tuple[ProducerRollbacks, ...]:
        """Return the rollback histories for a commit."""
        return tuple(map(ProducerRollbacks, self.known, self.known.values()))

    def resume(self, committed: Iterable[ProducerRollbacks]) -> None:
        """Learn what a commit knew, where it knew more."""
        for producer, history in ((each.producer, each.rollback_history) for each in committed):
            known = self.known.get(producer, ())
            if history and (not known or known[-1].generation < history[-1].generation):
                self.known[producer] = history
