# The recipes of docs/recipes.md do what the page says, on a real server.
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import rea
import support
from rea import testing

FILE = support.REPO / "examples" / "recipes" / "effects.py"


@unittest.skipUnless(support.find_program(), "no program rea: set REA_BIN, or build it with cargo")
class Recipes(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        env = {
            "RECIPES_DIR": holder.name,
            "REA_BIN": support.find_program(),
            "PYTHONPATH": str(support.PACKAGE),
        }
        patch = mock.patch.dict(os.environ, env)
        patch.start()
        self.addCleanup(patch.stop)
        server = testing.Server(FILE, workers=2)
        server.__enter__()
        self.addCleanup(server.__exit__, None, None, None)
        self.client = server.client

    def effects(self):
        """The recipes in this process, for the folder of this test."""
        spec = importlib.util.spec_from_file_location("effects", FILE)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def rows(self, name, sql):
        with sqlite3.connect(self.folder / name) as db:
            return db.execute(sql).fetchall()

    def test_a_message_is_sent_once_although_the_job_runs_twice(self):
        handle = self.client.enqueue("effects:send_sms", "+49", "hello")
        self.assertEqual(handle.result(timeout=20), {"sent_now": False})
        self.assertEqual(len(self.rows("sms.gateway", "SELECT * FROM calls")), 1)

    def test_a_report_is_there_whole_or_not_at_all(self):
        path = self.client.enqueue("effects:write_report", "a.txt", ["1", "2"]).result(timeout=20)
        self.assertEqual(Path(path).read_text(), "1\n2\n")
        self.assertEqual([p.name for p in self.folder.glob(".a.txt*")], [])

    def test_a_report_that_ends_in_the_middle_leaves_the_old_one(self):
        target = self.folder / "a.txt"
        target.write_text("old\n")

        def lines():
            yield from ["new"] * 100_000  # more than any buffer holds
            raise OSError("the disk is full")

        with self.assertRaisesRegex(OSError, "disk is full"):
            self.effects().write_report("a.txt", lines())
        self.assertEqual((target.read_text(), list(self.folder.glob(".a.txt*"))), ("old\n", []))

        code = """if True:
            import effects, os
            def lines():
                yield from ["new"] * 100_000
                os._exit(9)
            effects.write_report("a.txt", lines())
        """
        env = {**os.environ, "PYTHONPATH": f"{support.PACKAGE}:{FILE.parent}", "PYTHONDONTWRITEBYTECODE": "1"}
        killed = subprocess.run([sys.executable, "-c", code], env=env)
        self.assertEqual((killed.returncode, target.read_text()), (9, "old\n"))
        self.assertEqual(len(list(self.folder.glob(".a.txt*"))), 1, "what the page tells to clear away")
        self.client.enqueue("effects:write_report", "a.txt", ["next"]).result(timeout=20)
        self.assertEqual(target.read_text(), "next\n")

    def test_a_visit_counts_once_a_job(self):
        for wanted in (1, 2):
            self.assertEqual(self.client.enqueue("effects:count_visit", "/").result(timeout=20), wanted)

    def test_a_visit_counts_once_although_the_job_runs_twice(self):
        handle = self.client.enqueue("effects:count_visit", "twice")
        self.assertEqual(handle.result(timeout=20), 1)
        self.assertEqual(handle.refresh()["attempt"], 2)

    def test_a_late_write_of_an_older_attempt_is_turned_away(self):
        handle = self.client.enqueue("effects:store_item", "late")
        self.assertEqual(handle.result(timeout=20), "late 2")
        late = json.loads((self.folder / "in-flight.json").read_text())
        put = self.effects().Shelf().put
        stored = "SELECT attempt, token, what FROM items"
        [(attempt, token, what)] = before = self.rows("shelf.db", stored)
        self.assertEqual((late["attempt"], attempt, what), (1, 2, "late 2"))
        self.assertFalse(put(**late), "an older attempt")
        self.assertFalse(put(**{**late, "attempt": 2}), "as new, but another: the store was restored, say")
        self.assertEqual(self.rows("shelf.db", stored), before)
        for newer in ({"attempt": 2, "token": token, "what": "again"}, {"attempt": 3, "what": "newer"}):
            self.assertTrue(put(**{**late, **newer}))
            self.assertEqual(self.rows("shelf.db", "SELECT what FROM items"), [(newer["what"],)])

    def test_a_payment_in_doubt_is_held_and_not_made_again(self):
        done = self.client.enqueue("effects:pay", "17", 500)
        self.assertEqual(done.result(timeout=20), {"order": "17", "paid": 500})
        doubtful = self.client.enqueue("effects:pay", "crash", 500)
        with self.assertRaises(rea.JobFailed) as caught:
            doubtful.result(timeout=20)
        self.assertIn("held", str(caught.exception))
        self.assertEqual(len(self.rows("bank.gateway", "SELECT * FROM calls WHERE key LIKE 'crash/%'")), 1)


if __name__ == "__main__":
    unittest.main()
