"""Runs the workers of a job on this machine: its processes, restarted with back-off, by exit code (C5)."""

import os
import signal
import time
from collections import deque
from collections.abc import Collection

from msgspec.structs import replace

from grete.errors import ExitCode, Halted
from grete.job.directory import JobDirectory
from grete.protocol.report import EndReport
from grete.settings import Settings
from grete.worker.assignment import Assignment, HostedState
from grete.worker.ends import FAULTS, end_of, restart_wait_ms
from grete.worker.last_words import end_in_log
from grete.worker.output_file import Follower
from grete.worker.packing import spread
from grete.worker.process_main import spec_in
from grete.worker.process_pool import ProcessPool
from grete.worker.standby_processes import StandbyProcesses
from grete.worker.wakeup import WakeableSelector
from grete.worker.worker_process import WorkerProcess, code_text, indented

NEWS_MAX = 100  # crashes kept for a screen that did not look
SILENT_SHARE = 1.25  # of a worker's own bound: it knows first, and can say where it hangs
SILENT_MARGIN_S = 2.0  # for it to say so
LOOK_S_MAX = 1.0  # of silence counted at a look: while the supervisor itself does not run, no worker is silent
SOON_MS = 5.0  # between two looks while a standby ends: a partition that is to run waits for its store
WARM_AFTER_S = 5.0  # from the start to the first prewarmed worker: a run that ends soon needs none


