# Puts the package on the path and starts real child processes, as the server does: a socketpair, pipes for
# output.
from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent
REPO = PACKAGE.parent
sys.path.insert(0, str(PACKAGE))

urlopen = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

TASKS_FILE = HERE / "child_tasks.py"
TIMEOUT_S = 20


def find_program():
    """The real program for the tests that need it: REA_BIN, else what cargo has built here; None without."""
    built = Path(os.environ.get("REA_BIN") or REPO / "target" / "debug" / "rea").absolute()
    return str(built) if built.exists() else None


class Child:
    """A worker process with the server's ends of its socket and pipes."""

    def __init__(self, load=None, env=None, cwd=None, python_options=("-u",), outputs=0):
        if load is None:
            load = [{"file": str(TASKS_FILE)}]
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(TIMEOUT_S)
        self.permits, their_permits = socket.socketpair()
        full_env = {**os.environ, "PYTHONPATH": str(PACKAGE), "REA_FD": str(theirs.fileno())}
        full_env["REA_PERMITS"] = str(their_permits.fileno())
        pipes = [os.pipe() for _ in range(outputs)]
        self.outputs = [open(reader, "rb", buffering=0) for reader, _ in pipes]
        their_outputs = [writer for _, writer in pipes]
        if outputs:
            full_env["REA_OUTPUTS"] = ",".join(map(str, their_outputs))
        full_env["REA_LOAD"] = load if isinstance(load, str) else json.dumps(load)
        full_env.update(env or {})
        self.process = subprocess.Popen(
            [sys.executable, *python_options, "-m", "rea.worker"],
            pass_fds=[theirs.fileno(), their_permits.fileno(), *their_outputs],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=full_env,
            cwd=cwd,
            start_new_session=True,
        )
        theirs.close()
        their_permits.close()
        for writer in their_outputs:
            os.close(writer)
        for pipe in (self.process.stdout, self.process.stderr, *self.outputs):
            os.set_blocking(pipe.fileno(), False)
        self.runs = 0

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.socket.close()
        self.permits.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        self.process.kill()
        self.process.wait()
        for pipe in self.outputs:
            pipe.close()
        self.process.stdout.close()
        self.process.stderr.close()

    def send(self, frame):
        self.send_bytes(json.dumps(frame, separators=(",", ":")).encode())

    def send_bytes(self, body):
        self.socket.sendall(struct.pack(">I", len(body)) + body)

    def read(self):
        """The next frame; None at end of file."""
        header = self._exactly(4)
        return None if header is None else json.loads(self._exactly(struct.unpack(">I", header)[0]))

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except ConnectionResetError:  # it ended without reading all that was sent
                return None
            if not piece:
                return None
            data += piece
        return data

    def hello(self):
        frame = self.read()
        assert frame is not None and frame["t"] == "hello", frame
        return frame

    def start(self, task, *args, result_max=1 << 20, **kwargs):
        """Sends `run` with its permit and returns its token."""
        token = self.ready(task, *args, result_max=result_max, **kwargs)
        self.permit(token)
        return token

    def ready(self, task, *args, result_max=1 << 20, **kwargs):
        """Sends `run` without a permit and returns its token."""
        name = task if ":" in task else f"child_tasks:{task}"
        self.runs += 1
        token = f"{self.runs:016x}"
        self.send(run_frame(token, name, args, kwargs, result_max))
        return token

    def permit(self, token):
        self.permits.sendall(bytes.fromhex(token))

    def go(self):
        self.send({"t": "go"})

    def run(self, task, *args, **kwargs):
        """Runs a task to its `done` frame; progress frames on the way are kept in `self.progress`."""
        token = self.start(task, *args, **kwargs)
        self.progress = []
        while True:
            frame = self.read()
            if frame is None or frame["t"] == "done":
                assert frame is None or frame["token"] == token, frame
                if frame is not None and (frame.get("dirty") or frame.get("spawned")):
                    self.go()
                return frame
            self.progress.append(frame)

    def output(self):
        """What is in the stdout pipe now. After `done` that must be all that the job wrote."""
        return _drain(self.process.stdout)

    def output_of_turn(self, turn):
        return _drain(self.outputs[turn])

    def errors(self):
        return _drain(self.process.stderr)

    def wait_for_output(self, text):
        """Waits until the job has printed `text`."""
        seen, end = "", time.monotonic() + TIMEOUT_S
        while text not in seen:
            left = end - time.monotonic()
            assert left > 0 and select.select([self.process.stdout], [], [], left)[0], (
                f"no {text!r} in {seen!r}"
            )
            piece = self.output()
            assert piece, f"end of output, no {text!r} in {seen!r}"
            seen += piece
        return seen


def run_frame(token, task, args=(), kwargs=None, result_max=1 << 20):
    return {
        "t": "run",
        "token": token,
        "task_id": "0193793e-7f00-7000-8000-000000000001",
        "trace_id": "trace-1",
        "root_id": "0193793e-7f00-7000-8000-000000000002",
        "task": task,
        "args": list(args),
        "kwargs": kwargs or {},
        "queue": "default",
        "attempt": 2,
        "failures": 1,
        "max_attempts": 5,
        "key": "key-1",
        "timeout_ms": 60000,
        "result_max": result_max,
    }


def _drain(pipe):
    data = b""
    while True:
        piece = pipe.read()
        if not piece:
            return data.decode("utf-8", "replace")
        data += piece
