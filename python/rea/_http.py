# One HTTP exchange with the server: kept-alive connections, the token, JSON both ways, errors as exceptions.
# Knows nothing of jobs.
from __future__ import annotations

import http.client
import json
import os
import threading
from urllib.parse import urlsplit

from .exception import ReaError, Refused, ServerUnreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_URL = "http://127.0.0.1:8000"
IDLE_MAX = 8


class Transport:
    """A pool of connections to one server; any number of threads may use it."""

    def __init__(self, url: str, token: str | None, timeout_s: float) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as error:
            raise ValueError(f"the server's address {url!r} has a wrong port: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"the server's address must look like {DEFAULT_URL}, not {url!r}")
        if parts.username or parts.password:
            raise ValueError("the server's address must not hold a password; use token= or REA_TOKEN")
        self.url = url.rstrip("/")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, port
        self._prefix = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def exchange(
        self, method: str, path: str, body: bytes | None = None, *, repeatable: bool, extra_s: float = 0
    ) -> Any:
        """Sends one request and returns the answer's JSON.

        A repeatable one is sent a second time when the connection breaks under it; another one always gets a
        fresh connection, since on a kept one nobody could tell whether the server had read it. `extra_s` is
        how much longer than usual the server may take (long polls).
        """
        connection = self._take() if repeatable else None
        try:
            status, data = self._once(connection, method, path, body, extra_s)
        except (ConnectionError, http.client.HTTPException) as error:
            if not repeatable or isinstance(error, ConnectionRefusedError):
                raise self._unreachable(error) from error
            try:
                status, data = self._once(None, method, path, body, extra_s)
            except (OSError, http.client.HTTPException) as second:
                raise self._unreachable(second) from second
        except OSError as error:
            raise self._unreachable(error) from error
        return _answer(self.url, status, data)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _once(
        self,
        connection: http.client.HTTPConnection | None,
        method: str,
        path: str,
        body: bytes | None,
        extra_s: float,
    ) -> tuple[int, bytes]:
        if connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            connection = kind(self._host, self._port, timeout=self._timeout_s)
        try:
            if connection.sock is not None:
                connection.sock.settimeout(self._timeout_s + extra_s)
            connection.timeout = self._timeout_s + extra_s
            headers = dict(self._headers)
            if body is not None:
                headers["Content-Type"] = "application/json"
            connection.request(method, self._prefix + path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        except BaseException:
            connection.close()
            raise
        if not answer.will_close:
            self._give(connection)
        return answer.status, data

    def _take(self) -> http.client.HTTPConnection | None:
        with self._lock:
            if self._pid != os.getpid():
                # After a fork the parent still uses these sockets.
                self._idle, self._pid = [], os.getpid()
            return self._idle.pop() if self._idle else None

    def _give(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if self._pid == os.getpid() and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def _unreachable(self, error: BaseException) -> ServerUnreachable:
        if isinstance(error, ConnectionRefusedError):
            why = (
                "nothing listens there; is `rea serve` running? Another address: rea.connect(url) or REA_URL"
            )
        elif isinstance(error, TimeoutError) or "timed out" in str(error):
            why = "it did not answer in time"
        else:
            why = f"{type(error).__name__}: {error}"
        return ServerUnreachable(f"no answer from the rea server at {self.url}: {why}")


def _answer(url: str, status: int, data: bytes) -> Any:
    try:
        body = json.loads(data.decode("utf-8"))
    except ValueError:
        body = None
    if 200 <= status < 300:
        if body is None:
            raise ReaError(f"{url} answered with something that is not JSON; is it a rea server?")
        return body
    if not isinstance(body, dict) or "status" not in body:
        raise Refused(f"http_{status}", f"{url} answered with HTTP {status}; is it a rea server?", status)
    detail = str(body.get("detail") or body.get("title") or f"HTTP {status}")
    hint = body.get("hint")
    if status == 401 and not hint:
        hint = "give the token: rea.connect(url, token=...), REA_TOKEN or REA_TOKEN_FILE"
    raise Refused(str(body.get("code") or f"http_{status}"), detail, status, hint)
