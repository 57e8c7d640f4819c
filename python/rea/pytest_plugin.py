# The pytest plugin: the fixture `rea_server`, and the server's log beside the failure of a test that used it.
# Found by pytest when rea is installed; elsewhere: `pytest_plugins = ["rea.pytest_plugin"]` in conftest.py.
from __future__ import annotations

import time

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

    from .testing import Server


@pytest.fixture(scope="session")
def rea_code() -> list[str]:
    """What `rea_server` serves: override it in conftest.py, with a list of Python files or modules."""
    raise pytest.UsageError(
        "the fixture rea_server needs to know which tasks to serve; write in conftest.py:\n\n"
        '    @pytest.fixture(scope="session")\n'
        "    def rea_code():\n"
        '        return ["app/jobs.py"]  # files or modules with @task functions'
    )


@pytest.fixture(scope="session")
def rea_server(rea_code: list[str]) -> Iterator[Server]:
    """A real server with an empty store, for all tests of the run; `task.enqueue()` goes to it.

    For another scope or other settings make a fixture of your own around `rea.testing.Server`.
    """
    from .testing import Server

    with Server(*rea_code) as server:
        yield server


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Generator[None, Any, None]:
    answer = yield
    report = answer.get_result()
    server = getattr(item, "funcargs", {}).get("rea_server")
    if report.when == "call" and report.failed and server is not None:
        # The jobs of this test are at the end, once the server has written what it logs beside its work.
        time.sleep(0.1)
        lines = server.log.splitlines()[-60:]
        report.sections.append(("log of the rea server", "\n".join(lines)))
