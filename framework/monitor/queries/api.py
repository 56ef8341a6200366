"""The state of a job over HTTP: ``/state`` and ``/windows``, by key or entry by entry. It only reads."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from grete.api.jobs.job import Job
from grete.errors import FrameworkError, TransientError
from grete.monitor.bounded_reader import READ_BYTES_MAX
from grete.monitor.queries.answers import AnsweredEntry, AnsweredRows, StateAnswers
from grete.monitor.queries.arrow_rows import ARROW, NO_PYARROW, arrow_stream, has_pyarrow
from grete.monitor.queries.question import (
    NotAnsweredError,
    Question,
    entry_question,
    scan_question,
    window_question,
)
from grete.ports import JobLogReader
from grete.quoting import named_error

QUESTIONS_MAX = 64  # of a kind, that are answered or wait; one more is refused
RESTS_S = 10.0  # without a question: then stores are closed, whose deleted files would keep their place on the disk
_JSON = "application/json"
_TASKS_RUN_HERE = (
    "this process runs a task, which would wait while it reads state: ask the page of grete up, or use grete state get"
)

AskedOf = Callable[[Job, Mapping[str, str], Mapping[str, str]], Question]


class _Lane:
    """A thread that answers one question after another."""

    def __init__(self, answers: StateAnswers, name: str) -> None:
        self._answers, self._thread, self._waiting = answers, ThreadPoolExecutor(1, name), 0
        self._rest: asyncio.TimerHandle | None = None

    async def answer(
        self, question: Question, write: Callable[[Question, AnsweredRows | AnsweredEntry], bytes]
    ) -> bytes:
        """Return the bytes that ``write`` makes of the answer. Raises as both do; NotAnsweredError: too many wait."""
        if self._waiting >= QUESTIONS_MAX:
            raise NotAnsweredError(503, f"{QUESTIONS_MAX} questions are being answered: ask again in a moment")
        if self._rest is not None:
            self._rest.cancel()
        self._waiting += 1
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, lambda: write(question, self._answers.answer(question)))
        finally:
            self._waiting -= 1
            self._rest = loop.call_later(RESTS_S, self._close_stores)

    def _close_stores(self) -> None:
        self._thread.submit(self._answers.close)

    def close(self) -> None:
        """Take no more questions, and wait for the one that is being answered, which ends soon."""
        self._answers.stop()
        self._close_stores()
        self._thread.shutdown(wait=True)


class StateApi:
    """Answers for one job. Reads of the newest state do not wait for those of an earlier checkpoint."""

    def __init__(
        self, job: Job, state_directory: Path, open_log: Callable[[], JobLogReader], bytes_max: int = READ_BYTES_MAX
    ) -> None:
        """``open_log`` returns the reading half of the job's log; ``bytes_max``: of it, an answer."""
        self._job = job
        self._newest, self._earlier = (
            _Lane(StateAnswers(job, state_directory, open_log, bytes_max), name)
            for name in ("grete-state", "grete-state-then")
        )

    def routes(self) -> list[Route]:
        """Return the answers, by path."""
        answers: dict[str, AskedOf] = {
            "/state/{store}": lambda job, path, given: scan_question(job, path["store"], given),
            "/state/{store}/{key:path}": lambda job, path, given: entry_question(
                job, path["store"], path["key"], given
            ),
            "/windows/{store}": lambda job, path, given: window_question(job, path["store"], None, given),
            "/windows/{store}/{key:path}": lambda job, path, given: window_question(
                job, path["store"], path["key"], given
            ),
        }
        routes = [Route(path, self._answering(asked), methods=["GET"]) for path, asked in answers.items()]
        return [Route("/state", self._stores, methods=["GET"]), *routes]

    def close(self) -> None:
        """Take no more questions."""
        self._newest.close()
        self._earlier.close()

    def _stores(self, _request: Request) -> Response:
        """Name the stores: their stage, the serdes of key and value, how many partitions they have."""
        stores = [
            {
                "stage": stage.shown,
                "store": store.shown,
                "key": store.key.name,
                "value": store.value.name,
                "partitions": stage.partitions,
                "window": store in [window.panes for window in stage.windows.values()],
            }
            for stage in self._job.stages
            for store in stage.all_stores()
        ]
        return _json({"job": self._job.name, "stores": stores})

    def _answering(self, asked: AskedOf) -> Callable[..., Any]:
        async def answer(request: Request) -> Response:
            try:
                accept = request.headers.get("accept", "")
                in_arrow = ARROW in accept
                if in_arrow and not has_pyarrow():
                    raise NotAnsweredError(406, NO_PYARROW)
                question = asked(self._job, request.path_params, request.query_params)
                lane = self._newest if question.as_of is None else self._earlier
                content = await lane.answer(question, arrow_stream if in_arrow else _as_json)
                return Response(content, media_type=ARROW if in_arrow else _JSON)
            except Exception as error:  # noqa: BLE001  # a serde of the job's may raise anything
                return _refused(error)

        return answer


def refused_where_tasks_run() -> list[Route]:
    """Return the routes of a process that runs tasks: each says where to ask."""

    def refuse(_request: Request) -> Response:
        return _json({"error": _TASKS_RUN_HERE}, 404)

    return [Route(path, refuse, methods=["GET"]) for path in ("/state{rest:path}", "/windows{rest:path}")]


def _as_json(_question: Question, answer: AnsweredRows | AnsweredEntry) -> bytes:
    return msgspec.json.encode(answer)


def _refused(error: Exception) -> Response:
    if isinstance(error, NotAnsweredError):
        status = error.status
    elif isinstance(error, TransientError):
        status = 503
    else:
        status = 500
    said = str(error) if isinstance(error, FrameworkError) else named_error(error)
    answer = _json({"error": said}, status)
    if status == 503:
        answer.headers["retry-after"] = "1"
    return answer


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=_JSON)
