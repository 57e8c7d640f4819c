# Which server is spoken to, how a request to it begins, and what its answer means: all of HTTP that does not
# depend on whether one waits for the answer in a thread or in an event loop.
from __future__ import annotations

import json
import os
from urllib.parse import urlsplit

from .exception import ReaError, Refused, ServerUnreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_URL = "http://127.0.0.1:8000"
IDLE_MAX = 8


class Address:
    """The server at `url`, and the headers that each request to it has.

    `url` falls back to REA_URL, then to http://127.0.0.1:8000; `token` to the file that REA_TOKEN_FILE
    names, then to REA_TOKEN.
    """

    def __init__(self, url: str | None, token: str | None) -> None:
        if url is None:
            url = os.environ.get("REA_URL") or DEFAULT_URL
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
        self.secure = parts.scheme == "https"
        self.host, self.port = parts.hostname, port
        self.host_header = parts.netloc
        self.prefix = parts.path.rstrip("/")
        self.token = token or token_from_environment()
        if self.token and not (self.token.isascii() and self.token.isprintable()):
            raise ValueError("the token has characters that no header can hold; it must be printable ASCII")

    def headers(self, with_body: bool) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if with_body:
            headers["Content-Type"] = "application/json"
        return headers

    def unreachable(self, error: BaseException) -> ServerUnreachable:
        if isinstance(error, ConnectionRefusedError):
            why = (
                "nothing listens there; is `rea serve` running? Another address: rea.connect(url) or REA_URL"
            )
        # Before Python 3.11 asyncio has a class of its own for it.
        elif (
            isinstance(error, TimeoutError)
            or type(error).__name__ == "TimeoutError"
            or "timed out" in str(error)
        ):
            why = "it did not answer in time"
        else:
            why = f"{type(error).__name__}: {error}"
        return ServerUnreachable(f"no answer from the rea server at {self.url}: {why}")

    def answer(self, status: int, data: bytes) -> Any:
        """The JSON of an answer; Refused when it is a no."""
        try:
            body = json.loads(data.decode("utf-8"))
        except ValueError:
            body = None
        if 200 <= status < 300:
            if body is None:
                raise ReaError(f"{self.url} answered with something that is not JSON; is it a rea server?")
            return body
        if not isinstance(body, dict) or "status" not in body:
            text = f"{self.url} answered with HTTP {status}; is it a rea server?"
            raise Refused(f"http_{status}", text, status)
        detail = str(body.get("detail") or body.get("title") or f"HTTP {status}")
        hint = body.get("hint")
        if status == 401 and not hint:
            hint = "give the token: rea.connect(url, token=...), REA_TOKEN or REA_TOKEN_FILE"
        raise Refused(str(body.get("code") or f"http_{status}"), detail, status, hint)


def token_from_environment() -> str | None:
    token = os.environ.get("REA_TOKEN") or None
    path = os.environ.get("REA_TOKEN_FILE")
    # A named file goes before the variable, as everywhere in rea: the server hands its jobs a file, and they
    # may inherit any REA_TOKEN.
    if not path:
        return token
    # A server's own file will do: the first token in it that is not a hash.
    with open(path, encoding="utf-8") as file:
        words = [line.split()[0] for line in file if line.split() and not line.lstrip().startswith("#")]
    tokens = [word for word in words if not word.startswith("sha256:")]
    if tokens:
        return tokens[0]
    if words and not token:
        raise ValueError(
            f"{path} (REA_TOKEN_FILE) holds hashes of tokens alone; name a file that holds one to send"
        )
    return token
