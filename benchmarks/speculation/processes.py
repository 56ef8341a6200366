"""The same cores as processes that share the engine's embedded log: wall latency and CPU time of either way.

python -m benchmarks.speculation.processes LOAD STAGES TASKS DELAY_MS [seconds=8] [rounds=3] [documents=10]

A line of JSON a run. ``documents``: a second, of each source; of all sources if a document has many records.

Each source and each task is a process; a channel is a partition of a topic; input decisions and what is released are
sends to the log, too. The delayed channel is read late: its reader takes a message when it is DELAY_MS old. There are
no commits, no timers and no store on disk: both ways lack them, so only the difference between them says something.
"""

import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from benchmarks.speculation.virtual import PROGRESS_US, quantile
from benchmarks.speculation.workload import LOADS, count, parse
from framework.core.speculative.messages import ALL, OUTSIDE, Message, Passed, Revision
from framework.core.speculative.source import SpeculativeSource
from framework.core.speculative.task import Send, SpeculativeCore
from framework.logs.embedded.log import EmbeddedLog
from protocol.ids import TopicPartition

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode
WAIT_MS = 20.0
READ_BYTES = 1 << 20
END = 1 << 60  # a time behind all documents


def to_bytes(message: Message) -> bytes:
    """Return a message as the log holds it."""
    if isinstance(message, Passed):
        return encode((message.generation, *message.bound))
    return encode((message.generation, message.t, message.source, message.path, message.records))


def from_bytes(value: bytes) -> Message:
    """Return a message of the log."""
    parts = decode(value)
    if len(parts) == 3:
        return Passed(parts[0], (parts[1], parts[2]))
    generation, t, source, path, records = parts
    return Revision(generation, t, source, tuple(path), tuple((key, value) for key, value in records))


def topic(stage: int) -> str:
    """Return the name of the stream into a stage."""
    return f"stream{stage}"


class Sender:
    """The channels out of one process, and what waits for an answer."""

    def __init__(self, log: EmbeddedLog, stage: int, index: int, tasks: int) -> None:
        self._log, self._stage, self._index, self._tasks = log, stage, index, tasks
        self.sent = 0

    def send(self, sends: list[Send]) -> None:
        """Queue messages."""
        for output, message in sends:
            partition = TopicPartition(topic(self._stage), output * self._tasks + self._index)
            self._log.send(0, 0, partition, to_bytes(message))
            self.sent += 1


def source(path: Path, index: int, arguments: dict[str, Any], together: Any, results: Any) -> None:
    """Run a source: documents at times that both ways have in common."""
    load, tasks = replace(LOADS[arguments["load"]], documents=arguments["documents"]), arguments["tasks"]
    log = EmbeddedLog(path)
    sender = Sender(log, 1, index, tasks)
    core = SpeculativeSource(index, range(tasks), lambda row: parse(row, tasks), speculative=arguments["speculative"])
    core.lease = ALL
    random = Random(index)
    together.wait()
    start = time.time()
    rate = load.documents if load.records == 1 else load.documents / tasks
    end = start + arguments["seconds"]
    due = start + random.expovariate(rate)
    tick = start
    arrived: dict[tuple[int, int], float] = {}
    changelog = TopicPartition("changelog", index)
    while (now := time.time()) < end or due < end:
        if now >= due and due < end:
            decision, sends = core.take([load.document(random)], int(now * 1e6))
            arrived[decision.times[0], index] = due
            due += random.expovariate(rate)
            sender.send(sends)
            log.poll()  # without waiting for the disk: speculation's point
            log.send(0, 0, changelog, encode(decision), sync=True)
            log.poll()
            sender.send(core.logged())
        if now >= tick:
            tick += PROGRESS_US / 1e6
            sender.send(core.advance(int(time.time() * 1e6)))
        log.poll()
        time.sleep(max(0.0, min(due if due < end else tick, tick) - time.time()))
    sender.send(core.advance(END))
    log.poll()
    results.put(("source", arrived, cpu(), sender.sent, 0, 0))


