# Jobs and flows that run in this process, for tests: what waits for what, what runs again. The rules are
# those of the server (docs/flows.md); python/tests/test_flow_server.py holds both against each other.
from __future__ import annotations

from . import _calls, _steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .testing import Outcome

FINAL = ("success", "dead", "cancelled", "skipped")


class LocalJob:
    """One job, and what became of it."""

    def __init__(
        self, request: dict[str, Any], edges: list[tuple[str, str]], root_id: str | None = None
    ) -> None:
        self.id: str = request["task_id"]
        self.request = request
        self.task: str = request["task"]
        self.trace_id = request.get("trace_id") or self.id.replace("-", "")
        self.root_id = root_id or request.get("root_id") or self.id
        self.edges = edges
        self.state = "pending"
        self.attempt = 0
        self.outcome: Outcome | None = None
        self.result: Any = None
        self.error: dict[str, Any] | None = None
        self.flow: LocalFlow | None = None
        self.node: str | None = None
        #: The jobs that this one, a map, has made.
        self.made: list[LocalJob] = []
        self.made_by: LocalJob | None = None

    def end(self, state: str, cause: str | None = None, kind: str | None = None, message: str = "") -> None:
        self.state = state
        if cause is not None:
            self.error = {"cause": cause, "type": kind or cause, "message": message, "traceback": None}

    def verdict(self, jobs: dict[str, LocalJob]) -> str:
        """ "waits", "met" or the reason why it can never run."""
        settled: dict[str, list[bool | None]] = {"success": [], "failure": [], "finished": []}
        reason = ""
        for parent, on in _with_made(self.edges, jobs):
            wanted = {"success": "success", "failure": "dead"}.get(on, parent.state)
            holds = parent.state == wanted if parent.state in FINAL else None
            settled[on].append(holds)
            if holds is False and not reason:
                reason = f"upstream {parent.node or parent.id} is {parent.state} ({parent.id})"
        must = settled["success"] + settled["finished"]
        any_of = settled["failure"]
        if False in must or (any_of and not any(holds is not False for holds in any_of)):
            return reason
        return "waits" if None in must or (any_of and True not in any_of) else "met"


def _with_made(edges: list[tuple[str, str]], jobs: dict[str, LocalJob]) -> Iterator[tuple[LocalJob, str]]:
    """An edge to a map is one to each job that it has made, too. Jobs that are not here have ended well."""
    for parent_id, on in edges:
        parent = jobs.get(parent_id)
        if parent is None:
            parent = LocalJob({"task_id": parent_id, "task": "", "args": [], "kwargs": {}}, [])
            parent.state = "success"
        yield parent, on
        for one in parent.made:
            yield one, on


