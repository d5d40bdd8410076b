"""How long answers become: `max_tokens` in every API is a bound, and `length` is the canvas.

    python3 serve_length_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import pathlib
import unittest

from cli_case import CliCase, run
from serve_case import QUESTION, ServeCase, Server
from serve_tools_test import TEMPLATE

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHAT, COMPLETIONS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
#: What clients send whatever the model is, and more than any context holds.
LARGE = (256, 400, 4096, 32000, 2147483647, 10**12)
TOOL = {"type": "function", "function": {"name": "weather", "description": "the weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"]}}}


def chat_of(reply):
    choice = reply["choices"][0]
    return choice["message"]["content"], choice["finish_reason"], reply["usage"]["completion_tokens"]


class Bounds(ServeCase):
    def chat(self, **fields):
        reply = self.server.post(CHAT, {"messages": QUESTION, **fields})
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json

    def test_large_bounds_change_nothing(self):
        own = self.chat()
        for name in ("max_tokens", "max_completion_tokens", "n_predict", "predict"):
            for bound in (*LARGE, -1):
                told = self.chat(**{name: bound})
                self.assertEqual((chat_of(told), told["dllm"]["nfe"]), (chat_of(own), own["dllm"]["nfe"]), (name, bound))
        for wrong in (0, -2, "many", 1.5, True):
            self.refused(400, CHAT, {"messages": QUESTION, "max_tokens": wrong}, "max_tokens")
        self.refused(400, CHAT, {"messages": QUESTION, "max_tokens": 5, "max_completion_tokens": 5})
        self.assertEqual(chat_of(self.chat(max_tokens=None)), chat_of(own))

    def test_golden_items(self):
        items = (ROOT / "tests/golden/validation.jsonl").read_text().splitlines()[:40]
        for line in items:
            turns = [{"role": "user", "content": json.loads(line)["prompt"]}]
            own, *others = [chat_of(self.server.post(CHAT, {"messages": turns, **fields}).json)
                            for fields in ({}, {"max_tokens": 256}, {"max_tokens": 32000})]
            if own[1] == "stop":
                self.assertEqual([own, own], others, line)
            else:
                self.assertTrue(all(text.startswith(own[0]) for text, _, _ in others), line)

    def test_answers_are_cut(self):
        text, finish, tokens = chat_of(self.chat())
        self.assertEqual(finish, "stop")
        for bound in (1, 5, tokens - 1):
            cut = chat_of(self.chat(max_tokens=bound))
            self.assertEqual(cut[1:], ("length", bound))
            self.assertTrue(text.startswith(cut[0]), cut)
        self.assertEqual(chat_of(self.chat(max_tokens=tokens)), (text, finish, tokens))

    def test_every_api_says_so(self):
        prompt = self.server.post("/apply-template", {"messages": QUESTION}).json["prompt"]
        reply = self.server.post(COMPLETIONS, {"prompt": prompt, "max_tokens": 5}).json
        self.assertEqual((reply["choices"][0]["finish_reason"], reply["usage"]["completion_tokens"]), ("length", 5))
        text = reply["choices"][0]["text"]
        reply = self.server.post(MESSAGES, {"messages": QUESTION, "max_tokens": 5}).json
        self.assertEqual((reply["stop_reason"], reply["usage"]["output_tokens"]), ("max_tokens", 5))
        self.assertEqual(reply["content"][0]["text"], text)
        reply = self.server.post(RESPONSES, {"input": QUESTION[0]["content"], "max_output_tokens": 5}).json
        self.assertEqual((reply["status"], reply["incomplete_details"], reply["max_output_tokens"]),
                         ("incomplete", {"reason": "max_output_tokens"}, 5))
        self.assertEqual(reply["usage"]["output_tokens"], 5)
        self.assertEqual(reply["output"][0]["content"][0]["text"], text)
        for path, field in ((MESSAGES, "max_tokens"), (RESPONSES, "max_output_tokens"), (COMPLETIONS, "max_tokens")):
            asked = {"messages": QUESTION} if path == MESSAGES else \
                {"prompt": prompt} if path == COMPLETIONS else {"input": QUESTION[0]["content"]}
            for bound in LARGE:
                self.assertEqual(self.server.post(path, {**asked, field: bound}).status, 200, (path, bound))

    def test_streams_end_where_answers_do(self):
        for fields in ({"max_tokens": 5}, {"length": 8, "max_tokens": 4096}, {"length": 8, "max_tokens": 13}):
            whole = self.chat(**fields)
            events = [data for _, data in self.server.events(CHAT, {"messages": QUESTION, **fields,
                                                                    "stream_options": {"include_usage": True}})]
            self.assertEqual(events.pop(), "[DONE]")
            self.assertEqual(events[-1]["usage"], whole["usage"])
            choices = [one["choices"][0] for one in events if one["choices"]]
            self.assertEqual("".join(one["delta"].get("content") or "" for one in choices), chat_of(whole)[0])
            self.assertEqual(choices[-1]["finish_reason"], chat_of(whole)[1])
            names = [name for name, _ in self.server.events(MESSAGES, {"messages": QUESTION, **fields})]
            self.assertEqual(names[-1], "message_stop")

    def test_canvas_and_bound_are_two_fields(self):
        own = chat_of(self.chat())
        for canvas in ("length", "canvas_length"):
            short = self.chat(**{canvas: 8})
            self.assertEqual(chat_of(short)[1:], ("length", 8))
            longer = self.chat(**{canvas: 8, "max_tokens": 300})
            self.assertEqual(chat_of(longer)[1], "stop")
            self.assertTrue(chat_of(longer)[0].startswith(chat_of(short)[0]))
            self.assertIn("#### 10", chat_of(longer)[0])
            cut = self.chat(**{canvas: 64, "max_tokens": 5})
            self.assertTrue(own[0].startswith(chat_of(cut)[0]))
        error = self.refused(400, CHAT, {"messages": QUESTION, "length": 500})
        self.assertIn("exceed the context", error["message"])
        stopped = chat_of(self.chat(length=8, max_tokens=300, stop="####"))
        self.assertEqual((stopped[0] + "####", stopped[1]), (own[0][:own[0].index("####") + 4], "stop"))

    def test_canvases_that_follow_are_shown(self):
        steps = [data["diffusion"] for _, data in self.server.events(
            CHAT, {"messages": QUESTION, "length": 8, "max_tokens": 64, "diffusion_events": True})[:-1]
            if "changes" in data.get("diffusion", {})]
        positions = [step["positions"] for step in steps]
        self.assertEqual((positions[0], positions), (8, sorted(positions)))
        self.assertGreater(positions[-1], 8)
        self.assertTrue(all(begin < end <= step["positions"] for step in steps for begin, end in [step["window"]]))

    def test_structures(self):
        schema = {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 9}
        own = chat_of(self.chat(json_schema=schema))
        for bound in LARGE:
            self.assertEqual(chat_of(self.chat(json_schema=schema, max_tokens=bound)), own)
        self.assertEqual(chat_of(self.chat(json_schema=schema, length=4, max_tokens=200))[1], "stop")
        cut = chat_of(self.chat(regex="aaaa bbbb aaaa", max_tokens=2))
        self.assertEqual(cut[1:], ("length", 2))

    def test_infill_takes_it_exactly(self):
        body = {"input_prefix": "Dan has 7 apples.", "input_suffix": " How many?"}
        for name in ("n_predict", "max_tokens", "length"):
            reply = self.server.post("/infill", {**body, name: 6, "exact_length": True}).json
            self.assertEqual(reply["dllm"]["committed_tokens"], 6)
        self.refused(400, "/infill", {**body, "n_predict": 6, "length": 7})
        self.refused(400, "/infill", {**body, "n_predict": -1})

    def test_exact_length(self):
        reply = self.chat(max_tokens=20, exact_length=True)
        self.assertEqual(reply["dllm"]["committed_tokens"], 20)


class Calls(ServeCase):
    FLAGS = ("--chat-template", TEMPLATE)

    def ask(self, **fields):
        reply = self.server.post(CHAT, {"messages": QUESTION, **fields})
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json

    def test_forced_calls(self):
        forced = {"tools": [TOOL], "tool_choice": "required"}
        called = self.ask(**forced)["choices"][0]
        for fields in ({"max_tokens": 4096}, {"max_tokens": 4096, "length": 12}):
            again = self.ask(**forced, **fields)["choices"][0]
            self.assertEqual(again["finish_reason"], "tool_calls")
            self.assertEqual(again["message"]["tool_calls"][0]["function"]["name"], "weather")
            if "length" not in fields:
                self.assertEqual(again["message"]["tool_calls"][0]["function"],
                                 called["message"]["tool_calls"][0]["function"])
        self.assertEqual(self.ask(**forced, max_tokens=6)["choices"][0]["finish_reason"], "length")


class Limits(unittest.TestCase):
    def test_the_servers_bound_and_limit(self):
        with Server("-n", "5", "--max-request-tokens", "30") as server:
            def ask(path=CHAT, **fields):
                return server.post(path, {"messages": QUESTION, **fields})
            own = chat_of(ask(max_tokens=29).json)
            self.assertEqual(own[1], "stop")
            self.assertEqual(chat_of(ask().json)[1:], ("length", 5))
            self.assertTrue(own[0].startswith(chat_of(ask().json)[0]), "the server's bound changes no word")
            for bound in LARGE:
                self.assertEqual(chat_of(ask(max_tokens=bound).json), own)
            self.assertEqual(ask(length=31).status, 400)
            self.assertEqual(ask(length=8, max_tokens=4096).json["choices"][0]["finish_reason"], "stop")
            self.assertEqual(ask(template=["7+5=", {"mask": 9}, " apples"]).status, 200)
            filled = server.post("/infill", {"input_prefix": "a b", "input_suffix": "c", "exact_length": True}).json
            self.assertEqual(filled["dllm"]["committed_tokens"], 5, "there the bound is exact")


class Verbs(CliCase):
    WORDS = QUESTION[0]["content"]

    def answer(self, *flags, **environment):
        return json.loads(self.ok("run", "-o", "json", *flags, self.WORDS, **environment).stdout)

    def test_run(self):
        own = self.answer()
        for bound in ("64", "256", "32000", "-1"):
            self.assertEqual((self.answer("-n", bound)["hash"], self.answer("--max-tokens", bound)["text"]),
                             (own["hash"], own["text"]))
        cut = self.answer("-n", "5")
        self.assertEqual((cut["finish"], len(cut["ids"]), cut["ids"]), ("length", 5, own["ids"][:5]))
        options = cut["config"]["options"]
        self.assertEqual((options["max_tokens"], options["length"]), (5, 64))
        self.assertNotIn("max_tokens", own["config"]["options"])
        longer = self.answer("--canvas-length", "8", "-n", "100")
        self.assertEqual(longer["finish"], "stop")
        self.assertEqual(longer["ids"][:8], self.answer("--canvas-length", "8")["ids"])
        exact = self.answer("--exact-length", "-n", "16")
        self.assertEqual(exact["ids"], self.answer("--exact-length", "--canvas-length", "16")["ids"])
        self.assertEqual(self.answer(DLLM_ARG_PREDICT="5")["ids"], cut["ids"])
        self.assertEqual(len(self.answer(DLLM_ARG_CANVAS_LENGTH="8")["ids"]), 8)
        self.assertIn("--predict", self.fails(2, "run", "x", "-n", "0"))
        self.assertIn("--canvas-length", self.fails(2, "run", "x", "--canvas-length", "512"))
        self.fails(2, "infill", "--canvas-length", "8", "x[[2]]")

    def test_eval(self):
        items = str(ROOT / "tests/golden/validation.jsonl")
        own, bounded = (json.loads(run("eval", items, "--limit", "40", "-o", "json", *flags).stdout)
                        for flags in ((), ("-n", "256")))
        self.assertEqual([one["answer"] for one in own["records"]], [one["answer"] for one in bounded["records"]])
        self.assertIn("--canvas-length", self.fails(2, "eval", items, "--limit", "2", "-n", "3", "--record",
                                                    self.dir / "cut.json"))


if __name__ == "__main__":
    unittest.main(verbosity=1)
