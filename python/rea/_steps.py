# What is asked of the server about a flow, question by question, apart from how the questions travel: each
# function here yields an `Ask` (or seconds to sleep), gets the answer, and returns what it found out.
# `walk` and its namesake for asyncio do the asking.
from __future__ import annotations

import collections.abc
import math
import re
import time
from urllib.parse import quote

from . import _calls, _jsontext, _options, job
from .exception import FlowFailed, JobFailed, Refused, ResultTimeout, ServerUnreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from typing import Any, Callable, Union

    Steps = Generator[Union["Ask", float], Any, Any]

# The task of a node that makes a job for each item of another one's result: the server does it itself.
MAP_TASK = "rea.map"
_OF_MAP = re.compile(r"(.+)\[(\d+)\]")
_FINAL = ("success", "dead", "cancelled", "skipped")
# What a map is when its jobs ended differently.
_WORST_FIRST = ("dead", "cancelled", "skipped")


class Ask:
    """One request. `wait_s` is how much longer than usual the answer may take."""

    __slots__ = ("body", "method", "path", "repeatable", "wait_s")

    def __init__(self, path: str, body: Any = None, *, repeatable: bool = True, wait_s: int = 0) -> None:
        self.method = "GET" if body is None else "POST"
        self.path = path
        self.body = body if body is None or isinstance(body, bytes) else _jsontext.encode(body).encode()
        self.repeatable = repeatable
        self.wait_s = wait_s


def walk(steps: Steps, exchange: Callable[..., Any]) -> Any:
    """Asks one after the other, in this thread."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as done:
            return done.value
        answer, error = None, None
        if isinstance(step, float):
            time.sleep(step)
            continue
        try:
            answer = exchange(
                step.method, step.path, step.body, repeatable=step.repeatable, extra_s=step.wait_s
            )
        except Exception as found:
            error = found


def path(flow_id: str) -> str:
    return f"/flows/{quote(flow_id, safe='')}"


def flow_body(flow: Mapping[str, Any]) -> tuple[str, bytes]:
    """The id and the text of a flow that is written as it is sent."""
    if not isinstance(flow, collections.abc.Mapping):
        raise TypeError(
            f'submit_flow takes a dict such as {{"name": "nightly", "nodes": {{...}}}}, as `POST /flows` does, not '
            f"{repr(flow)[:80]}; read a file with tomllib or json, or send it with `rea flow submit FILE`; "
            f"what is written with rea.flow(...) is stored at the end of its block"
        )
    sent = dict(flow)
    sent["flow_id"] = _options.task_id("flow_id", sent.get("flow_id") or _calls.new_task_id())
    root_id = job.current_root_id()
    if root_id is not None:
        sent.setdefault("root_id", root_id)
    try:
        return sent["flow_id"], _jsontext.to_bytes(sent, "the flow")
    except _jsontext.NotJson as error:
        raise TypeError(str(error)) from None


def submit(body: bytes, flow_id: str) -> Steps:
    """Stores a flow. Repeatable because its id is made here: a repeat after a lost answer finds it."""
    try:
        return (yield Ask("/flows", body))
    except ServerUnreachable as error:
        if isinstance(error.__cause__, ConnectionRefusedError):
            raise
        raise ServerUnreachable(
            f"{error}. The flow may have been stored; to try again without making a second one, "
            f"use flow_id={flow_id!r}"
        ) from error.__cause__


# --- the runs of a flow ---


def newest(flow_id: str) -> Steps:
    """The newest run: a flow that was run again is shown as it is now."""
    found = yield Ask(path(flow_id))
    while found.get("next"):
        found = yield Ask(path(found["next"]))
    return found


def retry(flow_id: str, from_start: bool) -> Steps:
    found = yield from newest(flow_id)
    body = {"retry": "all"} if from_start else {}
    return (yield Ask(f"{path(found['flow_id'])}/retry", body, repeatable=False))


def cancel(flow_id: str) -> Steps:
    found = yield from newest(flow_id)
    return (yield Ask(f"{path(found['flow_id'])}/cancel", {}, repeatable=False))


def wait(flow_id: str, timeout: float | None) -> Steps:
    """The newest run once the flow has ended, its further runs included; ResultTimeout when it goes on."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        asked_s = time.monotonic()
        left_s = deadline - asked_s
        wait_s = int(min(_calls.WAIT_STEP_S, max(0, left_s)))
        try:
            found = yield Ask(f"{path(flow_id)}?wait={wait_s}", wait_s=wait_s)
        except ServerUnreachable:
            if left_s <= 0:
                raise
            yield min(0.5, left_s)
            continue
        if found.get("next"):
            flow_id = found["next"]
            continue
        if found["state"] != "running":
            return found
        if left_s <= 0:
            raise ResultTimeout(
                f"flow {found['name']} ({found['flow_id']}) is still running after {timeout} s; it goes on, "
                f"ask again"
            )
        if time.monotonic() - asked_s < 0.05:
            # Under a second is left, or the server answers long polls early: do not ask in a tight loop.
            yield min(0.05, left_s)


