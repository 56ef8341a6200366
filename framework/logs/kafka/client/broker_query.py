"""A query to brokers in a thread of its own, so that the process takes signals while it waits."""

import threading
from collections.abc import Callable
from typing import Any


class BrokerQuery:
    """One query, which begins at once. Its thread ends with the time-out of the query; the process waits for none."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._answer: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(ask,), name="kafka-question", daemon=True)
        self._thread.start()

    def _run(self, ask: Callable[[], Any]) -> None:
        try:
            self._answer = ask()
        except Exception as error:  # noqa: BLE001  # raised where the answer is taken
            self._error = error

    def over(self, seconds: float) -> bool:
        """Wait for that long at most; return whether ``answer`` returns or raises at once."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def answer(self) -> Any:
        """Return the answer, once it is over. Raises what the question raised."""
        assert self.over(0)
        if self._error is not None:
            raise self._error
        return self._answer

    def then(self, act: Callable[[], None]) -> None:
        """Do something once it is over, for which no caller waits."""

        def later() -> None:
            self._thread.join()
            act()

        threading.Thread(target=later, name="kafka-question-end", daemon=True).start()
