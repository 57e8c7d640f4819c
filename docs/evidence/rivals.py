"""What rea does where other job runners were measured: endless jobs, killed servers, stopped processes, poison jobs.

    python3 docs/evidence/rivals.py target/release/rea [TEST ...]

Prints one JSON line a test, with what happened and the times in seconds. Needs nothing but Python 3.9 and Linux. Servers
listen on 127.0.0.1, their stores are temporary, and only processes that this script has started are signalled. The tests
are those of the comparison in rivals.md, with the same names.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

TASKS = '''
import os, signal, subprocess, sys, time
from rea.task import task

def note(path, *words):
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, (" ".join(map(str, words)) + " %.4f\\n" % time.time()).encode())
    os.close(handle)

@task
def append(path, job, seconds=0):
    note(path, "start", job, os.getpid())
    time.sleep(seconds)
    note(path, "end", job, os.getpid())

@task
def ticker(path, job, deaf):
    """Never ends by itself; when deaf, it can only be killed."""
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(path, "start", job, os.getpid())
    while True:
        note(path, "tick", job, os.getpid())
        time.sleep(0.1)

@task
def grand(path, job):
    """A child, and a grandchild in a session of its own that ignores SIGTERM."""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = (
        "import subprocess, sys, time; "
        f"p = subprocess.Popen([sys.executable, '-c', {deaf!r}], start_new_session=True); "
        "print(p.pid, flush=True); time.sleep(600)"
    )
    p = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True)
    below = p.stdout.readline().strip()
    time.sleep(0.3)
    note(path, "start", job, os.getpid())
    note(path, "pid", job, p.pid)
    note(path, "pid", job, below)
    time.sleep(600)

@task
def poison(path, job):
    note(path, "start", job, os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)
'''


class Bed:
    """A temporary store, its tasks, the file that jobs write, and the servers that were started there."""

    def __init__(self, rea: str) -> None:
        self.rea = rea
        self.dir = Path(tempfile.mkdtemp(prefix="rea-rivals-"))
        (self.dir / "tasks.py").write_text(TASKS)
        self.file = str(self.dir / "events")
        self.servers: list[Server] = []
        self.stopped: set[int] = set()

    def serve(self, workers: int, *words: str) -> Server:
        server = Server(self, workers, words)
        self.servers.append(server)
        return server

    def events(self, kind: str | None = None, job: str | None = None) -> list[tuple[str, str, int, float]]:
        """(kind, job, pid, time) of each line, oldest first."""
        try:
            lines = Path(self.file).read_text().splitlines()
        except FileNotFoundError:
            return []
        rows = [(w[0], w[1], int(w[2]), float(w[3])) for w in map(str.split, lines) if len(w) == 4]
        return [r for r in rows if kind in (None, r[0]) and job in (None, r[1])]

    def wait(self, what: str, seconds: float, kind: str, job: str, count: int = 1) -> tuple[str, str, int, float]:
        """The event number `count` (from 1) of this kind."""
        wait_for(what, seconds, lambda: len(self.events(kind, job)) >= count)
        return self.events(kind, job)[count - 1]

    def signal(self, pid: int, number: signal.Signals) -> None:
        """To a process below a server of this bed."""
        if number == signal.SIGSTOP:
            self.stopped.add(pid)
        if number == signal.SIGCONT:
            self.stopped.discard(pid)
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def close(self) -> None:
        for pid in list(self.stopped):
            self.signal(pid, signal.SIGCONT)
        for server in self.servers:
            server.end()
        shutil.rmtree(self.dir, ignore_errors=True)


class Server:
    def __init__(self, bed: Bed, workers: int, words: tuple[str, ...]) -> None:
        self.began = time.time()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("REA_")}
        command = [bed.rea, "serve", "tasks.py", "--port", "0", "--workers", str(workers), *words]
        self.process = subprocess.Popen(
            command,
            cwd=bed.dir,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=open(bed.dir / f"log.{len(bed.servers)}", "w+"),
            start_new_session=True,
        )
        self.log = bed.dir / f"log.{len(bed.servers)}"
        self.url = ""
        self.ready = 0.0

    def wait_ready(self, seconds: float = 60) -> Server:
        wait_for("the server is ready", seconds, self._is_ready)
        return self

    def _is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError("the server ended: " + self.log.read_text())
        for line in self.log.read_text().splitlines():
            if '"action":"ready"' in line and line.endswith("}"):
                said = json.loads(line)
                self.url, self.ready = said["url"], time.time()
                return True
        return False

    def ask(self, path: str, body: object = None) -> object:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def enqueue(self, task: str, args: list[object], **more: object) -> str:
        return self.ask("/enqueue", {"task": "tasks:" + task, "args": args, **more})["task_id"]

    def state(self, job: str) -> dict[str, object]:
        shown = self.ask("/jobs/" + job)
        past = self.ask(f"/jobs/{job}/attempts")["history"]
        causes = [f"{p['attempt']} {p['cause']}" for p in past if p["kind"] == "attempt"]
        return {"state": shown["state"], "attempt": shown["attempt"], "failures": shown["failures"], "ended": causes}

    def counts(self) -> dict[str, int]:
        return {k: n for k, n in self.ask("/status")["counts"].items() if n}

    def kill(self) -> float:
        self.process.kill()
        self.process.wait()
        return time.time()

    def end(self) -> float:
        """SIGTERM, SIGKILL when that does not help; gives the seconds that it took."""
        began = time.time()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return since(began)


def wait_for(what: str, seconds: float, is_so) -> None:
    began = time.time()
    while not is_so():
        if time.time() - began > seconds:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def since(moment: float) -> float:
    return round(time.time() - moment, 2)


def lives(pid: int) -> bool:
    """A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[1])