class Supervisor:
    """Starts workers, takes their statuses, restarts the dead. One a directory; ``poll`` must be called often."""

    def __init__(
        self,
        job_directory: JobDirectory,
        reference: str,
        assignment: Assignment,
        settings: Settings,
        *,
        processes: int | None = None,
        fixed_hashes: bool = False,
    ) -> None:
        """Become the supervisor of this directory, with these partitions until ``assign`` says otherwise.

        ``processes``: how many workers share the partitions, None: one for each. ``fixed_hashes``: for deterministic
        jobs, see ProcessPool.

        Raises ConfigError if there is one already.
        """
        self._job_directory = job_directory
        self._settings = settings
        self._spawner = ProcessPool(fixed_hashes=fixed_hashes)
        self._lock = job_directory.lock_supervisor()
        self._selector = WakeableSelector()
        self.wake = self._selector.wake  # lets ``poll`` return at once
        self._stopping = self._draining = False
        self.overdue: list[int] = []  # the numbers of workers that did not stop in time
        self.died: list[str] = []  # how others ended while they stopped
        self._stop_s = settings.shutdown_timeout_ms / 1000 + 2  # a worker ends by itself before that
        self._silent_s_max = settings.liveness_timeout_ms / 1000 * SILENT_SHARE + SILENT_MARGIN_S
        self._looked_s = time.monotonic()
        self._warm_from = time.monotonic() + WARM_AFTER_S
        self.changes = 0  # raised when a worker says something, ends, or is to host others
        self.news: list[str] = []  # since somebody looked and cleared it; a supervisor without a screen need not
        self.incidents: deque[tuple[int, str]] = deque(maxlen=NEWS_MAX)  # the same, with the time in ms since 1970
        self._spec = spec_in(job_directory, reference, settings)
        self.standbys = StandbyProcesses(self._spec, job_directory, self._spawner, self.tell)
        self._waiting: frozenset[int] = frozenset()  # active partitions whose standby is about to end
        self._processes = processes
        self.workers: dict[int, WorkerProcess] = {}  # by number: those that host something, or have to say why not
        self._hosted: tuple[int, dict[int, HostedState]] = -1, {}  # changes, what was hosted then
        self._gone: dict[int, WorkerProcess] = {}  # by number: those of which all has been taken away
        self._outputs: dict[int, Follower] = {}
        self.assign(assignment)

    @property
    def takes_input(self) -> bool:
        """Whether all tasks of all workers take input."""
        return all(worker.takes_input for worker in self.workers.values())

    def hosted(self) -> dict[int, HostedState]:
        """Return partition → what has become of it, of those that are here, or have ended here without a stop."""
        if self._hosted[0] != self.changes:
            ready = dict.fromkeys(self.standbys.wanted, HostedState.STANDBY)
            coming = dict.fromkeys(self._waiting, HostedState.STARTING)
            here = {each: worker.state(each) for worker in self.workers.values() for each in worker.hosted}
            self._hosted = self.changes, ready | coming | here
        return self._hosted[1]

    def assign(self, assignment: Assignment, again: Collection[int] = ()) -> None:
        """Host these partitions from now on; those that stay are not disturbed.

        What is taken away stops gracefully (R6), within ``shutdown_timeout_ms``, while ``poll`` is called. A partition
        that was a standby starts when that has ended, and has let go of the store. ``again``: the partitions that start
        again though they were fenced here, or have halted.
        """
        self.assignment = assignment
        self.standbys.want(assignment.standby - assignment.active, assignment.active, assignment.coming)
        self._host(again)

    def _host(self, again: Collection[int] = ()) -> None:
        """Let workers host what is active, but for that of which a standby has the store."""
        self.changes += 1
        active, self._waiting = self.assignment.active, self.assignment.active & self.standbys.held
        now = {number: {*worker.wanted, *worker.hosted} for number, worker in self.workers.items()}
        of = spread(now, active - self._waiting, self._processes)
        for number in sorted({*now, *of}):
            self._want(self.workers.get(number) or self._added(number), of.get(number, ()), again)

    def _added(self, number: int) -> WorkerProcess:
        """Return a worker that hosts nothing yet; one that was here before goes on counting its starts."""
        if number not in self._outputs:
            self._outputs[number] = Follower(self._job_directory.worker_log(number))
        worker = self._gone.pop(number) if number in self._gone else WorkerProcess(number, ())
        self.workers[number] = worker
        return worker

    def _want(self, worker: WorkerProcess, partitions: tuple[int, ...], again: Collection[int]) -> None:
        """Let a worker host these partitions: its process is told, or ends if it is to host none."""
        worker.wanted = partitions
        if worker.process is not None:
            if partitions and worker.stop_by is None:
                worker.host(partitions, again)
            elif worker.stop_by is None:
                worker.stop_by = time.monotonic() + self._stop_s
                worker.process.send_signal(signal.SIGTERM)
                worker.fenced.clear()  # if it comes back, it comes as any other
        elif not worker.stays_away(again):
            self._go_on(worker, again)

    def _go_on(self, worker: WorkerProcess, again: Collection[int] = ()) -> None:
        """Let a worker without a process host what is wanted of it, or forget it."""
        if worker.wanted != worker.partitions or worker.exit_code is not None or worker.stop_by is not None:
            worker.begin_again(again)
        if not worker.wanted:
            self._gone[worker.number] = self.workers.pop(worker.number)

    def printed(self) -> list[str]:
        """Return the lines that the workers' code has printed since the last look."""
        return [line for output in self._outputs.values() for line in output.printed()]

    def poll(self, timeout_ms: float = 100) -> None:
        """Start what is due, take statuses, notice deaths. Raises Halted if a worker halted, or always crashes."""
        self._poll_standbys()
        now = time.monotonic()
        for worker in self.workers.values():
            if not worker.running and worker.exit_code is None and not self._stopping and now >= worker.restart_at:
                self._start(worker)
        self._spawner.end_kept()
        for worker in self._selector.ready((min(timeout_ms, SOON_MS) if self.standbys.ending else timeout_ms) / 1000):
            self._read(worker)
        self._end_the_silent()
        if self._draining:
            self._tell_ends()
        for worker in tuple(self.workers.values()):
            worker.send_orders()
            if worker.stop_by is not None and now > worker.stop_by:
                self.kill(worker.number)
            if worker.process is not None and worker.process.poll() is not None:
                self._died(worker, worker.process.returncode)
        if not (self._stopping or self._spawner.warmed) and now >= self._warm_from and self.takes_input:
            self._spawner.warm()  # for the next restart; now it delays no start

    def _poll_standbys(self) -> None:
        """Let the standbys do their part; a partition whose standby has ended starts now."""
        self.standbys.poll({p for worker in self.workers.values() if worker.running for p in worker.hosted})
        if not self._waiting <= self.standbys.held:
            self._host()

    def _end_the_silent(self) -> None:
        """Kill a worker that has said nothing for too long: its process is stopped, or its own watchdog is."""
        now = time.monotonic()
        since_s, self._looked_s = min(now - self._looked_s, LOOK_S_MAX), now
        for worker in self.workers.values():
            if worker.process is not None and worker.tasks:
                worker.silent_s += since_s
                if worker.silent_s > self._silent_s_max:
                    worker.was_silent = True
                    worker.process.kill()

    def drain(self) -> None:
        """Tell every worker, and those that are started later, that the inputs of the job have ended (E7)."""
        self._draining = True

    def _tell_ends(self) -> None:
        for worker in self.workers.values():
            if worker.process is not None and worker.tasks and not worker.told_ends:  # it runs: it takes the signal
                worker.process.send_signal(signal.SIGUSR1)
                worker.told_ends = True

    def stop(self) -> None:
        """Ask every worker to stop gracefully (R6) and wait; what does not end in time is killed, which is safe."""
        self._stopping = True
        self._spawner.close()
        self.standbys.want(())
        for worker in self.workers.values():
            if worker.process is not None:
                worker.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self._stop_s
        while self.standbys.held or any(worker.running for worker in self.workers.values()):
            if time.monotonic() > deadline:
                for worker in self.workers.values():
                    self.kill(worker.number)
            self.poll(20)

    def kill(self, number: int) -> None:
        """End a worker by SIGKILL; the next poll restarts it."""
        worker = self.workers[number]
        if worker.process is not None:
            worker.killed = True
            worker.forget_reports()
            worker.process.kill()
            worker.process.wait()

    def close(self) -> None:
        """End the processes that still run, and give up the directory."""
        self._stopping = True
        self._spawner.close()
        self.standbys.close()
        for worker in self.workers.values():
            self.kill(worker.number)
            self._forget(worker)
        for output in self._outputs.values():
            output.close()
        self._selector.close()
        os.close(self._lock)

    def _start(self, worker: WorkerProcess) -> None:
        spec = replace(
            self._spec,
            number=worker.number,
            partitions=worker.partitions,
            output=str(self._job_directory.worker_log(worker.number)),
            drain=self._draining,
            fenced=tuple(worker.fenced),
        )
        worker.process, worker.pipe, _ = self._spawner.start(spec)
        worker.started(told_ends=spec.drain)
        self._selector.register(worker.pipe, worker)

    def _read(self, worker: WorkerProcess) -> None:
        lines = worker.lines.read(worker.pipe)
        if lines is None:
            self._close_pipe(worker)
        else:
            worker.silent_s, self.changes = 0.0, self.changes + len(lines)
            for text in (text for line in lines for text in worker.take(line)):
                self.tell(text)

    def _died(self, worker: WorkerProcess, code: int) -> None:
        if worker.pipe >= 0:
            self._read(worker)
        self._forget(worker)
        if worker.stop_by is not None and not self._stopping and code != ExitCode.HALTED:
            if code not in (ExitCode.DONE, ExitCode.FENCED, -signal.SIGTERM):  # by the signal: it had just started
                self.tell(self._unfinished(worker, code)[1])
            self._go_on(worker)
            return
        if not self._stopping and not worker.killed and code not in (ExitCode.DONE, ExitCode.FENCED):
            self._note_end(worker, code)
        if code in (ExitCode.DONE, ExitCode.FENCED, ExitCode.HALTED):
            worker.end_for_good(code)
        if code == ExitCode.HALTED:
            raise self._halted(worker, "halted")
        if code in (ExitCode.DONE, ExitCode.FENCED):
            return
        if not self._stopping:
            self._plan_restart(worker, code)
        elif code == -signal.SIGTERM:  # a worker takes the signal itself from its first step on
            self.tell(f"worker {worker.number} was ended by SIGTERM while it was starting: it had processed nothing")
        else:
            late, text = self._unfinished(worker, code)
            self.overdue += [worker.number] if late else []
            self.died += [] if late else [text]
            self.tell(text)

    def _unfinished(self, worker: WorkerProcess, code: int) -> tuple[bool, str]:
        return worker.unfinished(code, self.last_words(worker))

    def _note_end(self, worker: WorkerProcess, code: int) -> None:
        by_itself = code >= 0 or code in FAULTS or worker.was_silent
        said = self._said(worker) if by_itself else worker.end  # the log of one that was killed tells of no end
        text = worker.how_ended(code, said)
        worker.last_end = end_of(said, code, self._job_directory.directory, silent=worker.was_silent, text=text)
        worker.ends[worker.last_end.reason] += 1

    def _plan_restart(self, worker: WorkerProcess, code: int) -> None:
        """Wait before the next start: not at all after the first end, then longer and longer.

        A worker that has waited in vain for the log is started again and again: it is not what is broken.
        """
        settings = self._settings
        said = self._said(worker) if code == ExitCode.FAILED else None
        if said is not None and said.reason == "log away":
            worker.waits_ended += 1
        else:
            worker.crashes += 1
        if worker.crashes > settings.restarts_max:
            worker.end_for_good(ExitCode.FAILED)
            raise self._halted(worker, f"crashed {worker.crashes} times without progress between ({code_text(code)})")
        wait_ms = restart_wait_ms(settings, worker.crashes + worker.waits_ended)
        worker.restart_at = time.monotonic() + wait_ms / 1000
        if not worker.killed:
            shown, worker.shown = worker.shown, self._told(worker, worker.how_ended(code, said))
            restart = f"restart in {wait_ms / 1000:.1f} s"
            if worker.shown == shown:
                text = f"worker {worker.number} {worker.how_ended(code, said)}, as the last time; {restart}"
            else:
                text = f"{worker.shown}; {restart}{indented('' if said is None else said.traceback)}"
            self.tell(text)

    def tell(self, text: str) -> None:
        """Note what has happened to a worker."""
        self.news = [*self.news[-NEWS_MAX + 1 :], text]
        self.incidents.append((time.time_ns() // 1_000_000, text))

    def _forget(self, worker: WorkerProcess) -> None:
        if worker.process is not None and worker.process.stdin is not None:
            worker.process.stdin.close()
        worker.process, worker.orders = None, b""
        worker.forget_reports()
        self.changes += 1
        if worker.pipe >= 0:
            self._close_pipe(worker)

    def _close_pipe(self, worker: WorkerProcess) -> None:
        self._selector.unregister(worker.pipe)
        os.close(worker.pipe)
        worker.pipe = -1

    def _told(self, worker: WorkerProcess, what: str) -> str:
        words = self.last_words(worker)
        return f"worker {worker.number} {what}{' ' if words.startswith('(') else ': '}{words}"

    def last_words(self, worker: WorkerProcess) -> str:
        """Return the error that ended a worker, if it has said one, and where its log is."""
        said, log = self._said(worker), self._job_directory.worker_log(worker.number)
        return f"(log: {log})" if said is None else f"{said.text} (log: {log})"

    def _halted(self, worker: WorkerProcess, what: str) -> Halted:
        """Return the end of a worker that will not come back."""
        return worker.halted(self._said(worker), self._told(worker, what))

    def _said(self, worker: WorkerProcess) -> EndReport | None:
        """Return the last words of a worker: what it has reported, or else what its log has."""
        return worker.end or end_in_log(self._job_directory.worker_log(worker.number))
