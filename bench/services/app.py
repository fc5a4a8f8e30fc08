# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A WSGI application; one request in twenty takes ten times as long: gunicorn --chdir DIRECTORY -b ADDRESS:PORT app:app"""
import hashlib, itertools

count = itertools.count()


def work(rounds):
    text = b"x" * 1024
    for _ in range(rounds):
        text = hashlib.sha256(text).digest() * 32
    return text.hex()[:16].encode()


def app(environ, start):
    body = work(7000 if next(count) % 20 == 19 else 700)
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]
