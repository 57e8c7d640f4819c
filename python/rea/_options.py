# Checks of what a task or a job may be told: priority, times, names. Each check returns the value to send,
# or raises ValueError/TypeError that says what is right. Shared by the decorator and by `.options()`.
from __future__ import annotations

from ._node import CALL_WORDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from typing import Any, Callable, Iterator, Mapping, Union

    Seconds = Union[int, float, timedelta]
    Moment = Union[datetime, int, float]
    # An argument, by place or by name.
    Place = Union[int, str]


class Unset:
    """The type of UNSET: an option that was not given, where None means something of its own."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()

NAME_MAX = 200
COUNT_MAX = 2**31 - 1
CONCURRENCY_MAX = 1_000_000
SECONDS_MAX = 1_000_000_000  # about 32 years: past any use, and far from overflow in milliseconds


def whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return int(value)


def priority(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10:
        raise ValueError(f"{name} must be a whole number from 1 (most urgent) to 10, not {value!r}")
    return int(value)


def count(name: str, value: Any) -> int:
    return whole(name, value, 1, COUNT_MAX)


def count_from_0(name: str, value: Any) -> int:
    return whole(name, value, 0, COUNT_MAX)


def seconds(name: str, value: Any) -> float:
    """A length of time from 0 on; a timedelta is taken too."""
    if hasattr(value, "total_seconds"):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= SECONDS_MAX:
        raise ValueError(f"{name} must be a number of seconds from 0 to {SECONDS_MAX}, not {value!r}")
    return value


def seconds_over_0(name: str, value: Any) -> float:
    number = seconds(name, value)
    if number <= 0:
        raise ValueError(f"{name} must be more than 0 seconds, not {value!r}")
    return number


def timeout(name: str, value: Any) -> float | None:
    """Seconds, or None for a job that may run for ever."""
    if value is None:
        return None
    try:
        return seconds_over_0(name, value)
    except ValueError as error:
        raise ValueError(f"{error}; None means no limit") from None


_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
MEMORY_MIN, MEMORY_MAX = 1 << 20, 1 << 50


def memory(name: str, value: Any) -> int:
    """Bytes, as a number or as text with a unit of 1024."""
    size = value
    if isinstance(value, str):
        digits = value.rstrip("BGKMi")
        unit = _UNITS.get(value[len(digits) :])
        size = int(digits) * unit if digits.strip().isdecimal() and unit is not None else None
    if isinstance(size, bool) or not isinstance(size, int) or not MEMORY_MIN <= size <= MEMORY_MAX:
        raise ValueError(f'{name} must be 1MiB or more, such as "512MiB" or a number of bytes, not {value!r}')
    return size


def text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > NAME_MAX or not value.isprintable():
        raise ValueError(f"{name} must be printable text of 1 to {NAME_MAX} characters, not {value!r}")
    return value


def one_of(*allowed: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
        return value

    return check


def tags(name: str, value: Any) -> list[str]:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise ValueError(f"{name} must be a list of texts, not {value!r}")
    return [text(f"{name}[{index}]", tag) for index, tag in enumerate(value)]


def moment(name: str, value: Any) -> str:
    """A point in time as RFC 3339 in UTC; takes an aware datetime or Unix seconds."""
    from datetime import datetime, timezone

    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError(
                f"{name}={value!r} has no time zone; "
                f"use datetime.now(timezone.utc) + timedelta(...), or value.astimezone()"
            )
        at = value.astimezone(timezone.utc)
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a datetime with a time zone, or Unix seconds, not {value!r}")
    else:
        try:
            at = datetime.fromtimestamp(value, timezone.utc)
        except (ValueError, OverflowError, OSError):
            raise ValueError(f"{name}={value!r} is no Unix time between the years 1 and 9999") from None
    return at.isoformat().replace("+00:00", "Z")


def task_id(name: str, value: Any) -> str:
    import uuid

    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise ValueError(f"{name} must be a UUID (version 7 is best), not {value!r}") from None


def url(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.lower().startswith(("https://", "http://")):
        raise ValueError(f"{name} must be a URL such as https://example.org/hook, not {value!r}")
    return value


def exceptions(name: str, value: Any) -> tuple[type[Exception], ...]:
    """One exception class or several; always a tuple afterwards."""
    classes = tuple(value) if isinstance(value, (list, tuple, set, frozenset)) else (value,)
    for each in classes:
        if not isinstance(each, type) or not issubclass(each, Exception):
            raise ValueError(f"{name} must be exception classes like (OSError, KeyError), not {each!r}")
    return classes


def concurrency(name: str, value: Any) -> int:
    return whole(name, value, 1, CONCURRENCY_MAX)


def rate(name: str, value: Any) -> str:
    """Starts in a window, such as "10/min", "100/s", "3/15min"; the server knows the bounds of a window."""
    import re

    units = "ms|s|sec|second|min|m|minute|h|hour|d|day"
    if not isinstance(value, str) or not re.fullmatch(rf"\s*[1-9]\d*\s*/\s*\d*\s*({units})\s*", value):
        raise ValueError(f'{name} must be starts in a window, such as "10/min" or "3/15min", not {value!r}')
    return value


def _pieces(name: str, pattern: str) -> Iterator[str | list[Place]]:
    """A text like "account:{0}" in its pieces: text as it is written, and where an argument stands what it may be, by
    place or by name; of several, as in {0|account}, the first that is given. As the server reads it."""
    rest = pattern
    while rest:
        at = min((rest.find(brace) for brace in "{}" if brace in rest), default=len(rest))
        if at:
            yield rest[:at]
        brace, rest = rest[at : at + 1], rest[at + 1 :]
        if not brace:
            return
        if rest.startswith(brace):
            yield brace * 2
            rest = rest[1:]
            continue
        inner, closed, rest = rest.partition("}")
        if brace == "}" or not closed or "{" in inner or not all(inner.split("|")):
            raise ValueError(
                f"{name}={pattern!r}: an argument is {{0}} or {{name}}, and a brace is {{{{ or }}}}"
            )
        yield [_place(word) for word in inner.split("|")]


def _place(word: str) -> Place:
    number = word[1:] if word.startswith("+") else word
    is_place = number.isascii() and number.isdigit() and int(number) < 2**64
    return int(number) if is_place else word


def places(name: str, pattern: str) -> list[list[Place]]:
    """The arguments that stand in a text like "account:{0}"."""
    return [piece for piece in _pieces(name, pattern) if not isinstance(piece, str)]


def either_way(pattern: str, by_place: Mapping[str, int]) -> str:
    """The same key however a call passes an argument: {0} and {account} become {0|account}. `by_place` has the parameters
    that can be given by place and by name."""
    names = {place: name for name, place in by_place.items()}

    def both(sources: list[Place]) -> str:
        if len(sources) == 1:
            place = by_place.get(sources[0]) if isinstance(sources[0], str) else sources[0]
            if place in names:
                return f"{{{place}|{names[place]}}}"
        return "{" + "|".join(map(str, sources)) + "}"

    pieces = _pieces("concurrency_key", pattern)
    return "".join(piece if isinstance(piece, str) else both(piece) for piece in pieces)


def key_pattern(name: str, value: Any) -> str:
    """What a task gives its jobs as a concurrency key."""
    pattern = text(name, value)
    places(name, pattern)
    return pattern


on_crash = one_of("retry", "hold")
catch_up = one_of("latest", "all", "none")
overlap = one_of("skip", "queue", "allow", "cancel_old")

EVERY_MAX = 366 * 86_400


def schedule(rule: Any, timezone: Any, every: Any, late: Any, meet: Any) -> dict[str, Any]:
    """What a task declares of its schedule; empty if it has none. The server reads the rule and knows the zones."""
    if rule is not None and every is not None:
        raise ValueError("give schedule or every, not both")
    if rule is None and every is None:
        for name, value in (("timezone", timezone), ("catch_up", late), ("overlap", meet)):
            if value is not None:
                raise ValueError(f"{name} goes with schedule or every")
        return {}
    if timezone is not None and every is not None:
        raise ValueError("timezone goes with schedule: an interval is the same in every zone")
    said: dict[str, Any] = {}
    if rule is not None:
        said["cron"] = text("schedule", rule)
        if len(rule.split()) not in (5, 6) and not rule.startswith("@"):
            raise ValueError(
                f"schedule must be a cron rule such as '0 2 * * MON-FRI' or '@daily', not {rule!r}; for intervals: every=30"
            )
    if timezone is not None:
        said["timezone"] = text("timezone", timezone)
    if every is not None:
        span = seconds("every", every)
        if not 1 <= span <= EVERY_MAX:
            raise ValueError(f"every must be 1 second to 366 days, not {every!r}")
        said["every_ms"] = milliseconds(span)
    if late is not None:
        said["catch_up"] = catch_up("catch_up", late)
    if meet is not None:
        said["overlap"] = overlap("overlap", meet)
    return said


# Every option of one job, in the order in which it goes on the wire.
JOB_OPTIONS: dict[str, Callable[[str, Any], Any]] = {
    "priority": priority,
    "queue": text,
    "delay": seconds,
    "run_at": moment,
    "start_before": moment,
    "key": text,
    "unique_for": seconds,
    "if_exists": one_of("keep", "replace", "reschedule"),
    "concurrency_key": text,
    "timeout": timeout,
    "max_attempts": count,
    "retry_base": seconds,
    "retry_cap": seconds,
    "on_crash": on_crash,
    "tags": tags,
    "trace_id": text,
    "root_id": text,
    "task_id": task_id,
    "callback_url": url,
}


def job_options(given: dict[str, Any]) -> dict[str, Any]:
    """Checks a job's options and returns those that were given, ready to send.

    None means "not given", except for `timeout`, where it means "no limit" and UNSET means "not given". Two
    are not on the wire like this: "edges" is what `depends_on` and its companions come to, "name" a node's
    name.
    """
    from . import _edges

    wire: dict[str, Any] = {}
    edges = _edges.of(*(given.pop(word, None) for word in CALL_WORDS))
    if edges:
        wire["edges"] = edges
    if given.get("name") is not None:
        wire["name"] = _edges.node_name(given["name"])
    given.pop("name", None)
    for name, check in JOB_OPTIONS.items():
        value = given.pop(name, UNSET)
        if value is UNSET or (value is None and name != "timeout"):
            continue
        wire[name] = check(name, value)
    if given:
        known = ", ".join([*JOB_OPTIONS, *CALL_WORDS, "name"])
        raise TypeError(f"no such option: {', '.join(sorted(given))}; there are {known}")
    if "delay" in wire and "run_at" in wire:
        raise ValueError("give delay or run_at, not both")
    return wire


def milliseconds(value: float) -> int:
    return round(value * 1000)