def task(path: Path, stage: int, index: int, arguments: dict[str, Any], together: Any, results: Any) -> None:
    """Run a task until all is quiet."""
    load, tasks, last = LOADS[arguments["load"]], arguments["tasks"], stage == arguments["stages"]
    log = EmbeddedLog(path)
    sender = Sender(log, stage + 1, index, tasks)
    core = SpeculativeCore(
        f"{stage}-{index}", tasks, range(0 if last else tasks), {}, speculative=arguments["speculative"]
    )
    core.start(0, None)
    partitions = [TopicPartition(topic(stage), index * tasks + channel) for channel in range(tasks)]
    late: deque[tuple[float, int, bytes]] = deque()
    read = [0] * tasks
    slow = arguments["delay_ms"] / 1000 if stage == 1 and index == 0 else 0.0
    done: dict[tuple[int, int], float] = {}
    runs, outside = 0, TopicPartition("outside", index)
    together.wait()
    while core.settled[0] < END:
        worked = False
        for channel, partition in enumerate(partitions):
            for row in log.read(partition, read[channel], READ_BYTES):
                read[channel] = row.offset + 1
                assert row.value is not None
                if slow and channel == 0:
                    late.append((row.append_time_ms / 1000 + slow, row.offset, row.value))
                else:
                    sender.send(core.message(channel, row.offset, from_bytes(row.value)))
                worked = True
        while late and late[0][0] <= time.time():
            _, offset, value = late.popleft()
            sender.send(core.message(0, offset, from_bytes(value)))
            worked = True
        while (unit := core.next()) is not None:
            view = core.view(unit)
            outputs = count(view, unit.records, stage, tasks, last=last)
            time.sleep(load.code_us * len(unit.records) / 1e6)  # a device does it: two cores are few for all tasks
            sender.send(core.ran(unit, view, outputs))
            runs += 1
            worked = True
            if arguments["speculative"] or len(unit.records) * load.code_us > 1_000:
                break  # costly code: look what has come, settle what can be
        units, sends = core.settle()
        sender.send(sends)
        leaving = [unit for unit in units if OUTSIDE in unit.outputs]
        if leaving:
            log.send(0, 0, outside, encode([unit.outputs[OUTSIDE] for unit in leaving]))
        log.poll()
        for unit in leaving:
            done[unit.place[:2]] = time.time()
        if not worked and not units:
            left = (late[0][0] - time.time()) * 1000 if late else WAIT_MS
            log.wait(max(0.0, min(WAIT_MS, left)))
    results.put(("sink" if last else "task", done, cpu(), sender.sent, runs, core.ran_again))


def cpu() -> float:
    """Return the CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Run one cell; return its figures."""
    stages, tasks = arguments["stages"], arguments["tasks"]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log.db"
        log = EmbeddedLog(path)
        for stage in range(1, stages + 2):
            log.create_topic(topic(stage), tasks * tasks)
        log.create_topic("changelog", tasks)
        log.create_topic("outside", tasks)
        log.close()
        results: Any = multiprocessing.Queue()
        together = multiprocessing.Barrier(tasks * (stages + 1))
        processes = [
            multiprocessing.Process(target=source, args=(path, index, arguments, together, results))
            for index in range(tasks)
        ] + [
            multiprocessing.Process(target=task, args=(path, stage, index, arguments, together, results))
            for stage in range(1, stages + 1)
            for index in range(tasks)
        ]
        for process in processes:
            process.start()
        found = [results.get() for _ in processes]
        for process in processes:
            process.join()
    arrived: dict[Any, float] = {}
    done: dict[Any, float] = {}
    for kind, times, *_ in found:
        if kind == "source":
            arrived |= times
        elif kind == "sink":
            for place, at in times.items():
                done[place] = max(at, done.get(place, 0.0))
    assert done.keys() == arrived.keys(), f"{len(arrived)} documents, {len(done)} of them came out"
    waits = sorted((done[place] - at) * 1000 for place, at in arrived.items())
    runs, again = sum(each[4] for each in found), sum(each[5] for each in found)
    return arguments | {
        "taken": len(waits),
        "p50": round(quantile(waits, 0.5), 2),
        "p90": round(quantile(waits, 0.9), 2),
        "p99": round(quantile(waits, 0.99), 2),
        "cpu_ms": round(sum(each[2] for each in found) * 1000 / len(waits), 2),
        "runs": round(runs / (runs - again), 3),
        "messages": round(sum(each[3] for each in found) / len(waits), 1),
    }


def main() -> None:
    """Run both ways in turn."""
    load, stages, tasks, delay = sys.argv[1], *map(int, sys.argv[2:5])
    options = dict(option.split("=") for option in sys.argv[5:])
    multiprocessing.set_start_method("spawn")
    for _ in range(int(options.get("rounds", 3))):
        for speculative in (False, True):
            arguments = {"load": load, "stages": stages, "tasks": tasks, "delay_ms": delay, "speculative": speculative}
            arguments |= {"seconds": float(options.get("seconds", 8)), "documents": int(options.get("documents", 10))}
            print(json.dumps(run(arguments)), flush=True)


if __name__ == "__main__":
    main()
