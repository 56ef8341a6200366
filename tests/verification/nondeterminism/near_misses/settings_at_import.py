"""The environment gives the name of a topic, and no output. Names are pinned at the first start."""

import os

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

SUFFIX = os.environ.get("CORPUS_SUFFIX", "")


class SettingsAtImport(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return record.value


job = one_stage(SettingsAtImport)
