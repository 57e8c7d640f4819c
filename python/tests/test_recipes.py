# The recipes of docs/recipes.md do what the page says, on a real server.
import os
import sqlite3
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

    def test_a_visit_counts_once_a_job(self):
        for wanted in (1, 2):
            self.assertEqual(self.client.enqueue("effects:count_visit", "/").result(timeout=20), wanted)

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
