# The child process of the server: `python -m rea.worker`. Loads the user's code, says hello, then runs one
# job after another until the server closes the socket. Speaks protocol/child-protocol.md; its speed is the
# speed of every job.
from __future__ import annotations

import contextvars
import os
import signal
import sys
from _thread import allocate_lock
from types import CoroutineType

from . import _failure, _files, _frames, _load, _room, _signature, job
from ._jsontext import NotJson, clean, to_bytes
from .exception import Stopped
from .task import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from ._async import Runner
    from .task import Task

EXIT_NOT_STARTED_BY_REA = 2
EXIT_BAD_CODE = 3
EXIT_PROTOCOL = 4

# One read mostly brings one whole frame.
_READ_SIZE = 64 * 1024

_IDLE, _RUNNING, _STOPPING = 0, 1, 2


class Worker:
    """One child: its socket, its tasks, its state."""

    def __init__(self, fd: int, permits: int, room: _room.Room) -> None:
        self.fd = fd
        self.permits = permits
        self.room = room
        self.state = _IDLE
        self.forked = False
        self._async: Runner | None = None
        self._send_lock = allocate_lock()
        self._buffer = b""
        self._early: list[bytes] = []
        job.bind(self.send)
        os.register_at_fork(after_in_child=self._after_fork)

    # --- the socket ---

    def send(self, data: bytes) -> None:
        """Sends a whole frame; a job's threads may send progress at the same time."""
        with self._send_lock:
            sent = os.write(self.fd, data)
            while sent < len(data):
                sent += os.write(self.fd, memoryview(data)[sent:])

    def receive(self) -> bytes | None:
        """The body of the next frame; None when the server has closed the socket."""
        buffer = self._buffer
        while True:
            have = len(buffer)
            if have >= _frames.header_size:
                end = _frames.unpack_header(buffer)[0] + _frames.header_size
                if end > _frames.FRAME_MAX + _frames.header_size:
                    raise _frames.ProtocolError(f"a frame of {end} bytes")
                if have == end:
                    self._buffer = b""
                    return buffer[_frames.header_size :]
                if have > end:
                    self._buffer = buffer[end:]
                    return buffer[_frames.header_size : end]
                # The rest of a big frame: in one piece, not copied again with each read.
                parts = [buffer]
                while have < end:
                    data = os.read(self.fd, min(end - have, 1024 * 1024))
                    if not data:
                        return None
                    parts.append(data)
                    have += len(data)
                buffer = b"".join(parts)
                continue
            data = os.read(self.fd, _READ_SIZE)
            if not data:
                return None
            buffer = buffer + data if buffer else data

    # --- the life of a child ---

    def serve(self) -> None:
        """Runs jobs until the server closes its ends. A job begins when its permit is read: until then the
        server may take it back, and its frame is passed over."""
        while True:
            permit = os.read(self.permits, _frames.PERMIT_SIZE)
            if len(permit) < _frames.PERMIT_SIZE:
                return
            token = permit.hex()
            while True:
                body = self.receive() if not self._early else self._early.pop(0)
                if body is None:
                    return
                frame, trouble = self._read(body)
                if frame["t"] != "run":
                    raise _frames.ProtocolError(f"an unknown kind of frame: {frame['t']!r}")
                if frame["token"] == token:
                    break
            if trouble is None:
                left = self.run(frame)
            else:
                left = _frames.CLEAN
                self.send(_frames.done_failed(token, "fatal", "ValueError", trouble, None))
            self.room.next_output()
            if left != _frames.CLEAN and not self._told_to_go():
                return

    @staticmethod
    def _read(body: bytes) -> tuple[dict[str, Any], str | None]:
        """The frame, and why it can't be run."""
        try:
            return _frames.parse(body), None
        except _frames.ProtocolError as error:
            # A number that Python refuses to read spoils one job, not the child.
            partly = _frames.parse_without_big_numbers(body)
            if partly is None or partly.get("t") != "run":
                raise
            return partly, clean(str(error))

    def _told_to_go(self) -> bool:
        """Waits until the server has dealt with what a job left behind; False when it closes instead."""
        while True:
            body = self.receive()
            if body is None:
                return False
            if body == _frames.GO:
                return True
            # Jobs that the server had sent ahead.
            self._early.append(body)

    def run(self, frame: dict[str, Any]) -> tuple[bool, bool]:
        """One attempt: call the function, clear up after it, answer. What it left, the server deals with first."""
        token = frame["token"]
        task = registry.get(frame["task"])
        if task is None:
            # Retryable: the job may be right and this child's code old.
            text = f"this worker has no task {frame['task']!r}; it has {', '.join(registry)}"
            self.send(_frames.done_failed(token, "error", "UnknownTask", clean(text[:1000]), None))
            return _frames.CLEAN
        failed: tuple[str, str, str, str | None, int | None] | None = None
        result = b"null"
        job.begin(frame)
        try:
            value = self._call(task, frame)
            if value is not None:
                result = _result(value, frame["result_max"])
                value = None
        except BaseException as error:
            if self.state == _RUNNING:
                self.state = _IDLE
            if self.forked:
                self._leave_fork(error)
            failed = _describe(error, task)
        if self.forked:
            self._leave_fork(None)
        job.end()
        if self.state == _STOPPING:
            # The server has given up on this attempt and does not listen any more.
            self.quit(0)
        left = self.room.clear_up()
        if failed is None:
            self.send(_frames.done_ok(token, result, left))
        else:
            self.send(_frames.done_failed(token, *failed, left=left))
        return left

    def _call(self, task: Task[Any, Any], frame: dict[str, Any]) -> Any:
        args, kwargs = frame["args"], frame["kwargs"]
        slot = task.trace_slot
        if slot is not None and "trace_id" not in kwargs and (slot < 0 or len(args) <= slot):
            kwargs["trace_id"] = frame["trace_id"]
        # A context of its own, so that context variables (decimal's too) do not reach the next job.
        call = contextvars.copy_context().run
        self.state = _RUNNING
        value = call(task.func, *args, **kwargs)
        if type(value) is CoroutineType:
            value = call(self.async_runner().run, value)
        if self.state == _RUNNING:
            self.state = _IDLE
        return value

    def async_runner(self) -> Runner:
        if self._async is None:
            from ._async import Runner

            self._async = Runner(self.room.may_have_started)
        return self._async

    def on_term(self, _number: int, frame: Any) -> None:
        if self.state == _RUNNING:
            self.state = _STOPPING
            if self._async is None or not self._async.stop(frame):
                raise Stopped("the job is being stopped")
            return
        if self.state == _IDLE:
            self.quit(0)
        # Stopping already: the job's clean-up goes on until it ends or is killed.

    def quit(self, code: int) -> NoReturn:
        """Ends at once. No exit handlers, no waiting for threads:
        nothing of a job may hold the process up.
        """
        self.room.flush()
        os._exit(code)

    # --- a job that forks itself: the copy must never speak to the server ---

    def _after_fork(self) -> None:
        self.forked = True
        job.bind(None)
        try:
            os.close(self.fd)
            os.close(self.permits)
            # So that terminate() and Ctrl-C end the copy as they end any Python process.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
        except (OSError, ValueError):
            pass

    def _leave_fork(self, error: BaseException | None) -> NoReturn:
        if isinstance(error, SystemExit):
            self.quit(error.code if isinstance(error.code, int) else 0 if error.code is None else 1)
        if error is not None:
            print(_failure.describe(error)[2], file=sys.stderr)
        self.quit(0 if error is None else 1)


