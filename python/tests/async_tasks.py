# `async def` tasks, good and bad; test_child_async.py runs them in real child processes.
from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import sys
import time

import rea
from rea.exception import RetryableError
from rea.task import task

setting = contextvars.ContextVar("setting", default="unset")


@task
async def add(a, b, trace_id=None):
    await asyncio.sleep(0)
    return [a + b, trace_id]


@task
async def look():
    """What a job finds, and then changes for the next one."""
    found = [setting.get(), id(asyncio.get_running_loop()) == look_loop.get("id"), len(asyncio.all_tasks())]
    setting.set("leaked")
    look_loop["id"] = id(asyncio.get_running_loop())
    look_loop["loop"] = asyncio.get_running_loop()  # kept, so that its id is not used again
    return found


look_loop: dict = {}


@task
async def about_job():
    here = rea.current_job().attempt
    return [here, await asyncio.to_thread(lambda: rea.current_job().attempt)]


@task
async def fail(kind):
    await asyncio.sleep(0)
    if kind == "retry":
        raise RetryableError("later", after=2)
    if kind == "exit":
        sys.exit(3)
    if kind == "timeout":
        await asyncio.wait_for(asyncio.sleep(60), 0.01)
    if kind == "cancel":
        asyncio.current_task().cancel()
        await asyncio.sleep(60)
    if kind == "stop":
        asyncio.get_running_loop().stop()
        await asyncio.sleep(60)
    raise ValueError(kind)


def keeping(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        return func(*args, **kwargs)

    return wrapper


@task
@keeping
async def hidden():
    await asyncio.sleep(0)
    return "awaited"


@task
async def return_a_coroutine():
    return asyncio.sleep(0)


# --- what a job leaves running ---


async def poll_for_ever():
    try:
        while True:
            await asyncio.sleep(0.001)
    finally:
        try:
            await asyncio.sleep(0.01)
        finally:
            print("poller ended")


async def numbers():
    try:
        yield 1
        yield 2
    finally:
        await asyncio.sleep(0)
        print("numbers closed")


kept: list = []


@task
async def leave_tasks():
    kept.append(asyncio.ensure_future(poll_for_ever()))
    await asyncio.sleep(0.01)
    return "left"


@task
async def leave_generator():
    generator = numbers()
    kept.append(generator)
    return await generator.__anext__()


@task
async def leave_failing_task():
    async def fails_when_cancelled():
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("while clearing up")

    kept.append(asyncio.ensure_future(fails_when_cancelled()))
    await asyncio.sleep(0)


async def stubborn():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@task
async def leave_stubborn_task():
    sys.modules["rea._async"].LEFTOVERS_S = 0.1  # 5 s is long for a test
    kept.append(asyncio.ensure_future(stubborn()))
    await asyncio.sleep(0)
    return "left"


@task
async def leave_timer():
    asyncio.get_running_loop().call_later(0.01, print, "timer of another job")


@task
async def leave_thread(seconds):
    kept.append(asyncio.get_running_loop().run_in_executor(None, time.sleep, seconds))


@task
async def run_program():
    process = await asyncio.create_subprocess_exec("echo", "out", stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode()


@task
async def fork_and_return():
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    # The loop must still wake up for a thread: the copy must not have touched what they share.
    return [await asyncio.to_thread(str, 5), await asyncio.to_thread(str, 6)]


# --- stopping ---


@task
async def wait_with_cleanup():
    other = asyncio.ensure_future(poll_for_ever())
    try:
        print("started")
        await asyncio.sleep(60)
    except BaseException as error:
        print("got", type(error).__name__)
        await asyncio.sleep(0.01)
        print("cleaned up")
        raise
    finally:
        other.cancel()


@task
async def wait_in_gather():
    try:
        print("started")
        await asyncio.gather(poll_for_ever(), asyncio.sleep(60))
    except BaseException as error:
        print("got", type(error).__name__)
        raise


@task
async def wait_in_a_group(in_its_body):
    """Before the block is left, what was started in it must have ended, also when the job is stopped."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(poll_for_ever())
            print("started")
            if in_its_body:
                await asyncio.sleep(60)
    except BaseException as error:
        print("got", type(error).__name__)
        raise


@task
async def wait_for_a_condition():
    condition = asyncio.Condition()
    try:
        async with condition:
            print("started")
            await condition.wait()
    except BaseException as error:
        print("got", type(error).__name__)
        raise


@task
async def wait_in_thread(seconds):
    try:
        print("started")
        await asyncio.to_thread(time.sleep, seconds)
    finally:
        print("cleaned up")


@task
async def block():
    """Wrong in a coroutine, and done all the time."""
    try:
        print("started")
        time.sleep(60)
    except BaseException as error:
        print("got", type(error).__name__)
        await asyncio.sleep(0.01)
        print("cleaned up")
        raise


@task
async def block_in_a_subtask():
    async def blocks():
        print("started")
        time.sleep(60)

    try:
        await asyncio.ensure_future(blocks())
    finally:
        await asyncio.sleep(0.01)
        print("cleaned up")


@task
async def swallow_stop():
    try:
        print("started")
        await asyncio.sleep(60)
    except BaseException as error:
        print("swallowed", type(error).__name__)
        return "as if nothing were"


# --- enqueueing ---


@task
async def enqueue_another():
    from rea import aio

    return (await aio.enqueue(add, 1, 2)).task_id


# --- memory ---


class Big:
    alive = 0

    def __init__(self):
        Big.alive += 1

    def __del__(self):
        Big.alive -= 1


@task
async def hold_and_fail():
    big = Big()
    await asyncio.sleep(0)
    raise ValueError(f"with {type(big).__name__}")


@task
async def hold_and_return():
    big = Big()
    await asyncio.sleep(0)
    return type(big).__name__


@task
def held():
    return Big.alive
