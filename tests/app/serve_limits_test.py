"""`dllm serve` from outside: refusals, keys and logs, load limits, disconnects, shutdown.

    python3 serve_limits_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import os
import random
import socket
import threading
import time
import unittest

from cli_case import run
from serve_case import QUESTION, Server, ServeCase

# Nearly the whole context: seconds of work even on a fast machine, so that a test whose process is stopped for a while
# still finds the request running.
SLOW = {"messages": [{"role": "user", "content": "Copy: x y z"}], "max_tokens": 480, "algorithm": "low-confidence",
        "exact_length": True}


def wait_until(condition, seconds=600):
    """Polls; the time limit only catches hangs: a sanitized program is thirty times slower."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


class Refusals(ServeCase):
    FLAGS = ("--max-body", "64", "--max-header", "8", "--max-request-tokens", "200")

    def test_fields(self):
        chat = "/v1/chat/completions"
        error = self.refused(400, chat, {"messages": QUESTION, "treshold": 0.5}, "treshold")
        self.assertIn("threshold", error["message"])
        self.refused(400, chat, {"messages": QUESTION, "threshold": 7}, "threshold")
        error = self.refused(400, chat, {"messages": QUESTION, "algorithm": "low-confidence", "threshold": 0.5},
                             "threshold")
        self.assertIn("margin", error["message"])
        for field, value in (("frequency_penalty", 101), ("response_format", "json"), ("n", 0),
                             ("tools", [{"type": "function", "function": {"name": "f"}}]),
                             ("tool_choice", "required"), ("latency", "/etc/passwd"), ("temperature", "hot"),
                             ("refresh_threads", 2), ("max_tokens", 0), ("logit_bias", {"5": "x"}),
                             ("logit_bias", {"-5": 1}), ("stop", [""])):
            self.refused(400, chat, {"messages": QUESTION, field: value}, field)
        for same in ({"frequency_penalty": 0, "tool_choice": "none", "top_p": 1, "logit_bias": {}},
                     {"temperature": 0, "top_p": 0.9}, {"max_completion_tokens": 16}):
            self.assertEqual(self.server.post(chat, {"messages": QUESTION, **same}).status, 200)
        self.refused(400, chat, {"messages": QUESTION, "length": 300}, "length")
        self.refused(400, chat, {"messages": [{"role": "tool", "content": "x"}]}, "tools")
        self.refused(400, chat, {"messages": [{"role": "robot", "content": "x"}]}, "messages[0]")
        self.refused(400, chat, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})
        self.refused(400, chat, {"messages": []}, "messages")
        self.assertEqual(self.refused(404, chat, {"messages": QUESTION, "model": "gpt-4"}, "model")["code"],
                         "model_not_found")
        long = self.refused(400, chat, {"messages": [{"role": "user", "content": "a b c d " * 6000}]})
        self.assertIn("context", long["message"])

    def test_bodies_that_are_no_json(self):
        for body in ("", "{", "[]", "nul", '{"a": 1} x', b"\xff\xfe", "[" * 5000, '{"a":' * 2000):
            self.refused(400, "/v1/chat/completions", body)
        self.assertEqual(self.server.get("/nothing").status, 404)
        self.assertEqual(self.server.get("/v1/chat/completions").status, 405)

    def raw(self, data, half_close=True):
        """Everything that a connection returns."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=600) as link:
            try:
                link.sendall(data)
                if half_close:
                    link.shutdown(socket.SHUT_WR)
                answer = b""
                while part := link.recv(65536):
                    answer += part
            except TimeoutError:
                raise
            except OSError:  # reset, broken pipe; "not connected" by shutdown() after a reset
                pass
            return answer

    def test_limits_of_http(self):
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        self.assertIn(b" 413 ", self.raw(head + b"Content-Length: 70000\r\n\r\n" + b" " * 70000))
        chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
        self.assertIn(b" 413 ", self.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 40))
        self.assertIn(b" 431 ", self.raw(head + b"X: " + b"y" * 9000 + b"\r\n\r\n"))
        self.assertIn(b" 400 ", self.raw(b"hello\r\n\r\n"))
        self.assertIn(b" 100 ", self.raw(head + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}"))
        get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
        two = get + b"\r\n" + get + b"Connection: close\r\n\r\n"
        self.assertEqual(self.raw(two, half_close=False).count(b'"ok"'), 2)
        old = self.raw(b"GET /health HTTP/1.0\r\n\r\n", half_close=False)
        self.assertIn(b"Connection: close", old)
        head = self.raw(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", half_close=False)
        self.assertIn(b" 200 ", head)
        self.assertEqual(head.split(b"\r\n\r\n")[1], b"")

    def test_hostile_bytes(self):
        """Randomly damaged requests: each gets an answer or a closed connection, and the server survives."""
        source = random.Random(1)
        body = json.dumps({"messages": [{"role": "user", "content": "3 + 4 ="}], "max_tokens": 8, "stop": ["\u00e9"]})
        plain = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 f"Content-Length: {len(body)}\r\n\r\n{body}").encode()
        for _ in range(int(os.environ.get("DLLM_HOSTILE_REQUESTS", "400"))):
            bent = bytearray(plain)
            for _ in range(source.randrange(1, 6)):
                at = source.randrange(len(bent))
                kind = source.randrange(4)
                if kind == 0:
                    bent[at] = source.randrange(256)
                elif kind == 1:
                    del bent[at:at + source.randrange(1, 30)]
                elif kind == 2:
                    bent[at:at] = source.choice((b"\r\n", b'"', b"[", b"\\u0000", b"\xff", b"1e999", b"Transfer-Encoding: chunked\r\n"))
                else:
                    bent += bent[at:at + 40]
            self.raw(bytes(bent))
        wait_until(lambda: self.server.metric("dllm_num_requests_running") == 0)
        self.assertEqual(self.server.get("/health").status, 200)

    def test_pages_of_others(self):
        self.assertEqual(self.server.get("/v1/models", Origin="http://evil.example").status, 403)
        self.assertEqual(self.server.get("/v1/models", Host="evil.example").status, 403)
        self.assertEqual(self.server.get("/v1/models", Host="localhost:8080").status, 200)


class Keys(ServeCase):
    FLAGS = ("--api-key", "secret", "--api-key", "other", "--cors-origin", "http://page.example", "--alias", "tiny")

    def test_keys(self):
        self.assertEqual(self.server.get("/health").status, 200)
        for headers in ({}, {"Authorization": "Bearer secre"}, {"Authorization": "Bearer secret2"},
                        {"Authorization": "secret"}, {"X-Api-Key": ""}):
            reply = self.server.ask("GET", "/v1/models", headers=headers)
            self.assertEqual(reply.status, 401)
            self.assertEqual(reply.json["error"]["code"], "invalid_api_key")
        for headers in ({"Authorization": "Bearer secret"}, {"X-Api-Key": "other"}):
            reply = self.server.ask("GET", "/v1/models", headers=headers)
            self.assertEqual(reply.json["data"][0]["id"], "tiny")

    def test_listed_pages(self):
        reply = self.server.ask("OPTIONS", "/v1/chat/completions", headers={"Origin": "http://page.example"})
        self.assertEqual(reply.status, 204)
        self.assertEqual(reply.headers["Access-Control-Allow-Origin"], "http://page.example")
        self.assertEqual(self.server.ask("OPTIONS", "/v1/models", headers={"Origin": "http://evil.example"}).status, 403)

    def test_log(self):
        trace = "0af7651916cd43dd8448eb211c80319c"
        headers = {"Authorization": "Bearer secret", "traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        reply = self.server.ask("POST", "/v1/chat/completions", {"messages": QUESTION}, headers)
        wait_until(lambda: any(line.get("trace") == trace for line in self.server.log()))
        line = next(line for line in self.server.log() if line.get("trace") == trace)
        self.assertEqual((line["status"], line["path"], line["id"]),
                         (200, "/v1/chat/completions", reply.headers["X-Request-Id"]))
        self.assertGreater(line["answer_tokens"], 0)
        self.assertNotIn("secret", "".join(self.server.lines))
        self.assertNotIn("pens", "".join(self.server.lines))


class Load(ServeCase):
    FLAGS = ("--parallel", "1", "--queue", "1")

    def begin(self, body):
        link = self.server.connect()
        link.request("POST", "/v1/chat/completions", json.dumps(body))
        return link

    def running(self):
        return self.server.metric("dllm_num_requests_running"), self.server.metric("dllm_num_requests_waiting")

    def idle(self):
        wait_until(lambda: self.running() == (0, 0))

    def test_a_full_queue(self):
        links = [self.begin(SLOW)]
        wait_until(lambda: self.running()[0] == 1)
        links.append(self.begin(SLOW))
        wait_until(lambda: self.running()[1] == 1)
        reply = self.server.post("/v1/chat/completions", SLOW)
        self.assertEqual(reply.status, 429)
        self.assertGreaterEqual(int(reply.headers["Retry-After"]), 1)
        self.assertEqual(reply.json["error"]["code"], "queue_full")
        states = self.server.get("/slots").json
        self.assertEqual([one["is_processing"] for one in states], [True, False])
        for link in links:
            link.close()
        self.idle()

    def test_who_goes_away_is_cancelled(self):
        for stream in (False, True):
            before = self.server.metric("dllm_requests_cancelled_total")
            link = self.begin({**SLOW, "stream": stream})
            wait_until(lambda: self.running()[0] == 1)
            link.close()
            wait_until(lambda n=before: self.server.metric("dllm_requests_cancelled_total") >= n + 1)
            self.idle()

    def test_a_reader_that_sleeps_delays_nobody(self):
        submitted = self.server.metric("dllm_requests_submitted_total")
        with socket.create_connection(("127.0.0.1", self.server.port)) as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            body = json.dumps({**SLOW, "max_tokens": 64, "stream": True, "diffusing": True, "diffusion_events": True})
            link.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
                         f"{body}".encode())
            wait_until(lambda: self.server.metric("dllm_requests_submitted_total") == submitted + 1)
            self.idle()  # without anyone reading
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                answer += link.recv(65536)
            self.assertIn(b"[DONE]", answer)


class FullQueue(ServeCase):
    FLAGS = ("--parallel", "1", "--queue", "1", "--api-key", "one", "--api-key", "two")

    def test_other_clients_are_told_to_try_again(self):
        links = []
        for count in (1, 2):
            links.append(self.server.connect())
            links[-1].request("POST", "/v1/chat/completions", json.dumps(SLOW), {"Authorization": "Bearer one"})
            wait_until(lambda n=count: len(
                self.server.ask("GET", "/slots", headers={"X-Api-Key": "two"}).json) == n)
        reply = self.server.ask("POST", "/v1/chat/completions", SLOW, {"Authorization": "Bearer two"})
        self.assertEqual((reply.status, reply.json["error"]["code"]), (429, "queue_full"), reply.body)
        self.assertGreaterEqual(int(reply.headers["Retry-After"]), 1)
        for link in links:
            link.close()


class UnreadServer(Server):
    """Its log goes to a pipe that nobody reads."""

    def read_log(self):
        pass


class Ends(unittest.TestCase):
    def test_a_log_that_nobody_reads_delays_nothing(self):
        with UnreadServer() as server:
            for _ in range(1000):  # 64 KiB is what a pipe holds
                self.assertEqual(server.get("/v1/models").status, 200)
            self.assertEqual(server.post("/v1/chat/completions", {"messages": QUESTION}).status, 200)
            server.terminate()
            self.assertEqual(server.process.wait(timeout=600), 0)

    def test_what_has_begun_is_answered(self):
        with Server("--parallel", "1") as server:
            replies = []

            def ask():
                replies.append(server.post("/v1/chat/completions", {**SLOW, "max_tokens": 64}))

            threads = [threading.Thread(target=ask) for _ in range(3)]
            for thread in threads:
                thread.start()
            wait_until(lambda: server.metric("dllm_requests_submitted_total") == 3)
            server.terminate()
            for thread in threads:
                thread.join()
            self.assertEqual([reply.status for reply in replies], [200, 200, 200])
            self.assertEqual(server.process.wait(timeout=600), 0)

    def test_requests_end_in_time(self):
        with Server("--request-timeout", "0.2") as server:
            reply = server.post("/v1/chat/completions", SLOW)
            self.assertEqual((reply.status, reply.json["error"]["code"]), (504, "timeout"))
            self.assertEqual(server.get("/health").status, 200)

    def test_a_second_signal_waits_for_nobody(self):
        with Server() as server:
            link = server.connect()
            link.request("POST", "/v1/chat/completions", json.dumps(SLOW))
            wait_until(lambda: server.metric("dllm_num_requests_running") == 1)
            server.terminate()
            wait_until(lambda: any("event" in line for line in server.log()))
            server.terminate()
            self.assertEqual(server.process.wait(timeout=600), 0)
            link.close()

    def test_limits_that_let_nothing_through(self):
        result = run("serve", "--max-request-tokens", "0")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--max-request-tokens: 0 is outside [1, ", result.stderr)
        self.assertIn("if left out: what the context holds", result.stderr)

    def test_addresses_in_use(self):
        with Server() as server:
            result = run("serve", "--port", server.port)
            self.assertEqual(result.returncode, 3)
            self.assertIn("cannot listen", result.stderr)

    def test_many_streams_at_once(self):
        with Server("--parallel", "2", "--queue", "400") as server:
            links = []
            for _ in range(300):
                link = server.connect()
                link.request("POST", "/v1/chat/completions",
                             json.dumps({"messages": [{"role": "user", "content": "3 + 4 ="}], "max_tokens": 8, "stream": True}))
                links.append(link)
            ends = [link.getresponse().read().endswith(b"data: [DONE]\n\n") for link in links]
            self.assertEqual(ends.count(True), 300)
            for link in links:
                link.close()


if __name__ == "__main__":
    unittest.main()
