"""A schema registry on this machine: it answers as the REST API's reference and confluent-kafka's tests record it.

Compatibility is not computed: a test says which subjects are to refuse what is new.
"""

import base64
import json
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Reply = tuple[int, dict[str, Any]]

NOT_FOUND = 404, {"error_code": 40403, "message": "Schema not found"}
NO_SUBJECT = 404, {"error_code": 40401, "message": "Subject not found"}
UNAUTHORIZED = 401, {"error_code": 401, "message": "401 Unauthorized"}


class Registry:
    """The schemas of a registry, and the troubles that a test gives it."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []  # the id of a schema is its place, from 1
        self.subjects: dict[str, list[int]] = {}  # name → ids of its versions
        self.asked: list[str] = []  # method and path of each request
        self.failing: list[int] = []  # statuses of the next replies
        self.strict: set[str] = set()  # subjects that refuse any other schema than they have
        self.user = ""  # "user:password" that is asked for
        self.lock = threading.Lock()
        self.url = ""

    def guid(self, schema_id: int) -> str:
        """Return the guid of a schema: the same for the same text, in each registry."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, self.schemas[schema_id - 1]["schema"]))

    def reply(self, method: str, path: str, body: Any, authorization: str | None) -> Reply:
        """Answer a request."""
        self.asked.append(f"{method} {path}")
        if self.failing:
            status = self.failing.pop(0)
            return status, {"error_code": status * 100 + 1, "message": "Error in the backend datastore"}
        if self.user and authorization != "Basic " + base64.b64encode(self.user.encode()).decode():
            return UNAUTHORIZED
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            return self._schema(int(found[1]))
        if found := re.fullmatch(r"/schemas/guids/([0-9a-f-]+)", path):
            ids = [number for number in range(1, len(self.schemas) + 1) if self.guid(number) == found[1]]
            return self._schema(ids[0] if ids else 0)
        if found := re.fullmatch(r"/subjects/([^/]+)(/versions)?", path):
            return self._post(unquote(found[1]), body, register=found[2] is not None)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _schema(self, schema_id: int) -> Reply:
        if not 1 <= schema_id <= len(self.schemas):
            return NOT_FOUND
        return 200, {**self.schemas[schema_id - 1], "guid": self.guid(schema_id)}

    def _post(self, subject: str, body: Any, *, register: bool) -> Reply:
        schema = {"schema": body["schema"], "schemaType": body.get("schemaType", "AVRO")}
        known, versions = schema in self.schemas, self.subjects.get(subject, [])
        schema_id = self.schemas.index(schema) + 1 if known else 0
        if not register and subject not in self.subjects:
            return NO_SUBJECT
        if schema_id not in versions:
            if not register:
                return NOT_FOUND
            if versions and subject in self.strict:
                text = f'Schema being registered is incompatible with an earlier schema for subject "{subject}"'
                return 409, {"error_code": 409, "message": text}
            if not known:
                self.schemas.append(schema)
                schema_id = len(self.schemas)
            self.subjects[subject] = [*versions, schema_id]
        version = self.subjects[subject].index(schema_id) + 1
        return 200, {"subject": subject, "id": schema_id, "version": version, "guid": self.guid(schema_id), **schema}


@contextmanager
def running(registry: Registry | None = None, port: int = 0) -> Iterator[Registry]:
    """Serve a registry at a port of this machine, any free one by default."""
    served = registry or Registry()
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler_of(served))
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler_of(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            with registry.lock:
                path = urlsplit(self.path).path
                status, reply = registry.reply(self.command, path, body, self.headers.get("Authorization"))
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer  # noqa: N815  # named by http.server

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # named by http.server
            """Say nothing."""

    return Handler
