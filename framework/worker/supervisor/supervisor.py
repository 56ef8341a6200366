"""Runs the processes of a job on this machine, as ``Supervision`` decides: it starts, reads, signals and kills them."""

import os
import signal
import time
from collections import deque
from collections.abc import Collection, Sequence
from subprocess import Popen

from msgspec.structs import replace

from grete.core.supervision.actions import (
    GiveUp,
    KeepStandby,
    KillStandby,
    KillWorker,
    Reassign,
    Spawn,
    SpawnStandby,
    StopStandby,
    StopWorker,
    SupervisionAction,
    Tell,
    TellComing,
    TellDrain,
)
from grete.core.supervision.assignment import Assignment, HostedState
from grete.core.supervision.policy import Policy
from grete.core.supervision.supervised_worker import SupervisedWorker
from grete.core.supervision.supervision import Supervision
from grete.job.directory import JobDirectory
from grete.protocol.report import decode_standby_report, decode_worker_report
from grete.settings import Settings
from grete.worker.life.process_main import spec_in
from grete.worker.pipes.control_pipe import HostOrder
from grete.worker.pipes.output_file import Follower
from grete.worker.pipes.status_pipe import report_in
from grete.worker.pipes.wakeup import WakeableSelector
from grete.worker.supervisor.child_process import ChildProcess
from grete.worker.supervisor.ends import exit_of
from grete.worker.supervisor.process_pool import ProcessPool

NEWS_MAX = 100  # kept for a screen that did not look
SOON_MS = 5.0  # between two looks while a standby ends: a partition that is to run waits for its store
STOPPING_MS = 20.0  # between two looks while all are to stop
WARM_AFTER_S = 5.0  # from the start to the first prewarmed worker: a run that ends soon needs none


