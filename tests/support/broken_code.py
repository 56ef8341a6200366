"""The code of jobs that are broken for real, and of a service that one of them sends to."""

ADD_UP = """
from grete import Http, Input, Job, Output, Record, Store, Task, Topic, int64, json, utf8

payments = Topic("payments", key=utf8, value=json(dict[str, int]))

class AddUp(Task):
    payments = Input(payments)
    totals = Store("totals", key=utf8, value=int64)
    out = Output(OUTPUT)

    def process(self, record: Record[str, dict[str, int]]) -> None:
        total = self.totals.get(record.key, 0) + record.value["cents"]
        self.totals.put(record.key, total)
        self.out.send(SENT)

job = Job("payments", stages=[AddUp])
"""
TO_TOPIC = ADD_UP.replace("OUTPUT", 'Topic("totals", key=utf8, value=int64)').replace("SENT", "record.key, total")
TO_SERVICE = ADD_UP.replace("OUTPUT", 'Http("URL", json(int))').replace("SENT", "record.key, total")
SLOW = """
import time

from grete import Input, Job, Output, Record, Task, Topic, json, utf8

payments = Topic("payments", key=utf8, value=json(dict[str, int]))
parsed = Topic("parsed", key=utf8, value=json(int))

class Parse(Task):
    payments = Input(payments)
    out = Output(parsed)

    def process(self, record: Record[str, dict[str, int]]) -> None:
        self.out.send(record.key, record.value["cents"])

class Score(Task):
    parsed = Input(parsed)
    out = Output(Topic("scores", key=utf8, value=json(int)))

    def process(self, record: Record[str, int]) -> None:
        time.sleep(0.02)
        self.out.send(record.key, record.value % 7)

job = Job("payments", stages=[Parse, Score])
"""
TWO_STAGES = SLOW.replace("        time.sleep(0.02)\n", "").replace("[Parse, Score]", "[Parse, Score], partitions=2")
ASKS = """
import time
from pathlib import Path

from grete import Input, Job, Output, Record, Task, Topic, json, utf8

def ask_a_service():
    while not Path(__file__).with_name("answer").exists():
        time.sleep(0.01)

class AddUp(Task):
    payments = Input(Topic("payments", key=utf8, value=json(dict[str, int])))
    out = Output(Topic("totals", key=utf8, value=json(int)))

    def process(self, record: Record[str, dict[str, int]]) -> None:
        ask_a_service()
        self.out.send(record.key, record.value["cents"])

job = Job("payments", stages=[AddUp])
"""
HALTS = ASKS.replace("stages=[AddUp]", "stages=[AddUp], partitions=3").replace(
    '        self.out.send(record.key, record.value["cents"])',
    """        from grete.errors import Halted
        raise Halted("the meter is off: switch it on")""",
)
RANDOM = """
import os

from grete import Input, Job, Output, Record, Task, Topic, json, utf8

class Number(Task):
    payments = Input(Topic("payments", key=utf8, value=json(dict[str, int])))
    out = Output(Topic("numbered", key=utf8, value=utf8))

    def process(self, record: Record[str, dict[str, int]]) -> None:
        self.out.send(record.key, os.urandom(8).hex())

job = Job("payments", stages=[Number], mode="deterministic")
"""
SERVICE = """
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""
