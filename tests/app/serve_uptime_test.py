"""`dllm serve` stays up: large bodies beside /health, framing of requests, clients that leave, files that change under it.

    python3 serve_uptime_test.py PATH/TO/dllm [unittest arguments]
"""

import http.client
import importlib.util
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from cli_case import DLLM, clean_environment, run
from serve_case import QUESTION, Server, ServeCase
from serve_limits_test import SLOW, wait_until
from serve_loading_test import TIMES, ninth_of_ten

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/tiny-llada-f32.gguf"
CHAT = "/v1/chat/completions"
# Bounds of availability, generous because a machine of CI has other work, and a sanitized program is slow. Nine in ten
# answers of /health come within HEALTH_SECONDS, or within TIMES what they take without other requests if that is more.
# Beside each kind of body every answer comes within WORST_SECONDS, in at least one of so many ATTEMPTS: a body that held
# the thread of connections would do so each time.
HEALTH_SECONDS, WORST_SECONDS, ATTEMPTS, DRAIN_SECONDS = 1.0, 10.0, 3, 120.0


def keys(count):
    return dict.fromkeys((f"k{i}" for i in range(count)), 1)


def shapes():
    """Bodies of some megabytes in which something is searched, copied or compared again and again."""
    many = keys(280_000)
    ask = {"messages": QUESTION, "max_tokens": 8}
    yield "metadata", CHAT, {**ask, "metadata": many}, 400
    yield "unknown fields", CHAT, {**ask, **many}, 400
    yield "a schema's properties", CHAT, {**ask, "json_schema": {"type": "object", "properties": many}}, 400
    yield "a tool's schema", CHAT, {**ask, "tools": [{"type": "function", "function": {
        "name": "f", "parameters": {"type": "object", "properties": many}}}]}, 400
    yield "arguments", CHAT, {"messages": [{"role": "assistant", "content": "", "tool_calls": [{
        "type": "function", "id": "a", "function": {"name": "f", "arguments": json.dumps(keys(150_000))}}]}]}, 400
    yield "a schema as text", CHAT, {**ask, "json_schema": json.dumps({"properties": keys(150_000)})}, 400
    yield "fewer unknown fields", CHAT, {**ask, **keys(60_000)}, 400
    yield "response metadata", "/v1/responses", {"input": "3 + 4 =", "max_output_tokens": 8, "metadata": keys(60_000)}, 200
    yield "template arguments", CHAT, {**ask, "chat_template_kwargs": keys(60_000)}, 200
    yield "options of Ollama", "/api/chat", {"model": "default", "messages": QUESTION, "options": keys(60_000)}, 400
    yield "two lists that both hold", CHAT, {**ask, "json_schema": {"allOf": [
        {"enum": list(range(4000))}, {"enum": list(range(4000, 0, -1))}]}}, 200
    tools = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(9_000)]
    yield "allowed tools", CHAT, {**ask, "tools": tools, "tool_choice": {"type": "allowed_tools", "allowed_tools": {
        "mode": "auto", "tools": [{"name": f"f{i % 9_000}"} for i in range(30_000, 0, -1)]}}}, 400
    yield "many carets", CHAT, {**ask, "json_schema": {"type": "object", "properties": {
        f"k{i}": {"type": "string", "pattern": "^" * 31_000 + "a"} for i in range(8)}}}, 400
    yield "many dollars", CHAT, {**ask, "regex": "a" + "$" * 32_000}, 400
    yield "biases", CHAT, {**ask, "logit_bias": keys(60_000)}, 400
    yield "a long field", CHAT, {**ask, "a" * 3_000_000: 1}, 400
    yield "a long model", CHAT, {**ask, "model": "-a " * 1_000_000}, 404
    yield "values", "/detokenize", {"tokens": [0] * 1_000_000}, 400
    yield "messages", CHAT, {"messages": [{"role": "user", "content": ""}] * 30_000}, 400
    yield "stops", CHAT, {**ask, "stop": ["a"] * 400_000}, 400
    yield "many prompts", "/v1/completions", {"prompt": [[1]] * 64, "n": 16, "max_tokens": 8}, 429


