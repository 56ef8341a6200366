"""Which worker process hosts which partitions: one each, or all of them packed into a few processes."""

from collections.abc import Iterable, Mapping

from framework.errors import ConfigError


def packed(partitions: int, processes: int | None = None) -> dict[int, tuple[int, ...]]:
    """Return worker number → its partitions; ``processes``: how many workers, None: one for each partition.

    Neighbours go to different workers: a stage with few partitions has the first ones, and all workers share its work.
    Raises ConfigError: there would be a worker without a partition, or none.
    """
    count = partitions if processes is None else processes
    if not 1 <= count <= partitions:
        raise ConfigError(
            f"--processes {count}: the job has {partitions} partitions, so write 1 to {partitions}: a partition is "
            "never divided"
        )
    return {number: tuple(range(number, partitions, count)) for number in range(count)}


def was_fenced(workers: Mapping[int, tuple[int, ...]], numbers: Iterable[int]) -> str:
    """Return that these of all ``workers`` were fenced, in words."""
    fenced = sorted(numbers)
    who = " and ".join(f"worker {number}" for number in fenced)
    several = any(len(workers[number]) > 1 for number in fenced)
    return (
        f"{who} {'was' if len(fenced) == 1 else 'were'} fenced: another process has taken "
        f"{'a partition of it' if several else 'its partition'}; look for a second supervisor or worker on this job"
    )
