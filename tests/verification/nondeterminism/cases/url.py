"""The answer of another system. It may be another when it is asked again."""

from urllib.request import urlopen

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Url(Lines):
    def answer(self, record: Record[str, str]) -> str:
        with urlopen("file:///proc/uptime") as reply:
            return str(reply.read())


job = one_stage(Url)
