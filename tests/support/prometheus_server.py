"""A Prometheus server: scrapes pages at instants of its own clock, and answers `/api/v1/query` about them."""

import contextlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

LINE = re.compile(r"([\w:]+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)\s*(=~|!=|!~|=)\s*"((?:[^"\\]|\\.)*)"')
QUERY = re.compile(r"\{(.*)\}(?:\[(\d+)s\])?", re.DOTALL)
TESTS = {
    "=": lambda value, text: value == text,
    "!=": lambda value, text: value != text,
    "=~": lambda value, text: re.fullmatch(text, value) is not None,
    "!~": lambda value, text: re.fullmatch(text, value) is None,
}


class Store:
    """Samples by series. *ahead_s*: its clock is ahead of this host's. *pages*: by (job, instance), with further labels."""

    def __init__(self, pages, every_s, ahead_s=0.0):
        self.pages, self.every_s, self.ahead_s = pages, every_s, ahead_s
        self.samples = {}  # labels, as a sorted tuple -> [(instant, text)]
        self.questions = []
        self.lock = threading.Lock()

    def now(self):
        return round(time.time() + self.ahead_s, 3)

    def scrape(self):
        for (job, instance), (page, more) in self.pages.items():
            begin, at = time.monotonic(), self.now()
            text = page()
            lines = [*text.splitlines(), f"scrape_duration_seconds {time.monotonic() - begin}"]
            with self.lock:
                for line in lines:
                    found = LINE.fullmatch(line)
                    if found:
                        own = {name: value for name, _, value in LABEL.findall(found[2] or "")}
                        labels = {"__name__": found[1], **own, "job": job, "instance": instance, **more}
                        self.samples.setdefault(tuple(sorted(labels.items())), []).append((at, found[3]))

    def answer(self, query):
        if query == "time()":
            return {"resultType": "scalar", "result": [self.now(), str(self.now())]}
        self.questions.append(query)
        found = QUERY.fullmatch(query)
        tests, seconds = LABEL.findall(found[1]), found[2]
        with self.lock:
            chosen = {
                labels: values
                for labels, values in self.samples.items()
                if all(TESTS[how](dict(labels).get(name, ""), value.replace(r"\"", '"')) for name, how, value in tests)
            }
            if seconds is None:
                return {"resultType": "vector", "result": [
                    {"metric": dict(labels), "value": values[-1]} for labels, values in chosen.items()
                ]}  # fmt: skip
            since = self.now() - float(seconds)
            kept = {labels: [one for one in values if one[0] > since] for labels, values in chosen.items()}
        return {"resultType": "matrix", "result": [
            {"metric": dict(labels), "values": values} for labels, values in kept.items() if values
        ]}  # fmt: skip


@contextlib.contextmanager
def prometheus_server(store):
    """Its URL, once two scrapes are there."""

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            if self.path != "/api/v1/query":
                return self.send(404, b"")
            return self.send(200, json.dumps({"status": "success", "data": store.answer(form["query"][0])}).encode())

        def do_GET(self):
            own = b"prometheus_tsdb_head_series 5\nprometheus_build_info 1\n"
            self.send(200 if self.path == "/metrics" else 404, own if self.path == "/metrics" else b"")

        def send(self, status, body):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    ended = threading.Event()

    def follow():
        while not ended.wait(store.every_s):
            store.scrape()

    store.scrape()
    store.scrape()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    threads = [threading.Thread(target=server.serve_forever), threading.Thread(target=follow)]
    for thread in threads:
        thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join()
