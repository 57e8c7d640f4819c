# Shows that the nightly collection does what it says, with a schedule of seconds: tick → the file comes cut
# off → cleaning fails → alert, no report → the chain is run again → report. `python3 check.py` needs the
# program rea (REA_BIN, or on the PATH) and the package (PYTHONPATH, or pip).
import http.server
import json
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from rea import testing

HERE = Path(__file__).resolve().parent
LIMIT_S = 60

direct = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

# A schedule of its own: the one in the code waits for the night.
SETTINGS = """
[schedules.soon]
every = "2s"
task = "nightly:nightly"
"""


class Source(http.server.BaseHTTPRequestHandler):
    """Where the sales come from. The first time the file breaks off in the middle."""

    times = 0

    def do_GET(self):
        Source.times += 1
        data = (HERE / "sales.csv").read_bytes()
        data = data[: len(data) // 2] if Source.times == 1 else data
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_args):
        pass


def main():
    began_s = time.monotonic()

    def say(what):
        print(f"{time.monotonic() - began_s:5.1f} s  {what}", flush=True)

    source = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Source)
    threading.Thread(target=source.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rea.toml").write_text(SETTINGS)
        env = {"NIGHTLY_DIR": str(folder), "NIGHTLY_SOURCE": f"http://127.0.0.1:{source.server_port}/"}
        env["NO_PROXY"] = "127.0.0.1"
        args = ["--config", str(folder / "rea.toml")]
        with testing.Server(HERE / "nightly.py", env=env, args=args) as server:

            def ask(path):
                return json.load(direct(server.url + path, timeout=10))

            schedules = {one["name"] for one in ask("/schedules")["schedules"]}
            assert schedules == {"nightly:nightly", "soon"}, schedules
            say("the server runs")

            def until(what, look):
                while True:
                    found = look()
                    if found:
                        say(what)
                        return found
                    assert time.monotonic() - began_s < LIMIT_S, f"not in {LIMIT_S} s: {what}\n{server.log}"
                    time.sleep(0.05)

            def flows():
                # Oldest first. The first run is the one that failed.
                return ask("/flows?name=nightly")["flows"][::-1]

            first = until("tick: the flow was stored", flows)[0]
            run = server.client.flow_handle(first["flow_id"])
            root = first["root_id"]
            until("failure: the first run is dead", lambda: flows()[0]["state"] == "dead")
            nodes = {one["node"]: one["state"] for one in ask(f"/flows/{run.id}")["nodes"]}
            assert nodes == {"fetch": "success", "clean": "dead", "report": "skipped", "alert": "success"}, (
                nodes
            )
            alerts = (folder / "alerts.txt").read_text()
            assert alerts == f"cleaning failed ({root})\n", alerts
            say("alert: it was sent once, and there was no report")
            assert run.wait(timeout=LIMIT_S) == "success"
            newest = run.refresh()
            assert (newest["attempt"], newest["root_id"]) == (2, root), newest
            say("retry: the chain was run again from its start, and has succeeded")
            result = run.result()
            assert result["report"] == 300 and "alert" not in result, result
            written = (folder / "report.txt").read_text()
            assert written == "Beijing: 105\nHangzhou: 45\nShanghai: 150\ntotal: 300\n", written
            assert (folder / "alerts.txt").read_text() == alerts
            say("success: the report is there")
            chain = [line for line in map(json.loads, server.log.splitlines()) if line.get("root_id") == root]
            say(f"the tick, both runs and the alert are one chain: {len(chain)} log lines with its root_id")
    source.shutdown()
    assert time.monotonic() - began_s < LIMIT_S


if __name__ == "__main__":
    sys.exit(main())
