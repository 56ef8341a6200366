"""The workers of a machine share its partitions: who has which, and how these move when their number changes."""

from collections.abc import Collection, Iterable, Mapping

from grete.core.supervision.supervised_worker import SupervisedWorker


def spread(
    now: Mapping[int, Iterable[int]], partitions: Collection[int], processes: int | None = None
) -> dict[int, tuple[int, ...]]:
    """Return worker number → its partitions; ``processes``: how many workers there may be, None: one for each.

    A partition that a worker has ``now`` stays there; any other goes to the one with the fewest. So neighbours go to
    different workers: a stage with few partitions has the first ones, and all workers share its work.
    """
    if processes is None:
        return {partition: (partition,) for partition in sorted(partitions)}
    of = {number: [each for each in now.get(number, ()) if each in partitions] for number in range(processes)}
    for partition in sorted(set(partitions).difference(*of.values())):
        of[min(of, key=lambda number: len(of[number]))].append(partition)
    placed = sorted(each for hosted in of.values() for each in hosted)
    assert placed == sorted(partitions), f"partitions {sorted(partitions)} are hosted as {placed}"
    return {number: tuple(sorted(hosted)) for number, hosted in of.items() if hosted}


def surplus(now: Mapping[int, Collection[int]], processes: int) -> set[int]:
    """Return the partitions that their workers are to let go of, so that as many workers share all of them evenly.

    ``now``: worker number → its partitions. Of a worker whose number is too high, these are all.
    """
    fewest, more = divmod(sum(map(len, now.values())), processes)
    stay = sorted(range(processes), key=lambda number: -len(now.get(number, ())))
    kept = {number: sorted(now.get(number, ()))[: fewest + (place < more)] for place, number in enumerate(stay)}
    return set().union(*now.values()).difference(*kept.values())


class Sharing:
    """The partitions of one machine, by worker. ``processes``: how many workers share them, None: one for each.

    ``asked``: how many are to, once all tasks run. ``moving``: partitions that one worker is to let go of, and that no
    other has yet: two processes cannot have a store open.
    """

    def __init__(self, processes: int | None) -> None:
        self.processes = processes
        self.asked: int | None = None
        self.moving: set[int] = set()

    def spread(self, workers: Mapping[int, SupervisedWorker], partitions: set[int]) -> dict[int, tuple[int, ...]]:
        """Return worker number → its partitions, of these, but for those that move."""
        self.moving &= partitions & open_in(workers)
        now = {number: {*worker.wanted, *worker.hosted} - self.moving for number, worker in workers.items()}
        return spread(now, partitions - self.moving, self.processes)

    def must_spread(self, workers: Mapping[int, SupervisedWorker], active: frozenset[int]) -> bool:
        """Whether the partitions must be spread again; ``active``: those that the machine is to run.

        A worker has let go of one that moves; or other workers were asked for, and all tasks run: then what is more
        than the share of each worker begins to move.
        """
        if self.moving:
            return not self.moving <= open_in(workers)
        if self.asked is None:
            return False
        running = {each for worker in workers.values() if worker.runs_all for each in worker.hosted}
        if running != active:
            return False
        self.processes, self.asked = self.asked, None
        self.moving = surplus({number: worker.hosted for number, worker in workers.items()}, self.processes)
        return True


def open_in(workers: Mapping[int, SupervisedWorker]) -> set[int]:
    """Return the partitions whose stores the processes of workers may have open."""
    return {each for worker in workers.values() if worker.running for each in worker.hosted}