def endless(bed: Bed, deaf: bool) -> dict[str, object]:
    """One slot; a job that ticks for ever with a limit of 2 s, and a small job behind it."""
    server = bed.serve(1).wait_ready()
    job = server.enqueue("ticker", [bed.file, "7", deaf], timeout=2, max_attempts=1)
    start = bed.wait("it starts", 10, "start", "7")[3]
    server.enqueue("append", [bed.file, "8"])
    following = bed.wait("the next job runs", 30, "start", "8")[3]
    time.sleep(2)
    last = bed.events("tick")[-1][3]
    return {
        "last_tick_s": round(last - start, 2),
        "next_job_ran_at_s": round(following - start, 2),
        "job": server.state(job),
        "stop_took_s": server.end(),
    }


def b1(bed: Bed) -> dict[str, object]:
    return endless(bed, deaf=False)


def b1deaf(bed: Bed) -> dict[str, object]:
    """The same with a body that ignores SIGTERM: the kill follows after the grace of 5 s."""
    return endless(bed, deaf=True)


def b1g(bed: Bed) -> dict[str, object]:
    """A job over its limit of 2 s, with a child and a deaf grandchild in a session of its own."""
    server = bed.serve(1).wait_ready()
    job = server.enqueue("grand", [bed.file, "7"], timeout=2, max_attempts=1)
    start = bed.wait("it starts", 10, "start", "7")[3]
    bed.wait("both are there", 10, "pid", "7", 2)
    pids = [e[2] for e in bed.events("pid", "7")]
    before = sum(map(lives, pids))
    wait_for("it is dead", 30, lambda: server.ask("/jobs/" + job)["state"] == "dead")
    settled, left = since(start), sum(map(lives, pids))
    server.enqueue("append", [bed.file, "8"])
    following = bed.wait("the next job runs", 30, "start", "8")[3]
    return {
        "below_the_job": before,
        "settled_at_s": settled,
        "survivors_when_settled": left,
        "next_job_ran_at_s": round(following - start, 2),
        "job": server.state(job),
        "stop_took_s": server.end(),
    }


def b2(bed: Bed) -> dict[str, object]:
    """kill -9 of the server 1 s into a job of 6 s; restart at once."""
    server = bed.serve(2).wait_ready()
    job = server.enqueue("append", [bed.file, "5", 6])
    first = bed.wait("it starts", 10, "start", "5")
    time.sleep(1)
    killed = server.kill()
    server = bed.serve(2).wait_ready()
    orphan = lives(first[2])
    again = bed.wait("it runs again", 60, "start", "5", 2)[3]
    wait_for("it is done", 30, lambda: server.ask("/jobs/" + job)["state"] == "success")
    return {
        "ran_again_after_kill_s": round(again - killed, 2),
        "server_ready_after_kill_s": round(server.ready - killed, 2),
        "old_child_alive_at_restart": orphan,
        "done_times": len(bed.events("end", "5")),
        "job": server.state(job),
    }