class Beside(threading.Thread):
    """Asks /health again and again; the seconds that each answer took."""

    def __init__(self, server):
        super().__init__()
        self.server, self.ended, self.seconds = server, threading.Event(), []
        self.calm = ninth_of_ten([self.ask() for _ in range(10)])

    def ask(self):
        start = time.monotonic()
        self.server.get("/health")
        return time.monotonic() - start

    def run(self):
        while not self.ended.is_set():
            self.seconds.append(self.ask())
            time.sleep(0.01)

    def worst_since(self, begin):
        """Of the answers after the first `begin`, with the one that was asked for last and has not come yet."""
        count = len(self.seconds)
        wait_until(lambda: len(self.seconds) > count)
        return max(self.seconds[begin:])

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *unused):
        self.ended.set()
        self.join()


class LargeBodies(unittest.TestCase):
    def test_health_waits_for_nobody(self):
        # Written before the clock runs: json.dumps holds up the other threads of this program.
        bodies = [(name, path, json.dumps(body, separators=(",", ":")).encode(), status)
                  for name, path, body, status in shapes()]
        with Server("--prefix-cache", 0) as server, Beside(server) as beside:
            for name, path, text, status in bodies:
                with self.subTest(name):
                    worst = []
                    while len(worst) < ATTEMPTS and min(worst, default=WORST_SECONDS) >= WORST_SECONDS:
                        begin = len(beside.seconds)
                        self.post_at_once(server, path, text, status)
                        worst.append(beside.worst_since(begin))
                    self.assertLess(min(worst), WORST_SECONDS, "seconds of /health")
            self.assertEqual(server.post(CHAT, {"messages": QUESTION}).status, 200)
        self.assertLess(ninth_of_ten(beside.seconds), max(HEALTH_SECONDS, TIMES * beside.calm), f"{len(beside.seconds)} answers")

    def post_at_once(self, server, path, text, status):
        replies = []
        threads = [threading.Thread(target=lambda: replies.append(server.post(path, text))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([reply.status for reply in replies], [status] * 3, replies[0].body[:300])
        self.assertLess(len(replies[0].body), 1 << 13 if status != 200 else 1 << 22)

    def test_the_end_waits_for_nobody(self):
        text = json.dumps({"messages": QUESTION, "json_schema": {"type": "object", "properties": keys(60_000)}})
        with Server() as server:
            links = []
            for _ in range(24):
                link = server.connect()
                link.request("POST", CHAT, text)
                links.append(link)
            start = time.monotonic()
            server.terminate()
            server.process.wait(timeout=600)
            self.assertLess(time.monotonic() - start, DRAIN_SECONDS)
            for link in links:
                link.close()


class Framing(ServeCase):
    FLAGS = ("--max-body", "64")

    def raw(self, data, half_close=False, seconds=600):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=seconds) as link:
            link.sendall(data)
            if half_close:
                link.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while part := link.recv(65536):
                    answer += part
            except ConnectionResetError:
                pass
            return answer

    HOST, CHUNKS = b"Host: localhost\r\n", b"2\r\n{}\r\n0\r\n\r\n"
    CASES = (  # fields, body
        (HOST + b"Content-Length: 2\r\n", b"{}"), (HOST + b"Transfer-Encoding: chunked\r\n", CHUNKS),
        (HOST + b"Transfer-Encoding: gzip\r\n", CHUNKS), (HOST + b"Transfer-Encoding: chunked, chunked\r\n", CHUNKS),
        (HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", CHUNKS),
        (HOST + b"Transfer-Encoding: gzip, chunked\r\n", CHUNKS), (HOST + b"Transfer-Encoding: identity\r\n", b"{}"),
        (HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", CHUNKS),
        (HOST + b"Content-Length: 2\r\nContent-Length: 3\r\n", b"{}"), (HOST + b"Content-Length: 2, 2\r\n", b"{}"),
        (HOST + b"Content-Length: +2\r\n", b"{}"), (HOST + b"Content-Length : 2\r\n", b"{}"),
        (b"Content-Length: 2\r\n", b"{}"), (HOST + HOST + b"Content-Length: 2\r\n", b"{}"),
        (b"Host: a b\r\nContent-Length: 2\r\n", b"{}"), (HOST + b"A: b\r\n c\r\nContent-Length: 2\r\n", b"{}"),
        (HOST + b"Content-Length: 2\r\n\tA: b\r\n", b"{}"), (HOST + b"Content-Length: 2\nA: b\r\n", b"{}"),
        (HOST + b"Transfer-Encoding: chunked\r\n", b"2;a=b\r\n{}\r\n0\r\nX: y\r\n\r\n"),
        (HOST + b"Transfer-Encoding: chunked\r\n", b"2\n{}\r\n0\r\n\r\n"),
        (HOST + b"Transfer-Encoding: chunked\r\n", b"0x2\r\n{}\r\n0\r\n\r\n"),
        (HOST + b"Transfer-Encoding: chunked\r\n", b"2\r\n{}0\r\n\r\n"))

    def test_nothing_is_smuggled(self):
        """A second request follows each; a server that frames the first one otherwise sees another second one."""
        second = b"GET /second HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        for fields, body in self.CASES:
            with self.subTest(fields=fields, body=body):
                first = b"POST /first HTTP/1.1\r\n" + fields + b"\r\n" + body
                answer = self.raw(first + second, half_close=True)
                statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]
                if statuses == [404, 404]:
                    self.assertEqual(self.framed(first + second), [(b"/first", b"{}"), (b"/second", b"")])
                else:
                    self.assertEqual(statuses, [400])
        self.assertEqual(self.raw(b"POST /first HTTP/1.1\r\n" + self.CASES[0][0] + b"\r\n{}" + second).count(b" 404 "), 2)
        self.assertEqual(self.raw(b"POST /first HTTP/1.1\r\n" + self.CASES[1][0] + b"\r\n" + self.CHUNKS + second).count(b" 404 "), 2)

    def framed(self, data):
        """The requests in `data` as h11 reads them."""
        for place in sorted((ROOT / "build/clients/lib").glob("python*/site-packages")):
            if str(place) not in sys.path:
                sys.path.append(str(place))
        if importlib.util.find_spec("h11") is None:
            self.skipTest("h11 is not installed (scripts/setup --clients)")
        import h11  # pylint: disable=import-outside-toplevel
        requests = []
        while data:
            reader = h11.Connection(h11.SERVER)
            reader.receive_data(data)
            body = b""
            target = reader.next_event().target
            while isinstance(event := reader.next_event(), h11.Data):
                body += bytes(event.data)
            self.assertIsInstance(event, h11.EndOfMessage)
            requests.append((target, body))
            data = reader.trailing_data[0]
        return requests

    def test_trailers_are_not_headers(self):
        answer = self.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                          b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nOrigin: http://evil.example\r\n\r\n")
        self.assertIn(b" 400 ", answer)
        self.assertIn(b"prompt", answer)

    def test_coded_bodies(self):
        reply = self.server.post(CHAT, "{}", **{"Content-Encoding": "gzip"})
        self.assertEqual((reply.status, reply.headers["Accept-Encoding"]), (415, "identity"))
        self.assertEqual(self.server.post(CHAT, "{}", **{"Content-Encoding": "identity"}).status, 400)

    def test_names_of_hosts_have_no_case(self):
        self.assertEqual(self.server.get("/v1/models", Host="LocalHost:1").status, 200)
        self.assertIn(b" 200 ", self.raw(b"GET http://LOCALHOST/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))

    def test_half_closed_clients_get_their_answers(self):
        for extra in ({}, {"stream": True}):
            body = json.dumps({"messages": QUESTION, "max_tokens": 32, **extra}).encode()
            answer = self.raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                              + str(len(body)).encode() + b"\r\n\r\n" + body, half_close=True)
            self.assertIn(b"HTTP/1.1 200 ", answer)
            self.assertIn(b'"finish_reason":"stop"', answer.replace(b" ", b""))

    def test_who_leaves_is_499(self):
        for pipelined in (b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            before = len([line for line in self.server.log() if line.get("status") == 499])
            body = json.dumps(SLOW).encode()
            link = socket.create_connection(("127.0.0.1", self.server.port))
            link.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                         + str(len(body)).encode() + b"\r\n\r\n" + body + pipelined)
            wait_until(lambda: self.server.metric("dllm_num_requests_running") == 1)
            link.close()
            wait_until(lambda: self.server.metric("dllm_num_requests_running") == 0)
            wait_until(lambda b=before: len([line for line in self.server.log() if line.get("status") == 499]) > b)
        self.assertIn('status="499"', self.server.get("/metrics").body.decode())


class Idle(unittest.TestCase):
    def test_idle_connections_make_room(self):
        with Server("--max-connections", 8) as server:
            idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
            for _ in range(5):
                self.assertEqual(server.get("/health").status, 200)
            for link in idle:
                link.close()


class Keys(unittest.TestCase):
    def file(self, text, mode=0o600):
        path = pathlib.Path(self.folder.name) / "keys"
        path.write_text(text, encoding="utf-8", newline="")
        path.chmod(mode)
        return path

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def test_blanks_and_comments(self):
        with Server("--api-key-file", self.file("\ufeff# whose\n\n  secret \t\r\nother\n")) as server:
            def status(**headers):
                return server.get("/v1/models", **headers).status
            self.assertEqual(status(Authorization="Bearer secret"), 200)
            self.assertEqual(status(Authorization="bEARER other"), 200)
            self.assertEqual(status(Authorization="Bearer # whose"), 401)
            # Clients of Anthropic's may send both.
            self.assertEqual(status(Authorization="Bearer wrong", **{"X-Api-Key": "secret"}), 200)
            self.assertEqual(status(Authorization="Bearer secret", **{"X-Api-Key": "wrong"}), 200)
            self.assertEqual(status(Authorization="Bearer wrong", **{"X-Api-Key": "wrong"}), 401)

    def test_what_is_no_key_file(self):
        for text, mode, code, words in (("secret # mine\n", 0o600, 2, "line 1"), ("a\n\nb\x01c\n", 0o600, 2, "line 3"),
                                        ("# none\n", 0o600, 2, "no key"), ("secret\n", 0o666, 2, "0666"),
                                        ("secret\n", 0o620, 2, "0620")):
            result = run("serve", "--port", 0, "--api-key-file", self.file(text, mode))
            self.assertEqual(result.returncode, code)
            self.assertIn(words, result.stderr)
        with Server("--api-key-file", self.file("secret\n", 0o644)) as server:
            wait_until(lambda: any("0644" in line for line in server.lines))


class Files(unittest.TestCase):
    """What happens to a model's file while it is served."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name) / "a.gguf"
        shutil.copyfile(MODEL, self.path)

    def ask(self, server):
        return server.post(CHAT, {"messages": QUESTION})

    def settled(self, server):
        wait_until(lambda: server.get("/health").status == 200)

    def watched(self, server):
        """The digest is taken with what time others leave."""
        wait_until(lambda: any("digest" in str(line.get("event")) for line in server.log()))

    def test_touched(self):
        with Server("-m", self.path) as server:
            answer = self.ask(server).json["choices"][0]["message"]["content"]
            self.watched(server)
            os.utime(self.path, (1, 1))
            reply = self.ask(server)
            if reply.status != 200:
                self.assertEqual(reply.status, 503)
                self.assertGreaterEqual(int(reply.headers["Retry-After"]), 1)
                self.assertNotIn(self.folder.name, reply.body.decode())
            self.settled(server)
            self.assertEqual(self.ask(server).json["choices"][0]["message"]["content"], answer)
            wait_until(lambda: any("touched" in str(line.get("event")) for line in server.log()))

    def test_a_touched_weight_cache(self):
        quantized, cache = self.path.with_suffix(".q8.gguf"), pathlib.Path(self.folder.name) / "weights"
        self.assertEqual(run("quantize", self.path, quantized, "Q8_0").returncode, 0)
        given = ("-m", quantized, "--weight-cache", cache)
        with Server(*given):  # writes it
            pass
        self.assertTrue(cache.exists())
        with Server(*given) as server:
            answer = self.ask(server).json["choices"][0]["message"]["content"]
            self.watched(server)
            os.utime(cache, (1, 1))
            self.ask(server)
            self.settled(server)
            self.assertEqual(self.ask(server).json["choices"][0]["message"]["content"], answer)

    def test_replaced(self):
        with Server("-m", self.path) as server:
            answer = self.ask(server).json["choices"][0]["message"]["content"]
            other = self.path.with_suffix(".new")
            other.write_bytes(b"another")
            other.rename(self.path)
            wait_until(lambda: any("replaced" in str(line.get("event")) for line in server.log()))
            time.sleep(1.5)
            self.assertEqual(self.ask(server).json["choices"][0]["message"]["content"], answer)
            self.assertEqual(len([line for line in server.log() if "replaced" in str(line.get("event"))]), 1)

    def lost(self, change):
        """/health fails for two seconds before the server ends: this program may sleep that long, and then tries again."""
        for _ in range(5):
            shutil.copyfile(MODEL, self.path)
            if 503 in self.statuses_until_the_end(change):
                return
        self.fail("/health never failed")

    def statuses_until_the_end(self, change):
        server = Server("-m", self.path)
        self.assertEqual(self.ask(server).status, 200)
        self.watched(server)
        change()
        seen = set()
        try:
            while True:
                reply = server.get("/health")
                seen.add(reply.status)
                self.assertNotIn(self.folder.name, reply.body.decode())
                time.sleep(0.05)
        except (OSError, http.client.HTTPException):  # the server has ended
            pass
        self.assertEqual(server.process.wait(timeout=600), 3)
        server.reader.join()
        self.assertIn("has changed while it was served", "".join(server.lines))
        server.process.stdout.close()
        server.process.stderr.close()
        return seen

    def test_truncated(self):
        self.lost(lambda: os.truncate(self.path, 5000))

    def test_overwritten(self):
        def write():
            with open(self.path, "r+b") as file:
                file.seek(-1, os.SEEK_END)
                last = file.read(1)
                file.seek(-1, os.SEEK_END)
                file.write(bytes([last[0] ^ 1]))
        self.lost(write)

    def test_no_folder_is_told(self):
        with Server("-m", self.path) as server:
            props = server.get("/props")
            self.assertEqual(props.json["model_path"], "a.gguf")
            self.assertNotIn(self.folder.name, props.body.decode())


class Surroundings(unittest.TestCase):
    def test_few_descriptors(self):
        for count in (4, 5, 6, 7):
            result = subprocess.run([DLLM, "serve", "--port", "0"], capture_output=True, text=True, check=False,
                                    timeout=600, env=clean_environment(), preexec_fn=lambda n=count:
                                    resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
            self.assertEqual(result.returncode, 4, result.stderr)
            self.assertIn("ulimit -n", result.stderr)

    def test_a_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/socket"
            for end in (signal.SIGKILL, signal.SIGTERM):  # what a killed server leaves is replaced
                process = subprocess.Popen([DLLM, "serve", "--socket", path, "--log-format", "none"], text=True,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())
                self.assertEqual(process.stdout.readline(), f"listening on unix:{path}\n")
                with socket.socket(socket.AF_UNIX) as link:
                    link.connect(path)
                    link.sendall(b"GET /health HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n")
                    self.assertIn(b" 200 ", link.recv(65536))
                second = run("serve", "--socket", path)
                self.assertEqual(second.returncode, 3)
                self.assertIn("another server listens", second.stderr)
                process.send_signal(end)
                process.communicate(timeout=600)
                self.assertEqual(os.path.exists(path), end == signal.SIGKILL)
            pathlib.Path(path).write_text("")
            self.assertEqual(run("serve", "--socket", path).returncode, 3)

    def test_readiness(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(f"{folder}/notify")
            manager.settimeout(600)
            with Server(NOTIFY_SOCKET=f"{folder}/notify") as server:
                self.assertTrue(manager.recv(4096).startswith(b"READY=1\n"))
                server.terminate()
                self.assertEqual(manager.recv(4096), b"STOPPING=1")


if __name__ == "__main__":
    unittest.main()
