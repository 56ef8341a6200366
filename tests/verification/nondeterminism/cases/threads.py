"""The thread that comes first. The system decides."""

from concurrent.futures import ThreadPoolExecutor, as_completed

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Threads(Lines):
    def answer(self, record: Record[str, str]) -> str:
        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(sum, range(2_000 * len(word))) for word in record.value.split() * 4]
            return " ".join(str(job.result()) for job in as_completed(jobs))


job = one_stage(Threads)