def b3(bed: Bed, jobs: int = 2_000, kills: int = 20) -> dict[str, object]:
    """2,000 jobs of 20 ms, 4 slots; kill -9 of the server 20 times at random moments of work.

    With jobs that take no time, as the others had, all would be done before the second kill.
    """
    began = time.time()
    server = bed.serve(4).wait_ready()
    wanted = [{"task": "tasks:append", "args": [bed.file, str(n), 0.02]} for n in range(jobs)]
    stored = server.ask("/jobs", wanted)["jobs"]
    done: list[int] = []
    for kill in range(kills):
        seen = len(bed.events("start"))
        wait_for("jobs run", 20, lambda seen=seen: len(bed.events("start")) > seen)
        time.sleep(random.uniform(0.1, 0.5))
        server.kill()
        done.append(len({e[1] for e in bed.events("end")}))
        server = bed.serve(4).wait_ready()
    last = time.time()
    wait_for("all are done", 120, lambda: server.counts().get("success") == jobs)
    took = since(last)
    starts: dict[str, int] = {}
    ends: dict[str, int] = {}
    for kind, job, _, _ in bed.events():
        table = starts if kind == "start" else ends
        table[job] = table.get(job, 0) + 1
    states = [server.ask("/jobs/" + one["task_id"]) for one in stored]
    return {
        "kills": kills,
        "done_at_kills": [done[0], done[len(done) // 2], done[-1]],
        "lost": jobs - len(ends),
        "without_exactly_one_result": sum(1 for s in states if s["state"] != "success"),
        "started_more_than_once": sum(1 for n in starts.values() if n > 1),
        "ran_to_the_end_more_than_once": sum(1 for n in ends.values() if n > 1),
        "interruptions_counted": sum(s["interruptions"] for s in states),
        "failures_counted": sum(s["failures"] for s in states),
        "states": server.counts(),
        "seconds_after_last_kill": took,
        "total_s": since(began),
    }


def b4child(bed: Bed) -> dict[str, object]:
    """SIGSTOP to a job's process past its limit: it can't react, and is killed all the same. No late result."""
    server = bed.serve(1).wait_ready()
    job = server.enqueue("append", [bed.file, "4", 1.5], timeout=2, max_attempts=1)
    first = bed.wait("it starts", 10, "start", "4")
    bed.signal(first[2], signal.SIGSTOP)
    wait_for("it is dead", 30, lambda: server.ask("/jobs/" + job)["state"] == "dead")
    settled = round(time.time() - first[3], 2)
    alive = lives(first[2])
    bed.signal(first[2], signal.SIGCONT)
    time.sleep(1)
    return {"settled_at_s": settled, "alive": alive, "ends": len(bed.events("end")), "job": server.state(job)}


def b4warden(bed: Bed) -> dict[str, object]:
    """SIGSTOP to the process above the job as well, so that neither can do what it is asked."""
    server = bed.serve(1).wait_ready()
    job = server.enqueue("append", [bed.file, "4", 1.5], timeout=2, max_attempts=1)
    first = bed.wait("it starts", 10, "start", "4")
    warden = parent(first[2])
    bed.signal(warden, signal.SIGSTOP)
    bed.signal(first[2], signal.SIGSTOP)
    try:
        wait_for("it is dead", 40, lambda: server.ask("/jobs/" + job)["state"] == "dead")
        settled: object = round(time.time() - first[3], 2)
    except TimeoutError:
        settled = "not within 40 s"
    alive = [lives(warden), lives(first[2])]
    bed.signal(warden, signal.SIGCONT)
    bed.signal(first[2], signal.SIGCONT)
    wait_for("it is dead", 20, lambda: server.ask("/jobs/" + job)["state"] == "dead")
    return {
        "settled_at_s": settled,
        "warden_and_child_alive": alive,
        "ends": len(bed.events("end")),
        "job": server.state(job),
    }


def b4server(bed: Bed) -> dict[str, object]:
    """SIGSTOP to the server for 8 s, past its job's end and limit; a second server meanwhile; SIGCONT."""
    server = bed.serve(1).wait_ready()
    job = server.enqueue("append", [bed.file, "4", 1.5], timeout=4, max_attempts=2)
    bed.wait("it starts", 10, "start", "4")
    bed.signal(server.process.pid, signal.SIGSTOP)
    second = bed.serve(1)
    code = second.process.wait(30)
    said = second.log.read_text().strip().splitlines()[:1]
    time.sleep(8)
    bed.signal(server.process.pid, signal.SIGCONT)
    wait_for("it is settled", 30, lambda: server.ask("/jobs/" + job)["state"] not in ("dispatched", "running"))
    return {
        "second_server_exit_code": code,
        "second_server_named_the_first": str(server.process.pid) in " ".join(said),
        "runs": len(bed.events("start")),
        "job": server.state(job),
    }


def b4killed(bed: Bed) -> dict[str, object]:
    """A job's process is stopped, then its server killed: the next server must not run beside it."""
    server = bed.serve(1).wait_ready()
    job = server.enqueue("append", [bed.file, "4", 3])
    first = bed.wait("it starts", 10, "start", "4")
    bed.signal(first[2], signal.SIGSTOP)
    killed = server.kill()
    server = bed.serve(1).wait_ready()
    alive = lives(first[2])
    bed.signal(first[2], signal.SIGCONT)
    again = bed.wait("it runs again", 30, "start", "4", 2)[3]
    wait_for("it is done", 30, lambda: server.ask("/jobs/" + job)["state"] == "success")
    return {
        "old_child_alive_at_restart": alive,
        "ran_again_after_kill_s": round(again - killed, 2),
        "ran_to_the_end": len(bed.events("end")),
        "job": server.state(job),
    }


def b4orphan(bed: Bed) -> dict[str, object]:
    """The job's process and the one above it are stopped, then their server killed: nobody is left who could end them."""
    server = bed.serve(1).wait_ready()
    job = server.enqueue("append", [bed.file, "4", 3])
    first = bed.wait("it starts", 10, "start", "4")
    warden = parent(first[2])
    bed.signal(warden, signal.SIGSTOP)
    bed.signal(first[2], signal.SIGSTOP)
    killed = server.kill()
    time.sleep(0.5)
    before = [lives(warden), lives(first[2])]
    server = bed.serve(1).wait_ready()
    after = [lives(warden), lives(first[2])]
    ready = round(server.ready - server.began, 2)
    said = [line for line in server.log.read_text().splitlines() if "jobs of an earlier server" in line]
    again = bed.wait("it runs again", 30, "start", "4", 2)[3]
    wait_for("it is done", 30, lambda: server.ask("/jobs/" + job)["state"] == "success")
    return {
        "warden_and_child_alive_before_the_next_server": before,
        "and_when_it_was_ready": after,
        "server_ready_after_s": ready,
        "it_said_so_and_named_the_warden": len(said) == 1 and str(warden) in said[0],
        "ran_again_after_kill_s": round(again - killed, 2),
        "ran_to_the_end": len(bed.events("end")),
        "job": server.state(job),
    }


def b5(bed: Bed) -> dict[str, object]:
    """A job that kills its process, at most 3 attempts, and 30 others behind it; 2 slots; the default backoff."""
    server = bed.serve(2).wait_ready()
    queue = "/queues/default/"
    server.ask(queue + "pause", {})
    job = server.enqueue("poison", [bed.file, "6"], max_attempts=3)
    for n in range(30):
        server.enqueue("append", [bed.file, f"other{n}"])
    server.ask(queue + "resume", {})
    began = time.time()
    wait_for("the others are done", 60, lambda: len(bed.events("end")) >= 30)
    others = max(e[3] for e in bed.events("end")) - began
    wait_for("it is dead", 60, lambda: server.ask("/jobs/" + job)["state"] == "dead")
    ended = since(began)
    time.sleep(3)
    return {
        "poison_runs": len(bed.events("start", "6")),
        "poison_runs_at_s": [round(e[3] - began, 1) for e in bed.events("start", "6")],
        "poison_dead_at_s": ended,
        "others_done": len({e[1] for e in bed.events("end")}),
        "others_last_done_s": round(others, 2),
        "others_more_than_once": len(bed.events("end")) - 30,
        "server_lives": server.process.poll() is None,
        "job": server.state(job),
        "states": server.counts(),
    }


TESTS = [b1, b1deaf, b1g, b2, b3, b4child, b4warden, b4server, b4killed, b4orphan, b5]


def main() -> int:
    if len(sys.argv) < 2 or not shutil.which(sys.argv[1]):
        print(__doc__, file=sys.stderr)
        return 2
    rea = str(Path(shutil.which(sys.argv[1])).resolve())
    names = sys.argv[2:] or [test.__name__ for test in TESTS]
    failed = False
    for test in TESTS:
        if test.__name__ not in names:
            continue
        bed = Bed(rea)
        try:
            what = test(bed)
        except (TimeoutError, RuntimeError, subprocess.TimeoutExpired, urllib.error.URLError) as error:
            what = {"error": f"{type(error).__name__}: {error}"}
            failed = True
        finally:
            bed.close()
        print(json.dumps({"rival": "rea", "test": test.__name__, **what}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
