# Keeps one job's doings from the next job in the same process: puts back what a job changed, and notices what
# it left running. A clean job must cost next to nothing, so most things are only looked at when an audit
# event says so.
from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps each answer in enums: ten times the time
import _thread
import fcntl
import gc
import io
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Callable

# Jobs close or reuse the low descriptors by accident; these keep ours out of their way.
FD_BASE = 200

_SPAWN, _CWD, _ENV, _LIMITS, _SYMBOL = "spawn", "cwd", "env", "limits", "symbol"
_WATCHED: dict[str, str] = {
    "subprocess.Popen": _SPAWN,
    "os.fork": _SPAWN,
    "os.forkpty": _SPAWN,
    "os.posix_spawn": _SPAWN,
    "os.spawn": _SPAWN,
    "os.system": _SPAWN,
    "os.exec": _SPAWN,
    "pty.spawn": _SPAWN,
    "os.chdir": _CWD,
    "os.putenv": _ENV,
    "os.unsetenv": _ENV,
    "resource.setrlimit": _LIMITS,
    "resource.prlimit": _LIMITS,
    "ctypes.dlsym": _SYMBOL,
}
# C functions that start processes. Once a program has looked one up, it may call it at any time, unseen.
_STARTERS = {
    "fork",
    "vfork",
    "clone",
    "clone3",
    "syscall",
    "system",
    "popen",
    "posix_spawn",
    "posix_spawnp",
    "daemon",
}

# How long threads that are just ending may take before they count as left behind.
_THREAD_GRACE_S = 0.02


class Room:
    """The process as a job should find it. Make it before the user's code is loaded, `settle` it after."""

    def __init__(self, outputs: Sequence[int] = ()) -> None:
        """`outputs`: the pipes that jobs write to in turn; none: all write to the one that is there."""
        self._events: set[str] = set()
        self._may_start_unseen = False
        sys.addaudithook(self._audit)
        # For each turn, what stdout and stderr are.
        self._turns = [(fd, fd) for fd in outputs] or [(_high_copy(1), _high_copy(2))]
        self._turn = 0
        self._stdout, self._stderr = _stream(1), _stream(2)
        self._place_streams()

    def settle(self, on_term: Callable[[int, Any], None]) -> None:
        """Takes the present state, after the user's code was loaded, as the one to come back to."""
        self._handlers: dict[int, Any] = {signal.SIGTERM: on_term, signal.SIGINT: _ignore}
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        self._umask = os.umask(0o22)
        os.umask(self._umask)
        self._env = dict(os.environ)
        here = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
        self._cwd = keep_high(here)
        os.close(here)
        self._locale = _locale()
        self._threads = _thread._count()
        # What was loaded stays for good: the collector need not look at it again.
        gc.freeze()
        self._put_back_output()
        self._events.clear()

    def flush(self) -> None:
        for stream in (self._stdout, self._stderr):
            try:
                stream.flush()
            except (OSError, ValueError, RuntimeError):
                pass  # a closed or full descriptor; the log loses this bit, the job must not

    def next_output(self) -> None:
        """After a job: what is written from here on is not in its log."""
        if len(self._turns) > 1:
            self._turn = (self._turn + 1) % len(self._turns)
            out, err = self._turns[self._turn]
            os.dup2(out, 1)
            os.dup2(err, 2)

    def clear_up(self) -> tuple[bool, bool]:
        """After a job: puts everything back. Answers (dirty, spawned): threads or other things that can't
        be put back are left; processes were started, so descendants may be left."""
        self._put_back_output()
        dirty = not self._put_back_signals()
        os.umask(self._umask)
        if "locale" in sys.modules and _locale() != self._locale:
            dirty |= not _attempt(_set_locale, self._locale)
            self._locale = _locale()
        spawned = self._may_start_unseen
        if self._events:
            events = set(self._events)
            spawned |= _SPAWN in events
            dirty |= _LIMITS in events
            if _ENV in events:
                dirty |= not _attempt(self._put_back_env)
            if _CWD in events:
                dirty |= not _attempt(os.fchdir, self._cwd)
            self._events.clear()
        if spawned or "multiprocessing.util" in sys.modules:
            spawned |= _reap()
        if _thread._count() > self._threads:
            dirty |= self._threads_stay()
        return dirty, spawned

    def may_have_started(self) -> None:
        """Processes, without an audit event."""
        self._events.add(_SPAWN)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        kind = _WATCHED.get(event)
        if kind is None:
            return
        if kind is _SYMBOL:
            self._may_start_unseen |= str(args[-1]) in _STARTERS
        else:
            self._events.add(kind)

    # --- the single things ---

    def _place_streams(self) -> None:
        sys.stdout = sys.__stdout__ = self._stdout  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self._stderr  # type: ignore[misc]

    def _put_back_output(self) -> None:
        # dup2 without asking is cheaper than asking whether the descriptor is still the right one. It goes
        # before the flush, so that what a job printed after os.close(1) still gets into its log.
        out, err = self._turns[self._turn]
        os.dup2(out, 1)
        os.dup2(err, 2)
        if sys.stdout is not self._stdout or sys.stderr is not self._stderr:
            _attempt(lambda: sys.stdout.flush())
            self._place_streams()
        if self._stdout.closed or self._stderr.closed:
            self._stdout, self._stderr = _stream(1), _stream(2)
            self._place_streams()
        self.flush()

    def _put_back_signals(self) -> bool:
        good = True
        for number, handler in self._handlers.items():
            if _signal.getsignal(number) is not handler:
                good &= _attempt(signal.signal, number, handler)
        if _signal.getitimer(_signal.ITIMER_REAL)[0]:
            # A forgotten signal.alarm() would kill the next job.
            signal.setitimer(signal.ITIMER_REAL, 0)
        if _signal.pthread_sigmask(_signal.SIG_BLOCK, ()) != self._mask:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        return good

    def _put_back_env(self) -> None:
        before_tz = os.environ.get("TZ")
        for name in [name for name in os.environ if name not in self._env]:
            del os.environ[name]
        for name, value in self._env.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        if os.environ.get("TZ") != before_tz:
            time.tzset()

    def _threads_stay(self) -> bool:
        deadline = time.monotonic() + _THREAD_GRACE_S
        while _thread._count() > self._threads:
            if time.monotonic() > deadline:
                return True
            time.sleep(0.001)
        return False


