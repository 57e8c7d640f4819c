# Code as users write it, for the type checker: each `# R:` is the type that mypy must see, each `# E:` an
# error that it must find. Never run; checked by test_types.py.
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Optional

import rea
from rea import aio, testing
from rea.exception import JobFailed, RetryableError
from rea.task import task


@task
def add(a: int, b: int = 2) -> int:
    return a + b


@task(max_attempts=5, default_priority=3, timeout=None, retry_on=(OSError, KeyError))
def send_notice(user_id: int, trace_id: Optional[str] = None) -> str:
    job = rea.current_job()
    reveal_type(job.key)  # R: str
    job.progress(1, 2, note="half")
    raise RetryableError("gateway busy", after=timedelta(seconds=5))


@task(name="fetch")
async def fetch(url: str) -> bytes:
    handle = await aio.enqueue(add, 1)
    reveal_type(handle)  # R: rea.aio.Handle
    return url.encode()


def plain() -> None:
    # Called, a task is its function; enqueued, it takes the same arguments.
    reveal_type(add(1, 2))  # R: int
    reveal_type(add.enqueue(1, b=2))  # R: rea.handle.Handle
    add.enqueue("one")  # E: incompatible type "str"; expected "int"
    add.enqueue()  # E: Missing positional argument "a"
    add.options(priority=1, delay=60, key="k").enqueue(1, c=2)  # E: Unexpected keyword argument "c"
    add.options(prio=1)  # E: Unexpected keyword argument "prio"
    fetch.enqueue(5)  # E: incompatible type "int"; expected "str"
    send_notice.enqueue(7)

    handle = rea.enqueue(add, 1, 2)
    reveal_type(handle)  # R: rea.handle.Handle
    reveal_type(handle.task_id)  # R: str
    reveal_type(handle.created)  # R: bool
    handle.nonsense  # E: has no attribute "nonsense"
    rea.enqueue(add, "one")  # E: No overload variant
    rea.enqueue(add.options(priority=1), 1)
    rea.enqueue(add.job(1))
    rea.enqueue(add.job(1), 2)  # E: No overload variant
    rea.enqueue("other:task", 1, x=2)
    rea.enqueue_many([add.job(1), ("other:task", [1], {"x": 2})])

    with rea.batch() as b:
        reveal_type(b.enqueue(add, 1))  # R: rea.handle.Handle
        b.enqueue(add.options(key="k"), "one")  # E: No overload variant
    reveal_type(b.handles)  # R: list[rea.handle.Handle]
    reveal_type(rea.wait(b.handles, timeout=60))  # R: list[Any]
    try:
        handle.result(timeout=None)
    except JobFailed as error:
        reveal_type(error.state)  # R: str

    with rea.connect("http://127.0.0.1:8000", token="x") as client:
        reveal_type(client.enqueue(add, 1))  # R: rea.handle.Handle


@task
def clean(rows: list[int]) -> list[str]:
    return [str(row) for row in rows]


@task
def fetch_rows(day: str) -> list[int]:
    return [len(day)]


def flows() -> None:
    with rea.flow("nightly", max_attempts=3, retry="all") as flow:
        rows = fetch_rows("monday")
        reveal_type(rows)  # R: list[int]
        texts = clean(rows)
        clean(texts)  # E: incompatible type "list[str]"; expected "list[int]"
        alert = send_notice(7, depends_on=rows, on_failure=True)
        reveal_type(alert)  # R: Any
        add(1, depends_on=[rows, alert], on_finish=True)
        add(1, depends_on=rows, on_failure="yes")  # E: No overload variant
        reveal_type(clean.map(rows))  # R: Any
        page = add.options(priority=1, name="page", depends_on={rows: "finished"})(1, b=2)
        reveal_type(page)  # R: Any
        add.options(name="page")(1, c=2)  # E: No overload variant
        flow.add("other:task", rows, depends_on=texts)
    reveal_type(flow)  # R: rea._flow.Flow
    reveal_type(flow.id)  # R: str
    reveal_type(flow.result(timeout=60))  # R: dict[str, Any]
    reveal_type(flow.state())  # R: str
    reveal_type(flow.nodes["clean"])  # R: rea._flow.Node
    reveal_type(flow.nodes["clean"].handle())  # R: rea.handle.Handle
    reveal_type(flow.retry(from_start=True))  # R: rea._flow.FlowHandle
    flow.retry("all")  # E: incompatible type "str"; expected "bool"
    flow.nonsense  # E: has no attribute "nonsense"
    flow.nodes["clean"].nonsense  # E: has no attribute "nonsense"
    rea.flow("x", retries=3)  # E: Unexpected keyword argument "retries"
    reveal_type(rea.Client().submit_flow({"name": "x"}))  # R: rea._flow.FlowHandle


async def asynchronous_flows() -> None:
    async with aio.flow("nightly") as flow:
        reveal_type(fetch.options()("x"))  # R: Any
    reveal_type(await flow.result())  # R: dict[str, Any]
    reveal_type(await flow.nodes["fetch"].result())  # R: Any
    reveal_type(await flow.retry())  # R: rea._aio_flow.FlowHandle


async def asynchronous() -> None:
    reveal_type(await fetch("x"))  # R: bytes
    handle = await aio.enqueue(fetch, "x")
    await aio.enqueue(fetch, 5)  # E: No overload variant
    reveal_type(await handle.state())  # R: str
    async with aio.batch(chunk=100) as b:
        reveal_type(await b.enqueue(add, 1))  # R: rea.aio.Handle
    reveal_type(await aio.wait(b.handles))  # R: list[Any]
    async with aio.Client() as client:
        await client.enqueue("other:task", 1)


def tests() -> None:
    outcome = testing.run(add, 1, b=2)
    testing.run(add, "one")  # E: incompatible type "str"; expected "int"
    reveal_type(outcome.state)  # R: str
    reveal_type(list(map(add, [1, 2])))  # R: list[int]
    reveal_type(ThreadPoolExecutor().submit(add, 1, b=2).result())  # R: int
    reveal_type(outcome.after)  # R: Union[float, None]
    reveal_type(testing.FakeJob(attempt=2).run(send_notice, 7).progress)  # R: list[rea.testing.Progress]
    with testing.InProcess() as here:
        reveal_type(here.outcome(add.enqueue(1)))  # R: rea.testing.Outcome
    with testing.Server("jobs.py", workers=1) as server:
        reveal_type(server.client)  # R: rea.client.Client
