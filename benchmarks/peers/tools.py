"""The peers: how each is run, and with which settings.

A peer's program takes: bootstrap servers, input topic, output topic, a name that no other run has, a directory of its
own, guarantee, checkpoint or commit interval in ms, how many threads. It ends with its standard input. *Index* reads
documents (number → text) and writes a change for each word of each: word → ``[document, [position, …], version]``. With
``postings`` behind these arguments it keeps all postings as state, too: Flink and Kafka Streams do.
*Count* reads events and writes key → ``{"key": …, "count": …}`` for each. *Windows* takes a kind of window, too, and
writes key → count once a window is over. *Joins* takes both input topics, with a comma, and a kind of join, and writes
key → ``left number:right number`` for each pair. *Wide* takes the number of partitions, too, and counts values behind a
repartition topic. *Chain* takes the numbers of partitions and of stages, and passes records on. Flink has none of these
four, and Spark has *Index* alone. Grete's jobs do the same.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.peers.preparing import jars_of, java_classpath, python_with
from grete.spark import require_extra
from grete.spark.java import find_java

HERE = Path(__file__).parent
Program = Literal["Index", "Count", "Windows", "Joins", "Wide", "Chain"]
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"


@dataclass(frozen=True)
class Tool:
    """One stream processor. ``settings``: what a reader of its figures must know."""

    name: str
    version: str
    command: Callable[[Program], list[str]]  # fetches and builds it the first time; raises ConfigError
    settings: str  # of Index
    counting: str = ""  # the same of Count; empty: it has none
    guarantees: Sequence[str] = ("at-least-once", "exactly-once")
    interval_ms_min: int = 0  # what it takes for an interval


@dataclass(frozen=True)
class Peer:
    """One row of the tables."""

    tool: Tool
    guarantee: str
    options: Sequence[str] = ()  # arguments behind those of all

    @property
    def name(self) -> str:
        """Return the name of the row."""
        return f"{self.tool.name}, {self.guarantee}"


def _flink(program: Program) -> list[str]:
    path = java_classpath("Flink", HERE / "flink" / "pom.xml", HERE / "flink" / f"Flink{program}.java")
    return [find_java(), "-Xmx1500m", QUIET, "-cp", path, f"Flink{program}"]


def _kafka_streams(program: Program) -> list[str]:
    directory = HERE / "kafka_streams"
    path = java_classpath("Kafka Streams", directory / "pom.xml", directory / f"Streams{program}.java")
    return [find_java(), "-Xmx1g", QUIET, "-cp", path, f"Streams{program}"]


def _quixstreams(program: Program) -> list[str]:
    directory = HERE / "quixstreams"
    return [python_with("quixstreams", directory / "requirements.txt"), str(directory / f"{program.lower()}.py")]


def _spark(program: Program) -> list[str]:
    require_extra()
    directory = HERE / "spark"
    jars = jars_of("Spark", directory / "pom.xml")
    return [sys.executable, str(directory / f"{program.lower()}.py"), str(jars)]


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "Flink",
            "2.3.0",
            _flink,
            "one JVM (mini cluster, heap 1,500 MB), parallelism 2, words by Flink's own shuffle: no topic between the "
            "stages; buffer timeout 0, object reuse; state in the heap, as by default (with RocksDB p99 was longer), "
            "aligned checkpoints into files; Kafka sink 5.0.0-2.2 with linger 0. The interval is the checkpoints'",
            "one JVM (mini cluster, heap 1,500 MB), parallelism 2, object reuse, state in the heap, as by default",
        ),
        Tool(
            "quixstreams",
            "3.28.1",
            _quixstreams,
            "one process (two were slower on 2 cores), words through a repartition topic, state in RocksDB with a "
            "changelog; linger 2 ms (0.5 and 0 took more CPU and were slower), fetch.queue.backoff.ms 5. The interval "
            "is the commits'",
            "one process, state in RocksDB with a changelog",
        ),
        Tool(
            "Kafka Streams",
            "4.4.0",
            _kafka_streams,
            "one JVM (heap 1,000 MB), two threads, words through a repartition topic, state in RocksDB with a "
            "changelog, no cache; linger 0; exactly-once is exactly_once_v2. The interval is the commits'",
            "one JVM (heap 1,000 MB), two threads, state in RocksDB with a changelog, no cache",
        ),
        Tool(
            "Spark",
            "4.3.0",
            _spark,
            "Real-time Mode: one JVM (heap 1,500 MB), local, a slot for each task of both stages; words by its own "
            "pipelined shuffle: no topic between the stages; built-in functions, no Python per record; state in "
            "RocksDB with changelog checkpointing; Kafka connector 4.2.0 (4.3.0 could not be had), linger 0. The "
            "interval is the trigger's, 5 s or more. Its Kafka sink is at-least-once",
            guarantees=("at-least-once",),
            interval_ms_min=5_000,
        ),
    )
}
PEERS = {
    peer.name: peer for peer in (Peer(tool, guarantee) for tool in TOOLS.values() for guarantee in tool.guarantees)
}


def asked_peers() -> list[str]:
    """Return the peers that the environment asks for. Raises SystemExit if there is one that we do not know."""
    asked = os.environ.get("PEERS") or ""
    names = list(TOOLS) if asked == "1" else [name.strip() for name in asked.split(",") if name.strip()]
    if unknown := set(names) - set(TOOLS):
        raise SystemExit(f"PEERS={asked}: no peer {', '.join(unknown)}; 1 for all, or: {', '.join(TOOLS)}")
    return names
