# docs/python.md: its examples run, in their order, against a real server; and it names every public name.
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import rea
import support
from rea import aio, exception, testing

PAGE = support.REPO / "docs" / "python.md"


def blocks():
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


class Page(unittest.TestCase):
    def test_every_public_name_is_in_an_example_or_explained(self):
        text = PAGE.read_text()
        for module in (rea, aio, exception, testing):
            for name in module.__all__:
                if not name.startswith("__"):
                    with self.subTest(f"{module.__name__}.{name}"):
                        self.assertTrue(re.search(rf"\b{name}\b", text), "the page does not name it")

    def test_an_example_with_imports_has_all_that_it_needs_of_the_package(self):
        for block in blocks():
            if re.search(r"^(from|import) ", block, re.MULTILINE) and re.search(r"\brea\.[A-Za-z_]+\(", block):
                with self.subTest(block):
                    self.assertRegex(block, r"(?m)^import rea$")

    @unittest.skipUnless(support.find_program(), "no program rea: set REA_BIN, or build it with cargo")
    def test_the_examples_run(self):
        with tempfile.TemporaryDirectory() as name:
            folder, steps = Path(name), []
            for block in blocks():
                first = re.match(r"# (\w+\.py)\n", block)
                if first:
                    (folder / first[1]).write_text(block)
                else:
                    steps.append(block)
            self.assertGreater(len(steps), 5)
            (folder / "steps.py").write_text("\n".join(steps))
            self.run_in(folder, ["steps.py"])
            try:
                import pytest  # noqa: F401
            except ImportError:
                return
            self.run_in(folder, ["-m", "pytest", "-q", "-p", "rea.pytest_plugin", "-p", "no:cacheprovider"])

    def run_in(self, folder, command):
        env = {**os.environ, "PYTHONPATH": f"{support.PACKAGE}:{folder}", "REA_BIN": support.find_program()}
        code = [folder / "jobs.py", folder / "nightly.py"]
        with mock.patch.dict(os.environ, env), testing.Server(*code, workers=2) as server:
            env["REA_URL"] = server.url
            done = subprocess.run(
                [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