class ResultTooLarge(Exception):
    """The result's JSON is over the limit."""


ResultTooLarge.__module__ = "builtins"  # the server shows the bare name
NotJson.__module__ = "builtins"


def _result(value: Any, result_max: int) -> bytes:
    data = to_bytes(value, "result")
    limit = min(result_max, _frames.FRAME_MAX - _frames.ENVELOPE_MAX)
    if len(data) > limit:
        raise ResultTooLarge(
            f"the result is {len(data):,} bytes of JSON, the limit is {limit:,}; "
            f"store it elsewhere (file, object store, database) and return where it is"
        )
    return data


def _describe(error: BaseException, task: Task[Any, Any]) -> tuple[str, str, str, str | None, int | None]:
    """(cause, type, message, traceback, after_ms)."""
    if isinstance(error, (ResultTooLarge, NotJson)):
        return "fatal", type(error).__name__, clean(str(error)), None, None
    kind, message, traceback = _failure.describe(error)
    cause = "error" if _failure.is_retryable(error, task.retry_on) else "fatal"
    return cause, kind, message, traceback, _failure.after_ms(error)


def language() -> str:
    return "{} {}.{}.{}".format("python", *sys.version_info[:3])


def _take_over(given: int) -> int:
    fd = _room.keep_high(given)
    os.close(given)
    return fd


def main() -> NoReturn:
    try:
        fd, permits = (_take_over(int(os.environ.pop(name))) for name in ("REA_FD", "REA_PERMITS"))
    except (KeyError, ValueError, OSError):
        print("rea.worker is started by the server: use `rea serve your_file.py`", file=sys.stderr)
        sys.exit(EXIT_NOT_STARTED_BY_REA)
    load = os.environ.pop("REA_LOAD", "[]")
    outputs = [_take_over(int(number)) for number in os.environ.pop("REA_OUTPUTS", "").split(",") if number]
    room = _room.Room(outputs)
    worker = Worker(fd, permits, room)
    try:
        _load.load(load)
    except BaseException as error:  # SystemExit too: some scripts end with sys.exit(main())
        kind, message, traceback = _failure.describe(error)
        if isinstance(error, SystemExit):
            message = (
                'the file called sys.exit() while it was loaded; put that under `if __name__ == "__main__":`'
            )
        worker.send(_frames.bad(kind, message, traceback or "", _files.of_broken_code(error)))
        worker.quit(EXIT_BAD_CODE)
    if any(_signature.is_async(task.func) for task in registry.values()):
        worker.async_runner()  # asyncio is loaded now, not by the first job
    room.settle(worker.on_term)
    worker.send(_frames.hello(os.getpid(), language(), registry.values(), len(outputs) > 1, _files.of_code()))
    try:
        worker.serve()
    except Stopped:
        pass  # the signal came just as the job ended
    except (_frames.ProtocolError, OSError) as error:
        print(f"rea.worker: the socket to the server failed: {error}", file=sys.stderr)
        worker.quit(EXIT_PROTOCOL)
    worker.quit(0)


if __name__ == "__main__":
    main()
