"""A server in a thread that answers each path with fixed bytes and records the requests."""

import contextlib
import http.server
import threading


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128  # with the default of 5, connections are dropped while another process has the CPU


class CannedServer:
    """*answers*: path -> (status, content type, body), or an object with answers_to(path, body of the request); a body of
    None closes without an answer.
    """

    def __init__(self, answers):
        outer = self
        self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.asked.append((self.command, self.path, dict(self.headers), body))
                default = 404, "application/json", b"{}"
                if hasattr(answers, "answers_to"):
                    status, kind, content = answers.answers_to(self.path, body) or default
                else:
                    status, kind, content = answers.get(self.path, default)
                if content is None:
                    return
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextlib.contextmanager
def canned(answers):
    one = CannedServer(answers)
    thread = threading.Thread(target=one.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield one
    finally:
        one.server.shutdown()
        one.server.server_close()
        thread.join()
