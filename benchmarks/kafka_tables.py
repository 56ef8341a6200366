"""The benchmarks on Kafka: counting beside a bare loop, and coming back with state."""

from collections.abc import Sequence

from rich.table import Table

from benchmarks import results as kept
from benchmarks.peers.tools import PEERS, TOOLS, asked_peers
from benchmarks.running import Results, console, keep, measure, median, run_all, say_where, show, taken
from grete.logs.address import KAFKA
from grete.testing.broker import find_broker

MODULE = "benchmarks.on_kafka"
INTERVAL_MS = 1_000  # of the counting job, as of the bare loop
RESTART_INTERVAL_MS = 100
BARE, AT_LEAST = "bare loop", "at least once"
STARTS = {
    "cold": "kill -9, new process",
    "prewarmed": "kill -9, prewarmed worker",
    "cold_deleted": "no state, new process",
    "prewarmed_deleted": "no state, prewarmed worker",
}


def plan(bootstrap: str, messages: int, tools: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """Return label → measurement, in the order of one round. ``tools``: the peers beside it."""
    common = ("count", bootstrap, f"messages={messages}")
    exactly, at_least = (
        (*common, f"checkpoint_interval_ms={INTERVAL_MS}", f"processing_guarantee={name}")
        for name in ("exactly-once", "at-least-once")
    )
    beside = {
        name: (*common, f"checkpoint_interval_ms={INTERVAL_MS}", f"form={name}")
        for name, peer in PEERS.items()
        if peer.tool.name in tools
    }
    return {
        "exactly once": (*exactly, "form=process"),
        AT_LEAST: (*at_least, "form=process"),
        "deterministic": (*exactly, "form=deterministic"),
        BARE: (*common, "form=bare"),
        "exactly once, batch": (*exactly, "form=process_batch"),
        "at least once, batch": (*at_least, "form=process_batch"),
        **beside,
    }


def show_counting(results: Results, messages: int) -> kept.Table:
    """Print both guarantees beside the bare loop."""
    table = Table(title=f"Messages/s: counting {messages:,} JSON messages by key, 4 partitions, a commit a second")
    columns = ("", "median", "runs", "/ at least", "/ bare", "CPU s", "RSS MiB of the largest process")
    for column in columns:
        table.add_column(column, justify="left" if not column else "right", no_wrap=not column)
    at_least, bare = (median(results, label, "messages_per_s") for label in (AT_LEAST, BARE))
    for label, runs in results.items():
        rate = median(results, label, "messages_per_s")
        each = " ".join(f"{run['messages_per_s'] / 1000:.0f}k" for run in runs)
        row = [f"{rate:,.0f}", each, f"{rate / at_least:.2f}", f"{rate / bare:.2f}"]
        row += [f"{median(results, label, 'cpu_s'):.1f}", f"{median(results, label, 'rss_mib'):.0f}"]
        table.add_row(label, *row)
    return show(table)


def show_restarts(result: dict[str, float], keys: int) -> kept.Table:
    """Print how long a task needs to come back: from the start of its process."""
    table = Table(
        title=f"First output after the start of a process, {keys:,} keys of 80 bytes, interval {RESTART_INTERVAL_MS} ms"
    )
    for column in ("", "appended s", "visible s", "records", "records/s"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=not column)
    for name, label in STARTS.items():
        figures = [f"{result[f'{name}_{figure}']:.2f}" for figure in ("appended_s", "visible_s")]
        figures += [f"{result[f'{name}_{figure}']:,.0f}" for figure in ("records", "records_per_s")]
        table.add_row(label, *figures)
    return show(table)


def measure_kafka(log: str, rounds: int, messages: int, keys: int) -> Results:
    """Run everything on a broker, print the tables. ``log``: kafka (a broker of its own) or kafka://host:port."""
    if log.startswith(KAFKA):
        return _measure(log.removeprefix(KAFKA), log, rounds, messages, keys)
    with find_broker(loaded=True) as broker:
        return _measure(broker.bootstrap, broker.how, rounds, messages, keys)


def _measure(bootstrap: str, how: str, rounds: int, messages: int, keys: int) -> Results:
    console.print(f"Kafka: {bootstrap} ({how})")
    measure(MODULE, "events", bootstrap, f"messages={messages}")
    tools = [tool for tool in asked_peers() if TOOLS[tool].counting]
    for tool in tools:
        console.print(f"{tool}: fetching and building it, once")
        TOOLS[tool].command("Count")
    results = run_all(MODULE, plan(bootstrap, messages, tools), rounds)
    say_where("confluent-kafka", "rocksdict", "msgspec")
    run, counting = taken("confluent-kafka", "rocksdict", "msgspec"), show_counting(results, messages)
    run.notes = [f"{tool} {TOOLS[tool].version}: {TOOLS[tool].counting}." for tool in tools]
    restart = measure(MODULE, "restart", bootstrap, f"keys={keys}", f"checkpoint_interval_ms={RESTART_INTERVAL_MS}")
    keep("kafka", run, [counting, show_restarts(restart, keys)])
    return results | {"restart": [restart]}
