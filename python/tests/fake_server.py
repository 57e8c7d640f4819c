# A small HTTP server in a thread that answers as the rea server would, and can be told to misbehave.
from __future__ import annotations

import http.server
import json
import threading
import uuid


class FakeServer:
    """`jobs`, `flows`: the store; `requests`: the log; `script`: things to do wrong, one for each request."""

    def __init__(self):
        self.jobs = {}
        self.flows = {}
        self.requests = []
        self.script = []
        self.connections = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                outer.connections += 1
                super().setup()

            def log_message(self, *_args):
                pass

            def do_GET(self):
                self.handle_one("GET")

            def do_POST(self):
                self.handle_one("POST")

            def handle_one(self, method):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                outer.requests.append((method, self.path, body, dict(self.headers)))
                fault = outer.script.pop(0) if outer.script else None
                if fault == "drop":  # lost before it was read
                    self.close_connection = True
                    return
                status, answer = outer.answer(method, self.path, body)
                if fault == "lose reply":  # done, but the answer never arrives
                    self.close_connection = True
                    return
                if isinstance(fault, tuple):
                    status, answer = fault
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                if fault == "close after":  # a keep-alive that goes stale without notice
                    self.close_connection = True

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method, path, body):
        if path == "/enqueue":
            return 201, self.store(body)
        if path == "/jobs":
            return 201, {"jobs": [self.store(one) for one in body]}
        if path == "/flows":
            created = body["flow_id"] not in self.flows
            flow = self.flows.setdefault(body["flow_id"], body)
            jobs = [
                {"node": node["name"], "task_id": str(uuid.uuid4()), "trace_id": "t"}
                for node in flow["nodes"]
            ]
            return 201 if created else 200, {"flow_id": flow["flow_id"], "created": created, "jobs": jobs}
        path, _, query = path.partition("?")
        parts = path.strip("/").split("/")
        job = self.jobs.get(parts[1])
        if job is None:
            return 404, problem(404, "job_not_found", f"no job {parts[1]}", hint="look in `rea list`")
        if method == "POST":
            job["state"] = {"cancel": "cancelled", "retry": "pending"}[parts[2]]
        elif query and job["state"] == "pending" and job.get("ends_as"):
            job.update(job.pop("ends_as"))
        return 200, job

    def store(self, body):
        created = body["task_id"] not in self.jobs
        trace_id = body.get("trace_id", "trace-of-" + body["task_id"])
        self.jobs.setdefault(body["task_id"], {**body, "state": "pending", "trace_id": trace_id})
        return {"task_id": body["task_id"], "trace_id": trace_id, "created": created}


def problem(status, code, detail, **more):
    return {"type": "about:blank", "title": "no", "status": status, "code": code, "detail": detail, **more}
