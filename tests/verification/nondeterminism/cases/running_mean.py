"""A mean in two attributes of an object that the task holds. After a restart it begins again."""

from dataclasses import dataclass

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


@dataclass(frozen=True)
class Mean:
    total: int = 0
    count: int = 0

    def with_number(self, number: int) -> "Mean":
        return Mean(self.total + number, self.count + 1)


class RunningMean(Lines):
    def init(self) -> None:
        self.mean = Mean()

    def answer(self, record: Record[str, str]) -> str:
        self.mean = self.mean.with_number(len(record.value))
        return f"{self.mean.total / self.mean.count:.3f}"


job = one_stage(RunningMean)
