"""`dllm serve` at the bounds of what it accepts: the largest values are served, and the next are refused.

    python3 serve_bounds_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import unittest

from serve_case import Server, ServeCase

CHAT = "/v1/chat/completions"
SUM = {"messages": [{"role": "user", "content": "3 + 4 ="}], "max_tokens": 8}
# Minutes of work, in passes of a few masks.
LONG_SCORE = {"context": "The sky is", "continuation": [" blue and wide and high and far"] * 64, "samples": 4096}


class Bounds(ServeCase):
    FLAGS = ("--max-request-tokens", "24", "--queue", "1", "--parallel", "1")

    def accepted(self, **fields):
        reply = self.server.post(CHAT, {**SUM, **fields})
        self.assertEqual(reply.status, 200, reply.body)

    def test_tokens(self):
        self.accepted(max_tokens=24)
        self.accepted(max_tokens=25)  # a bound, which a lower one replaces
        self.accepted(length=24)
        self.refused(400, CHAT, {**SUM, "length": 25}, "length")

    def test_stop_texts(self):
        self.accepted(stop=[f"stop {i}" for i in range(16)])
        self.refused(400, CHAT, {**SUM, "stop": [f"stop {i}" for i in range(17)]}, "stop")
        self.accepted(stop=["x" * 512])
        self.refused(400, CHAT, {**SUM, "stop": ["x" * 513]}, "stop")
        self.refused(400, CHAT, {**SUM, "stop": ["a", ""]}, "stop")

    def test_nesting(self):
        def nested(levels):
            return json.dumps({**SUM, "metadata": "?"}).replace('"?"', "[" * (levels - 1) + "]" * (levels - 1))

        self.assertEqual(self.server.post(CHAT, nested(64)).status, 200)
        self.refused(400, CHAT, nested(65))

    def test_scores_wait_in_a_queue(self):
        links = []
        for _ in range(2):  # as many as the queue and the one that runs
            links.append(self.server.connect())
            links[-1].request("POST", "/v1/score", json.dumps(LONG_SCORE))
        # They are read by several threads, so the third must come when both have been.
        for _ in range(2000):
            reply = self.server.post("/v1/score", {**LONG_SCORE, "samples": 1, "continuation": " blue"})
            if reply.status != 200:
                break
        self.assertEqual(reply.status, 429, reply.body)
        self.assertEqual(reply.json["error"]["code"], "queue_full")
        self.accepted()  # answers have a queue of their own
        for link in links:
            link.close()
        for _ in range(2000):
            reply = self.server.post("/v1/score", {**LONG_SCORE, "samples": 1, "continuation": " blue"})
            if reply.status == 200:
                break
        self.assertEqual(reply.status, 200, "scores of clients that have gone are not computed on")


class Deadlines(unittest.TestCase):
    def test_scores_end_in_time(self):
        with Server("--request-timeout", "0.2") as server:
            reply = server.post("/v1/score", LONG_SCORE)
            self.assertEqual((reply.status, reply.json["error"]["code"]), (504, "timeout"))


if __name__ == "__main__":
    unittest.main()
