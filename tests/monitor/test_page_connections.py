"""The page bounds the requests of each client, and a slow one delays nothing else."""

import asyncio
import contextlib
import socket
import threading
from pathlib import Path

import pytest

from grete.monitor import bounded_connection
from grete.monitor.bounded_connection import BoundedConnection
from grete.monitor.page.browse_rows import EntriesPage
from grete.monitor.page.page import BROWSING_MAX, CLIENTS_MAX
from grete.monitor.server import Monitor, serving
from tests.monitor.conftest import asked, monitor_of
from tests.monitor.test_server import get
from tests.monitor.views import view
from tests.support.reports import task_report as status
from tests.support.waiting import bounded, until
from tests.worker.workers import LIMIT_S


def test_more_streams_than_some_are_refused_also_if_they_come_at_once(directory: Path) -> None:
    """They are counted when they ask, and not when they begin; those that leave make room."""
    monitor = monitor_of(directory)
    page = monitor.page
    assert page is not None
    with serving(monitor, "0") as url:
        monitor.show(view({"split-0": status()}))
        host, port = url.removeprefix("http://").split(":")
        asking = [socket.create_connection((host, int(port)), LIMIT_S) for _ in range(2 * CLIENTS_MAX)]
        for each in asking:
            each.sendall(b"GET /page/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        codes = [each.recv(12)[9:] for each in asking]
        assert (codes.count(b"200"), codes.count(b"503")) == (CLIENTS_MAX, CLIENTS_MAX)
        for each in asking:
            each.close()
        until(lambda: page._clients == 0, saw=lambda: page._clients)
        assert get(url, "/livez")[0] == 200


def test_connections_have_a_bound_and_a_deadline(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a request is not waited for; of too many connections the last are ended; then the server answers again."""
    monkeypatch.setattr(bounded_connection, "REQUEST_S_MAX", 0.5)
    monkeypatch.setattr(bounded_connection, "CONNECTIONS_MAX", 20)
    with serving(monitor_of(directory), "0") as url:
        host, port = url.removeprefix("http://").split(":")
        asking = [socket.create_connection((host, int(port)), LIMIT_S) for _ in range(60)]
        for each in asking:
            with contextlib.suppress(OSError):  # it was refused
                each.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ")
        for each in asking:
            with contextlib.suppress(ConnectionResetError), each:
                assert each.recv(100) == b""
        assert get(url, "/livez")[0] == 200
        with socket.create_connection((host, int(port))) as silent, bounded("the end of a connection without a word"):
            assert silent.recv(100) == b""
        with socket.create_connection((host, int(port)), LIMIT_S) as one:  # the second request has its time, too
            one.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /li")
            assert one.recv(100).startswith(b"HTTP/1.1 200")
            with contextlib.suppress(ConnectionResetError):
                while one.recv(1_000):
                    pass


def test_a_slow_question_holds_up_nothing_and_more_than_some_are_refused(directory: Path) -> None:
    """Questions wait for one thread; health and the live page are answered meanwhile."""
    monitor = monitor_of(directory)
    page = monitor.page
    assert page is not None
    entered, go = threading.Event(), threading.Event()

    def slow(_log: object, _arguments: object) -> EntriesPage:
        entered.set()
        assert go.wait(LIMIT_S)
        return EntriesPage([], None, [], ("", ""))

    page._browse.answers["state"] = slow
    with serving(monitor, "0") as url:
        monitor.show(view({"split-0": status()}))
        threads = [threading.Thread(target=get, args=(url, "/page/state.json")) for _ in range(BROWSING_MAX)]
        for thread in threads:
            thread.start()
        assert entered.wait(LIMIT_S)
        until(lambda: page._questions == BROWSING_MAX)
        assert get(url, "/page/topic.json?topic=lines")[0] == 503
        assert get(url, "/livez")[0] == 200
        assert asked(url, "/page/live.json")["job"] == "shop"
        go.set()
        for thread in threads:
            thread.join()
        assert asked(url, "/page/topic.json?topic=lines")["rows"]


def test_an_answer_waits_for_no_acknowledgement_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each answer on a connection that is kept comes 40 ms late: its end waits for a delayed acknowledgement."""
    found = list[int]()
    made = BoundedConnection.connection_made

    def noted(self: BoundedConnection, transport: asyncio.Transport) -> None:
        found.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        made(self, transport)

    monkeypatch.setattr(BoundedConnection, "connection_made", noted)
    with serving(Monitor(60), "0") as url:
        assert get(url, "/livez")[0] == 200
    assert found
    assert all(found)
