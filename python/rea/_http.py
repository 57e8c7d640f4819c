# One HTTP exchange with the server over kept-alive connections, for threads. Knows nothing of jobs.
from __future__ import annotations

import http.client
import os
import threading

from ._address import IDLE_MAX, Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Transport:
    """A pool of connections to one server; any number of threads may use it."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
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
                raise self._address.unreachable(error) from error
            try:
                status, data = self._once(None, method, path, body, extra_s)
            except (OSError, http.client.HTTPException) as second:
                raise self._address.unreachable(second) from second
        except OSError as error:
            raise self._address.unreachable(error) from error
        return self._address.answer(status, data)

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
            kind = http.client.HTTPSConnection if self._address.secure else http.client.HTTPConnection
            connection = kind(self._address.host, self._address.port, timeout=self._timeout_s)
        try:
            if connection.sock is not None:
                connection.sock.settimeout(self._timeout_s + extra_s)
            connection.timeout = self._timeout_s + extra_s
            headers = self._address.headers(with_body=body is not None)
            connection.request(method, self._address.prefix + path, body, headers)
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
