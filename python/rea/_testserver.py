# A real rea server for tests: on a store of its own in a temporary directory, on a free port, ended with the
# test.
from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time

from . import client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LOG_LINES = 60

# Ends the server when the test process is gone, however it went: then the pipe that is its stdin ends. When
# the server has ended by itself, so does the keeper: it would signal whoever has the number by then.
_KEEPER = (
    '"$@" 3<&- </dev/null & server=$!; '
    "{ cat <&3 >/dev/null; kill -TERM $server; } 2>/dev/null & keeper=$!; "
    "wait $server; code=$?; kill $keeper 2>/dev/null; exit $code"
)


class Server:
    """`with Server("app/jobs.py") as server:` runs `rea serve app/jobs.py`, with the Python of the test.

    Inside the block `task.enqueue()` and all of `rea` go to this server. `code` are Python files or modules;
    they are imported with the `sys.path` of the test. `args` are more arguments of `rea serve`, `env` more
    variables for the tasks. No rea.toml is read unless `args` name one.
    """

    def __init__(
        self,
        *code: str | os.PathLike[str],
        workers: int = 2,
        env: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
        start_timeout: float = 30,
    ) -> None:
        self._code = [os.fspath(each) for each in code]
        self._workers = workers
        self._env = dict(env or {})
        self._args = list(args)
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""
        self._log_kept = ""
        self.url = ""

    # --- what a test asks ---

    @property
    def client(self) -> client.Client:
        """A client of this server."""
        return self._client

    @property
    def log(self) -> str:
        """The server's log so far, one JSON object a line."""
        if not self._folder:
            return self._log_kept
        with open(os.path.join(self._folder, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    # --- its life ---

    def __enter__(self) -> Server:
        program = find_program()
        self._folder = tempfile.mkdtemp(prefix="rea-test-")
        try:
            self._start(program)
        except BaseException:
            self._end()
            raise
        self._default_before = client._default
        self._client = client.connect(self.url)
        return self

    def __exit__(self, *_error: object) -> None:
        client._default = self._default_before
        self._client.close()
        self._end()

    def _start(self, program: str) -> None:
        command = [program, "serve", *self._code, "--host", "127.0.0.1", "--port", "0"]
        command += ["--db", os.path.join(self._folder, "rea.db"), "--workers", str(self._workers)]
        command += ["--python", sys.executable, "--log", "json", "--grace", "0", *self._args]
        if not any(each.startswith("--config") for each in self._args):
            command += ["--config", os.devnull]
        with open(os.path.join(self._folder, "log"), "wb") as log:
            # A session of its own: Ctrl-C in the terminal is for the test, which then ends the server.
            self._process = subprocess.Popen(
                ["sh", "-c", "exec 3<&0; " + _KEEPER, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self._environment(),
                start_new_session=True,
            )
        deadline = time.monotonic() + self._start_timeout
        while True:
            # In this order: what an ended server has said is all there.
            ended = self._process.poll() is not None
            ready = _ready(self.log)
            if ready is not None:
                self.url = ready["url"]
                return
            if ended or time.monotonic() > deadline:
                why = "ended" if ended else f"was not ready after {self._start_timeout:g} s"
                tail = "\n".join(self.log.splitlines()[-LOG_LINES:])
                raise RuntimeError(f"the rea server for the test {why}: {' '.join(command)}\n{tail}")
            time.sleep(0.01)

    def _environment(self) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("REA_")}
        env["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        return {**env, **self._env}

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()  # the keeper ends the server
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if self._folder:
            with contextlib.suppress(OSError):
                self._log_kept = self.log
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""


def _ready(log: str) -> dict[str, Any] | None:
    for line in log.splitlines():
        if '"ready"' not in line:
            continue
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and said.get("action") == "ready":
            return said
    return None


def find_program() -> str:
    """Where `rea` is: REA_BIN, beside this Python (where pip puts it), or on the PATH."""
    named = os.environ.get("REA_BIN")
    if named:
        if os.path.isfile(named) and os.access(named, os.X_OK):
            return os.path.abspath(named)
        raise FileNotFoundError(f"REA_BIN is {named!r}, which is no program that can be run")
    looked = []
    for scheme in (None, f"{os.name}_user"):
        folder = sysconfig.get_path("scripts") if scheme is None else sysconfig.get_path("scripts", scheme)
        looked.append(os.path.join(folder, "rea"))
    for path in looked:
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("rea")
    if found:
        return found
    raise FileNotFoundError(
        f"the program rea was not found: not at {', not at '.join(looked)}, not on the PATH. "
        f"Install rea with pip, or set REA_BIN to the program"
    )
