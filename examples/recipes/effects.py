# Effects that must not happen twice, although a job may start twice. docs/recipes.md explains each.
import json
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


# --- a row: the key in the same transaction ---


@task(max_attempts=3, retry_base=0.1)
def count_visit(page):
    job = rea.current_job()
    with sqlite3.connect(HERE / "visits.db") as db:  # one transaction
        db.execute("CREATE TABLE IF NOT EXISTS visits (page TEXT PRIMARY KEY, count INTEGER)")
        db.execute("CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY)")
        if db.execute("INSERT OR IGNORE INTO done VALUES (?)", (job.key,)).rowcount == 1:
            sql = "INSERT INTO visits VALUES (?, 1) ON CONFLICT (page) DO UPDATE SET count = count + 1"
            db.execute(sql, (page,))
        count = db.execute("SELECT count FROM visits WHERE page = ?", (page,)).fetchone()[0]
    if page == "twice" and job.attempt == 1:
        raise RetryableError("the answer was lost")  # after the commit: the next attempt finds its key
    return count


# --- a late write: the token turns away an attempt that has lost its right ---


class Shelf:
    """Stands for a store that gets writes late: it remembers the newest attempt of each key."""

    def __init__(self):
        self.db = sqlite3.connect(HERE / "shelf.db", isolation_level=None)
        columns = "key TEXT PRIMARY KEY, attempt INT, token TEXT, what TEXT"
        self.db.execute(f"CREATE TABLE IF NOT EXISTS items ({columns})")

    def put(self, key, attempt, token, what):
        """False: another attempt of this key, as new or newer, has written, and nothing was changed."""
        # The question and the write are one statement: nobody comes between them.
        sql = """INSERT INTO items VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE
            SET attempt = excluded.attempt, token = excluded.token, what = excluded.what
            WHERE excluded.attempt > attempt OR excluded.token = token"""
        return self.db.execute(sql, (key, attempt, token, what)).rowcount == 1


@task(max_attempts=3, retry_base=0.1)
def store_item(what):
    job = rea.current_job()
    write = {"key": job.key, "attempt": job.attempt, "token": job.token, "what": f"{what} {job.attempt}"}
    if what == "late" and job.attempt == 1:
        # The network holds the write back, say, and delivers it when the next attempt has long written.
        (HERE / "in-flight.json").write_text(json.dumps(write))
        raise RetryableError("no answer from the shelf")
    if not Shelf().put(**write):
        raise Fatal("a newer attempt has written")
    return write["what"]


# --- a payment to a bank that knows no keys: a person decides after a crash ---


@task(on_crash="hold", max_attempts=1)
def pay(order, cents):
    if cents <= 0:
        raise Fatal("nothing to pay")
    Gateway("bank").call(key=f"{order}/{rea.current_job().token}", what=str(cents))
    if order == "crash":
        os._exit(9)  # the machine fails right after the bank was called
    return {"order": order, "paid": cents}
