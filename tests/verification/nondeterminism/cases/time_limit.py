"""Whether something ends in time. It does not on a busy machine."""

from concurrent.futures import ThreadPoolExecutor

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class TimeLimit(Lines):
    def answer(self, record: Record[str, str]) -> str:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(sum, range(1_000))
            try:
                return str(waiting.result(timeout=2))
            except TimeoutError:
                return "too slow"


job = one_stage(TimeLimit)
