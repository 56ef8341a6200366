"""Many late ends, through real workers: `python -m tests.sinks.late_end_prove --attempts 200`. Long: not for pytest.

A quarter of the attempts each is of an aligned job that is killed there, of one that goes on, and of a deterministic
one in both ways; half of them have the outputs in the log when the late end comes, half the changelog. ``--kafka`` and
``--brokers`` say which brokers; of three, topics have three replicas, and a half may go to each of them. It prints
what was lost or came twice, the broker's answers, and how long the renewals took. ``--quiet SECONDS`` then lets the job
run for that long without any late end, and prints after how many of its commits it took a new epoch.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from itertools import cycle, islice, product
from pathlib import Path

from grete.testing.broker import Broker
from grete.testing.broker.settings import KAFKA, free_port
from grete.testing.late_end import LateEndLine
from tests.sinks.late_end_scene import MODES, LateEndScene
from tests.verification.chaos.cluster import Cluster

KINDS = tuple(product((False, True), repeat=2))  # outputs first, killed
FEED_S = 0.05  # between two batches of inputs, where nothing is late: each interval of 100 ms has some


def main(arguments: list[str]) -> int:
    """Run them; return 1 if an output is lost or there twice, or if a worker ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.sinks.late_end_prove", description=__doc__)
    parser.add_argument("--attempts", type=int, default=200, help="of all kinds together")
    parser.add_argument("--mode", choices=tuple(MODES), help="only this one")
    parser.add_argument("--kafka", default=KAFKA, help="version of the brokers; Maven fetches one that is not here")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--quiet", type=float, default=0.0, metavar="SECONDS", help="of each mode, without late ends")
    given = parser.parse_args(arguments)
    modes: list[str] = [given.mode] if given.mode else list(MODES)
    ports, wrong = [free_port() for _ in range(given.brokers)], False
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        made = Cluster(folder / "kafka", given.brokers, behind=ports, version=given.kafka)
        cluster = held.enter_context(made)
        others = dict(zip(ports[1:], cluster.outside[1:], strict=True))
        line = held.enter_context(LateEndLine(ports[0], cluster.outside[0], others=others))
        for mode in modes:
            place = folder / mode
            place.mkdir()
            with LateEndScene(Broker(cluster.bootstrap, "its jars"), line, place, mode) as scene:
                wrong |= _attempts(scene, mode, given.attempts // len(modes))
                wrong |= bool(given.quiet) and _quiet(scene, mode, given.quiet)
    return int(wrong)


def _attempts(scene: LateEndScene, mode: str, number: int) -> bool:
    """Run the attempts of a mode; tell whether anything is wrong."""
    answers = Counter[int | None]()
    scene.feed()
    scene.outputs()
    for outputs_first, killed in islice(cycle(KINDS), number):
        answers[scene.attempt(outputs_first=outputs_first, killed=killed)] += 1
    found = scene.found()
    _tell(f"{mode}: answers {dict(answers)}; {found}; workers that ended: {scene.ends}; renewals {_took(scene)}")
    return any(found) or bool(scene.ends)


def _quiet(scene: LateEndScene, mode: str, seconds: float) -> bool:
    """Let the job run without late ends; tell whether anything is wrong."""
    before, commits, ends = len(scene.renewals()), scene.transactions(), time.monotonic() + seconds
    while time.monotonic() < ends:
        scene.feed()
        time.sleep(FEED_S)
    found, renewals, commits = scene.found(), len(scene.renewals()) - before, scene.transactions() - commits
    share = 100 * renewals / max(commits, 1)
    _tell(f"{mode}, {seconds:.0f} s without late ends: {renewals} renewals in {commits} transactions ({share:.2f} %)")
    return any(found)


def _took(scene: LateEndScene) -> str:
    took = scene.renewals()
    if len(took) < 2:
        return f"{took} ms"
    last = statistics.quantiles(took, n=100, method="inclusive")[-1]
    return f"{len(took)}: p50 {statistics.median(took):.0f} ms, p99 {last:.0f} ms, most {max(took)} ms"


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
