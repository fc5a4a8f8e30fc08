# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Answers with a thread for each connection, all under the interpreter's lock; one request in twenty takes ten times as
long: lock.py ADDRESS PORT"""
import http.server, itertools, sys

ROUNDS = 12000
count = itertools.count()


def work(rounds):
    value = 1
    for i in range(rounds):
        value = (value * 1103515245 + i) % 2147483648
    return value


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is one write: else its second waits for the client's acknowledgement of the first.
    wbufsize = 65536

    def do_GET(self):
        text = f"{work(ROUNDS * (10 if next(count) % 20 == 19 else 1))}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
