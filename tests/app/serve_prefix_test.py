"""Prefix reuse in `dllm serve`: answers are those without it, and usage and metrics tell what was reused.

    python3 serve_prefix_test.py PATH/TO/dllm [unittest arguments]
"""

import concurrent.futures
import json
import pathlib
import unittest

from cli_case import run
from serve_case import Server

MODEL = pathlib.Path(__file__).parents[2] / "models" / "tri-f16.gguf"
CHAT = "/v1/chat/completions"
QUESTIONS = ("Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?",
             "Ben has 12 pens. Ben gets 3 more. Then Ben loses 9. How many pens does Ben have now?",
             "Ben has 12 pens. Ben gets 3 more. Then Ben finds 2. How many pens does Ben have now?")


def conversation(server, question):
    """Two turns: the replies and their prompts."""
    turns = [{"role": "user", "content": question}]
    first = server.post(CHAT, {"messages": turns, "max_tokens": 48}).json
    turns += [first["choices"][0]["message"], {"role": "user", "content": "And how many had Ben at first?"}]
    return [first, server.post(CHAT, {"messages": turns, "max_tokens": 48}).json]


def answers(replies):
    return [(one["choices"][0]["message"]["content"], one["dllm"]["hash"], one["dllm"]["nfe"]) for one in replies]


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


class PrefixReuse(unittest.TestCase):
    def test_answers_are_the_same(self):
        with Server("-m", MODEL, "--prefix-cache", "0") as server:
            without = [conversation(server, question) for question in QUESTIONS]
            self.assertTrue(all(cached(one) == 0 for pair in without for one in pair))
            self.assertEqual(server.metric("dllm_prefix_cache_misses_total"), 0)
            self.assertEqual(server.metric("dllm_prefix_cache_bytes"), 0)
        alone = json.loads(run("run", "-m", MODEL, "--canvas-length", "48", "-o", "json", QUESTIONS[0]).stdout)
        self.assertEqual(alone["hash"], without[0][0]["dllm"]["hash"])
        with Server("-m", MODEL) as server:
            once = [conversation(server, question) for question in QUESTIONS]
            self.assertEqual(list(map(answers, once)), list(map(answers, without)))
            self.assertEqual(cached(once[0][0]), 0)
            for pair in once[1:]:
                self.assertGreaterEqual(cached(pair[0]), 16, "the beginning of the question")
            for first, second in once:
                self.assertGreater(cached(second), first["usage"]["prompt_tokens"] // 16 * 16 - 16, "the first turn")
                self.assertLess(cached(second), second["usage"]["prompt_tokens"])
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                again = list(pool.map(lambda question: conversation(server, question), QUESTIONS * 2))
            self.assertEqual(list(map(answers, again)), list(map(answers, without)) * 2)
            tokens = sum(cached(one) for pair in once + again for one in pair)
            self.assertEqual(server.metric("dllm_prefix_cache_tokens_total"), tokens)
            self.assertEqual(server.metric("dllm_prefix_cache_misses_total"), 1)
            self.assertEqual(server.metric("dllm_prefix_cache_hits_total"), 17)
            self.assertGreater(server.metric("dllm_prefix_cache_bytes"), 0)
            self.assertEqual(server.metric("dllm_prefix_cache_evicted_tokens_total"), 0)
            self.others_tell_it_too(server)

    def others_tell_it_too(self, server):
        body = {"messages": [{"role": "user", "content": QUESTIONS[0]}], "max_tokens": 48}
        usage = server.post("/v1/messages", body).json["usage"]
        self.assertGreater(usage["cache_read_input_tokens"], 0)
        total = server.post("/v1/messages/count_tokens", body).json["input_tokens"]
        self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], total)
        events = server.events("/v1/messages", body)
        self.assertEqual([data["usage"] for name, data in events if name == "message_delta"], [usage])
        usage = server.post("/v1/responses", {"input": QUESTIONS[0], "max_output_tokens": 48}).json["usage"]
        self.assertGreater(usage["input_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(usage["input_tokens"], total)

    def test_the_budget_holds(self):
        with Server("-m", MODEL, "--prefix-cache", "1") as server:
            for number in range(60):
                question = f"{number * 37} " + QUESTIONS[0] * 2
                server.post(CHAT, {"messages": [{"role": "user", "content": question}], "max_tokens": 8})
            self.assertLessEqual(server.metric("dllm_prefix_cache_bytes"), 1 << 20)
            self.assertGreater(server.metric("dllm_prefix_cache_evicted_tokens_total"), 0)

    def test_models_that_see_in_all_directions(self):
        with Server() as server:
            for _ in range(2):
                for cache in ("none", "prefix", "dual", "partial"):
                    reply = server.post(CHAT, {"messages": [{"role": "user", "content": QUESTIONS[0]}], "cache": cache}).json
                    self.assertEqual(cached(reply), 0)
            self.assertEqual(server.metric("dllm_prefix_cache_bytes"), 0)


if __name__ == "__main__":
    unittest.main()