def _ignore(_number: int, _frame: Any) -> None:
    """For SIGINT. A function and not SIG_IGN, because programs that a job starts would inherit SIG_IGN."""


def _high_copy(fd: int) -> int:
    """A close-on-exec copy of `fd` out of the way of jobs; of /dev/null when `fd` is closed."""
    try:
        return keep_high(fd)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        copy = keep_high(null)
        os.dup2(null, fd)
        if null != fd:
            os.close(null)
        return copy


def keep_high(fd: int) -> int:
    """Copies `fd` to a number from FD_BASE on, or lower where the limit of open files is smaller."""
    for base in (FD_BASE, 50, 10):
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, base)
        except OSError as error:
            failed = error
    raise failed


def _stream(fd: int) -> io.TextIOWrapper:
    """Text to `fd`: UTF-8 whatever the locale is, and never an error because of a character. A line at a
    time, so that the order against other writers is kept and a kill loses little."""
    raw = io.FileIO(fd, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)


def _locale() -> str | None:
    module = sys.modules.get("locale")
    return None if module is None else module.setlocale(module.LC_ALL)


def _set_locale(name: str | None) -> None:
    module = sys.modules["locale"]
    # None: the module came with the job. Python's own state at start is the environment's LC_CTYPE, else "C".
    module.setlocale(module.LC_ALL, "C" if name is None else name)
    if name is None:
        module.setlocale(module.LC_CTYPE, "")


def _attempt(action: Callable[..., Any], *args: Any) -> bool:
    try:
        action(*args)
        return True
    except Exception:
        return False


def _reap() -> bool:
    """Collects ended children, so that no zombies pile up. True when some children are still there."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    except ChildProcessError:
        return False
