"""Peers that hold connections and do nothing: what they cost the others. Run beside a server: see connections.md.

    python3 docs/evidence/connections.py URL PID IDLE SLOW JOBS
"""

import asyncio
import http.client
import json
import sys
import time
import urllib.parse

url, pid, idle, slow, jobs = sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:6])
place = urllib.parse.urlsplit(url)
HEAD = b"POST /enqueue HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 4000\r\n\r\n{"
counts = {"open": 0, "closed by the server": 0}


async def peer(first: bytes, trickle: bool) -> None:
    """Connects, says `first`, then nothing, or a byte a second; comes back a second after it is let go."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
        except OSError:
            await asyncio.sleep(1)
            continue
        counts["open"] += 1
        try:
            writer.write(first)
            while True:
                read = asyncio.create_task(reader.read(4096))
                done, _ = await asyncio.wait([read], timeout=1 if trickle else None)
                if done and not read.exception() and not read.result() or done and read.exception():
                    break
                if not done:
                    read.cancel()
                    writer.write(b" ")
        except OSError:
            pass
        counts["open"] -= 1
        counts["closed by the server"] += 1
        writer.close()
        await asyncio.sleep(1)


def ask(method: str, path: str, body: object = None) -> dict:
    """One request over a connection of its own. A refusal or a lost connection ends the measurement."""
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    text = None if body is None else json.dumps(body)
    connection.request(method, path, text, {"content-type": "application/json"})
    answer = connection.getresponse()
    data = json.loads(answer.read())
    connection.close()
    if answer.status >= 300:
        raise RuntimeError(f"{answer.status}: {data}")
    return data


def centiles(times: list) -> str:
    times.sort()
    return f"p50 {times[len(times) // 2] * 1000:.1f} ms, p99 {times[len(times) * 99 // 100] * 1000:.1f} ms, max {times[-1] * 1000:.0f} ms"


def measure() -> None:
    status, round_trip = [], []
    for _ in range(300):
        begun = time.perf_counter()
        ask("GET", "/status")
        status.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        job = ask("POST", "/enqueue", {"task": "tasks:add", "args": [1, 2]})
        assert ask("GET", f"/jobs/{job['task_id']}?wait=30")["state"] == "success"
        round_trip.append(time.perf_counter() - begun)
    print(f"GET /status             {centiles(status)}")
    print(f"enqueue, run, wait      {centiles(round_trip)}")
    ask("POST", "/queues/default/pause", {})
    before = ask("GET", "/status")["totals"]["succeeded"]
    for _ in range(jobs // 1000):
        ask("POST", "/jobs", [{"task": "tasks:add", "args": [1, 2]}] * 1000)
    begun = time.perf_counter()
    ask("POST", "/queues/default/resume", {})
    while ask("GET", "/status")["totals"]["succeeded"] < before + jobs:
        time.sleep(0.05)
    print(f"drain of {jobs} jobs      {jobs / (time.perf_counter() - begun):.0f} jobs/s")


def memory() -> str:
    with open(f"/proc/{pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    return f"RSS {int(lines['VmRSS'].split()[0]) // 1024} MiB, peak {int(lines['VmHWM'].split()[0]) // 1024} MiB"


async def main() -> None:
    print(f"server before: {memory()}")
    peers = [asyncio.create_task(peer(b"" if n % 2 else b"GET /status HTTP/1.1\r\nHo", False)) for n in range(idle)]
    peers += [asyncio.create_task(peer(HEAD, True)) for _ in range(slow)]
    await asyncio.sleep(15 if peers else 0)
    print(f"peers: {idle} idle, {slow} slow bodies; {counts}")
    await asyncio.to_thread(measure)
    print(f"peers at the end: {counts}")
    print(f"server after: {memory()}")
    for task in peers:
        task.cancel()


asyncio.run(main())