def nodes(run: dict[str, Any]) -> Steps:
    """The newest job of every node by its name: a run makes anew what had failed, the rest is older."""
    runs = [run]
    while runs[-1].get("retry_of"):
        try:
            runs.append((yield Ask(path(runs[-1]["retry_of"]))))
        except Refused as error:
            if error.status != 404:
                raise
            break  # deleted, its time was over
    jobs: dict[str, dict[str, Any]] = {}
    for each in reversed(runs):
        made = {one["node"]: one for one in each["nodes"]}
        for name in list(jobs):
            of_map = _OF_MAP.fullmatch(name)
            # A map that ran again may have made fewer jobs: those of the run before are no more.
            if of_map and of_map[1] in made:
                del jobs[name]
        jobs.update(made)
    return jobs


# --- the jobs of a node ---


class NodeJobs:
    """The job of a node; of a map: those that it has made, in the order of its list."""

    def __init__(self, name: str, jobs: dict[str, dict[str, Any]], known_lists: Iterable[str]) -> None:
        own = jobs.get(name)
        self.of_items = [jobs[f"{name}[{n}]"] for n in range(_count(name, jobs))]
        self.is_map = (
            bool(self.of_items) or name in known_lists or (own is not None and own["task"] == MAP_TASK)
        )
        self.all = ([own] if own is not None else []) + self.of_items
        self.results_of = self.of_items if self.is_map else self.all

    def state(self) -> str:
        states = {one["state"] for one in self.all} or {"success"}
        if len(states) == 1:
            return str(states.pop())
        if not states <= {*_FINAL}:
            return "held" if "held" in states and states <= {*_FINAL, "held"} else "running"
        return next(state for state in _WORST_FIRST if state in states)


def _count(name: str, jobs: dict[str, Any]) -> int:
    count = 0
    while f"{name}[{count}]" in jobs:
        count += 1
    return count


def node_names(jobs: Iterable[str], known_lists: Iterable[str]) -> list[str]:
    """The names of nodes: the jobs of a map are one."""
    of_maps = ((name, _OF_MAP.fullmatch(name)) for name in jobs)
    names = [of_map[1] if of_map else name for name, of_map in of_maps]
    return list(dict.fromkeys([*names, *known_lists]))


def node(flow_id: str, name: str, known_lists: Iterable[str]) -> Steps:
    """(the newest run, the jobs of one of its nodes)."""
    run = yield from newest(flow_id)
    jobs = yield from nodes(run)
    found = NodeJobs(name, jobs, known_lists)
    if not found.all and not found.is_map:
        raise ValueError(
            f"flow {run['name']} has no node {name!r}; it has {', '.join(node_names(jobs, known_lists))}"
        )
    return run, found


