"""Thoughts in all APIs, and what clients say about them. The answers' words are given by expressions and forms, as the
embedded model has no thoughts; the templates are this test's.

    python3 serve_thinking_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import unittest

from cli_case import run
from serve_case import Server, ServeCase

CHAT, MESSAGES, RESPONSES, OLLAMA = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"
QUESTION = [{"role": "user", "content": "Solve 17+4."}]
# In the style of Qwen 3: thoughts of earlier answers are shown, and a switch closes an empty thought.
# Line breaks are in texts: those behind blocks are dropped.
THINK = ("{% if tools %}tool{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role + ': ' }}"
         "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
         "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{{ '\n' }}{% endfor %}"
         "{% if reasoning_effort is defined %}effort {{ reasoning_effort }}{{ '\n' }}{% endif %}assistant:"
         "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{{ '\n\n' }}{% endif %}")
OPENED = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}assistant:\n<think>{{ '\n' }}"
GEMMA = ("{% for m in messages %}<|turn>{{ m.role }}\n{{ m.reasoning }}{{ m.content }}<turn|>{{ '\n' }}{% endfor %}"
         "<|turn>model{{ '\n' }}"
         "{% if not enable_thinking | default(false) %}<|channel>thought\n<channel|>{% endif %}")
HARMONY = ("{% for m in messages %}<|start|>{{ m.role }}<|channel|>final<|message|>{{ m.thinking }}{{ m.content }}<|end|>{% endfor %}"
           "Reasoning: {{ reasoning_effort | default('medium') }} <|start|>assistant")
HARMONY_ANSWER = "<|channel|>analysis<|message|>ab<|end|><|start|>assistant<|channel|>final<|message|>21"
ANSWER, THOUGHTS, TEXT = "<think>\nab\n</think>\n\n21", "ab", "21"
WEATHER = {"type": "object", "properties": {"town": {"enum": ["Ulm"]}}, "required": ["town"]}


def literally(text):
    """An expression for a text."""
    return "".join("\\" + c if c in "\\^$.|?*+()[]{}/" else c for c in text)


def says(answer, **more):
    return {"regex": literally(answer), "max_tokens": 128, **more}


class Thinking(ServeCase):
    FLAGS = ("--chat-template", THINK)

    def post(self, path, body, status=200):
        reply = self.server.post(path, body)
        self.assertEqual(reply.status, status, reply.body)
        return reply

    def chat(self, **more):
        return self.post(CHAT, {"messages": QUESTION, **more}).json

    def prompt(self, messages=QUESTION, **more):
        return self.post("/apply-template", {"messages": messages, **more}).json["prompt"]


class Chat(Thinking):
    def test_whole(self):
        reply = self.chat(**says(ANSWER))
        message = reply["choices"][0]["message"]
        self.assertEqual((message["reasoning_content"], message["reasoning"], message["content"]), (THOUGHTS, THOUGHTS, TEXT))
        details = reply["usage"]["completion_tokens_details"]
        self.assertTrue(0 < details["reasoning_tokens"] < reply["usage"]["completion_tokens"])
        message = self.chat(**says("21"))["choices"][0]["message"]
        self.assertNotIn("reasoning_content", message)
        self.assertEqual(message["content"], "21")

    def test_streamed(self):
        deltas = [data["choices"][0]["delta"] for _, data in self.server.events(CHAT, {"messages": QUESTION, **says(ANSWER)})[:-1]]
        for key in ("reasoning_content", "reasoning"):
            self.assertEqual("".join(delta.get(key) or "" for delta in deltas), THOUGHTS)
        self.assertEqual("".join(delta.get("content") or "" for delta in deltas), TEXT)
        thoughts = [i for i, delta in enumerate(deltas) if delta.get("reasoning")]
        texts = [i for i, delta in enumerate(deltas) if delta.get("content")]
        self.assertLess(max(thoughts), min(texts))

    def test_a_thought_that_is_not_closed(self):
        reply = self.chat(**says("<think>\nab c"))
        self.assertEqual((reply["choices"][0]["message"]["reasoning"], reply["choices"][0]["message"]["content"]), ("ab c", ""))
        self.assertEqual(reply["usage"]["completion_tokens_details"]["reasoning_tokens"] + 1, reply["usage"]["completion_tokens"])
        deltas = [data["choices"][0]["delta"] for _, data in
                  self.server.events(CHAT, {"messages": QUESTION, **says("<think>\nab c")})[:-1]]
        self.assertEqual("".join(delta.get("reasoning") or "" for delta in deltas), "ab c")

    def test_formats(self):
        for more in ({"reasoning_format": "none"}, {"separate_reasoning": False}):
            message = self.chat(**says(ANSWER), **more)["choices"][0]["message"]
            self.assertEqual(message["content"], ANSWER)
            self.assertNotIn("reasoning", message)
        message = self.chat(**says(ANSWER), include_reasoning=False)["choices"][0]["message"]
        self.assertEqual((message["content"], message.get("reasoning")), (TEXT, None))
        for format in ("auto", "deepseek"):
            self.assertEqual(self.chat(**says(ANSWER), reasoning_format=format)["choices"][0]["message"]["content"], TEXT)
        self.refused(400, CHAT, {"messages": QUESTION, "reasoning_format": "x"}, "reasoning_format")

    def test_a_call_in_and_behind_thoughts(self):
        call = '<tool_call>{"name": "weather", "arguments": {"town": "Ulm"}}</tool_call>'
        tools = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
        asked = {"messages": QUESTION, "tools": tools, "chat_template_kwargs": {"enable_thinking": True}}
        for bound in ({"max_tokens": 64}, {"max_tokens": 128}, {"max_tokens": 200}, {"length": 96}, {"length": 64, "max_tokens": 100}):
            whole = self.post(CHAT, {**asked, "tool_choice": "required", **bound}).json["choices"][0]
            self.assertEqual(whole["finish_reason"], "tool_calls", bound)
            self.assertEqual(json.loads(whole["message"]["tool_calls"][0]["function"]["arguments"]), {"town": "Ulm"})
            if bound.get("max_tokens", 0) > 100:
                self.assertTrue(whole["message"]["reasoning"], bound)
        cut = self.post(CHAT, {**asked, "tool_choice": "required", "max_tokens": 8}).json["choices"][0]
        self.assertEqual(cut["finish_reason"], "length")
        # Words of our choosing: a thought, an answer and a call.
        words = self.post(CHAT, {**asked, **says(ANSWER + call)}).json["choices"][0]
        self.assertEqual((words["message"]["content"], words["message"]["reasoning"], words["finish_reason"]),
                         (TEXT, THOUGHTS, "tool_calls"))
        self.assertEqual(words["message"]["tool_calls"][0]["function"]["name"], "weather")

    def test_structures(self):
        schema = {"type": "integer", "minimum": 1, "maximum": 99}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        for more in ({}, {"enable_thinking": False}, {"reasoning_effort": "high"}, {"enable_thinking": True}):
            message = self.chat(response_format=form, max_tokens=96, **more)["choices"][0]["message"]
            self.assertIn(json.loads(message["content"]), range(1, 100), more)
        for field in ({"guided_json": schema}, {"structured_outputs": {"json": schema}}, {"guided_choice": ["7"]},
                      {"structured_outputs": {"choice": ["7"]}}, {"structured_outputs": {"regex": "7"}}):
            message = self.chat(max_tokens=96, **field)["choices"][0]["message"]
            self.assertIn(json.loads(message["content"]), range(1, 100), field)
        self.refused(400, CHAT, {"messages": QUESTION, "structured_outputs": {"yaml": 1}}, "structured_outputs.yaml")


class Switches(Thinking):
    OFF = "assistant:<think>\n\n</think>\n\n"

    def test_on_and_off(self):
        for off in ({"enable_thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}, {"think": False},
                    {"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}, {"reasoning": {"effort": "none"}},
                    {"reasoning": {"enabled": False}}, {"thinking": False}, {"think": "none"}):
            self.assertTrue(self.prompt(**off).endswith(self.OFF), off)
        for on in ({}, {"enable_thinking": True}, {"chat_template_kwargs": {"enable_thinking": True}}, {"think": True},
                   {"reasoning_effort": "high"}, {"thinking": {"type": "adaptive"}},
                   {"thinking": {"type": "enabled", "budget_tokens": 2048}}, {"chat_template_kwargs": {}},
                   {"output_config": {"effort": "low"}}, {"reasoning": {"effort": "low", "summary": "auto"}}):
            self.assertTrue(self.prompt(**on).endswith("assistant:"), on)

    def test_effort(self):
        for field in ({"reasoning_effort": "low"}, {"chat_template_kwargs": {"reasoning_effort": "low"}},
                      {"reasoning": {"effort": "low"}}, {"output_config": {"effort": "low"}}, {"think": "low"}):
            self.assertIn("effort low\n", self.prompt(**field), field)
        self.assertNotIn("effort", self.prompt())

    def test_refusals(self):
        for field, value in (("enable_thinking", 3), ("chat_template_kwargs", [1]), ("reasoning_effort", "much"),
                             ("thinking", {"type": "x"}), ("reasoning", 7), ("think", 1.5)):
            where = "thinking.type" if field == "thinking" else field
            self.refused(400, CHAT, {"messages": QUESTION, field: value}, where)
        for name in ("messages", "tools", "bos_token", "eos_token"):
            self.refused(400, CHAT, {"messages": QUESTION, "chat_template_kwargs": {name: "x"}}, "chat_template_kwargs." + name)
        both = {"messages": QUESTION, "enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}}
        self.assertIn("the opposite", self.refused(400, CHAT, both)["message"])
        self.refused(400, CHAT, {"messages": QUESTION, "reasoning": {"efort": "low"}}, "reasoning.efort")

    def test_what_the_template_does_not_read(self):
        def ignored(**fields):
            reply = self.post("/apply-template", {"messages": QUESTION, **fields})
            return reply.headers.get("x-dllm-ignored")

        self.assertEqual(ignored(chat_template_kwargs={"documents": 1, "reasoning_effort": "x"}), "chat_template_kwargs.documents")
        self.assertEqual(ignored(chat_template_kwargs={"a\r\nb": 1}), "chat_template_kwargs.a??b")
        self.assertEqual(ignored(thinking={"type": "enabled", "budget_tokens": 9}), "thinking.budget_tokens")
        self.assertIsNone(ignored(reasoning_effort="low"))

    def test_structures_think_only_if_they_are_asked_to(self):
        """The prompt of a structured answer, by its number of tokens."""
        def tokens(**more):
            return self.chat(max_tokens=96, **more)["usage"]["prompt_tokens"]

        off, on = tokens(enable_thinking=False), tokens(enable_thinking=True)
        self.assertGreater(off, on)
        self.assertEqual(tokens(json_schema={"const": 1}), off)
        self.assertEqual(tokens(json_schema={"const": 1}, enable_thinking=True), on)
        self.assertEqual(tokens(regex="1"), on)


class SentBack(Thinking):
    def talk(self, answer):
        return [*QUESTION, {"role": "assistant", **answer}, *QUESTION]

    def test_chat(self):
        for answer in ({"content": "a", "reasoning_content": "hm"}, {"content": "a", "reasoning": "hm"},
                       {"content": "a", "thinking": "hm"}, {"content": "a", "reasoning": "hm", "reasoning_content": "hm"},
                       {"content": [{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "a"}]},
                       {"content": "a", "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "x"}]}):
            self.assertIn("assistant: <think>hm</think>a\n", self.prompt(self.talk(answer)), answer)
        self.assertIn("assistant: <think>hm</think>\n", self.prompt(self.talk({"reasoning_content": "hm", "content": None})))
        self.assertIn("assistant: a\n", self.prompt(self.talk({"content": "a", "reasoning_content": None})))
        self.assertIn("user: u\n", self.prompt([{"role": "user", "content": "u", "reasoning_content": "hm"}]))
        self.refused(400, CHAT, {"messages": self.talk({"content": "a", "reasoning_content": 3})})

    def test_messages(self):
        blocks = [{"type": "thinking", "thinking": "hm", "signature": "dllm:"}, {"type": "redacted_thinking", "data": "xyz"},
                  {"type": "text", "text": "a"}, {"type": "tool_use", "id": "1", "name": "f", "input": {},
                                                  "caller": {"type": "direct"}}]
        talk = [*QUESTION, {"role": "assistant", "content": blocks},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "x"}]}]
        plain = [*QUESTION, {"role": "assistant", "content": blocks[2:]}, talk[2]]
        count = self.count(talk)
        self.assertGreater(count, self.count(plain))
        self.assertEqual(count, self.count([talk[0], {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "", "signature": "dllm:hm"}, *blocks[1:]]}, talk[2]]), "thoughts that were not shown")
        for edit, same in (({"keep": "all"}, True), ({"keep": {"type": "thinking_turns", "value": 1}}, True), ({}, True),
                           ({"keep": {"type": "thinking_turns", "value": 0}}, False)):
            more = {"context_management": {"edits": [{"type": "clear_thinking_20251015", **edit}]}}
            self.assertEqual(self.count(talk, **more) == count, same, edit)
        self.post(MESSAGES, {"messages": [*QUESTION, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}],
                             "max_tokens": 8})
        for block in ({"type": "thinking"}, {"type": "redacted_thinking"}, {"type": "thinking", "thinking": "", "signature": 1}):
            self.post(MESSAGES, {"messages": [{"role": "assistant", "content": [block]}], "max_tokens": 8}, 400)

    def count(self, messages, **more):
        return self.post(MESSAGES + "/count_tokens", {"messages": messages, **more}).json["input_tokens"]

    def test_responses(self):
        said = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
        sealed = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "dllm:hm", "status": None}
        foreign = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gAAAA"}
        message = {"type": "message", "id": "m", "role": "assistant", "status": "completed",
                   "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}]}

        def tokens(*items):
            body = {"input": [*QUESTION, *items, *QUESTION], "max_output_tokens": 8}
            return self.post(RESPONSES, body).json["usage"]["input_tokens"]

        base = tokens(message)
        self.assertEqual(tokens(said, message), tokens(sealed, message))
        self.assertGreater(tokens(said, message), base)
        self.assertEqual(tokens(foreign, message), base)
        call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
        result = {"type": "function_call_output", "call_id": "1", "output": "x"}
        self.assertGreater(tokens(said, call, result), tokens(call, result))
        self.assertGreater(tokens(said), tokens())

    def test_a_template_that_reads_no_thoughts(self):
        with Server("--chat-template", "{% for m in messages %}{{ m.content }}{% endfor %}") as server:
            reply = server.post(CHAT, {"messages": self.talk({"content": "a", "reasoning_content": "r"}), "max_tokens": 8})
            self.assertEqual(reply.status, 200, reply.body)
        refusing = "{% for m in messages %}{% if m.thinking %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}"
        with Server("--chat-template", refusing) as server:
            reply = server.post("/apply-template", {"messages": self.talk({"content": "a", "reasoning_content": "r"})})
            self.assertTrue(reply.json["prompt"].endswith("Solve 17+4.aSolve 17+4."), reply.json)


class OtherApis(Thinking):
    def test_messages(self):
        body = {"messages": QUESTION, **says(ANSWER)}
        reply = self.post(MESSAGES, body).json
        self.assertEqual([block["type"] for block in reply["content"]], ["thinking", "text"])
        self.assertEqual((reply["content"][0]["thinking"], reply["content"][1]["text"]), (THOUGHTS, TEXT))
        self.assertTrue(reply["content"][0]["signature"])
        self.assertGreater(reply["usage"]["output_tokens_details"]["thinking_tokens"], 0)
        events = [data for _, data in self.server.events(MESSAGES, body)]
        self.assertEqual([e["type"] for e in events if e["type"].startswith("content_block_st")],
                         ["content_block_start", "content_block_stop"] * 2)
        deltas = [(e["index"], e["delta"]) for e in events if e["type"] == "content_block_delta"]
        self.assertEqual("".join(d["thinking"] for i, d in deltas if d["type"] == "thinking_delta" and i == 0), THOUGHTS)
        self.assertEqual([i for i, d in deltas if d["type"] == "signature_delta"], [0])
        self.assertEqual("".join(d["text"] for i, d in deltas if d["type"] == "text_delta" and i == 1), TEXT)
        self.assertEqual([e["content_block"]["type"] for e in events if e["type"] == "content_block_start"], ["thinking", "text"])

    def test_messages_without_shown_thoughts(self):
        body = {"messages": QUESTION, **says(ANSWER), "thinking": {"type": "adaptive", "display": "omitted"}}
        block = self.post(MESSAGES, body).json["content"][0]
        self.assertEqual((block["thinking"], block["signature"]), ("", "dllm:" + THOUGHTS))
        deltas = [data["delta"] for _, data in self.server.events(MESSAGES, body) if data["type"] == "content_block_delta"]
        self.assertNotIn("thinking_delta", [d["type"] for d in deltas])
        self.assertIn({"type": "signature_delta", "signature": "dllm:" + THOUGHTS}, deltas)

    def test_responses(self):
        body = {"input": QUESTION, "regex": literally(ANSWER), "max_output_tokens": 128}
        reply = self.post(RESPONSES, body).json
        thoughts, message = reply["output"]
        self.assertEqual((thoughts["type"], thoughts["summary"]), ("reasoning", []))
        self.assertEqual(thoughts["content"], [{"type": "reasoning_text", "text": THOUGHTS}])
        self.assertEqual(message["content"][0]["text"], TEXT)
        self.assertGreater(reply["usage"]["output_tokens_details"]["reasoning_tokens"], 0)
        events = self.server.events(RESPONSES, body)
        self.assertEqual([data["sequence_number"] for _, data in events], list(range(len(events))))
        self.assertEqual("".join(d["delta"] for name, d in events if name == "response.reasoning_text.delta"), THOUGHTS)
        self.assertEqual("".join(d["delta"] for name, d in events if name == "response.output_text.delta"), TEXT)
        added = [(d["output_index"], d["item"]["type"]) for name, d in events if name == "response.output_item.added"]
        self.assertEqual(added, [(0, "reasoning"), (1, "message")])
        done = [d["item"] for name, d in events if name == "response.output_item.done"]
        self.assertEqual(done[0]["content"], thoughts["content"])
        self.assertEqual([item["type"] for item in events[-1][1]["response"]["output"]], ["reasoning", "message"])
        self.assertEqual(len({d["response"]["created_at"] for name, d in events if "response" in d}), 1)
        body["include"] = ["reasoning.encrypted_content", "file_search_call.results"]
        reply = self.post(RESPONSES, body)
        self.assertEqual(reply.json["output"][0]["encrypted_content"], "dllm:" + THOUGHTS)
        self.assertEqual(reply.headers["x-dllm-ignored"], "include.file_search_call.results")

    def test_ollama(self):
        model = self.server.get("/api/tags").json["models"][0]["name"]
        body = {"model": model, "messages": QUESTION, "think": True, "options": {"regex": literally(ANSWER), "num_predict": 128}}
        message = self.post(OLLAMA, {**body, "stream": False}).json["message"]
        self.assertEqual((message["thinking"], message["content"]), (THOUGHTS, TEXT))
        lines = [json.loads(line)["message"] for line in self.post(OLLAMA, body).body.splitlines()]
        self.assertEqual("".join(one.get("thinking", "") for one in lines), THOUGHTS)
        self.assertEqual("".join(one["content"] for one in lines), TEXT)
        body = {"model": model, "prompt": "Solve 17+4.", "stream": False, "options": body["options"]}
        reply = self.post("/api/generate", body).json
        self.assertEqual((reply["thinking"], reply["response"]), (THOUGHTS, TEXT))


class OpenedByThePrompt(Thinking):
    FLAGS = ("--chat-template", OPENED)

    def test_the_answer_begins_inside(self):
        message = self.chat(**says("ab\n</think>\n\n21"))["choices"][0]["message"]
        self.assertEqual((message["reasoning"], message["content"]), (THOUGHTS, TEXT))
        message = self.chat(**says("ab c"))["choices"][0]["message"]
        self.assertEqual((message["reasoning"], message["content"]), ("ab c", ""))
        events = [data["choices"][0]["delta"] for _, data in
                  self.server.events(CHAT, {"messages": QUESTION, **says("ab\n</think>\n\n21")})[:-1]]
        self.assertEqual("".join(delta.get("reasoning") or "" for delta in events), THOUGHTS)
        self.assertEqual("".join(delta.get("content") or "" for delta in events), TEXT)

    def test_a_structure_comes_behind_the_thought(self):
        reply = self.chat(json_schema={"type": "integer", "minimum": 1, "maximum": 99}, max_tokens=96)
        self.assertIn(json.loads(reply["choices"][0]["message"]["content"]), range(1, 100))
        raw = self.chat(json_schema={"type": "integer", "minimum": 1, "maximum": 99}, max_tokens=96, reasoning_format="none")
        self.assertIn("</think>", raw["choices"][0]["message"]["content"])

    def test_it_can_be_closed(self):
        self.assertTrue(self.prompt().endswith("<think>\n"))
        for off in ({"enable_thinking": False}, {"thinking": {"type": "disabled"}}):
            reply = self.post("/apply-template", {"messages": QUESTION, **off})
            self.assertTrue(reply.json["prompt"].endswith("<think>\n\n</think>\n\n"), reply.json)
            self.assertNotIn("x-dllm-ignored", reply.headers)
        message = self.chat(enable_thinking=False, **says("21"))["choices"][0]["message"]
        self.assertEqual(message["content"], "21")

    def test_tags_in_messages_open_nothing(self):
        talk = [{"role": "user", "content": "What is <think>"}]
        with Server("--chat-template", "{% for m in messages %}{{ m.content }}{% endfor %}{{ '' if true else '<think>' }}") as server:
            message = server.post(CHAT, {"messages": talk, **says("21")}).json["choices"][0]["message"]
            self.assertEqual((message["content"], message.get("reasoning")), ("21", None))

    def test_messages_that_only_think(self):
        body = {"input": QUESTION, "regex": "ab c", "max_output_tokens": 64}
        self.assertEqual([item["type"] for item in self.post(RESPONSES, body).json["output"]], ["reasoning"])
        events = self.server.events(RESPONSES, body)
        self.assertEqual([d["item"]["type"] for name, d in events if name == "response.output_item.done"], ["reasoning"])


class Channels(unittest.TestCase):
    def test_gemma(self):
        with Server("--chat-template", GEMMA) as server:
            answer = "<|channel>thought\nab\n<channel|>21"
            message = server.post(CHAT, {"messages": QUESTION, "enable_thinking": True, **says(answer)}).json["choices"][0]["message"]
            self.assertEqual((message["reasoning"], message["content"]), (THOUGHTS, TEXT))
            prompt = server.post("/apply-template", {"messages": QUESTION}).json["prompt"]
            self.assertTrue(prompt.endswith("<|channel>thought\n<channel|>"))
            prompt = server.post("/apply-template", {"messages": QUESTION, "reasoning_effort": "low"}).json["prompt"]
            self.assertTrue(prompt.endswith("<|turn>model\n"))

    def test_harmony(self):
        with Server("--chat-template", HARMONY) as server:
            message = server.post(CHAT, {"messages": QUESTION, **says(HARMONY_ANSWER)}).json["choices"][0]["message"]
            self.assertEqual((message["reasoning"], message["content"]), (THOUGHTS, TEXT))
            talk = [*QUESTION, {"role": "assistant", "content": "a", "reasoning_content": "hm"}, *QUESTION]
            prompt = server.post("/apply-template", {"messages": talk, "reasoning_effort": "high"}).json["prompt"]
            self.assertIn("<|start|>assistant<|channel|>final<|message|>hma<|end|>", prompt)
            self.assertIn("Reasoning: high", prompt)
            for effort in ({}, {"enable_thinking": True}):  # a structure is the last message, with thoughts before it
                reply = server.post(CHAT, {"messages": QUESTION, "json_schema": {"enum": [21]}, "max_tokens": 96, **effort})
                self.assertEqual(reply.json["choices"][0]["message"]["content"], TEXT, reply.body)


class CommandLine(unittest.TestCase):
    def test_flags(self):
        with Server("--chat-template", THINK, "--reasoning-format", "none", "--chat-template-kwargs",
                    '{"enable_thinking": false}') as server:
            message = server.post(CHAT, {"messages": QUESTION, **says(ANSWER)}).json["choices"][0]["message"]
            self.assertEqual(message["content"], ANSWER)
            prompt = server.post("/apply-template", {"messages": QUESTION}).json["prompt"]
            self.assertTrue(prompt.endswith(Switches.OFF))
            prompt = server.post("/apply-template", {"messages": QUESTION, "enable_thinking": True}).json["prompt"]
            self.assertTrue(prompt.endswith("assistant:"))
            message = server.post(CHAT, {"messages": QUESTION, "reasoning_format": "auto",
                                         **says(ANSWER)}).json["choices"][0]["message"]
            self.assertEqual(message["content"], TEXT)
        for text, word in (("[1]", "no JSON object"), ('{"messages": []}', "messages"), ("{", "--chat-template-kwargs")):
            done = run("run", "x", "--chat-template", THINK, "--chat-template-kwargs", text)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(word, done.stderr)
        done = run("run", "x", "--chat-template", THINK, "--chat-template-kwargs", '{"enable_thinkin": true}')
        self.assertIn("does not read 'enable_thinkin'", done.stderr)


if __name__ == "__main__":
    unittest.main()
