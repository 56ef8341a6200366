"""The run in order: what tasks make that never see a late record, computed from the input decisions alone."""

from collections.abc import Sequence

from framework.core.speculative.messages import OUTSIDE, Place, Records
from framework.core.speculative.versions import SettledView
from tests.verification.speculation.workload import parse, run

Released = list[tuple[Place, Records]]


def in_order(
    decided: Sequence[tuple[int, int, bytes]], stages: int, tasks: int, keys: int, grain: int
) -> tuple[list[Released], list[dict[bytes, bytes]]]:
    """Return what each task of the last stage releases, and its state; ``decided``: (t, source, row)."""
    bundles: list[dict[Place, Records]] = [{} for _ in range(tasks)]
    for t, source, row in decided:
        for number, (task, records) in enumerate(parse(row, tasks, grain)):
            bundles[task][t, source, (source, number)] = records
    states: list[dict[bytes, bytes]] = []
    released: list[Released] = []
    for stage in range(stages):
        last = stage == stages - 1
        made: list[dict[Place, Records]] = [{} for _ in range(tasks)]
        released = [[] for _ in range(tasks)]
        states = [{} for _ in range(tasks)]
        for task in range(tasks):
            for place in sorted(bundles[task]):
                view = SettledView(states[task], place)
                for output, records in run(view, bundles[task][place], tasks, keys, last=last).items():
                    if output == OUTSIDE:
                        released[task].append((place, records))
                    else:
                        made[output][place[0], place[1], (task, *place[2])] = records
        bundles = made
    return released, states
