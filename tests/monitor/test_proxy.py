"""The proxy of the guide, a real nginx, before the page: TLS, a login, live views, and the name that it serves."""

import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from grete.monitor.access import access_of
from grete.monitor.server import Monitor, serving
from grete.settings import Settings
from tests.monitor.conftest import monitor_of
from tests.monitor.views import view
from tests.support.debian import cache, unpack
from tests.support.reports import task_report
from tests.support.waiting import until
from tests.worker.workers import LIMIT_S

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "page.md"
NAME, USER, PASSWORD = "jobs.example", "ann", "of ann, long enough"
# Where the process may write, and no user of its own: the test is not root everywhere.
AROUND = """
pid {place}/nginx.pid;
daemon off;
{user}
events {{}}
http {{
    access_log off;
    client_body_temp_path {place}/body; proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
    include {place}/grete.conf;
}}
"""


class Proxy(NamedTuple):
    """A proxy that serves, what is behind it, and the certificate by which it is known."""

    port: int
    monitor: Monitor
    certificate: Path

    @contextlib.contextmanager
    def answer(
        self, path: str, password: str | None = PASSWORD, name: str = NAME
    ) -> Iterator[http.client.HTTPResponse]:
        """Ask for a path under a name, with the login unless ``password`` is None; yield the answer, to be read."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        login = base64.b64encode(f"{USER}:{password}".encode()).decode()
        with contextlib.closing(http.client.HTTPConnection(name, self.port, timeout=LIMIT_S)) as connection:
            plain = socket.create_connection(("127.0.0.1", self.port), LIMIT_S)
            connection.sock = context.wrap_socket(plain, server_hostname=NAME)
            connection.request("GET", path, headers={} if password is None else {"Authorization": f"Basic {login}"})
            with connection.getresponse() as answer:
                yield answer

    def read(self, path: str) -> bytes:
        """Return the whole answer."""
        with self.answer(path) as answer:
            assert answer.status == 200, path
            return answer.read()


def blocks(language: str) -> list[str]:
    """Return the blocks of the guide in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def nginx() -> tuple[str, dict[str, str]]:
    """Return the program, of this machine or of Debian's packages, and the environment that it needs."""
    if (found := shutil.which("nginx")) is not None:
        return found, {**os.environ}
    root = cache("nginx-root")
    unpack("nginx", cache("nginx"), root)
    libraries = [str(each) for each in (root / "usr" / "lib").glob("*-linux-gnu")]
    return str(root / "usr" / "sbin" / "nginx"), {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def proxy(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """The page of a job behind the proxy, with the guide's commands typed and its file written."""
    place = tmp_path_factory.mktemp("proxy")
    (place / "nginx").mkdir()
    (place / "grete").mkdir()
    certificate, key = place / "nginx" / "jobs.example.pem", place / "nginx" / "jobs.example.key"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}"]
    subprocess.run(
        [*made, "-addext", f"subjectAltName=DNS:{NAME}", "-out", certificate, "-keyout", key],
        check=True, timeout=LIMIT_S, capture_output=True,
    )  # fmt: skip
    (commands,), (config,) = blocks("sh"), blocks("nginx")
    commands = commands.replace("openssl passwd -6", "openssl passwd -6 -stdin").replace("chown", ": chown")
    subprocess.run(
        ["sh", "-euc", commands.replace("/etc/", f"{place}/")], check=True, timeout=LIMIT_S, text=True, input=PASSWORD
    )
    settings = Settings(http_hosts=NAME, http_token_file=str(place / "grete" / "token"))
    monitor, port = monitor_of(directory), free_port()
    with serving(monitor, "0", access_of(settings)) as url:
        config = config.replace("/etc/", f"{place}/").replace("http://127.0.0.1:8080", url)
        config = config.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
        (place / "grete.conf").write_text(config)
        user = "user root;" if os.geteuid() == 0 else ""
        (place / "nginx.conf").write_text(AROUND.format(place=place, user=user))
        program, environment = nginx()
        process = subprocess.Popen([program, "-p", place, "-c", place / "nginx.conf", "-e", "stderr"], env=environment)
        try:
            until(lambda: process.poll() is not None or is_open(port))
            assert process.poll() is None
            yield Proxy(port, monitor, certificate)
        finally:
            process.terminate()
            process.wait(LIMIT_S)


def is_open(port: int) -> bool:
    """Tell whether something takes connections."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.mark.prove
def test_the_proxy_asks_for_a_login_and_takes_no_wrong_one(proxy: Proxy) -> None:
    """Each path, also that which a probe may ask for directly; a browser asks its user for the password."""
    for path in ("/", "/page/live", "/page/letters.json?topic=refused", "/metrics", "/livez"):
        for password in (None, "wrong", ""):
            with proxy.answer(path, password) as answer:
                assert answer.status == 401, path
                assert answer.headers["www-authenticate"].startswith("Basic")


@pytest.mark.prove
def test_the_page_works_behind_the_proxy(proxy: Proxy) -> None:
    """Its files, what is stored, and its events, each as soon as it is there."""
    assert b"<main" in proxy.read("/")
    letters = json.loads(proxy.read("/page/letters.json?topic=refused"))
    assert [row["told"]["topic"] for row in letters["rows"]] == ["lines"]
    assert json.loads(proxy.read("/page/graph.json"))["job"] == "word-count"
    proxy.monitor.show(view({"split-0": task_report(checkpoint_id=4711)}))
    with proxy.answer("/page/live") as events:
        assert "4711" in next_event(events)
        proxy.monitor.show(view({"split-0": task_report(checkpoint_id=4712)}))
        assert "4712" in next_event(events)  # it does not wait in the proxy for more


@pytest.mark.prove
def test_the_proxy_answers_under_no_name_that_is_not_set(proxy: Proxy) -> None:
    """Grete refuses another name: the proxy hands on the one that was asked for."""
    with proxy.answer("/page/graph.json", name="other.example") as answer:
        assert answer.status == 421


def next_event(answer: http.client.HTTPResponse) -> str:
    """Return the next event of a stream that has data."""
    while not (line := answer.readline().decode()).startswith("data:"):
        assert line
    return line
