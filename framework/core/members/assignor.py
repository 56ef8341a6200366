"""The assignor: which member is to run which partition, and which are to keep it ready. A pure function."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from grete.protocol.members import HeldPartition, PartitionPlace

CAUGHT_UP = 200  # messages behind a standby's store: ten seconds of a small state, and of a large one seldom 50 MB


class Candidate(NamedTuple):
    """A member that may be given partitions."""

    session: str
    machine: str = ""
    warms: bool = False  # it can host standbys
    held: Mapping[int, HeldPartition] = {}  # by partition


def caught_up(held: HeldPartition | None) -> bool:
    """Tell whether a standby has nearly all."""
    return held is not None and held.state == "standby" and 0 <= held.behind <= CAUGHT_UP


def assign(
    partitions: Collection[int],
    candidates: Sequence[Candidate],
    current: Mapping[int, PartitionPlace],
    standby_replicas: int = 0,
) -> dict[int, PartitionPlace]:
    """Return partition → owner and standbys: even counts, by as few moves as they take.

    ``candidates``: the earlier one where nothing else decides. A member that has the state of a partition, as a standby
    or as files, is preferred; standbys are on another machine than their owner if there is one. Without candidates no
    partition has an owner.
    """
    if not candidates:
        return {partition: PartitionPlace() for partition in partitions}
    owners = _Owners(partitions, candidates, current).found()
    standbys = _standbys(owners, candidates, current, standby_replicas)
    return {p: PartitionPlace(owner, standbys=standbys[p]) for p, owner in owners.items()}


def _readiness(partition: int, candidate: Candidate, place: PartitionPlace) -> tuple[int, int]:
    """Return the amount of a partition's state that a member has: (kind, checkpoint), more is better."""
    held = candidate.held.get(partition)
    standby = candidate.session in place.standbys
    if held is None:
        return int(standby), -1
    return 3 if caught_up(held) else 2 if standby else int(held.position >= 0), held.position


class _Owners:
    """Owners of partitions, while they are looked for."""

    def __init__(
        self, partitions: Collection[int], candidates: Sequence[Candidate], current: Mapping[int, PartitionPlace]
    ) -> None:
        self._candidates = candidates
        self._places = {partition: current.get(partition, PartitionPlace()) for partition in sorted(partitions)}
        self._of: dict[str, list[int]] = {candidate.session: [] for candidate in candidates}
        self._free: list[int] = []
        for partition, place in self._places.items():
            self._of.get(place.owner, self._free).append(partition)
        self._least, self._extra = divmod(len(self._places), len(candidates))

    def found(self) -> dict[int, str]:
        """Return partition → owner."""
        most = sorted(self._of, key=lambda session: -len(self._of[session]))  # those that have most may keep one more
        for rank, session in enumerate(most):
            owned = self._of[session]
            while len(owned) > self._least + (rank < self._extra):
                given = max(owned, key=lambda partition: (self._best(partition), partition))
                owned.remove(given)
                self._free.append(given)
        pairs = sorted(
            ((partition, candidate) for partition in self._free for candidate in self._candidates),
            key=lambda pair: (_negated(self._ready(*pair)), pair[0]),
        )
        for partition, candidate in pairs:
            if partition in self._free and self._ready(partition, candidate)[0] and self._room(candidate.session) > 0:
                self._give(partition, candidate.session)
        for partition in sorted(self._free):
            self._give(partition, max(self._of, key=self._room))
        counts = [len(owned) for owned in self._of.values()]
        assert not self._free, f"partitions without an owner: {self._free}"
        assert max(counts) - min(counts) <= 1, f"uneven counts: {counts}"
        return {partition: session for session, owned in self._of.items() for partition in owned}

    def _give(self, partition: int, session: str) -> None:
        self._free.remove(partition)
        self._of[session].append(partition)

    def _room(self, session: str) -> int:
        """Return the number of partitions that a member may still get."""
        extra = self._extra > sum(len(owned) > self._least for owned in self._of.values())
        return self._least + extra - len(self._of[session])

    def _ready(self, partition: int, candidate: Candidate) -> tuple[int, int]:
        return _readiness(partition, candidate, self._places[partition])

    def _best(self, partition: int) -> tuple[int, int]:
        """Return the readiness of the member with room that has most of a partition."""
        return max(
            (self._ready(partition, each) for each in self._candidates if self._room(each.session) > 0), default=(0, -1)
        )


def _negated(readiness: tuple[int, int]) -> tuple[int, int]:
    return -readiness[0], -readiness[1]


def _standbys(
    owners: Mapping[int, str],
    candidates: Sequence[Candidate],
    current: Mapping[int, PartitionPlace],
    standby_replicas: int,
) -> dict[int, tuple[str, ...]]:
    """Return partition → the members that keep it ready: those that do, then those that have its files, evenly."""
    machines = {candidate.session: candidate.machine for candidate in candidates}
    able = [candidate for candidate in candidates if candidate.warms]
    counts = {candidate.session: 0 for candidate in able}
    at_most = -(-len(owners) * standby_replicas // max(1, len(able)))
    found: dict[int, tuple[str, ...]] = {}
    for partition, owner in sorted(owners.items()):
        place = current.get(partition, PartitionPlace())
        used, chosen = {machines[owner]}, list[str]()

        def order(
            candidate: Candidate, partition: int = partition, place: PartitionPlace = place, used: set[str] = used
        ) -> tuple[bool, bool, tuple[int, int], int]:
            session = candidate.session
            ready = _negated(_readiness(partition, candidate, place))
            return candidate.machine in used, counts[session] >= at_most, ready, counts[session]

        others = [candidate for candidate in able if candidate.session != owner]
        while others and len(chosen) < standby_replicas:
            best = min(others, key=order)
            others.remove(best)
            chosen.append(best.session)
            used.add(best.machine)
            counts[best.session] += 1
        assert owner not in chosen and len({*chosen}) == len(chosen), (partition, owner, chosen)
        found[partition] = tuple(chosen)
    return found
