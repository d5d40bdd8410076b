"""`dllm serve` over ranks: a worker that is killed under load, and one that returns.

    python3 serve_ranks_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import threading
import time
import unittest

from cli_case import run
from ranks_case import HAS_RANKS, MODELS, WAIT_S, WITHIN_S, RanksCase, ranks
from serve_case import QUESTION, Server
from serve_limits_test import wait_until

BODY = {"prompt": "Once upon a time", "max_tokens": 64, "temperature": 0, "seed": 1}
LONG = {**BODY, "max_tokens": 480, "algorithm": "low-confidence", "exact_length": True}


class Load:
    """Clients that ask one after the other until they are told to end."""

    def __init__(self, server, clients):
        self.server, self.replies, self.ends = server, [], False
        self.threads = [threading.Thread(target=self.ask) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def ask(self):
        while not self.ends:
            reply = self.server.post("/v1/completions", LONG)
            self.replies.append((time.monotonic(), reply))

    def end(self):
        self.ends = True
        for thread in self.threads:
            thread.join()


@unittest.skipUnless(HAS_RANKS, "this build has no ranks on other machines (libzmq3-dev)")
class ServeRanks(RanksCase):
    def answer(self, server):
        reply = server.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 48})
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json["choices"][0]["message"]["content"], reply.json["dllm"]["hash"]

    def alone(self):
        with Server("-t", "1") as server:
            return self.answer(server)

    def events(self, server):
        return [line["event"] for line in server.log() if "event" in line]

    def test_a_killed_worker_returns(self):
        expected = self.alone()
        worker = self.workers(1, "--stay")[0]
        with Server(*ranks([worker], "--split", "outputs", "--least-ranks", "2")) as server:
            self.assertEqual(self.answer(server), expected)
            load = Load(server, 3)
            wait_until(lambda: server.metric("dllm_num_requests_running") >= 2)
            worker.kill()
            killed = time.monotonic()
            wait_until(lambda: server.get("/health").status == 503)
            wait_until(lambda: len([1 for _, r in load.replies if r.status != 200]) >= 3)
            load.end()
            failed = [(at, reply) for at, reply in load.replies if reply.status != 200]
            for at, reply in failed[:3]:
                self.assertEqual(reply.status, 503, reply.body)
                self.assertIn(f"rank 1 ({worker.address})", reply.json["error"]["message"])
                self.assertLess(at - killed, WITHIN_S)
            health = server.get("/health")
            self.assertEqual(health.status, 503)
            self.assertIn(worker.address, health.json["error"]["message"])
            self.assertGreaterEqual(int(health.headers["Retry-After"]), 1)
            self.assertEqual((server.metric("dllm_ranks"), server.metric("dllm_ranks_wanted")), (0, 2))
            refused = server.post("/v1/completions", BODY)
            self.assertEqual(refused.status, 503)
            self.assertGreaterEqual(int(refused.headers["Retry-After"]), 1)
            self.worker("--stay", port=worker.port)
            wait_until(lambda: server.get("/health").status == 200)
            self.assertEqual(self.answer(server), expected)
            self.assertEqual((server.metric("dllm_ranks"), server.metric("dllm_rank_losses_total")), (2, 1))
            wait_until(lambda: "ranks complete" in self.events(server))
            self.assertEqual(self.events(server).count("rank lost"), 1)
            lost = next(line for line in server.log() if line.get("event") == "rank lost")
            self.assertIn(worker.address, lost["error"])

    def test_the_others_go_on_and_the_lost_one_joins_again(self):
        expected = self.alone()
        workers = self.workers(2, "--stay")
        with Server(*ranks(workers, "--split", "rows")) as server:
            self.assertEqual(self.answer(server), expected)
            workers[0].kill()
            self.assertEqual(server.post("/v1/completions", BODY).status, 503)
            wait_until(lambda: server.get("/health").status == 200)
            self.assertEqual(self.answer(server), expected)
            self.assertEqual(server.metric("dllm_ranks"), 2)
            self.worker("--stay", port=workers[0].port)
            wait_until(lambda: server.metric("dllm_ranks") == 3)
            self.assertEqual(self.answer(server), expected)
            self.assertIn("rank returned", self.events(server))

    def test_prefixes_of_a_lost_group_are_not_read(self):
        model = MODELS / "tri-f16.gguf"
        worker = self.workers(1, "-m", model, "--stay")[0]
        turns = [{"role": "user", "content": "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?"}]
        ask = {"messages": turns, "max_tokens": 16}
        with Server("-m", model, *ranks([worker], "--split", "outputs", "--least-ranks", "2")) as server:
            first, second = (server.post("/v1/chat/completions", ask) for _ in range(2))
            self.assertEqual((first.status, second.status), (200, 200), first.body)
            self.assertGreater(second.json["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
            worker.kill()
            self.assertEqual(server.post("/v1/chat/completions", ask).status, 503)
            self.worker("-m", model, "--stay", port=worker.port)
            wait_until(lambda: server.get("/health").status == 200)
            for cached in (False, True):
                reply = server.post("/v1/chat/completions", ask)
                self.assertEqual(reply.status, 200, reply.body)
                self.assertEqual(reply.json["dllm"]["hash"], first.json["dllm"]["hash"])
                self.assertEqual(reply.json["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, cached)
            self.assertEqual(server.metric("dllm_prefix_cache_hits_total"), 2)

    def test_this_rank_goes_on_alone(self):
        expected = self.alone()
        worker = self.workers(1, "--stay")[0]
        with Server(*ranks([worker], "--split", "layers")) as server:
            worker.kill()
            self.assertEqual(server.post("/v1/completions", BODY).status, 503)
            wait_until(lambda: server.get("/health").status == 200)
            self.assertEqual(self.answer(server), expected)
            self.assertEqual(server.metric("dllm_ranks"), 1)

    def test_one_of_two_lost_ranks_joins_again(self):
        expected = self.alone()
        workers = self.workers(2, "--stay")
        with Server(*ranks(workers, "--split", "outputs")) as server:
            for worker in workers:
                worker.kill()
            self.assertEqual(server.post("/v1/completions", BODY).status, 503)
            wait_until(lambda: server.get("/health").status == 200)
            self.assertEqual(server.metric("dllm_ranks"), 1)
            self.worker("--stay", port=workers[1].port)
            wait_until(lambda: server.metric("dllm_ranks") == 2)
            self.assertEqual(self.answer(server), expected)

    def test_a_stream_ends_with_the_error(self):
        worker = self.workers(1, "--stay")[0]
        with Server(*ranks([worker], "--split", "outputs", "--least-ranks", "2")) as server:
            connection = server.connect()
            connection.request("POST", "/v1/completions", json.dumps({**LONG, "stream": True, "diffusing": True}))
            response = connection.getresponse()
            self.assertEqual(response.status, 200)
            response.readline()
            worker.kill()
            killed = time.monotonic()
            rest = response.read().decode()
            self.assertLess(time.monotonic() - killed, WITHIN_S)
            self.assertIn(f"rank 1 ({worker.address})", rest)

    def test_a_server_ends_while_it_looks_for_ranks(self):
        worker = self.workers(1, "--stay")[0]
        with Server(*ranks([worker], "--split", "outputs", "--least-ranks", "2")) as server:
            worker.kill()
            self.assertEqual(server.post("/v1/completions", BODY).status, 503)
            server.terminate()
            self.assertEqual(server.process.wait(timeout=WAIT_S), 0)

    def test_usage(self):
        worker = self.workers(1, "--stay")[0]
        for number in ("0", "x", "3"):
            result = run("serve", "--port", "0", *ranks([worker], "--least-ranks", number))
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("--least-ranks", result.stderr)


if __name__ == "__main__":
    unittest.main()
