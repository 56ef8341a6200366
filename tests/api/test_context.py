"""A task's context: in deterministic mode a function of logical time and of how often it was asked."""

from grete.api.tasks.context import Context, LogicalContext


def test_the_logical_context_repeats_itself() -> None:
    """D3: the same logical time and the same count of calls give the same time, numbers and identifiers."""
    first, again = (LogicalContext("job/stage/0", lambda: (1_700_000_000_123_456, 7)) for _ in range(2))
    assert first.now() == 1_700_000_000_123
    assert first.now_us() == 1_700_000_000_123_456
    assert [first.random().random() for _ in range(3)] == [again.random().random() for _ in range(3)]
    assert first.uuid() == again.uuid()


def test_no_two_calls_give_the_same() -> None:
    """Call, logical time, source and task are all in the seed."""
    at = [(5, 1)]
    context = LogicalContext("job/stage/0", lambda: at[0])
    drawn = {context.uuid(), context.uuid()}
    context.calls, at[0] = 0, (5, 2)
    drawn.add(context.uuid())
    context.calls, at[0] = 0, (6, 1)
    drawn.add(context.uuid())
    drawn.add(LogicalContext("job/stage/1", lambda: (5, 1)).uuid())
    assert len(drawn) == 5


def test_elsewhere_the_context_is_the_machines() -> None:
    """An aligned task may use any time and any number."""
    context = Context()
    before = context.now_us()
    assert before <= context.now_us()
    assert context.uuid() != context.uuid()
    assert context.uuid().version == 4
