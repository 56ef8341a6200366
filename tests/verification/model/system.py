"""The state of a world, what may happen in it, and what then follows. States are tuples of numbers.

What a process does depends on its own state and on what it reads only, so each such step is run once through the real
core and remembered; exploring is then looking up. Numbers stand for rows, partitions, processes, stores and tasks.
"""

from collections.abc import Hashable

from grete.core.lifecycle import TaskStatus
from grete.errors import Fenced, FrameworkError
from tests.verification.model.checks import Checks
from tests.verification.model.process import Process, Row, Store
from tests.verification.model.states import GONE, Face, Faults, Move, State, Table, Task
from tests.verification.model.world import World
from tests.verification.simulation.oracle import Violation


class System:
    """One world. ``reduced``: of steps that commute only one order is explored, once no fault is left."""

    def __init__(self, world: World, *, reduced: bool = True) -> None:
        self.world = world
        self.reduced = reduced
        self.checks = Checks(world)
        self.rows: Table[Row] = Table()
        self.logs: Table[tuple[int, ...]] = Table()
        self.stores: Table[Store] = Table()
        self.tasks: Table[Task] = Table()
        self.faults: Table[Faults] = Table()
        self.dead: Table[tuple[tuple[int, tuple[int, ...]], ...]] = Table()
        self.faces: list[Face] = []
        self.seen: set[str] = set()  # what has happened at least once, in the words of the core's counters
        self._frozen: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._steps: dict[tuple[Hashable, ...], int] = {}  # (process, what happens to it) -> process
        self._own_moves: dict[tuple[int, int], tuple[list[Move], list[tuple[int, int, list[Move]]]]] = {}
        self._turns: dict[tuple[int, Move, int], int] = {}  # (task, move, what it reads) -> task
        self._checked: set[tuple[Hashable, ...]] = set()
        self._index = {partition: n for n, partition in enumerate(world.partitions)}
        self._n = len(world.partitions)
        writers = [(p, task) for task, w in enumerate(world.wirings) for p in w.outputs]
        self._writers = {p: [t for q, t in writers if q == p] for p, _ in writers}
        self._routes = [world.routes(task) for task in range(len(world.wirings))]

    # --- states -------------------------------------------------------------------------------------------------------

    def initial(self) -> State:
        """Return the world after a quiet start: each task at its genesis, announced, and known to its consumers."""
        bounds = self.world.bounds
        none = self.tasks.number(Task((), self.stores.number(Store()), 0))
        faults = self.faults.number(Faults(0, 0, 0))
        state = (*[self.logs.number(())] * self._n, *[none] * len(self.world.wirings), faults, self.dead.number(()))
        while quiet := [move for move in self.moves(state) if move.kind in ("start", "send", "deliver")]:
            state = self.after(state, quiet[0])
        return (*state[:-2], self.faults.number(Faults(bounds.crashes, bounds.zombies, bounds.late)), state[-1])

    def task(self, state: State, task: int) -> Task:
        """Return a task of a state."""
        return self.tasks.values[state[self._n + task]]

    def partition(self, state: State, index: int) -> tuple[Row, ...]:
        """Return the messages of a partition."""
        return tuple(self.rows.values[row] for row in self.logs.values[state[index]])

    def log(self, state: State) -> list[tuple[Row, ...]]:
        """Return all partitions."""
        return [self.partition(state, index) for index in range(self._n)]

    # --- what may happen ----------------------------------------------------------------------------------------------

    def moves(self, state: State) -> list[Move]:
        """Return the moves that are possible in a state; of those that commute with all others, only one."""
        faults = self.faults.values[state[-2]]
        alone_first = self.reduced and not faults.crashes and not faults.zombies
        moves: list[Move] = []
        for task in range(len(self.world.wirings)):
            processes, store, _ = self.task(state, task)
            if not processes:
                moves.append(Move("start", task))
                if self.stores.values[store].changelog_position is not None:
                    moves.append(Move("start", task, what=1))
            for one, process in enumerate(processes):
                own = self._moves_of(state, task, one, process)
                if alone_first and len(processes) == 1 and own:
                    alone = self._alone(state, task, own, self.faces[process])
                    if alone is not None:
                        return [alone]
                moves += own
                if faults.crashes:
                    moves.append(Move("crash", task, one))
            if faults.zombies and len(processes) == 1:
                moves.append(Move("zombie", task))
        if faults.late:
            moves += [Move("late", n) for n in range(len(self.dead.values[state[-1]]))]
        return moves

    def _moves_of(self, state: State, task: int, one: int, process: int) -> list[Move]:
        known = self._own_moves.get((process, one))
        if known is None:
            known = self._own_moves[process, one] = self._all_moves_of(task, one, self.faces[process])
        moves, reads = known
        for index, offset, more in reads:
            if offset < len(self.logs.values[state[index]]):
                moves = moves + more
        return moves

    def _all_moves_of(self, task: int, one: int, face: Face) -> tuple[list[Move], list[tuple[int, int, list[Move]]]]:
        """Return the moves of a process whatever the log holds, and those if a partition goes beyond an offset."""
        routes = range(self._routes[task])
        moves = [Move("send", task, one, index) for index, _, _ in face.heads]
        if face.external >= 0 and face.status is TaskStatus.RUNNING:
            bounds = self.world.bounds
            done = face.external == bounds.records
            if face.wants_input and not done and face.frozen < bounds.checkpoints:
                moves += [Move("take", task, one, route=route) for route in routes]
            if (
                self.world.wirings[task].is_source and not face.committing
            ):  # the last checkpoint is closed when there is nothing left to take
                last = bounds.checkpoints if done else bounds.checkpoints - 1
                moves += [Move("tick", task, one, checkpoint_id) for checkpoint_id in range(face.frozen + 1, last + 1)]
        positions = face.positions if face.wants_input else ()
        return moves, [(i, o, [Move("deliver", task, one, i, route) for route in routes]) for i, o in positions]

    def _alone(self, state: State, task: int, own: list[Move], face: Face) -> Move | None:
        """Return a step of a lone process that commutes with all that others, and it itself, can do before it.

        Sending to a partition that no other task writes; or reading, if that is all it can do and it has one input.
        Commits and claims are never among them: what is checked when they reach the log depends on others.
        """
        dead = {index for index, _ in self.dead.values[state[-1]]}
        for index, _, is_data in face.heads:
            lone = is_data if index == task else self._writers[self.world.partitions[index]] == [task]
            if lone and index not in dead:
                return Move("send", task, 0, index)
        if len(own) == 1 and own[0].kind == "deliver" and len(face.positions) == 1 and not face.committing:
            return own[0]
        return None

    # --- what follows -------------------------------------------------------------------------------------------------

    def after(self, state: State, move: Move) -> State:
        """Return the state after a move. Raises Violation."""
        if move.kind == "late":
            return self._late(state, move.task)
        task = self.task(state, move.task)
        if move.kind in ("start", "zombie"):
            empty = move.what or move.kind == "zombie"
            store = self.stores.number(Store()) if empty else task.store
            process = self._started(state, move.task, task.starts + 1, store)
            faults = self.faults.values[state[-2]]
            if move.kind == "zombie":
                state = self._with(state, -2, self.faults.number(faults._replace(zombies=faults.zombies - 1)))
            return self._with_task(state, move.task, (*task.processes, process), task.store, task.starts + 1)
        before = task.processes[move.one]
        if move.kind == "crash":
            faults = self.faults.values[state[-2]]
            state = self._with(state, -2, self.faults.number(faults._replace(crashes=faults.crashes - 1)))
            return self._without(state, move.task, before)
        if move.kind == "send":
            state = self._appended(state, move.what, self._head(before, move.what))
        at = self._n + move.task
        key = state[at], move, self._seen(state, move, before)
        turned = self._turns.get(key)
        if turned is None:
            process = self._step(state, move, before)
            if process == GONE:
                return self._without(state, move.task, before)
            processes = sorted(process if each == before else each for each in task.processes)
            turned = self._turns[key] = self.tasks.number(task._replace(processes=tuple(processes)))
        return (*state[:at], turned, *state[at + 1 :])

    def _started(self, state: State, task: int, number: int, store: int) -> int:
        key = ("start", task, number, store, state[task])
        if key not in self._steps:
            process = Process(self.world, task, number, self.stores.values[store])
            process.start(self.partition(state, task))
            self._steps[key] = self._number(process)
        return self._check_store(state, task, self._steps[key])

    def _step(self, state: State, move: Move, before: int) -> int:
        """Return the process after what happens to it, GONE if it gives up."""
        key = (before, move.kind, move.what, move.route, self._seen(state, move, before))
        if key not in self._steps:
            process = Process.thaw(self.world, move.task, self._frozen[before])
            generation = process.core.generation
            try:
                self._perform(state, move, process)
            except Fenced as error:
                self.seen.add("fenced")
                nonce = process.core.ownership.nonce
                self.checks.fenced(self.partition(state, move.task), move.task, generation, nonce, str(error))
                self._steps[key] = GONE
                return GONE
            except FrameworkError as error:
                raise Violation("halted", str(error)) from error
            for partition, offset in process.trims:
                self.checks.trimmed(self.partition(state, move.task), move.task, partition, offset)
            self._saw(process)
            self._steps[key] = self._number(process)
            # nothing goes in circles: what does not append to the log moves the process forward
            if move.kind != "send" and self._progress(self._steps[key]) <= self._progress(before):
                raise Violation("liveness", f"{process.wiring.name}: goes in circles")
        return self._check_store(state, move.task, self._steps[key])

    def _saw(self, process: Process) -> None:
        core = process.core
        self.seen.update(name for name, count in core.seen.items() if count)
        if core.status is TaskStatus.ANNOUNCING and core.start_up.fold.last is not None:
            self.seen.add("restores" if core.start_up.restored else "redos")

    def _progress(self, process: int) -> tuple[int, ...]:
        face = self.faces[process]
        return (face.generation, face.known, face.frozen, face.external + sum(offset for _, offset in face.positions))

    def _seen(self, state: State, move: Move, before: int) -> int:
        """Return the number of what a process sees of the log in a move: a row, or its changelog; 0: nothing."""
        if move.kind == "deliver":
            offset = next(offset for index, offset in self.faces[before].positions if index == move.what)
            return self.logs.values[state[move.what]][offset]
        return state[move.task] if move.kind == "send" and move.what == move.task else 0

    def _perform(self, state: State, move: Move, process: Process) -> None:
        partition = self.world.partitions[move.what] if move.kind in ("deliver", "send") else None
        if move.kind == "take":
            process.take(move.route)
        elif move.kind == "tick":
            process.tick(move.what)
        elif partition is not None and move.kind == "deliver":
            row = self.logs.values[state[move.what]][process.position[partition]]
            process.deliver(partition, self.rows.values[row], move.route)
        elif partition is not None:
            changelog = self.partition(state, move.task)
            process.sent(partition, len(changelog) - 1, changelog)

    def _late(self, state: State, which: int) -> State:
        dead = list(self.dead.values[state[-1]])
        faults = self.faults.values[state[-2]]
        left = faults.late - 1
        index, rows = dead.pop(which)
        state = self._appended(state, index, rows[0])
        if rows[1:]:
            dead.append((index, rows[1:]))
        state = self._with(state, -2, self.faults.number(faults._replace(late=left)))
        return self._with(state, -1, self.dead.number(tuple(sorted(dead)) if left else ()))

    def _appended(self, state: State, index: int, row: int) -> State:
        state = self._with(state, index, self.logs.number((*self.logs.values[state[index]], row)))
        starts = self.task(state, index).starts if index < len(self.world.wirings) else 0
        # what is checked depends on no more than this
        key = (index, starts, *state[: self._n])
        if key not in self._checked:
            self.checks.appended(self.log(state), index, starts)
            self._checked.add(key)
        return state

    def _check_store(self, state: State, task: int, process: int) -> int:
        if process == GONE:
            return process
        face = self.faces[process]
        starting = face.status is TaskStatus.STARTING
        key = (task, face.store, state[task], starting)
        if key not in self._checked:
            self.checks.stored(self.partition(state, task), task, self.stores.values[face.store], starting=starting)
            self._checked.add(key)
        return process

    # --- pieces -------------------------------------------------------------------------------------------------------

    def _without(self, state: State, task: int, process: int) -> State:
        """Return the state when a process is gone; what it has not sent may still come, or never."""
        processes, _, starts = self.task(state, task)
        if self.faults.values[state[-2]].late:
            queues = Process.thaw(self.world, task, self._frozen[process]).queues
            sent = [(self._index[p], tuple(self.rows.number(q.row) for q in queue)) for p, queue in queues.items()]
            state = self._with(state, -1, self.dead.number(tuple(sorted([*self.dead.values[state[-1]], *sent]))))
        left = tuple(each for each in processes if each != process)
        return self._with_task(state, task, left, self.faces[process].store, starts)

    def _with_task(self, state: State, task: int, processes: tuple[int, ...], store: int, starts: int) -> State:
        return self._with(state, self._n + task, self.tasks.number(Task(tuple(sorted(processes)), store, starts)))

    def _with(self, state: State, at: int, number: int) -> State:
        at %= len(state)
        return (*state[:at], number, *state[at + 1 :])

    def _head(self, process: int, index: int) -> int:
        return next(row for partition, row, _ in self.faces[process].heads if partition == index)

    def _number(self, process: Process) -> int:
        digest = bytes([process.task]) + process.digest()
        number = self._numbers.setdefault(digest, len(self.faces))
        if number == len(self.faces):
            self.faces.append(self._face(process))
            self._frozen.append(process.freeze())
        return number

    def _face(self, process: Process) -> Face:
        core = process.core
        heads = [(self._index[p], self.rows.number(q[0].row), q[0].token is None) for p, q in process.queues.items()]
        return Face(
            number=process.number,
            status=core.status,
            generation=core.generation,
            wants_input=core.wants_input,
            positions=tuple(sorted((self._index[p], o) for p, o in process.position.items() if p in self._index))
            if not (core.wants_input and core.external.read_first)  # as the driver reads (A2c)
            else (),
            heads=tuple(sorted(heads)),
            frozen=core.frozen,
            known=sum(
                rollback_history[-1].generation
                for rollback_history in core.inputs.rollbacks.known.values()
                if rollback_history
            ),
            external=next(iter(core.external.position.values()), -1) if process.wiring.external else -1,
            committing=core.commits.pending is not None,
            store=self.stores.number(process.store()),
        )
