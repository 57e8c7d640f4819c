# Effects that must not happen twice, although a job may start twice. docs/recipes.md explains each.
import os
import sqlite3
import tempfile
from pathlib import Path

import rea
from rea.exception import Fatal, RetryableError
from rea.task import task

HERE = Path(os.environ.get("RECIPES_DIR", "."))


class Gateway:
    """Stands for a text-message or payment service: it knows each idempotency key once."""

    def __init__(self, name):
        self.db = sqlite3.connect(HERE / f"{name}.gateway", isolation_level=None)
        self.db.execute("CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY, what TEXT)")

    def call(self, key, what):
        """True: done now. False: this key was done before, and nothing happened again."""
        return self.db.execute("INSERT OR IGNORE INTO calls VALUES (?, ?)", (key, what)).rowcount == 1


# --- a message: the service takes an idempotency key ---


@task(max_attempts=5, retry_base=0.1)
def send_sms(number, text):
    job = rea.current_job()
    sent = Gateway("sms").call(key=job.key, what=f"{number}: {text}")
    if job.attempt == 1:
        # The line broke after the message was sent, say. The next attempt has the same key.
        raise RetryableError("no answer from the gateway")
    return {"sent_now": sent}


# --- a file: written aside, then renamed ---


@task
def write_report(name, lines):
    target = HERE / name
    with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=f".{name}.", delete=False) as out:
        try:
            out.writelines(f"{line}\n" for line in lines)
            out.flush()
            os.fsync(out.fileno())
            os.replace(out.name, target)  # all of it or nothing, also when the job is killed here
        except BaseException:
            os.unlink(out.name)
            raise
    return str(target)


# --- a row: the fencing token turns away an attempt that has lost its right ---


@task(max_attempts=3)
def count_visit(page):
    job = rea.current_job()
    with sqlite3.connect(HERE / "visits.db") as db:  # one transaction
        db.execute("CREATE TABLE IF NOT EXISTS visits (page TEXT PRIMARY KEY, count INTEGER)")
        db.execute("CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY)")
        if db.execute("INSERT OR IGNORE INTO done VALUES (?)", (job.key,)).rowcount == 1:
            db.execute("INSERT INTO visits VALUES (?, 1) ON CONFLICT (page) DO UPDATE SET count = count + 1", (page,))
        return db.execute("SELECT count FROM visits WHERE page = ?", (page,)).fetchone()[0]


# --- a payment to a bank that knows no keys: a person decides after a crash ---


@task(on_crash="hold", max_attempts=1)
def pay(order, cents):
    if cents <= 0:
        raise Fatal("nothing to pay")
    Gateway("bank").call(key=f"{order}/{rea.current_job().token}", what=str(cents))
    if order == "crash":
        os._exit(9)  # the machine fails right after the bank was called
    return {"order": order, "paid": cents}
