"""The object of the user's class: made, bound to its state, outputs and time, and called."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from grete.api.tasks.context import Context
from grete.api.tasks.methods import is_async, run_now
from grete.api.tasks.task import Task
from grete.api.topics.topic import Topic, TopicPattern
from grete.errors import TaskError
from grete.execution.calls.binding import bind_calls, in_place, in_turn
from grete.execution.calls.effects import IsolatedStore
from grete.execution.calls.flight import Records
from grete.execution.calls.loop import awaiting_loop
from grete.execution.job_task import JobTask
from grete.execution.records.trace_context import NoTracing
from grete.execution.records.user_traceback import user_line
from grete.execution.task_code.binding import TaskEntries, bind_store, bound, expiring
from grete.execution.task_code.commit_requests import CommitRequests
from grete.execution.task_code.deduplication import deduplicators_of
from grete.execution.task_code.firing import Firing
from grete.execution.task_code.ports import TaskTracing
from grete.execution.task_code.process_loops import Loop, compile_loop, noted
from grete.execution.task_code.record_times import with_times
from grete.execution.task_code.site import Site
from grete.execution.timing.floors import Floors
from grete.quoting import named_error


class Instance:
    """The running object of a task: another one after each rollback. ``loops`` runs it over records, by topic."""

    def __init__(
        self, task: JobTask, site: Site, firing: Firing, floors: Floors, context: Context, records: Records | None
    ) -> None:
        self.tracing: TaskTracing = NoTracing()  # set by assemble
        self.task: Task | None = None
        self.loops: dict[str, Loop] = {}
        self.inputs = task.stage.inputs_by_log_topic(task.topology)
        self._of, self._site, self._firing, self._floors = task, site, firing, floors
        self._context, self._records = context, records
        self._deduplicators = deduplicators_of(task.stage, site.overlay, site.timers, floors)  # by topic

    @property
    def duplicates(self) -> int:
        """The number of records dropped because they came before."""
        return sum(each.duplicates for each in self._deduplicators.values())

    def make(self) -> None:
        """Make a new object over the state as it is. Raises TaskError if the class or its ``init`` fails."""
        task = self.task = self._call("the class", self._of.stage.task)
        self._bind_state(task)
        self._call("init", partial(run_now, "init", task.init))
        self._firing.begin()
        self._bind_outputs(task)
        self.loops = self._compile(task)

    def tell_committed(self, requests: CommitRequests) -> None:
        """Tell the code what it has asked for, and is committed. Raises TaskError if its ``on_commit`` fails."""
        if self.task is not None:
            site = self._site
            self._call("on_commit", partial(requests.committed, self.task, site.overlay, site.outputs))

    def close(self) -> None:
        """Forget the object, and close it. Raises TaskError if its ``close`` fails."""
        task, self.task = self.task, None
        if task is not None:
            self._call("close", partial(run_now, "close", task.close))

    def _bind_state(self, task: Any) -> None:
        """Give the instance its stores, timers, windows, joins and context."""
        ids, records = self._of.stage.store_ids(), self._records
        for attribute, store in self._of.stage.stores.items():
            overlay = self._site.overlay.store(ids[store.name])
            entries: TaskEntries = expiring(store, overlay, self._site.timers, self._site.outputs, self._floors)
            if records is not None:
                entries = IsolatedStore(ids[store.name], overlay, records)
            setattr(task, attribute, bind_store(store, entries))
        self._firing.bind(task, ids)
        if records is not None:
            bind_calls(self._of.stage, task, records)
        task.ctx = self._context

    def _bind_outputs(self, task: Task) -> None:
        """Give the instance its outputs: after ``init``, whose sends would be repeated at each start."""
        for attribute, output in self._of.stage.outputs.items():
            target = output.target
            send = (
                self._site.outputs.sender(target)
                if isinstance(target, Topic | TopicPattern)
                else self._site.outbox.sender(attribute, target)
            )
            setattr(task, attribute, bound(output, send=self.tracing.sender(target, in_turn(self._records, send))))

    def _compile(self, task: Task) -> dict[str, Loop]:
        stage, loops = self._of.stage, dict[str, Loop]()
        for topic, declared in self.inputs.items():
            method = stage.method_of(declared.topic.name)
            process = self.tracing.around(stage, self._function(task, method))
            process = noted(self._site, process) if stage.late_outputs else process
            site = replace(self._site, out_of_order_ms=declared.out_of_order_ms)
            if self._records is not None:
                loop = awaiting_loop(site, declared, process, self._records)
            else:
                new = self._deduplicators.get(topic)
                call = process if new is None else new.around_batch(process) if stage.batch else new.around(process)
                loop = compile_loop(site, declared, call, method, batch=stage.batch)
            timed = with_times(site, declared, self._context, loop, in_place(self._records))
            loops[topic] = self.tracing.around_batch(timed)
        return loops

    def _function(self, task: Task, method: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(task, method)
        if not self._of.stage.awaits or is_async(function):
            return function

        async def at_once(record: Any) -> Any:  # a plain method of a task of which others wait for calls
            return function(record)

        return at_once

    def _call(self, what: str, function: Callable[[], Any]) -> Any:
        """Call user code outside of the loops. Raises TaskError naming the task."""
        try:
            return function()
        except Exception as error:
            text = f"{self._of.where}: {what} raised {named_error(error)}{user_line(error)}"
            raise TaskError(text, stage=self._of.stage.name) from error
