#!/usr/bin/env python3
"""Hostile requests against `dllm serve`, by hand: nothing may crash, memory may not grow, and nobody may wait for them.

    scripts/serve_hostile.py build/asan-ubsan/dllm [--requests 100000] [--seed 1] [-m MODEL.gguf]

Requests are HTTP, JSON and UTF-8 with random damage, bodies and numbers beyond the limits, connections that are reset,
clients that send a byte now and then or never read, among ordinary requests. Meanwhile a client asks the same question
again and again and watches the steps of its answers. At the end come 300 streams at once, most of them waiting, and
SIGTERM while answers are being computed. Then a second server gets bodies of megabytes with hundreds of thousands of
keys, and schemas that are dear to compile, while another client asks /health; it must answer within --health ms (99 of
100 times), and SIGTERM in the midst of them must end the server within --drain seconds. The figures are printed as one
line of JSON; a failure is exit status 1.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import serve_large

ASKED = "Ben has 12 pens. Ben gets 3 more. How many pens does Ben have now?"
QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": ASKED}], "max_tokens": 32,
                            "algorithm": "low-confidence", "exact_length": True}
CHAT = "/v1/chat/completions"
PATHS = (CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/score", "/infill", "/tokenize", "/detokenize",
         "/apply-template", "/v1/models", "/metrics", "/", "/slots", "/none", "/v1/choose")
BODIES: tuple[dict[str, Any], ...] = (
    QUESTION,
    {**QUESTION, "stream": True, "stream_options": {"include_usage": True}},
    {"prompt": [1, 2, 3], "max_tokens": 8, "temperature": 0.5, "seed": 3},
    {"input": "Why?", "max_output_tokens": 8},
    {"context": "The sky is", "continuation": [" blue", " green"], "samples": 2},
    {"input_prefix": "3+4=", "input_suffix": " pens", "n_predict": 4},
    {"content": "text \u00e9 \U0001f600"},
    {"tokens": [5, 6, 7]},
    {**QUESTION, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "integer"}}}},
    {"messages": QUESTION["messages"], "template": ["7+5=", {"mask": 2}]},
)
TOKENS = (b"{", b"}", b"[", b"]", b'"', b",", b":", b"null", b"-1", b"1e999", b"18446744073709551616", b"\\u0000",
          b"\\ud800", b"\\udc00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x00", b"NaN", b"0.1",
          b"true", b"\xe2\x96\x91", b"<|mask|>", b"\r\n", b"\r\n\r\n", b"\t")


class Server:
    def __init__(self, dllm, *flags):
        environment = dict(os.environ)
        # Freed memory that the sanitizer holds back would look like growth.
        environment["ASAN_OPTIONS"] = "quarantine_size_mb=1:thread_local_quarantine_size_kb=64:detect_leaks=1"
        self.errors = tempfile.TemporaryFile("w+")
        words = ["serve", "--port", "0", "--log-format", "none", "--max-body", "256", "--request-timeout", "600",
                 "--drain-timeout", "600", "--write-timeout", "3", "--queue", "512", *flags]
        self.process = subprocess.Popen([dllm, *words],
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def rss(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no VmRSS")

    def connect(self, timeout=60.0):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def ask(self, path, body, method="POST"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, json.dumps(body) if body is not None else None)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return response.status, text

    def metrics(self):
        text = self.ask("/metrics", None, "GET")[1].decode()
        return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def damaged(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:at] = rng.choice(TOKENS)
        elif kind == 2:
            del data[at : at + rng.randrange(1, 12)]
        elif kind == 3:
            data[at:at] = data[at : at + rng.randrange(1, 40)]
        else:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 8)))
    return bytes(data)


def request(path, body, headers=(), method="POST"):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def beyond_limits(rng):
    """A body or a number that no server should accept."""
    kind = rng.randrange(9)
    if kind == 0:
        return request(CHAT, b" " * (300 << 10))
    if kind == 1:
        return request(CHAT, b'{"a":' + b"[" * 100000)
    if kind == 2:
        return request(CHAT, json.dumps({**QUESTION, "max_tokens": rng.choice((-7, 0, 0.5, 1e300, -2**63))}).encode())
    if kind == 3:
        return request(CHAT, b"", [f"X-{i}: {'a' * 500}" for i in range(60)])
    if kind == 4:
        return request("/" + "a" * rng.randrange(1, 30000), b"")
    if kind == 5:
        return request("/tokenize", json.dumps({"content": rng.choice(("a", "\u00e9", " ", "\U0001f600")) * 50000}).encode())
    if kind == 6:
        return request(CHAT, json.dumps({**QUESTION, "stop": ["x" * 600] * rng.randrange(1, 40)}).encode())
    if kind == 7:
        return request(CHAT, json.dumps({**QUESTION, "n": rng.randrange(-1, 2000), "regex": "(a{1,999}|b*)" * 9}).encode())
    chunk = b"ffffffff\r\n" + b"a" * 1000
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk


HEADERS = (b"Content-Length: -1", b"Content-Length: 5\r\nContent-Length: 6", b"Transfer-Encoding: chunked",
           b"Transfer-Encoding: gzip", b"Expect: 100-continue", b"Host: evil.example", b"Authorization: Bearer \xff\xfe",
           b"traceparent: 00-" + b"0" * 60, b"Connection: upgrade\r\nUpgrade: h2c", b" folded: x", b"a" * 9000 + b": b",
           b"X: \x00\x01", b"Range: bytes=0-1", b"REMOTE_ADDR: 10.0.0.1")


def hostile(rng):
    """Bytes to send, and the kind."""
    path, body = rng.choice(PATHS), json.dumps(rng.choice(BODIES), ensure_ascii=rng.random() < 0.5).encode()
    kind = rng.choices(("http", "json", "utf-8", "limits", "pipelined", "valid"), (30, 34, 10, 6, 6, 14))[0]
    if kind == "http":
        data = request(path, body, method=rng.choice(("POST", "GET", "PUT", "HEAD", "OPTIONS", "\x01", "POST POST")))
        if rng.random() < 0.5:
            end = data.index(b"\r\n") + 2
            return kind, data[:end] + rng.choice(HEADERS) + b"\r\n" + data[end:]
        return kind, damaged(rng, data)
    if kind == "json":
        return kind, request(path, damaged(rng, body))
    if kind == "utf-8":
        at = rng.randrange(1, len(body))
        return kind, request(path, body[:at] + rng.choice(TOKENS[11:18]) + body[at:])
    if kind == "limits":
        return kind, beyond_limits(rng)
    if kind == "pipelined":
        return kind, request(path, body).replace(b"Connection: close\r\n", b"") * rng.randrange(1, 4) + request(path, body)
    return kind, request(rng.choice(PATHS), json.dumps(rng.choice(BODIES[1:])).encode())


class Attack:
    """Requests one after another on connections of their own, some of which are kept open or cut off."""

    def __init__(self, server, seed, count):
        self.server, self.rng, self.count = server, random.Random(seed), count
        self.kinds, self.statuses = collections.Counter(), collections.Counter()
        self.sleepers, self.failures = collections.deque(), []

    def run(self):
        for _ in range(self.count):
            try:
                self.one()
            except (ConnectionError, TimeoutError) as error:
                self.statuses[type(error).__name__] += 1
                if isinstance(error, ConnectionRefusedError):
                    self.failures.append("the server is gone")
                    return
        while self.sleepers:
            self.sleepers.popleft().close()

    def one(self):
        kind, data = hostile(self.rng)
        manner = self.rng.random()
        connection = self.server.connect(10)
        if manner < 0.02:  # a slow sender, or one that never reads its answer
            kind = "slow"
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.sendall(data[: self.rng.randrange(len(data) + 1)] if manner < 0.01 else data)
            self.sleepers.append(connection)
            if len(self.sleepers) > 60:
                old = self.sleepers.popleft()
                old.close()
            self.kinds[kind] += 1
            return
        if manner < 0.12:  # reset before, while or after the request is read
            kind = "reset"
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(data[: self.rng.randrange(len(data) + 1)])
            if manner < 0.04:
                time.sleep(0.002)
            connection.close()
            self.kinds[kind] += 1
            return
        self.kinds[kind] += 1
        connection.sendall(data)
        # One that waits in vain, for a request that damage made longer, goes.
        if self.rng.random() < 0.2:
            connection.shutdown(socket.SHUT_WR)
        else:
            connection.settimeout(5 if kind == "valid" else 0.5)
        self.read(connection)

    def read(self, connection):
        first = b""
        with connection:
            while more := connection.recv(1 << 16):
                if len(first) < 64:
                    first += more
        status = re.match(rb"HTTP/1\.[01] (\d{3})", first)
        self.statuses[status[1].decode() if status else "closed"] += 1
        if status and status[1].startswith(b"5") and status[1] not in (b"503", b"504", b"501"):
            self.failures.append(first.decode(errors="replace"))


class Watcher:
    """Streams an answer again and again: seconds between its steps, and whether it is always the same."""

    def __init__(self, server):
        self.server, self.stop = server, threading.Event()
        self.gaps, self.hashes = [], collections.Counter()

    def run(self):
        while not self.stop.is_set():
            self.once()

    def once(self):
        body = json.dumps({**QUESTION, "stream": True, "diffusion_events": True}).encode()
        connection = self.server.connect()
        connection.sendall(request(CHAT, body))
        before, rest = None, b""
        with connection:
            while more := connection.recv(1 << 16):
                now, rest = time.monotonic(), rest + more
                *events, rest = rest.split(b"\n\n")
                steps = sum(b'"changes"' in event for event in events)
                if steps and before is not None:
                    self.gaps.append(now - before)
                if steps:
                    before = now
                for event in events:
                    if found := re.search(rb'"hash": ?"([0-9a-f]+)"', event):
                        self.hashes[found[1].decode()] += 1


def figures(gaps):
    gaps = sorted(gaps)
    at = [gaps[min(len(gaps) - 1, int(share * len(gaps)))] * 1e3 for share in (0.5, 0.99, 1)]
    return {"steps": len(gaps), "p50_ms": round(at[0], 2), "p99_ms": round(at[1], 2), "max_ms": round(at[2], 2)}


def watched(server, seconds=0.0, work=None):
    watcher = Watcher(server)
    thread = threading.Thread(target=watcher.run)
    thread.start()
    if work is not None:
        work()
    time.sleep(seconds)
    watcher.stop.set()
    thread.join()
    return watcher


def idle_streams(server, count=300):
    """Streams at once, of which few run and the others wait; nobody reads until all are open."""
    before = server.rss()
    streams = []
    for _ in range(count):
        connection = server.connect()
        connection.sendall(request(CHAT, json.dumps({**QUESTION, "stream": True}).encode()))
        streams.append(connection)
    time.sleep(1)
    growth = server.rss() - before
    complete = 0
    for connection in streams:
        text = b""
        with connection:
            while more := connection.recv(1 << 16):
                text += more
        complete += b"data: [DONE]" in text
    return {"open": count, "complete": complete, "growth_mb": round(growth, 1)}


def terminated(server, count=24):
    """SIGTERM while requests run and wait: all of them are answered."""
    done = []

    def ask():
        done.append(server.ask(CHAT, {**QUESTION, "max_tokens": 64})[0])

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    while float(server.metrics()["dllm_requests_submitted_total"]) - server.submitted < count:
        time.sleep(0.01)
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    return {"begun": count, "answered": done.count(200), "exit": server.process.wait(timeout=120)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dllm")
    parser.add_argument("--requests", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--attackers", type=int, default=2)
    parser.add_argument("--large-seconds", type=float, default=20, help="of large bodies")
    parser.add_argument("--health", type=float, default=100, help="ms within which 99 of 100 /health are answered")
    parser.add_argument("--drain", type=float, default=5, help="s within which a server with large bodies ends")
    parser.add_argument("-m", "--model")
    args = parser.parse_args()
    server = Server(args.dllm, *(["-m", args.model] if args.model else []))
    failures = []

    def attack(seed, requests):
        attacks = [Attack(server, seed * 100 + i, requests // args.attackers) for i in range(args.attackers)]
        threads = [threading.Thread(target=one.run) for one in attacks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in attacks:
            failures.extend(one.failures)
        return attacks

    calm = watched(server, 5)
    attack(args.seed, max(1000, args.requests // 20))  # caches fill
    warm, start, made = server.rss(), time.monotonic(), []
    storm = watched(server, work=lambda: made.extend(attack(args.seed + 1, args.requests)))
    seconds = time.monotonic() - start
    time.sleep(5)  # slow clients time out
    growth = server.rss() - warm
    streams = idle_streams(server)
    server.submitted = float(server.metrics()["dllm_requests_submitted_total"])
    end = terminated(server)
    result = {"requests": sum(sum(one.kinds.values()) for one in made), "seconds": round(seconds, 1),
              "kinds": dict(sum((one.kinds for one in made), collections.Counter())),
              "statuses": dict(sum((one.statuses for one in made), collections.Counter()).most_common()),
              "warm_mb": round(warm, 1), "growth_mb": round(growth, 1), "steps_alone": figures(calm.gaps),
              "steps_meanwhile": figures(storm.gaps), "same_answer": len(calm.hashes | storm.hashes) == 1,
              "idle_streams": streams, "sigterm": end}
    result["large"], more = serve_large.large_bodies(
        lambda *flags: Server(args.dllm, *flags, *(["-m", args.model] if args.model else [])), args.seed,
        args.large_seconds)
    failures.extend(more)
    print(json.dumps(result))
    if result["large"]["health"]["p99_ms"] > args.health or result["large"]["drain_s"] > args.drain:
        failures.append("large bodies delay /health or the end")
    if growth > 20:
        failures.append(f"memory grew by {growth:.1f} MB")
    if not result["same_answer"]:
        failures.append("answers differ")
    if streams["complete"] != streams["open"] or end["answered"] != end["begun"] or end["exit"] != 0:
        failures.append("streams or requests were lost, or the server ended badly")
    server.errors.seek(0)
    for failure in failures[:10] + ([server.errors.read()[-2000:]] if failures else []):
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
