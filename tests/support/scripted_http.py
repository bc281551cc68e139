"""An HTTP server on this machine that answers as a test says."""

import contextlib
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietHandler(BaseHTTPRequestHandler):
    """Writes no log; a test adds what it answers."""

    def body(self) -> bytes:
        """What the client has sent; empty for a request without a body."""
        return self.rfile.read(int(self.headers["content-length"] or 0))

    def reply(self, status: int, text: str) -> None:
        """Answer."""
        data = text.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, the base's name
        pass


@contextlib.contextmanager
def served(handler: type[QuietHandler]) -> Generator[str]:
    """Serve while in here; the server's URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
