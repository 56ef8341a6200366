"""A port that the system chooses. It chooses another one for another process."""

import socket

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Port(Lines):
    def answer(self, record: Record[str, str]) -> str:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            return str(server.getsockname()[1])


job = one_stage(Port)
