"""`grete audit --follow`: what a running job has committed, made again step by step and compared."""

import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import msgspec
from msgspec.structs import asdict
from rich.console import Console

from grete.api.jobs.job import Job
from grete.cli.feeding import LOOK_S
from grete.cli.job_target import NamedJob
from grete.cli.output.patient_output import standard_error, standard_output
from grete.cli.output.progress import Screen, counted
from grete.cli.output.reading import print_json
from grete.cli.stop_signal import StopSignal
from grete.errors import ConfigError, TransientError
from grete.job.metadata import pinned_settings
from grete.replay.audit.followed import AuditBegun, FollowedAudit
from grete.replay.audit.metrics import AuditCounts, AuditMonitor
from grete.replay.audit.refused import check_follow
from grete.replay.audit.steps import AuditStep, WrongEntry
from grete.state.read.shown import decoded_plain
from grete.stores.overlay.expiring_store import EXPIRY_BYTES

SAID_S = 60.0  # between two lines about an audit that finds nothing


class DifferenceRow(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that differs, as JSON has it. None: it is not there."""

    after: int
    checkpoint: int
    stage: str
    partition: int
    store: str
    key: object
    in_changelog: object
    recomputed: object


def follow_job(named: NamedJob, *, share: float, http: str | None, as_json: bool) -> bool:
    """Audit until Ctrl-C; return whether nothing differed. Raises ConfigError, TaskError."""
    if not share:
        raise ConfigError("--share 0 draws no key: give a number above 0, up to 1")
    screen = Screen(Console(file=standard_error() if as_json else standard_output()))
    stop = StopSignal()
    with ExitStack() as opened:
        job, log = opened.enter_context(named.read())
        settings = pinned_settings(job, log, named.settings)
        check_follow(job, settings, draws=share < 1)
        place = named.place(job).directory / "audit"
        followed = opened.enter_context(FollowedAudit(job, log, settings, place, share))
        counts = AuditCounts(job.name, Counter({stage.name: 0 for stage in job.live}))
        if http is not None:
            from grete.monitor.access import access_of
            from grete.monitor.server import serving

            url = opened.enter_context(serving(AuditMonitor(counts), http, access_of(settings)))
            screen.say(f"metrics: {url}/metrics")
        told = AuditTold(job, screen, counts, as_json=as_json)
        away = ""
        while not stop.asked:
            try:
                found = followed.look()
            except TransientError as error:
                if away != (away := str(error)):
                    screen.say(f"it waits: {error}")
                time.sleep(LOOK_S)
                continue
            told.take(found)
            if found is None or (isinstance(found, AuditStep) and found.caught_up):
                time.sleep(LOOK_S)
        told.end()
    return not counts.differences.total()


class AuditTold:
    """Tells what an audit finds: differences at once, all else now and then."""

    def __init__(self, job: Job, screen: Screen, counts: AuditCounts, *, as_json: bool) -> None:
        self._job, self._screen, self._counts, self._as_json = job, screen, counts, as_json
        self._last = "nothing was compared"
        self._said_s = time.monotonic()

    def take(self, found: AuditStep | AuditBegun | None) -> None:
        """Tell of a look."""
        if isinstance(found, AuditBegun):
            self._counts.begun += 1
            why = f"the audit has lost its place ({found.why}), and " if found.why else ""
            self._screen.say(f"{self._job.name}: {why}takes checkpoint {found.checkpoint_id} as it is")
        elif isinstance(found, AuditStep):
            self._step(found)
        if found is None or (isinstance(found, AuditStep) and found.caught_up):
            self._counts.caught_up_s = time.monotonic()
        if time.monotonic() - self._said_s >= SAID_S:
            self._say()

    def end(self) -> None:
        """Tell how it was at the end."""
        self._say()

    def _step(self, step: AuditStep) -> None:
        counts = self._counts
        first = not counts.keys
        counts.keys, counts.records = counts.keys + step.keys, counts.records + step.records
        self._last = f"compared up to checkpoint {step.checkpoint_id}"
        for stage, count in step.wrong.items():
            counts.differences[stage] += count
        for difference in step.differences:
            row = _row(self._job, step, difference)
            if self._as_json:
                print_json(row)
            else:
                self._screen.say("differs: " + ", ".join(f"{name} {value!r}" for name, value in asdict(row).items()))
        if (more := sum(step.wrong.values()) - len(step.differences)) > 0:
            self._screen.say(f"… and {more:,} more between checkpoints {step.after} and {step.checkpoint_id}")
        if first and counts.keys:
            self._say()

    def _say(self) -> None:
        self._said_s = time.monotonic()
        counts = self._counts
        wrong = counts.differences.total()
        self._screen.say(
            f"{self._job.name}: {self._last}: {counted(counts.keys, 'entry').replace('entrys', 'entries')} from "
            f"{counted(counts.records, 'record')}: " + (f"{wrong:,} differ" if wrong else "nothing differs")
        )


def _row(job: Job, step: AuditStep, difference: WrongEntry) -> DifferenceRow:
    """Return a difference, decoded where the store is one of the user's."""
    stores = {store.name: store for store in job.stage(difference.stage).all_stores()}
    declared = stores.get(difference.store)

    def cell(raw: bytes | None, *, key: bool = False) -> Any:
        if raw is None or declared is None:
            return None if raw is None else raw.hex()
        if key:
            return decoded_plain(declared.key, raw)
        return decoded_plain(declared.value, raw if declared.ttl_ms is None else raw[EXPIRY_BYTES:])

    return DifferenceRow(
        after=step.after,
        checkpoint=step.checkpoint_id,
        stage=difference.stage,
        partition=difference.partition,
        store=difference.store,
        key=cell(difference.key, key=True),
        in_changelog=cell(difference.found),
        recomputed=cell(difference.expected),
    )
