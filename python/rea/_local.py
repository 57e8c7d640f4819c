# A server that is not one, for tests: jobs and flows that are stored run here and now, in this process.
from __future__ import annotations

import contextvars
import graphlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor

from . import _local_flows, _steps, aio, client
from ._local_flows import FINAL, LocalFlow, LocalJob
from ._node import Node
from .exception import Refused
from .task import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .handle import Names
    from .testing import Outcome

# Whether the code runs below a job of here: what it stores runs within it.
_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("rea_local", default=False)


class InProcess:
    """`with InProcess() as here:` jobs and flows that are stored in the block run at once, in this process.

    A call of `enqueue`, or the end of a flow's block, returns when all that it stored has ended: retries
    come without their wait, delays and timeouts are not watched, and jobs run one after the other. Jobs of
    a flow run when their parents ended, maps and new runs of the flow included. Jobs that are not here
    count as ended well, with None.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, LocalJob] = {}
        self._keys: dict[tuple[str, str], LocalJob] = {}
        self._flows: dict[str, LocalFlow] = {}
        self._lock = threading.Lock()

    def outcome(self, of: Node | Names | str) -> Outcome:
        """How the last attempt ended of a job, by its handle or id, or of a node in the newest run that has
        it. KeyError when there was none: it was skipped, or waits.
        """
        if isinstance(of, Node):
            run = self._flows[of._graph.id]
            while run.next is not None:
                run = run.next
            job = run.of_node[of.name][-1]
        else:
            job = self._jobs[of if isinstance(of, str) else of.task_id]
        if job.outcome is None:
            raise KeyError(f"no attempt of {job.node or job.id} was made: it is {job.state}")
        return job.outcome

    def __enter__(self) -> InProcess:
        self._before = client._default
        client._default = _Client(self)
        return self

    def __exit__(self, *_error: object) -> None:
        client._default = self._before

    # --- what a server answers ---

    def exchange(self, method: str, path: str, body: bytes | None = None, **_how: Any) -> Any:
        if _inside.get():
            return self._answer(method, path, body)
        with self._lock:
            token = _inside.set(True)
            try:
                return self._answer(method, path, body)
            finally:
                _inside.reset(token)

    def _answer(self, method: str, path: str, body: bytes | None) -> Any:
        sent: Any = json.loads(body) if body else None
        kind, *rest = path.partition("?")[0].strip("/").split("/")
        if method == "POST" and not rest:
            if kind == "flows":
                return self._submit(sent)
            if kind in ("enqueue", "jobs"):
                new = [sent] if kind == "enqueue" else sent
                for one in new:
                    self._known(one["task"])
                answers = [self._enqueue(one) for one in new]
                self._run_all()
                return answers[0] if kind == "enqueue" else {"jobs": answers}
        if (kind, rest) == ("jobs", ["wait"]):
            wanted = [self._jobs[one] for one in sent["task_ids"] if one in self._jobs]
            missing = [one for one in sent["task_ids"] if one not in self._jobs]
            return {"jobs": [_job_view(one) for one in wanted if one.state in FINAL], "missing": missing}
        if kind == "jobs" and len(rest) == 1:
            return _job_view(self._find(self._jobs, rest[0]))
        if kind == "flows" and len(rest) == 1:
            return self._newest(rest[0], "wait=" in path).view()
        if kind == "flows" and rest[1] == "retry":
            return self._retry(self._find(self._flows, rest[0]), sent)
        raise Refused(
            "not_in_process", f"{method} {path} does not work in process; use rea.testing.Server", 501
        )

    def _find(self, there: dict[str, Any], key: str) -> Any:
        if key not in there:
            raise Refused("not_found", f"there is no {key} in this process", 404)
        return there[key]

    def _newest(self, flow_id: str, newest: bool) -> LocalFlow:
        run: LocalFlow = self._find(self._flows, flow_id)
        while newest and run.next is not None:
            run = run.next
        return run

    def _known(self, task: str) -> None:
        if task not in registry:
            raise Refused("unknown_task", f"no task {task!r} is loaded here; import its module", 422)

    def _enqueue(self, sent: dict[str, Any]) -> dict[str, Any]:
        key = (sent["task"], sent["key"]) if "key" in sent else None
        job = self._jobs.get(sent["task_id"]) or (self._keys.get(key) if key else None)
        created = job is None
        if job is None:
            edges = [
                (edge, "success") if isinstance(edge, str) else (edge["task_id"], edge["on"])
                for edge in sent.get("depends_on") or []
            ]
            job = self._jobs[sent["task_id"]] = LocalJob(sent, edges)
            if key:
                self._keys[key] = job
        return {"task_id": job.id, "trace_id": job.trace_id, "created": created}

    def _submit(self, sent: dict[str, Any]) -> dict[str, Any]:
        run = self._flows.get(sent["flow_id"])
        created = run is None
        if run is None:
            nodes = sent["nodes"]
            if isinstance(nodes, dict):
                nodes = [{"name": name, **node} for name, node in nodes.items()]
            sent["nodes"] = [{"args": [], "kwargs": {}, **node} for node in nodes]
            for node in sent["nodes"]:
                self._known(node["task"])
            try:
                order = _local_flows.in_order(sent)
            except graphlib.CycleError as error:
                around = " → ".join(error.args[1])
                raise Refused("cycle", f"the jobs wait for each other: {around}", 422) from None
            sent["nodes"].sort(key=lambda node: order.index(node["name"]))
            run = self._flows[sent["flow_id"]] = LocalFlow(sent)
            self._start(run.make())
        first = [one for one in run.jobs if one.made_by is None]
        jobs = [{"node": one.node, "task_id": one.id, "trace_id": one.trace_id} for one in first]
        return {"flow_id": run.id, "created": created, "jobs": jobs}

    def _retry(self, run: LocalFlow, sent: dict[str, Any]) -> dict[str, Any]:
        everything = sent.get("retry") == "all"
        if run.next is not None:
            raise Refused("flow_superseded", f"the flow was run again as {run.next.id}", 409)
        if run.state() == "success" and not everything:
            raise Refused("flow_ended", "the flow has succeeded", 409)
        return self._run_again(run, everything).view()

    # --- running ---

    def _start(self, jobs: list[LocalJob]) -> None:
        self._jobs.update((one.id, one) for one in jobs)
        self._run_all()

    def _run_all(self) -> None:
        """Runs what may run until nothing is left that may."""
        moved = True
        while moved:
            moved = False
            for job in [one for one in self._jobs.values() if one.state == "pending"]:
                verdict = job.verdict(self._jobs)
                if job.state != "pending" or verdict == "waits":
                    continue
                if verdict == "met":
                    self._run(job)
                else:
                    job.end("skipped", "skipped", "upstream", verdict)
                self._after(job)
                moved = True

    def _after(self, job: LocalJob) -> None:
        run = job.flow
        if run is None or run.next is not None or run.state() != "dead" or run.attempt >= run.max_attempts:
            return
        self._run_again(run, run.request.get("retry") == "all")

    def _run_again(self, run: LocalFlow, everything: bool) -> LocalFlow:
        again, jobs = run.again(everything)
        self._flows[again.id] = again
        self._start(jobs)
        return again

    def _run(self, job: LocalJob) -> None:
        job.state = "running"
        if job.task == _steps.MAP_TASK:
            self._run_map(job)
            return
        from .testing import MAX_ATTEMPTS, FakeJob

        task = registry[job.task]
        args, kwargs = job.request["args"], job.request["kwargs"]
        if job.edges:
            args = _local_flows.filled(args, lambda name: self._result(job, name))
            kwargs = _local_flows.filled(kwargs, lambda name: self._result(job, name))
        most = job.request.get("max_attempts") or task.defaults.get("max_attempts") or MAX_ATTEMPTS
        while True:
            job.attempt += 1
            made = FakeJob(
                attempt=job.attempt,
                max_attempts=most,
                key=job.request.get("key"),
                task_id=job.id,
                trace_id=job.trace_id,
                root_id=job.root_id,
                queue=job.request.get("queue"),
            )
            job.outcome = outcome = made.run(task, *args, **kwargs)
            if outcome.state != "failed":
                break
        job.result = outcome.result
        if outcome.error is None:
            job.end("success")
        else:
            job.end("dead", outcome.cause, type(outcome.error).__name__, outcome.message or "")

    def _run_map(self, job: LocalJob) -> None:
        assert job.flow is not None
        items = self._result(job, job.request["map"]["result"])
        if not isinstance(items, list):
            job.end("dead", "fatal", "NotAList", f"a map needs a list, not {items!r}")
            return
        job.end("success")
        self._jobs.update((one.id, one) for one in job.flow.make_items(job, items))

    def _result(self, job: LocalJob, name: str) -> Any:
        """What goes to the place of `name` in the arguments of `job`."""
        jobs = job.flow.of_node.get(name) if job.flow else None
        if jobs is None:
            there = self._jobs.get(name)
            return there.result if there else None
        over = job.flow.node(name).get("map") if job.flow else None
        if type(over) is dict:
            jobs = jobs[0].made
        values = [one.result if one.state == "success" else None for one in jobs]
        return values if over is not None else values[0]


def _job_view(job: LocalJob) -> dict[str, Any]:
    return {
        "task_id": job.id,
        "trace_id": job.trace_id,
        "root_id": job.root_id,
        "task": job.task,
        "state": job.state,
        "attempt": job.attempt,
        "result": job.result if job.state == "success" else None,
        "last_error": job.error,
        "flow_id": job.flow.id if job.flow else None,
        "node": job.node,
    }


class _Client(client.Client):
    def __init__(self, here: InProcess) -> None:
        super().__init__("http://in-process")
        self._here = here
        self._transport = here  # type: ignore[assignment]

    def close(self) -> None:
        pass

    def for_asyncio(self) -> aio.Client:
        return _AsyncioClient(self._here)


class _AsyncioClient(aio.Client):
    def __init__(self, here: InProcess) -> None:
        super().__init__("http://in-process")
        self._transport = _InThread(here)  # type: ignore[assignment]


class _InThread:
    """An async task gets an event loop of its own: not in the thread where one runs already. That is held up
    meanwhile: what else runs in it would be taken for a part of the job.
    """

    def __init__(self, here: InProcess) -> None:
        self._here = here

    async def exchange(self, *what: Any, **how: Any) -> Any:
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(context.run, self._here.exchange, *what, **how).result()

    def close(self) -> None:
        pass
