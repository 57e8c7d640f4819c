# Code as users write it, for the type checker: each `# R:` is the type that mypy must see, each `# E:` an
# error that it must find. Never run; checked by test_types.py.
from __future__ import annotations

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
    reveal_type(outcome.after)  # R: Union[float, None]
    reveal_type(testing.FakeJob(attempt=2).run(send_notice, 7).progress)  # R: list[rea.testing.Progress]
    with testing.Server("jobs.py", workers=1) as server:
        reveal_type(server.client)  # R: rea.client.Client