def node_state(flow_id: str, name: str, known_lists: Iterable[str]) -> Steps:
    _, found = yield from node(flow_id, name, known_lists)
    return found.state()


def node_result(flow_id: str, name: str, known_lists: Iterable[str], timeout: float | None) -> Steps:
    """Waits for the node's result; while the flow may run it again, a failure is not the end. A server that
    restarts meanwhile is waited for.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left_s = deadline - time.monotonic()
        try:
            run, found = yield from node(flow_id, name, known_lists)
            state = found.state()
            if state == "success":
                values = yield from results(found.results_of)
                return values if found.is_map else values[0]
            may_run_again = run["state"] == "running" and run["attempt"] < run["max_attempts"]
            if state == "held" or (state in _FINAL and not may_run_again):
                job = next(one for one in found.all if one["state"] == state)
                raise JobFailed(job["task_id"], state, job.get("last_error"))
            if left_s <= 0:
                raise ResultTimeout(
                    f"node {name} of flow {run['name']} is still {state} after {timeout} s; it goes on"
                )
            if state in _FINAL:
                wait_s = int(min(_calls.WAIT_STEP_S, left_s))
                yield Ask(f"{path(flow_id)}?wait={wait_s}", wait_s=wait_s)
            else:
                yield from ended(
                    [one["task_id"] for one in found.all if one["state"] not in _FINAL], deadline
                )
        except ServerUnreachable:
            if left_s <= 0:
                raise
            yield min(0.5, left_s)
        # Between the end of a job and that of its flow, and where the server answers long polls early.
        yield min(0.02, max(0.0, left_s))


def ended(task_ids: list[str], deadline: float) -> Steps:
    """Waits until these jobs have come to rest, or the deadline. Of many it asks only now and then."""
    while task_ids:
        left_s = max(0.0, deadline - time.monotonic())
        wait_s = int(min(_calls.WAIT_STEP_S, left_s))
        body = {"task_ids": task_ids[: _calls.BATCH_MAX], "wait": wait_s}
        answer = yield Ask("/jobs/wait", body, wait_s=wait_s)
        at_rest = {*answer["missing"], *(one["task_id"] for one in answer["jobs"])}
        task_ids = [one for one in task_ids if one not in at_rest]
        if left_s == 0:
            return
        if task_ids:
            yield min(0.02 + len(task_ids) / 20_000, left_s)


def results(jobs: list[dict[str, Any]]) -> Steps:
    """The results of ended jobs, in their order; None for those without one."""
    wanted = [one["task_id"] for one in jobs]
    found: dict[str, Any] = {}
    left = wanted
    while left:
        answer = yield Ask("/jobs/wait", {"task_ids": left[: _calls.BATCH_MAX]})
        found.update((one["task_id"], one.get("result")) for one in answer["jobs"])
        found.update(dict.fromkeys(answer["missing"]))
        still = [task_id for task_id in left if task_id not in found]
        if len(still) == len(left):
            break
        left = still
    return [found.get(task_id) for task_id in wanted]


def flow_results(flow_id: str, known_lists: Iterable[str], timeout: float | None) -> Steps:
    """What every node has returned, by its name, once the flow has ended well; FlowFailed when it has not."""
    run = yield from wait(flow_id, timeout)
    jobs = yield from nodes(run)
    if run["state"] != "success":
        bad = {name: one for name, one in jobs.items() if one["state"] == run["state"]}
        errors = {name: one.get("last_error") for name, one in bad.items()}
        raise FlowFailed(run["flow_id"], run["name"], run["state"], run["attempt"], errors)
    by_node = {name: NodeJobs(name, jobs, known_lists) for name in node_names(jobs, known_lists)}
    ended_well = {name: one for name, one in by_node.items() if one.state() == "success"}
    every = yield from results([one for each in ended_well.values() for one in each.results_of])
    values = iter(every)
    return {
        name: [next(values) for _ in each.results_of] if each.is_map else next(values)
        for name, each in ended_well.items()
    }
