"""A real HTTP server that takes webhooks, and fails, hangs or dies as it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread


class Receiver:
    """A real server: it keeps what it got, and answers as it is told; the last answer again and again."""

    def __init__(self, *answers: int | str) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.taken: list[str] = []  # ids answered with success
        self.answers = list(answers)
        self.release = Event()  # ends a hang
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                answer = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
                if answer == "hang":
                    receiver.release.wait(60)
                if isinstance(answer, str):  # it dies
                    self.close_connection = True
                    return
                if answer == 200:
                    receiver.taken.append(json.loads(body)["id"])
                self.send_response(answer)
                if answer == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                raise AssertionError("a redirection was followed")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/secret-path"


@contextmanager
def receiver(*answers: int | str) -> Iterator[Receiver]:
    made = Receiver(*answers)
    thread = Thread(target=made.server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.release.set()
        made.server.shutdown()
        made.server.server_close()
        thread.join()
