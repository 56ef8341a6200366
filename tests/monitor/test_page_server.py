"""The answers of the page's server, and its refusals: without a browser."""

import http.client
import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from grete.core.supervision.process_end import WorkerEnd
from grete.errors import ConfigError, TransientError
from grete.logs.embedded.reader import EmbeddedReader
from grete.monitor.access import Access, HostGuard, access_of
from grete.monitor.bounded_reader import BoundedReader
from grete.monitor.hiding import without_values
from grete.monitor.job_view import Incident, ServingEnd
from grete.monitor.page.browse import ROWS_MAX
from grete.monitor.page.page import CLIENTS_MAX, FILES
from grete.monitor.server import serving
from grete.protocol.ids import TopicPartition
from grete.quoting import HIDDEN
from grete.settings import Settings
from tests.monitor.conftest import SECRET, asked, monitor_of
from tests.monitor.test_server import get
from tests.monitor.views import view
from tests.support.reports import AT_MS
from tests.support.reports import task_report as status
from tests.support.shown import showing
from tests.worker.workers import LIMIT_S

QUESTIONS = [
    "/page/state.json?store=counts",
    "/page/state.json?store=counts&key=be",
    "/page/topic.json?topic=lines",
    "/page/topic.json?topic=totals",
    "/page/letters.json?topic=refused",
    "/page/changelog.json?stage=count",
    "/page/live.json",
    "/page/graph.json",
    "/page/history.json?stage=count",
    "/status.json",
    "/metrics",
    "/readyz",
]

OUTSIDE = [
    "/page/../server.py",
    "/page/%2e%2e/server.py",
    "/page//etc/passwd",
    "/page/page.css/../../server.py",
    "/page/static/main.js",
    "/page/main.js%00",
    "/page/..%2fserver.py",
    "/../../../etc/passwd",
]
NAMES = {
    "127.0.0.1:80": 200,
    "localhost": 200,
    "[::1]:8080": 200,
    "evil.example": 421,
    "127.0.0.1.evil.example:80": 421,
    "localhost.evil.example": 421,
    "": 421,
}


@pytest.fixture(scope="module")
def url(directory: Path) -> Iterator[str]:
    """The address of a page."""
    with serving(monitor_of(directory), "0") as address:
        yield address


def test_state_is_read_in_pages_in_order_and_each_entry_once(url: str) -> None:
    """The cursor goes on in the next partition; a prefix bounds it."""
    found: list[tuple[str, str]] = []
    after = ""
    while True:
        page = asked(url, f"/page/state.json?store=count/counts&after={after}")
        assert len(page["rows"]) <= ROWS_MAX
        found += [(row["key"], row["value"]) for row in page["rows"]]
        if not page["next"]:
            break
        after = urllib.parse.quote(page["next"])
    assert len(found) == len(set(found)) == 2 * ROWS_MAX + 50 + 4
    assert dict(found)["be"] == "2"
    rows = asked(url, "/page/state.json?store=counts&prefix=w00")["rows"]
    assert sorted(row["key"] for row in rows) == [f"w00{digit}" for digit in range(10)]
    (row,) = asked(url, "/page/state.json?store=counts&key=w001")["rows"]
    assert row["value"] == "1"
    assert asked(url, "/page/state.json?store=counts&key=w")["rows"] == []


def test_state_is_read_as_of_a_checkpoint(url: str, directory: Path) -> None:
    """As it was at the end of the first run, and not as it is now."""
    at = f"&checkpoint={(directory / 'first').read_text()}"
    path = "/page/state.json?store=counts&prefix="
    (then,), (now,) = (asked(url, f"{path}to{each}")["rows"] for each in (at, ""))
    assert (then["key"], then["value"], now["value"]) == ("to", "2", "3")
    assert asked(url, f"{path}w{at}")["rows"] == []
    assert asked(url, f"{path}w")["rows"]


