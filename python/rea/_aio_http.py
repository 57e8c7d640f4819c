# One HTTP exchange with the server over kept-alive connections, for asyncio. Speaks the part of HTTP/1.1 that
# a JSON API and a proxy before it use. Knows nothing of jobs.
from __future__ import annotations

import asyncio

from ._address import IDLE_MAX, Address
from .exception import ReaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Any

HEAD_MAX = 64 * 1024
# At a time from one event loop, so that a gather() over thousands does not open thousands of connections.
REQUESTS_MAX = 64


class BrokenAnswer(ReaError):
    """What came back is not HTTP, or ends too early."""


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def is_usable(self) -> bool:
        return not self.reader.at_eof() and not self.writer.is_closing()

    def abort(self) -> None:
        self.writer.transport.abort()


class _Pool:
    """The idle connections of one event loop."""

    def __init__(self) -> None:
        self.idle: list[_Connection] = []
        self.slots = asyncio.Semaphore(REQUESTS_MAX)
        self.guard: AsyncGenerator[None, None] = self._until_the_loop_ends()

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        # Loops close their async generators before they end: the one moment to close connections.
        try:
            yield
        finally:
            self.close()

    def take(self) -> _Connection | None:
        while self.idle:
            connection = self.idle.pop()
            if connection.is_usable():
                return connection
            connection.abort()
        return None

    def give(self, connection: _Connection) -> None:
        if len(self.idle) < IDLE_MAX and connection.is_usable():
            self.idle.append(connection)
        else:
            connection.abort()

    def close(self) -> None:
        while self.idle:
            self.idle.pop().abort()


class Transport:
    """Connections to one server, a pool for each event loop; any number of tasks may use it at a time."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}

    async def exchange(
        self, method: str, path: str, body: bytes | None = None, *, repeatable: bool, extra_s: float = 0
    ) -> Any:
        """Sends one request and returns the answer's JSON; the same rules as in `_http.Transport.exchange`.

        A cancelled exchange closes its connection: no later one can read its answer.
        """
        pool = await self._pool()
        if extra_s:  # a long poll: it must not hold up others, nor wait for them
            return await self._repeated(pool, method, path, body, repeatable, extra_s)
        async with pool.slots:
            return await self._repeated(pool, method, path, body, repeatable, extra_s)

    async def _repeated(
        self, pool: _Pool, method: str, path: str, body: bytes | None, repeatable: bool, extra_s: float
    ) -> Any:
        connection = pool.take() if repeatable else None
        try:
            status, data = await self._once(pool, connection, method, path, body, extra_s)
        except (ConnectionError, EOFError, BrokenAnswer) as error:
            if not repeatable or isinstance(error, ConnectionRefusedError):
                raise self._address.unreachable(error) from error
            try:
                status, data = await self._once(pool, None, method, path, body, extra_s)
            except (OSError, EOFError, BrokenAnswer, asyncio.TimeoutError) as second:
                raise self._address.unreachable(second) from second
        except (OSError, asyncio.TimeoutError) as error:
            raise self._address.unreachable(error) from error
        return self._address.answer(status, data)

    def close(self) -> None:
        """Closes the idle connections of the running loop."""
        pool = self._pools.get(asyncio.get_running_loop())
        if pool is not None:
            pool.close()

    async def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            # A copy, and no error if it is gone: loops of other threads do the same at any time.
            for other in list(self._pools):
                if other.is_closed():
                    self._pools.pop(other, None)
            pool = self._pools[loop] = _Pool()
            await pool.guard.__anext__()
        return pool

    async def _once(
        self,
        pool: _Pool,
        connection: _Connection | None,
        method: str,
        path: str,
        body: bytes | None,
        extra_s: float,
    ) -> tuple[int, bytes]:
        return await asyncio.wait_for(
            self._talk(pool, connection, method, path, body), self._timeout_s + extra_s
        )

    async def _talk(
        self, pool: _Pool, connection: _Connection | None, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        address = self._address
        if connection is None:
            port = address.port or (443 if address.secure else 80)
            streams = await asyncio.open_connection(
                address.host, port, ssl=address.secure or None, limit=HEAD_MAX
            )
            connection = _Connection(*streams)
        try:
            connection.writer.write(self._request(method, path, body))
            await connection.writer.drain()
            status, data, keep = await _answer(connection.reader)
        except BaseException:  # a cancel too
            connection.abort()
            raise
        if keep:
            pool.give(connection)
        else:
            connection.abort()
        return status, data

    def _request(self, method: str, path: str, body: bytes | None) -> bytes:
        headers = {"Host": self._address.host_header, **self._address.headers(with_body=body is not None)}
        if body is not None:
            headers["Content-Length"] = str(len(body))
        lines = [f"{method} {self._address.prefix}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """Status, body, and whether the connection can be used again."""
    status, version, headers = await _head(reader)
    while 100 <= status < 200:
        status, version, headers = await _head(reader)
    keep = version != "HTTP/1.0" and "close" not in headers.get("connection", "").lower()
    if status in (204, 304):
        return status, b"", keep
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return status, await _chunks(reader), keep
    length = headers.get("content-length")
    if length is None:
        return status, await reader.read(), False
    return status, await reader.readexactly(_number(length, 10)), keep


async def _head(reader: asyncio.StreamReader) -> tuple[int, str, dict[str, str]]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise BrokenAnswer(f"an answer with a head of over {HEAD_MAX} bytes") from None
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise BrokenAnswer(f"an answer that is not HTTP/1.1: {first[:80]!r}")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return _number(rest[:3], 10), version, headers


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while True:
        line = (await reader.readuntil(b"\r\n")).decode("latin-1")
        size = _number(line.partition(";")[0].strip(), 16)
        if size == 0:
            break
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailers
    return b"".join(parts)


def _number(text: str, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise BrokenAnswer(f"an answer with {text[:40]!r} where a number belongs")
    return number
