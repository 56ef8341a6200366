"""Many late ends, through real workers: `python -m tests.sinks.late_end_prove --attempts 200`. Long: not for pytest.

A quarter of the attempts each is of an aligned job that is killed there, of one that goes on, and of a deterministic
one in both ways; half of them have the outputs in the log when the late end comes, half the changelog. It prints
what was lost or came twice, the broker's answers, and how long the renewals took.
"""

import argparse
import re
import statistics
import sys
import tempfile
from collections import Counter
from itertools import cycle, islice, product
from pathlib import Path

from grete.testing.broker import Broker
from grete.testing.broker.settings import free_port
from grete.testing.late_end import LateEndLine
from tests.sinks.late_end_scene import MODES, LateEndScene
from tests.verification.chaos.cluster import Cluster

RENEWAL = re.compile(r"has a new epoch, after (\d+) ms")


def main(arguments: list[str]) -> int:
    """Run them; return 1 if an output is lost or there twice, or if a worker ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.sinks.late_end_prove", description=__doc__)
    parser.add_argument("--attempts", type=int, default=200, help="of all kinds together")
    given = parser.parse_args(arguments)
    kinds = list(product((False, True), repeat=2))  # outputs first, killed
    wrong, port = False, free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(Path(folder) / "kafka", behind=port) as cluster,
        LateEndLine(port, cluster.outside) as line,
    ):
        for mode in MODES:
            place = Path(folder) / mode
            place.mkdir()
            answers = Counter[int | None]()
            with LateEndScene(Broker(cluster.bootstrap, "its jars"), line, place, mode) as scene:
                scene.feed()
                scene.outputs()
                for outputs_first, killed in islice(cycle(kinds), given.attempts // len(MODES)):
                    answers[scene.attempt(outputs_first=outputs_first, killed=killed)] += 1
                found, ends = scene.found(), scene.ends
                renewals = [int(each) for each in RENEWAL.findall(scene.log.read_text())]
            wrong |= any(found) or bool(ends)
            took = f"p50 {statistics.median(renewals):.0f} ms, most {max(renewals)} ms" if renewals else "none"
            sys.stdout.write(f"{mode}: answers {dict(answers)}; {found}; workers that ended: {ends}; renewals {took}\n")
            sys.stdout.flush()
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