def test_topics_and_changelogs_are_read_from_an_offset_on(url: str) -> None:
    """Without one, the last rows."""
    page = asked(url, "/page/topic.json?topic=totals&partition=0&begin=0")
    assert [row["offset"] for row in page["rows"]] == list(range(ROWS_MAX))
    assert page["next"] == ROWS_MAX
    last = asked(url, "/page/topic.json?topic=totals&partition=0")
    assert [row["offset"] for row in last["rows"]] == [page["end"] - 1 - back for back in range(ROWS_MAX)]
    kinds = {row["type"] for row in asked(url, "/page/changelog.json?stage=count&partition=0")["rows"]}
    assert {"claim", "data", "commit"} <= kinds


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/page/state.json?store=sums", "there are count/counts"),
        ("/page/state.json?store=counts&checkpoint=x", "give its number"),
        ("/page/state.json?store=counts&after=x", "give what the page before has"),
        ("/page/topic.json?topic=words", "no topic 'words' outside: it has lines, refused, totals"),
        ("/page/topic.json?topic=../lines", "no topic '../lines' outside"),
        ("/page/topic.json?topic=lines&partition=7", "there is no 7"),
        ("/page/topic.json?topic=lines&partition=0&begin=-1", "give a number"),
        ("/page/topic.json?topic=lines&begin=1", "an offset in a partition: give this, too"),
        ("/page/topic.json?topic=lines&partition=0&begin=1&key=a", "and none of key, error, from, to, after"),
        ("/page/topic.json?topic=lines&after=1", "after='1': give what the page before has as next"),
        ("/page/topic.json?topic=lines&after=1.x", "after='1.x': give what"),
        ("/page/topic.json?topic=lines&from=yesterday", "from=yesterday: this is no time: write one such as"),
        ("/page/topic.json?topic=lines&key=a%1b", "key 'a\\x1b': give it as it is shown, without control"),
        ("/page/letters.json?topic=refused&to=25:00", "to=25:00: this is no time"),
        ("/page/letters.json?topic=refused&error=%00", "error '\\x00': give it as it is shown"),
        ("/page/letters.json?topic=refused&partition=2", "there is no 2"),
        ("/page/letters.json?topic=lines", "no dead-letter topic 'lines': it has refused"),
        ("/page/changelog.json?stage=sum", "no stage 'sum'"),
    ],
)
def test_what_cannot_be_read_is_said_with_what_there_is(url: str, path: str, said: str) -> None:
    """And with status 400."""
    code, body = get(url, path)
    assert code == 400
    assert said in json.loads(body)["error"]


def test_hidden_values_are_in_no_answer(directory: Path) -> None:
    """Neither values nor errors that quote them; keys are there. Without hiding each is."""
    failing = status(last_failure=f"ValueError: {SECRET}", sink_trouble=f"table: {SECRET}")
    incident = Incident(1, f"worker 0 crashed, code 1: {SECRET} (log: x); restart in 0.0 s\n  Traceback {SECRET}")
    end = WorkerEnd(reason="task error", text=f"offset 7: {SECRET}", traceback=f"KeyError: {SECRET}", at_ms=AT_MS)
    shown = replace(view({"split-0": failing}, last_end=end), incidents=(incident,))
    for show in ("all", "keys"):
        hide, monitor = show == "keys", monitor_of(directory, show)
        with showing(show), serving(monitor, "0") as url:
            monitor.show(without_values(shown) if hide else shown)
            answers = [get(url, path)[1] for path in QUESTIONS]
            monitor.end(ServingEnd("stopped", ""))
        told = {
            path.partition("?")[0] for path, answer in zip(QUESTIONS, answers, strict=True) if SECRET in str(answer)
        }
        public = {"/page/topic.json", "/page/letters.json", "/page/live.json"}
        assert not told if hide else public <= told
        state = json.loads(answers[0])["rows"][0]
        assert (state["value"] == HIDDEN) is hide
        assert state["key"] != HIDDEN
        headers = [tuple(each) for row in json.loads(answers[2])["rows"] for each in row["headers"]]
        assert ("who", HIDDEN if hide else SECRET) in headers


def test_there_is_no_path_out_of_the_page_and_nothing_but_reading(url: str) -> None:
    """Only the names of a table are answered, however a path is written; other methods are refused."""
    host, port = url.removeprefix("http://").split(":")
    for path in OUTSIDE:
        connection = http.client.HTTPConnection(host, int(port), timeout=LIMIT_S)
        connection.request("GET", path)
        assert connection.getresponse().status == 404, path
        connection.close()
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        connection = http.client.HTTPConnection(host, int(port), timeout=LIMIT_S)
        connection.request(method, "/page/state.json?store=counts")
        assert connection.getresponse().status == 405
        connection.close()


def test_files_have_their_types_and_each_answer_tells_browsers_to_keep_others_out(url: str) -> None:
    """No script but the page's own, no frame, no guess at types."""
    host, port = url.removeprefix("http://").split(":")
    for path in [*FILES, "/page/graph.json", "/page/state.json?store=counts", "/page/nothing"]:
        connection = http.client.HTTPConnection(host, int(port), timeout=LIMIT_S)
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "unsafe" not in policy
        assert (answer.headers["x-content-type-options"], answer.headers["x-frame-options"]) == ("nosniff", "DENY")
        assert path not in FILES or answer.headers["content-type"].startswith(FILES[path][1].partition(";")[0])
        assert "access-control-allow-origin" not in answer.headers
        connection.close()


