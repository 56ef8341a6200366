"""The order in which coroutines end. Another one may be first."""

import asyncio

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


async def first_of(words: list[str]) -> str:
    waits = [asyncio.create_task(asyncio.sleep(0.000_01, word)) for word in words]
    done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    return " ".join(task.result() for task in done)


class Coroutines(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return asyncio.run(first_of(record.value.split()))


job = one_stage(Coroutines)