class Supervisor:
    """One a directory; ``poll`` must be called often. ``core``: what is known of the processes."""

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
        self.core = Supervision(Policy.of(settings), processes)
        self.news: list[str] = []  # since somebody looked and cleared it; a supervisor without a screen need not
        self.incidents: deque[tuple[int, str]] = deque(maxlen=NEWS_MAX)  # the same, with the time in ms since 1970
        self._job_directory = job_directory
        self._lock = job_directory.lock_supervisor()
        self._spec = spec_in(job_directory, reference, settings)
        self._pool = ProcessPool(fixed_hashes=fixed_hashes)
        self._warm_from = time.monotonic() + WARM_AFTER_S
        self._selector = WakeableSelector()
        self._workers: dict[int, ChildProcess] = {}
        self._standbys: dict[int, ChildProcess] = {}
        self._outputs: dict[int, Follower] = {}
        self.assign(assignment)

    @property
    def workers(self) -> dict[int, SupervisedWorker]:
        """The workers by number: those that host something, or have to say why not."""
        return self.core.workers

    def process(self, number: int) -> "Popen[bytes] | None":
        """Return the process of a worker, if it is there."""
        return self._workers[number].process if number in self._workers else None

    def pid(self, number: int) -> int | None:
        """Return the id of a worker's process, if it is there."""
        return None if (process := self.process(number)) is None else process.pid

    def standby_pid(self, partition: int) -> int | None:
        """Return the id of the process of a standby, if it is there."""
        return self._standbys[partition].process.pid if partition in self._standbys else None

    @property
    def takes_input(self) -> bool:
        """Whether all tasks of all workers take input."""
        return self.core.takes_input

    def hosted(self) -> dict[int, HostedState]:
        """Return partition → what has become of it, of those that are here, or have ended here without a stop."""
        return self.core.hosted()

    def assign(self, assignment: Assignment, again: Collection[int] = ()) -> None:
        """Host these partitions from now on; ``again``: those that start although they were fenced, or have halted.

        What is taken away stops gracefully (R6), within ``shutdown_timeout_ms``, while ``poll`` is called.
        """
        self._do(self.core.assign(assignment, again, time.monotonic()))

    def wake(self) -> None:
        """Let ``poll`` return at once. Any thread and signal handlers may call."""
        self._selector.wake()

    def printed(self) -> list[str]:
        """Return the lines that the workers' code has printed since the last look."""
        return [line for output in self._outputs.values() for line in output.printed()]

    def poll(self, timeout_ms: float = 100) -> None:
        """Read what processes say, notice their ends, start what is due. Raises Halted: a person must look."""
        for number in self._selector.ready(
            (min(timeout_ms, SOON_MS) if self.core.standbys.ending else timeout_ms) / 1000
        ):
            self._read(number, self._workers[number])
        for number, child in tuple(self._workers.items()):
            child.send_orders()
            if (code := child.code) is not None:
                self._exited(number, child, code)
        for partition, child in tuple(self._standbys.items()):
            self._read_standby(partition, child)
            if partition in self._standbys and (code := child.code) is not None:
                self._standby_exited(partition, child, code)
        self._do(self.core.tick(time.monotonic()))
        self._pool.end_kept()
        may_warm = not (self.core.stopping or self._pool.warmed)
        if may_warm and time.monotonic() >= self._warm_from and self.core.takes_input:
            self._pool.warm()  # for the next restart; now it delays no start

    def drain(self) -> None:
        """Tell every worker, and those that are started later, that the inputs of the job have ended (E7)."""
        self._do(self.core.drain())

    def stop(self) -> None:
        """Ask every process to stop gracefully (R6) and wait; what does not end in time is killed, which is safe."""
        self._pool.close()
        self._do(self.core.stop(time.monotonic()))
        while self.core.has_processes:
            self.poll(STOPPING_MS)

    def kill(self, number: int) -> None:
        """End a worker by SIGKILL; the next poll restarts it."""
        self._do(self.core.kill(number))
        if (process := self.process(number)) is not None:
            process.wait()

    def close(self) -> None:
        """End the processes that still run, and give up the directory."""
        self._pool.close()
        for child in (*self._workers.values(), *self._standbys.values()):
            child.process.kill()
            child.process.wait()
            child.close()
        for output in self._outputs.values():
            output.close()
        self._selector.close()
        os.close(self._lock)

    def tell(self, text: str) -> None:
        """Note what has happened, for a person."""
        self.news = [*self.news[-NEWS_MAX + 1 :], text]
        self.incidents.append((time.time_ns() // 1_000_000, text))

    def _do(self, actions: Sequence[SupervisionAction]) -> None:
        for action in actions:
            match action:
                case Spawn():
                    self._spawn(action)
                case Reassign(number=number):
                    self._workers[number].order(HostOrder(partitions=action.partitions, again=action.again))
                case TellDrain(number=number):
                    self._workers[number].signal(signal.SIGUSR1)
                case StopWorker(number=number):
                    self._workers[number].signal(signal.SIGTERM)
                case KillWorker(number=number):
                    self._workers[number].process.kill()
                case SpawnStandby(partition=partition):
                    self._spawn_standby(partition)
                case TellComing(partition=partition):
                    self._standbys[partition].signal(signal.SIGUSR2)
                case StopStandby(partition=partition):
                    self._standbys[partition].signal(signal.SIGTERM)
                    if not action.stays:
                        self._standbys[partition].end_input()
                case KillStandby(partition=partition):
                    self._standbys[partition].process.kill()
                case KeepStandby(partition=partition):
                    self._pool.keep(self._standbys.pop(partition).started)
                case Tell(text=text):
                    self.tell(text)
                case GiveUp(error=error):
                    raise error

    def _spawn(self, action: Spawn) -> None:
        number = action.number
        log = self._job_directory.worker_log(number)
        if number not in self._outputs:
            self._outputs[number] = Follower(log)
        spec = replace(
            self._spec,
            number=number,
            partitions=action.partitions,
            output=str(log),
            drain=action.draining,
            fenced=action.fenced,
        )
        child = self._workers[number] = ChildProcess(self._pool.start(spec))
        self._selector.register(child.pipe, number)

    def _spawn_standby(self, partition: int) -> None:
        log = str(self._job_directory.standby_log(partition))
        spec = replace(self._spec, standby=True, number=partition, partitions=(partition,), output=log, drain=False)
        self._standbys[partition] = ChildProcess(self._pool.start(spec))

    def _read(self, number: int, child: ChildProcess) -> None:
        read = child.reads
        for line in child.lines():
            report = report_in(line, decode_worker_report, f"worker {number}")
            if report is None:
                self.core.sign_of_life(number)
            else:
                self._do(self.core.reported(number, report))
        if read and not child.reads:
            self._selector.unregister(child.pipe)

    def _exited(self, number: int, child: ChildProcess, code: int) -> None:
        self._read(number, child)  # its last words
        said, log = self.core.workers[number].reports, self._job_directory.worker_log(number)
        if child.reads:
            self._selector.unregister(child.pipe)
        self._workers.pop(number).close()
        self._do(self.core.exited(number, exit_of(code, said.end, log, said.exit), time.monotonic()))

    def _read_standby(self, partition: int, child: ChildProcess) -> None:
        for line in child.lines():
            report = report_in(line, decode_standby_report, f"the standby of partition {partition}")
            if report is not None and self._standbys.get(partition) is child:
                self._do(self.core.standby_reported(partition, report, time.monotonic()))

    def _standby_exited(self, partition: int, child: ChildProcess, code: int) -> None:
        self._read_standby(partition, child)
        reported, log = self.core.standbys.by_partition[partition].end, self._job_directory.standby_log(partition)
        self._standbys.pop(partition).close()
        self._do(self.core.standby_exited(partition, exit_of(code, reported, log), time.monotonic()))
