"""What the cores themselves cost: CPU µs, measured here on the code that the virtual clock charges."""

import time
from dataclasses import dataclass

from benchmarks.speculation.workload import count
from framework.core.speculative.messages import ALL, Passed, Revision
from framework.core.speculative.task import SpeculativeCore

UNITS = 2_000
WINDOW = 16  # bundles that are held when one runs
TRIES = 5


@dataclass(frozen=True)
class Costs:
    """Of one task, without its code: per message read, bundle run, record of it, bundle settled."""

    message_us: float
    run_us: float
    record_us: float
    settle_us: float


def measured(*, speculative: bool) -> Costs:
    """Return the least of some tries: other work on the machine only adds."""
    ones = [_once(1, speculative=speculative) for _ in range(TRIES)]
    many = [_once(21, speculative=speculative) for _ in range(TRIES)]
    message, run, settle = (min(each[part] for each in ones) for part in range(3))
    record = (min(each[1] for each in many) - run) / 20
    return Costs(round(message, 2), round(max(0.0, run - record), 2), round(record, 2), round(settle, 2))


def _once(records: int, *, speculative: bool) -> tuple[float, float, float]:
    """Feed bundles of two channels, a window of them at a time; return CPU µs of a message, a run and settling."""
    core = SpeculativeCore("costs", 2, [0], {}, speculative=speculative)
    core.start(0, None)
    spent = [0.0, 0.0, 0.0]
    clock, offset = time.process_time, 0
    for first in range(0, UNITS, WINDOW):
        messages = [
            Revision(0, t, 0, (0,), tuple((b"%d" % ((t * 31 + at) % 5_000), b"x" * 20) for at in range(records)))
            for t in range(first, first + WINDOW)
        ]
        start = clock()
        for message in messages:
            core.message(0, offset, message)
            offset += 1
        spent[0] += clock() - start
        if not speculative:
            _pass(core, first + WINDOW - 1, offset)
        start = clock()
        while (unit := core.next()) is not None:
            view = core.view(unit)
            core.ran(unit, view, count(view, unit.records, 1, 1, last=False))
        spent[1] += clock() - start
        if speculative:
            _pass(core, first + WINDOW - 1, offset)
        start = clock()
        core.settle()
        spent[2] += clock() - start
        offset += 1
    return spent[0] * 1e6 / UNITS, spent[1] * 1e6 / UNITS, spent[2] * 1e6 / UNITS


def _pass(core: SpeculativeCore, t: int, offset: int) -> None:
    core.message(0, offset, Passed(0, (t, ALL)))
    core.message(1, core.channels[1].position, Passed(0, (t, ALL)))
