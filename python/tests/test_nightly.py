# examples/nightly: the whole thing on a real server, its parts in process, and the same flow as a file.
import importlib.util
import json
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
from rea import testing
from test_client import WithServer

FOLDER = support.REPO / "examples" / "nightly"


def load():
    spec = importlib.util.spec_from_file_location("nightly", FOLDER / "nightly.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Example(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.source = self.folder / "source.csv"
        env = {"NIGHTLY_DIR": holder.name, "NIGHTLY_SOURCE": self.source.as_uri()}
        with mock.patch.dict(os.environ, env):
            self.nightly = load()

    @unittest.skipUnless(support.find_program(), "no program rea: set REA_BIN, or build it with cargo")
    def test_tick_failure_alert_retry_success_within_a_minute(self):
        env = {**os.environ, "PYTHONPATH": str(support.PACKAGE), "REA_BIN": support.find_program()}
        done = subprocess.run(
            [sys.executable, str(FOLDER / "check.py")], env=env, capture_output=True, text=True, timeout=90
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        told = re.findall(r"^ *[\d.]+ s  (\w+):", done.stdout, re.MULTILINE)
        self.assertEqual(told, ["tick", "failure", "alert", "retry", "success"])

    @unittest.skipUnless(support.find_program(), "no program rea: set REA_BIN, or build it with cargo")
    def test_the_file_is_submitted_by_the_command_line(self):
        self.source.write_bytes((FOLDER / "sales.csv").read_bytes())
        program = support.find_program()
        env = {"NIGHTLY_DIR": str(self.folder), "NIGHTLY_SOURCE": self.source.as_uri()}
        with mock.patch.dict(os.environ, {"REA_BIN": program}):
            with testing.Server(FOLDER / "nightly.py", env=env) as server:
                command = [program, "flow", "submit", str(FOLDER / "nightly.toml"), "--wait=30", "--json"]
                done = subprocess.run([*command, "--url", server.url], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                flow = server.client.flow_handle(json.loads(done.stdout)["flow_id"])
                self.assertEqual((flow.state(), flow.node_result("report")), ("success", 300))
        self.assertIn("total: 300", (self.folder / "report.txt").read_text())

    def test_in_process(self):
        whole = (FOLDER / "sales.csv").read_bytes()
        for content, state, runs, result in [(whole, "success", 1, 300), (whole[:20], "dead", 3, None)]:
            self.source.write_bytes(content)
            with self.subTest(state), testing.InProcess() as here:
                flow_id = rea.enqueue("nightly:nightly").result()
                flow = rea.client.default_client().flow_handle(flow_id)
                self.assertEqual((flow.state(), flow.refresh()["attempt"]), (state, runs))
                states = {name: flow.node_state(name) for name in ("clean", "report", "alert")}
                if state == "success":
                    self.assertEqual(flow.node_result("report"), result)
                    self.assertEqual(states["alert"], "skipped")
                else:
                    self.assertEqual(states, {"clean": "dead", "report": "skipped", "alert": "success"})
                    self.assertEqual(len((self.folder / "alerts.txt").read_text().splitlines()), 3)
                    self.assertIsNotNone(here)

    def test_a_second_attempt_finds_the_flow_of_the_first(self):
        self.source.write_bytes((FOLDER / "sales.csv").read_bytes())
        with testing.InProcess():
            attempts = [
                testing.FakeJob(attempt=number, task_id="0193793e-7f00-7000-8000-000000000001")
                for number in (1, 2)
            ]
            first, second = (each.run(self.nightly.nightly).result for each in attempts)
        self.assertEqual(first, second)


class File(WithServer):
    def test_the_file_is_the_same_flow(self):
        try:
            import tomllib
        except ImportError:
            self.skipTest("Python reads TOML from 3.11 on")
        testing.run(load().nightly)
        by_code = json.loads(json.dumps(self.sent()))
        by_file = tomllib.loads((FOLDER / "nightly.toml").read_text())
        nodes = [{"name": name, "kwargs": {}, "args": [], **node} for name, node in by_file["nodes"].items()]
        del by_code["flow_id"]
        by_code.pop("root_id")
        self.assertEqual({**by_file, "nodes": nodes}, by_code)


if __name__ == "__main__":
    unittest.main()