@pytest.mark.parametrize(("name", "code"), NAMES.items())
def test_a_foreign_name_of_this_machine_is_refused(url: str, name: str, code: int) -> None:
    """A site may let its own name resolve to this machine, and would then read what is served: pages and metrics."""
    host, port = url.removeprefix("http://").split(":")
    for path in ("/", "/page/live.json", "/metrics", "/status.json"):
        connection = http.client.HTTPConnection(host, int(port), timeout=LIMIT_S)
        connection.putrequest("GET", path, skip_host=True)
        connection.putheader("Host", name)
        connection.endheaders()
        assert connection.getresponse().status == code, path
        connection.close()


@pytest.mark.parametrize(("name", "code"), NAMES.items())
def test_what_is_served_to_other_machines_is_refused_under_a_foreign_name(
    directory: Path, name: str, code: int
) -> None:
    """Status and metrics quote records: a page of any site could read them. Whether it lives, any name may ask."""
    app = TestClient(HostGuard(monitor_of(directory).app(), "0.0.0.0", Access()))
    for path in ("/status.json", "/readyz", "/metrics", "/"):
        found = app.get(path, headers={"host": name}).status_code
        assert found == code or (path, code, found) == ("/readyz", 200, 503), path
    assert app.get("/livez", headers={"host": name}).status_code == 200


def test_a_name_of_a_proxy_is_answered(directory: Path) -> None:
    """The setting has it; a part of it is another name."""
    access = access_of(Settings(http_hosts="jobs.example, Grete.Internal."))
    app = TestClient(HostGuard(monitor_of(directory).app(), "0.0.0.0", access))
    for name, code in {"jobs.example:443": 200, "grete.internal": 200, "example": 421, "x.jobs.example": 421}.items():
        assert app.get("/metrics", headers={"host": name}).status_code == code


def test_who_has_no_token_is_told_nothing(directory: Path, tmp_path: Path) -> None:
    """But whether the process lives: a probe has no token. The token is compared as a whole."""
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    app = TestClient(
        HostGuard(monitor_of(directory).app(), "127.0.0.1", access_of(Settings(http_token_file=str(file))))
    )
    right = {"host": "localhost", "authorization": "Bearer 0123456789abcdef"}
    for path in ("/", "/status.json", "/metrics", "/page/live.json", "/page/main.js"):
        for wrong in ({}, {"authorization": "Bearer 0123456789abcde"}, {"authorization": "Basic 0123456789abcdef"}):
            refused = app.get(path, headers={"host": "localhost", **wrong})
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert "Authorization: Bearer TOKEN" in refused.text
        assert app.get(path, headers=right).status_code == 200, path
    assert app.get("/livez", headers={"host": "localhost"}).status_code == 200


@pytest.mark.parametrize("content", [None, "", "short", "two words of enough bytes", "0123456789abcdéf"])
def test_a_token_that_protects_nothing_is_refused(tmp_path: Path, content: str | None) -> None:
    """The error names the file and what to write into it, and not what it has."""
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=r"http_token_file = .*/token: ") as refused:
        access_of(Settings(http_token_file=str(file)))
    assert not content or content not in str(refused.value)


def test_a_read_has_a_bound(directory: Path) -> None:
    """Of bytes and of time: the error names what has none."""
    log = EmbeddedReader(directory / "log.db")
    at = TopicPartition("lines", 0)
    assert BoundedReader(log).read(at, 0, 1 << 20)
    for bounded in (BoundedReader(log, bytes_max=1), BoundedReader(log, seconds=-1.0)):
        with pytest.raises(TransientError, match="ask for less, or use the command line"):
            bounded.read(at, 0, 1 << 20)
    log.close()


def test_events_are_the_latest_view_and_end_with_the_job(directory: Path) -> None:
    """A browser that reads slowly misses what was between; one more than the bound is refused; the last event says how
    it ended, also to one who was looking when it did."""
    monitor = monitor_of(directory)
    assert monitor.page is not None
    with serving(monitor, "0") as url:
        monitor.show(view({"split-0": status(generation=1)}))
        host, port = url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=LIMIT_S)
        connection.request("GET", "/page/live")
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        first = event(answer)
        assert first["tasks"][0]["generation"] == 1
        for generation in range(2, 50):
            monitor.show(view({"split-0": status(generation=generation)}))
        assert event(answer)["tasks"][0]["generation"] in range(2, 50)
        monitor.page._clients = CLIENTS_MAX
        assert get(url, "/page/live")[0] == 503
        monitor.page._clients = 1
        monitor.end(ServingEnd("halted", "it must not go on: do this"))
        last = event(answer)
        while last["ended"] is None:
            last = event(answer)
        assert last["findings"][0]["value"] == "it must not go on: do this"
        assert answer.read().strip() == b""
        connection.close()


def event(answer: http.client.HTTPResponse) -> Any:
    """Return the next event of a stream."""
    while True:
        line = answer.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            return json.loads(line.removeprefix(b"data: "))
