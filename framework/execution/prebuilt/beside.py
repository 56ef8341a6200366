"""Work of which some steps take long, and may be taken beside a loop in which others have their turns."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from grete.errors import FrameworkError

T = TypeVar("T")
Steps = Generator[Callable[[], Any], Any, T]  # yields each long step, and goes on with its result, or its error


def at_once(steps: Steps[T]) -> T:
    """Take all long steps here and now, and return the result. Raises what the work raises."""
    try:
        step = next(steps)
        while True:
            try:
                result = step()
            except FrameworkError as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as ended:
        done: T = ended.value
        return done
