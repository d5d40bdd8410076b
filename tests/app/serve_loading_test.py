"""`dllm serve` loads and unloads models while it answers: who waits, who does not, and what ends a load.

    python3 serve_loading_test.py PATH/TO/dllm [unittest arguments]
"""

import concurrent.futures
import http.client
import json
import pathlib
import shutil
import socket
import tempfile
import threading
import time
import unittest

from cli_case import run
from serve_case import QUESTION, Server
from serve_limits_test import wait_until
from serve_models_case import CHAT, MODEL, NAMES, ModelsCase, chat, facts, loaded, states

# Nine in ten of the times that are measured during a load are below FLOOR_SECONDS, or below TIMES what they are without one
# if that is more: a machine of CI has other work, and sanitizers slow everything down. A load that held the thread of
# connections for its whole time would fail by far.
FLOOR_SECONDS, TIMES = 0.5, 20
# To find a load that still runs: on a busy machine it may be over before this program gets its turn.
ATTEMPTS = 10


def ninth_of_ten(seconds):
    return sorted(seconds)[len(seconds) * 9 // 10]


def gaps(server, name):
    """The seconds between the steps of an answer, one after the other."""
    body = json.dumps({"model": name, "messages": QUESTION, "algorithm": "low-confidence", "steps": 64, "length": 64,
                       "max_tokens": 64, "exact_length": True, "stream": True, "diffusion_events": True})
    connection = server.connect()
    connection.request("POST", CHAT, body)
    before = None
    for line in connection.getresponse():
        if b'"changes"' in line:
            now = time.monotonic()
            if before is not None:
                yield now - before
            before = now
    connection.close()


class Limits(ModelsCase):
    def test_idle_models_go(self):
        with self.serve("--models-idle", 0.3) as server:
            self.assertEqual(chat(server, "a").status, 200)
            wait_until(lambda: loaded(server) == [])
            self.assertEqual(chat(server, "a").status, 200)

    def test_a_model_in_use_stays(self):
        """Whoever needs the place of a running answer waits for its end."""
        with self.serve("--models-max", 1) as server:
            order = []

            def ask(name, **fields):
                reply = chat(server, name, **fields)
                order.append((name, reply.status))

            slow = threading.Thread(target=ask, args=("a",), kwargs={
                "ignore_eos": True, "max_tokens": 400, "length": 400, "threshold": 1.0, "algorithm": "threshold"})
            slow.start()
            wait_until(lambda: [one["model"] for one in server.get("/slots").json] == ["a"])
            ask("b")
            slow.join()
            self.assertEqual(order, [("a", 200), ("b", 200)])

    def test_a_file_that_is_no_model(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
            shutil.copy(MODEL, folder / "good.gguf")
            with self.serve(folder=folder) as server:
                reply = chat(server, "bad")
                self.assertEqual((reply.status, reply.json["error"]["code"]), (500, "model_not_loaded"))
                self.assertIn("'bad' cannot be loaded", reply.json["error"]["message"])
                self.assertNotIn(str(folder), reply.body.decode())
                self.assertEqual(chat(server, "good").status, 200)
                # Files that come and go are noticed.
                shutil.copy(MODEL, folder / "later.gguf")
                self.assertEqual(chat(server, "good").status, 200)
                wait_until(lambda: "later" in states(server))
                self.assertEqual(chat(server, "later").status, 200)
                (folder / "good.gguf").unlink()
                (folder / "bad.gguf").unlink()
                wait_until(lambda: "bad" not in states(server))
                self.assertEqual(chat(server, "good").status, 404)

    def test_a_changed_file_is_loaded_again(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shutil.copy(MODEL, folder / "x.gguf")
            with self.serve(folder=folder) as server:
                before = facts(chat(server, "x", logprobs=True))
                (folder / "x.gguf").write_bytes((self.folder / "b.gguf").read_bytes())
                self.assertEqual(server.get("/health").status, 200)

                def again():
                    reply = chat(server, "x", logprobs=True)
                    self.assertIn(reply.status, (200, 503), reply.body)
                    return reply.status == 200 and facts(reply) != before

                wait_until(again)
                with Server("-m", self.folder / "b.gguf") as one:
                    self.assertEqual(facts(chat(server, "x", logprobs=True)), facts(chat(one, "default", logprobs=True)))

    def test_flags(self):
        for flags, words in ((("--models-dir", "/nowhere"), "no folder"),
                             (("--models-dir", self.folder, "-a", "x"), "for a server with one model"),
                             (("-m", MODEL, "--models-max", 2), "only one model")):
            result = run("serve", "--port", 0, *flags)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(words, result.stderr)

    def test_a_named_model_is_the_first(self):
        with tempfile.TemporaryDirectory() as name:
            shutil.copy(self.folder / "b.gguf", pathlib.Path(name) / "z.gguf")
            with self.serve("-m", pathlib.Path(name) / "z.gguf") as server:
                self.assertEqual(list(states(server)), ["z", *NAMES])
                self.assertEqual(loaded(server), ["z"])
                self.assertEqual(chat(server, "default").json["model"], "z")
            with self.serve("-m", self.folder / "b.gguf") as server:
                self.assertEqual(list(states(server)), ["b", "a", "inner/c"])

    def test_no_model_at_all(self):
        with tempfile.TemporaryDirectory() as name, self.serve(folder=name) as server:
            self.assertEqual(server.get("/v1/models").json["data"], [])
            reply = chat(server, "default")
            self.assertEqual(reply.status, 404)
            self.assertIn("put one into the folder", reply.json["error"]["message"])


class Loading(ModelsCase):
    """What others see while a large model is loaded, and who may stop that."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        result = run("make-model", "--shape", "sdar-1.7b", "--layers", 3, "--type", "Q4_0", "-o", cls.folder / "large.gguf",
                     timeout=600)
        assert result.returncode == 0, result.stderr

    def unload(self, server):
        self.assertEqual(server.post("/api/generate", {"model": "large", "keep_alive": 0, "stream": False}).status, 200)
        wait_until(lambda: states(server)["large"] == "unloaded")

    def begin_load(self, server, **fields):
        """A request for the large model, in a thread; returns it when the load has begun."""
        results = []

        def ask():
            try:
                results.append(chat(server, "large", max_tokens=1, length=1, **fields))
            except (OSError, http.client.HTTPException):  # the server has ended
                pass

        thread = threading.Thread(target=ask)
        thread.start()
        wait_until(lambda: states(server)["large"] in ("loading", "loaded"))
        return thread, results

    def test_health_and_streams_do_not_wait(self):
        """Seconds that /health takes, and between the steps of another model's answers, while a model is loaded."""
        with self.serve() as server:
            self.assertEqual(chat(server, "a").status, 200)
            calm_health, calm_steps = [self.ask_health(server) for _ in range(10)], list(gaps(server, "a"))
            limits = [max(FLOOR_SECONDS, TIMES * ninth_of_ten(calm)) for calm in (calm_health, calm_steps)]
            tried = []
            for _ in range(ATTEMPTS):
                health, steps = self.watched_load(server)
                if min(len(health), len(steps)) > 3:
                    tried.append((ninth_of_ten(health), ninth_of_ten(steps)))
                    if all(seen < limit for seen, limit in zip(tried[-1], limits)):
                        return
                self.unload(server)
            self.fail(f"seconds of /health and of a step: {tried or 'the loads were too fast to see any'}, limits {limits}")

    def ask_health(self, server):
        start = time.monotonic()
        self.assertEqual(server.get("/health").status, 200)
        return time.monotonic() - start

    def watched_load(self, server):
        """The seconds of each answer of /health and of each step of answers, while the large model is loaded."""
        health, steps, over = [], [], threading.Event()

        def watch():
            while not over.is_set():
                health.append(self.ask_health(server))
                time.sleep(0.01)

        def stream():
            while not over.is_set():
                steps.extend(gaps(server, "a"))

        with concurrent.futures.ThreadPoolExecutor() as pool:
            thread, results = self.begin_load(server)
            futures = [pool.submit(one) for one in (watch, stream)]
            try:
                wait_until(lambda: states(server)["large"] != "loading")
            finally:
                over.set()
            for one in futures:
                one.result()
        thread.join()
        self.assertEqual(results[0].status, 200, results[0].body)
        return health, steps

    def test_all_who_ask_meanwhile_load_it_once(self):
        with self.serve() as server:
            threads = [self.begin_load(server) for _ in range(3)]
            for thread, _ in threads:
                thread.join()
            self.assertEqual([results[0].status for _, results in threads], [200] * 3)
            self.assertEqual(server.metric('dllm_model_events_total{event="loaded",model="large"}'), 1)

    def test_a_load_without_clients_is_given_up(self):
        with self.serve() as server:
            body = json.dumps({"model": "large", "messages": QUESTION})
            head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            for _ in range(ATTEMPTS):
                with socket.create_connection(("127.0.0.1", server.port)) as client:
                    client.sendall((head + body).encode())
                    wait_until(lambda: states(server)["large"] in ("loading", "loaded"))
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                wait_until(lambda: states(server)["large"] != "loading")
                if states(server)["large"] == "unloaded":
                    break
                self.unload(server)
            else:
                self.fail("each load went on to its end")
            wait_until(lambda: any(line.get("status") == 499 for line in server.log()))
            self.assertEqual(server.metric('dllm_model_events_total{event="failed",model="large"}'), 1)

    def test_the_queue_is_bounded_and_time_runs(self):
        with self.serve("--queue", 0, "--parallel", 1, "--request-timeout", 600) as server:
            for _ in range(ATTEMPTS):
                thread, results = self.begin_load(server)
                reply = chat(server, "large", max_tokens=1)
                thread.join()
                self.assertEqual(results[0].status, 200)
                if reply.status != 200:
                    break
                self.unload(server)
            else:
                self.fail("each load was over before the second request")
            self.assertEqual((reply.status, reply.json["error"]["code"]), (429, "queue_full"))
            self.assertIn("Retry-After", reply.headers)
        with self.serve("--request-timeout", 0.1) as server:
            self.assertEqual(chat(server, "large").status, 504)

    def test_the_end_waits_for_those_who_wait(self):
        with self.serve("--drain-timeout", 600) as server:
            thread, results = self.begin_load(server)
            server.terminate()
            thread.join()
            self.assertEqual(results[0].status, 200, results[0].body)
            self.assertEqual(server.process.wait(timeout=600), 0)

    def test_two_signals_end_a_load(self):
        for _ in range(ATTEMPTS):
            with self.serve("--drain-timeout", 600) as server:
                thread, _ = self.begin_load(server)
                server.terminate()
                wait_until(lambda: any(line.get("event") == "shutting down" for line in server.log()))
                server.terminate()
                self.assertEqual(server.process.wait(timeout=600), 0)
                thread.join()
            if any((line.get("event"), line.get("model")) == ("failed", "large") for line in server.log()):
                return
        self.fail("each load went on to its end")


if __name__ == "__main__":
    unittest.main()
