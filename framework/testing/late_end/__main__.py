"""Brings the late end between an engine and its broker, again and again, and says what the broker made of it."""

import argparse
import sys

from grete.testing.late_end.line import LateEndLine, LateStage

EXECUTED = 0  # the code of an answer without an error
WAITS = {
    LateStage.TAKEN: "the engine ends a transaction of this id",
    LateStage.REPEATED: "its client asks for the end again",
    LateStage.LATE: "the next transaction's first half is in the log",
}


def main(arguments: list[str]) -> int:
    """Run the attempts; return 1 if the broker has executed a late end, which splits a transaction."""
    parser = argparse.ArgumentParser(prog="python -m grete.testing.late_end", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="where clients connect: what the broker advertises")
    parser.add_argument("--to", type=int, required=True, help="the broker's port on this machine")
    parser.add_argument("--transactional-id", required=True, help="whose transactions: the broker's log has them")
    parser.add_argument("--first", default="", help="the topic whose records are in the log when the late end comes")
    parser.add_argument("--second", default="", help="the topic whose records come behind it")
    parser.add_argument("--attempts", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to wait for each step of an attempt")
    given = parser.parse_args(arguments)
    executed = 0
    with LateEndLine(given.port, given.to) as line:
        for number in range(given.attempts):
            attempt = line.attempt(given.transactional_id, given.first, given.second)
            for stage, what in WAITS.items():
                if not attempt.reaches(stage, given.seconds):
                    _tell(f"attempt {number}: waited {given.seconds:.0f} s in vain until {what}")
                    return 2
            attempt.go_on()
            executed += attempt.code == EXECUTED
            meaning = "done: the transaction is split" if attempt.code == EXECUTED else "refused"
            _tell(f"attempt {number}: the broker answered the late end with {attempt.code} ({meaning})")
    _tell(f"{executed} of {given.attempts} late ends were executed")
    return int(executed > 0)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
