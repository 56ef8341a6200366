"""The standbys of this machine: a process for each partition that it keeps ready, restarted with back-off.

None of their ends stops the machine. What fails is told, and tried again: a partition moves without a standby, too.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from msgspec.structs import replace

from grete.core.members.assignor import CAUGHT_UP
from grete.job.directory import JobDirectory
from grete.protocol.report import EndReport, StandbyTaskReport, decode_standby_report
from grete.worker.ends import restart_wait_ms
from grete.worker.last_words import end_in_log
from grete.worker.process_main import WorkerSpec
from grete.worker.process_pool import ProcessPool, Started
from grete.worker.status_pipe import StatusLines, report_in
from grete.worker.worker_process import code_text

STOP_S = 5.0  # of a standby after SIGTERM: it closes its stores; a kill costs the store no more than a crash does
STILL_S = 10.0  # in which a restore reads nothing: then a worker may find out why


@dataclass
class StandbyProcess:
    """The standby of one partition. ``tasks``: by name, as they said last."""

    partition: int
    started: Started | None = None
    lines: StatusLines = field(default_factory=StatusLines)
    tasks: dict[str, StandbyTaskReport] = field(default_factory=dict)
    end: EndReport | None = None  # why its process ended, if it could say so
    starts: int = 0
    ends: int = 0  # in a row, without having caught up in between
    restart_at: float = 0.0  # by the monotonic clock
    promoted: bool = False  # it is to end for a worker, not before it has restored what that would restore
    read: int = -1  # offsets of its changelogs that it had read, together,
    read_s: float = 0.0  # and when that was another number last
    stop_by: float | None = None  # when it is killed: it is to end
    opens: bool = False  # it was told that a worker is to take its place soon
    told: str = ""  # what a person was told last of it

    @property
    def process(self) -> "subprocess.Popen[bytes] | None":
        """Its process, if that runs."""
        return None if self.started is None else self.started.process

    @property
    def checkpoint_id(self) -> int:
        """The checkpoint that each of its stores includes, -1: one includes none."""
        return min((task.checkpoint_id for task in self.tasks.values()), default=-1)

    @property
    def restores(self) -> bool:
        """Whether it has still to restore: a worker that took its place now would begin again."""
        moves = time.monotonic() - self.read_s < STILL_S and not any(task.trouble for task in self.tasks.values())
        return bool(self.tasks) and self.behind < 0 and moves

    @property
    def behind(self) -> int:
        """How many messages of its changelogs are behind its stores, -1: not known, or one has not all before them."""
        tasks = self.tasks.values()
        return sum(t.behind for t in tasks) if tasks and all(t.behind >= 0 for t in tasks) else -1


class StandbyProcesses:
    """Call ``poll`` often. A partition is started as active only when ``held`` has it no longer."""

    def __init__(
        self, spec: WorkerSpec, job_directory: JobDirectory, pool: ProcessPool, tell: Callable[[str], None]
    ) -> None:
        """Keep nothing ready yet. ``spec``: of which partition, number and output are filled in here."""
        self._spec, self._job_directory, self._pool, self._tell = spec, job_directory, pool, tell
        self.wanted: frozenset[int] = frozenset()
        self.changes = 0  # raised with each status, and with each standby that is asked for or ends
        self._coming: frozenset[int] = frozenset()  # those of the wanted ones that are to be active soon
        self.processes: dict[int, StandbyProcess] = {}  # by partition

    @property
    def held(self) -> frozenset[int]:
        """The partitions whose stores a standby may have open."""
        return frozenset(each.partition for each in self.processes.values() if each.process is not None)

    @property
    def ending(self) -> bool:
        """Whether one is about to let go of its stores."""
        return any(each.stop_by is not None for each in self.processes.values())

    def want(self, partitions: Collection[int], promoted: Collection[int] = (), coming: Collection[int] = ()) -> None:
        """Keep these partitions ready from now on; the standbys of others end.

        The processes of those that are ``promoted`` stay for the worker that takes their place, and end when they have
        restored. Those that are ``coming`` open ahead what that worker needs.
        """
        self.wanted, self._coming = frozenset(partitions), frozenset(coming)
        self.changes += 1
        for partition in self.wanted - self.processes.keys():
            self.processes[partition] = StandbyProcess(partition)
        for partition in self.processes.keys() - self.wanted:
            each = self.processes[partition]
            each.promoted = partition in promoted
            self._end(each)

    def _end(self, each: StandbyProcess) -> None:
        """Ask a standby to end that is not wanted any more, unless that would throw away what it restores."""
        if each.process is None or each.stop_by is not None or (each.promoted and each.restores):
            return
        each.process.send_signal(signal.SIGTERM)
        each.stop_by = time.monotonic() + STOP_S
        if not each.promoted and each.process.stdin is not None:
            each.process.stdin.close()  # it waits for nothing more

    def poll(self, busy: Collection[int] = ()) -> None:
        """Take statuses, notice ends, start what is due; not yet the ``busy`` partitions: a worker has their stores."""
        now = time.monotonic()
        for each in tuple(self.processes.values()):
            if each.process is not None:
                self._read(each)
                self._tell_coming(each)
                if each.partition not in self.wanted:
                    self._end(each)
                if each.stop_by is not None and now > each.stop_by:
                    each.process.kill()
                if each.process is not None and (code := each.process.poll()) is not None:
                    self._ended(each, code)
            elif each.partition not in self.wanted:
                del self.processes[each.partition]
            elif each.partition not in busy and now >= each.restart_at:
                self._start(each)

    def _tell_coming(self, each: StandbyProcess) -> None:
        """Let a standby open ahead what its worker needs; a process that has said something takes the signal."""
        comes = each.partition in self._coming
        if comes and not each.opens and each.tasks and each.process is not None and each.stop_by is None:
            each.process.send_signal(signal.SIGUSR2)
        each.opens = comes and (each.opens or bool(each.tasks))

    def close(self) -> None:
        """End all, and wait for it."""
        self.want(())
        while self.held:
            self.poll()
            time.sleep(0.01)

    def _start(self, each: StandbyProcess) -> None:
        output = str(self._job_directory.standby_log(each.partition))
        spec = replace(
            self._spec, standby=True, number=each.partition, partitions=(each.partition,), output=output, drain=False
        )
        each.started = self._pool.start(spec)
        each.lines, each.tasks, each.end, each.read = StatusLines(), {}, None, -1
        each.starts += 1

    def _read(self, each: StandbyProcess) -> None:
        assert each.started is not None
        for line in each.lines.read(each.started.pipe) or ():
            self.changes += 1
            report = report_in(line, decode_standby_report, f"the standby of partition {each.partition}")
            if report is None:
                continue
            each.tasks, each.end = {task.name: task for task in report.tasks}, report.end
            read = sum(task.read for task in each.tasks.values())
            if read != each.read:
                each.read, each.read_s = read, time.monotonic()
            self._take(each, each.started)

    def _take(self, each: StandbyProcess, started: Started) -> None:
        stdin = started.process.stdin
        frees = not each.tasks and each.end is None  # one that an error ends has its stores until it is gone
        if frees and each.stop_by is not None and stdin is not None and not stdin.closed:
            self._pool.keep(started)  # it waits to be a worker
            self._gone(each)
            return
        if 0 <= each.behind <= CAUGHT_UP:
            each.ends, each.told = 0, ""
        for name, task in each.tasks.items():
            if task.trouble and task.trouble != each.told:
                each.told = task.trouble
                self._tell(f"the standby of {name} has stopped, and its worker goes on: {each.told}")

    def _gone(self, each: StandbyProcess) -> None:
        each.started, each.tasks, each.stop_by, each.opens = None, {}, None, False
        self.changes += 1
        if each.partition not in self.wanted:
            del self.processes[each.partition]

    def _ended(self, each: StandbyProcess, code: int) -> None:
        assert each.started is not None
        os.close(each.started.pipe)
        if each.started.process.stdin is not None:
            each.started.process.stdin.close()
        asked = each.stop_by is not None or each.partition not in self.wanted
        self._gone(each)
        if asked:
            return
        each.ends += 1
        wait_s = restart_wait_ms(self._spec.settings, each.ends) / 1000
        each.restart_at = time.monotonic() + wait_s
        log = self._job_directory.standby_log(each.partition)
        said = each.end or end_in_log(log)
        words = f"{code_text(code)}: " + (f"(log: {log})" if said is None else f"{said.text} (log: {log})")
        shown, each.told = "as the last time" if each.told == words else words, words
        self._tell(f"the standby of partition {each.partition} has ended, {shown}; restart in {wait_s:.1f} s")
