# The same policy (smallest area first) as a Python service on the standard library's HTTP server, to compare with. Reads a
# snapshot (the body of POST /snapshot) from the file argv[2] and serves POST /decide on the unix socket argv[1].
import bisect
import json
import socketserver
import sys
from http.server import BaseHTTPRequestHandler

path, snapshot = sys.argv[1:]
with open(snapshot) as file:
    jobs = json.load(file)["jobs"]


def cpus(tres):
    return next((int(part[4:]) for part in tres.split(",") if part.startswith("cpu=")), 1)


keys = sorted(job["limit_minutes"] * cpus(job["tres"]) for job in jobs if job["state"] == "PENDING")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ahead = bisect.bisect_right(keys, job.get("limit_minutes", 525600) * job.get("cpus", 1))
        score = (len(keys) - ahead) / len(keys)
        body = json.dumps({"boost": 0, "advice": int(1000 * score), "value": score, "mode": "shadow", "checkpoint": "python"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 256


Server(path, Handler).serve_forever()