class LocalFlow:
    """One run of a flow."""

    def __init__(self, request: dict[str, Any], before: LocalFlow | None = None) -> None:
        self.request = request
        self.before = before
        self.next: LocalFlow | None = None
        self.id: str = request["flow_id"] if before is None else _calls.new_task_id()
        self.name: str = request["name"]
        self.attempt: int = 1 if before is None else before.attempt + 1
        self.max_attempts: int = request.get("max_attempts") or 1
        self.root_id: str = request.get("root_id") or (self.id if before is None else before.root_id)
        #: The jobs that this run made.
        self.jobs: list[LocalJob] = []
        #: By the name of a node: its jobs, of a run before where they were not made anew. A list's are many.
        self.of_node: dict[str, list[LocalJob]] = {} if before is None else dict(before.of_node)

    def state(self) -> str:
        states = {one.state for one in self.jobs}
        if not states <= {*FINAL}:
            return "running"
        return next((state for state in ("dead", "cancelled") if state in states), "success")

    def make(self) -> list[LocalJob]:
        """Makes all jobs; of a list: one for each item. What a map makes comes when its list is there."""
        for node in self.request["nodes"]:
            name, over = node["name"], node.get("map")
            if type(over) is list:
                items = [_of_item(node, node["task"], item) for item in over]
                self.of_node[name] = [self._new(one, f"{name}[{n}]") for n, one in enumerate(items)]
            else:
                task = _steps.MAP_TASK if over is not None else node["task"]
                self.of_node[name] = [self._new({**node, "task": task}, name)]
        return self._linked()

    def make_items(self, map_job: LocalJob, items: list[Any]) -> list[LocalJob]:
        """The jobs of a map, now that its list is there."""
        node = self.node(str(map_job.node))
        for number, item in enumerate(items):
            one = self._new(_of_item(node, node["task"], item), f"{map_job.node}[{number}]")
            one.made_by = map_job
            map_job.made.append(one)
        return map_job.made

    def again(self, everything: bool) -> tuple[LocalFlow, list[LocalJob]]:
        """The next run and its jobs: what failed or was cancelled and all below it, or all."""
        self.next = run = LocalFlow(self.request, self)
        if everything:
            return run, run.make()
        anew: set[str] = set()
        for job in (one for jobs in self.of_node.values() for each in jobs for one in (each, *each.made)):
            above = {parent.id for parent, _ in _with_made(job.edges, self.all_jobs())}
            if job.state in ("dead", "cancelled") or above & anew:
                anew.add(job.id)

        def renewed(job: LocalJob) -> LocalJob:
            if job.id not in anew:
                job.made = [renewed(one) for one in job.made]
                return job
            one = run._new(job.request, str(job.node))
            one.made_by = job.made_by
            return one

        run.of_node = {name: [renewed(job) for job in jobs] for name, jobs in self.of_node.items()}
        return run, run._linked()

    def all_jobs(self) -> dict[str, LocalJob]:
        """By id: the newest job of every node."""
        return {job.id: job for jobs in self.of_node.values() for job in jobs}

    def node(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in self.request["nodes"] if one["name"] == name)
        return found

    def _new(self, request: dict[str, Any], node: str) -> LocalJob:
        job = LocalJob({**request, "task_id": _calls.new_task_id()}, [], self.root_id)
        job.flow, job.node = self, node
        self.jobs.append(job)
        return job

    def _linked(self) -> list[LocalJob]:
        """The jobs of this run, with edges from the newest job of each node."""
        for job in self.jobs:
            if job.made_by is None:
                for on, source in _sources(job.request):
                    ids = (
                        [parent.id for parent in self.of_node[source]] if source in self.of_node else [source]
                    )
                    job.edges += [(each, on) for each in ids]
        return self.jobs

    def view(self) -> dict[str, Any]:
        return {
            "flow_id": self.id,
            "name": self.name,
            "state": self.state(),
            "attempt": self.attempt,
            "max_attempts": self.max_attempts,
            "retry": self.request.get("retry") or "failed",
            "retry_of": self.before.id if self.before else None,
            "next": self.next.id if self.next else None,
            "root_id": self.root_id,
            "nodes": [
                {
                    "node": one.node,
                    "task_id": one.id,
                    "task": one.task,
                    "state": one.state,
                    "attempt": one.attempt,
                    **({"made_by": one.made_by.id} if one.made_by else {}),
                    **({"last_error": one.error} if one.error else {}),
                }
                for one in self.jobs
            ],
        }


def _of_item(node: dict[str, Any], task: str, item: Any) -> dict[str, Any]:
    """The request of the job for one item of a list."""
    args, kwargs = with_item(node["args"], item), with_item(node["kwargs"], item)
    return {**node, "task": task, "args": args, "kwargs": kwargs, "map": None}


def _sources(request: dict[str, Any]) -> list[tuple[str, str]]:
    """(condition, name) of what a node waits for: said, or by a result that it takes."""
    said: dict[str, str] = {}
    for edge in request.get("depends_on") or []:
        name, on = (edge, "success") if isinstance(edge, str) else (edge["node"], edge.get("on", "success"))
        said[name] = on
    over = request.get("map")
    taken = [over["result"]] if type(over) is dict else []
    taken += markers([request.get("args"), request.get("kwargs")])
    for name in taken:
        said.setdefault(name, "success")
    return [(on, name) for name, on in said.items()]


def in_order(request: dict[str, Any]) -> list[str]:
    """The names of the nodes, parents first. graphlib.CycleError tells a cycle."""
    import graphlib

    names = {node["name"] for node in request["nodes"]}
    sorter: Any = graphlib.TopologicalSorter()
    for node in request["nodes"]:
        sorter.add(node["name"], *(source for _, source in _sources(node) if source in names))
    return list(sorter.static_order())


# --- places in arguments ---


def _marker(value: Any) -> str | None:
    return next(iter(value), None) if isinstance(value, dict) and len(value) == 1 else None


def markers(value: Any) -> list[str]:
    """The names whose results `value` has places for."""
    if _marker(value) == "$result":
        return [value["$result"]]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [name for one in inside for name in markers(one)]


def filled(value: Any, results: Any) -> Any:
    """`value` with `results(name)` in each place."""
    if _marker(value) == "$result":
        return results(value["$result"])
    if isinstance(value, dict):
        return {key: filled(one, results) for key, one in value.items()}
    return [filled(one, results) for one in value] if isinstance(value, list) else value


def with_item(value: Any, item: Any) -> Any:
    if _marker(value) == "$item":
        return item
    if isinstance(value, dict):
        return {key: with_item(one, item) for key, one in value.items()}
    return [with_item(one, item) for one in value] if isinstance(value, list) else value
