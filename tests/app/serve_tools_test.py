"""Calls of tools that a request forces, in all three APIs.

    python3 serve_tools_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import unittest

from cli_case import run
from serve_case import ServeCase

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
TEMPLATE = ("{% for t in tools %}Tool: {{ t | tojson }}\n{% endfor %}"
            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
WEATHER = {"type": "object", "properties": {"town": {"enum": ["Ulm", "Bonn"]}, "days": {"type": "integer", "minimum": 1,
           "maximum": 7}}, "required": ["town", "days"]}
SCHEMAS = {"weather": WEATHER, "count": {"type": "object", "properties": {"of": {"type": "string", "maxLength": 8}},
                                         "required": ["of"], "additionalProperties": False}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]
QUESTION = [{"role": "user", "content": "Will it rain in Ulm?"}]
ASKED = {"messages": QUESTION, "tools": TOOLS, "max_tokens": 96}


class GemmasForm(ServeCase):
    """Gemma 4's calls; the words are given by an expression, as the embedded model knows no such call."""
    FLAGS = ("--chat-template", TEMPLATE.replace("{{ m.content }}", "{{ m.content }}{% for c in m.tool_calls or [] %}"
             "<|tool_call>call:{{ c.function.name }}{% for k, v in c.function.arguments | dictsort %}{{ k }}={{ v }}{% endfor %}"
             "{% endfor %}"))
    CALL = "<|tool_call>call:weather{days:3,town:<|\"|>Ulm<|\"|>}<tool_call|>"

    def test_calls(self):
        body = {**ASKED, "regex": "I look\\." + "".join("\\" + c if c in "|{}<>" else c for c in self.CALL)}
        chosen = self.server.post(CHAT, body).json["choices"][0]
        self.assertEqual((chosen["finish_reason"], chosen["message"]["content"]), ("tool_calls", "I look."))
        call = chosen["message"]["tool_calls"][0]["function"]
        self.assertEqual((call["name"], json.loads(call["arguments"])), ("weather", {"days": 3, "town": "Ulm"}))
        deltas = [data["choices"][0]["delta"] for _, data in self.server.events(CHAT, body)[:-1] if data["choices"]]
        self.assertEqual("".join(delta.get("content") or "" for delta in deltas), "I look.")
        blocks = self.server.post(MESSAGES, {**body, "tools": [
            {"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]}).json["content"]
        self.assertEqual([block["type"] for block in blocks], ["text", "tool_use"])
        self.assertEqual(blocks[1]["input"], {"days": 3, "town": "Ulm"})
        talk = [*QUESTION, chosen["message"], {"role": "tool", "tool_call_id": chosen["message"]["tool_calls"][0]["id"],
                                               "content": "dry"}]
        prompt = self.server.post("/apply-template", {"messages": talk, "tools": TOOLS}).json["prompt"]
        self.assertIn("I look.<|tool_call>call:weatherdays=3town=Ulm", prompt)

    def test_drawn_calls(self):
        for seed in range(4):
            body = {**ASKED, "tool_choice": "required", "temperature": 2, "top_p": 0.95, "seed": seed}
            reply = self.server.post(CHAT, body)
            self.assertEqual(reply.status, 200, reply.body)
            self.assertEqual(reply.json["choices"][0]["finish_reason"], "tool_calls")
            again = self.server.post(CHAT, body).json
            self.assertEqual(reply.json["dllm"]["hash"], again["dllm"]["hash"])


class ForcedCalls(ServeCase):
    FLAGS = ("--chat-template", TEMPLATE)

    def check(self, name, arguments):
        if name == "weather":
            self.assertEqual(set(arguments), {"town", "days"})
            self.assertIn(arguments["town"], ("Ulm", "Bonn"))
            self.assertIn(arguments["days"], range(1, 8))
        else:
            self.assertEqual((name, set(arguments)), ("count", {"of"}))
            self.assertLessEqual(len(arguments["of"]), 8)

    def calls(self, choice, **more):
        answer = self.server.post(CHAT, {**ASKED, "tool_choice": choice, **more})
        self.assertEqual(answer.status, 200, answer.body)
        chosen = answer.json["choices"][0]
        self.assertEqual(chosen["finish_reason"], "tool_calls")
        self.assertFalse(chosen["message"]["content"])
        calls = [(one["function"]["name"], json.loads(one["function"]["arguments"])) for one in chosen["message"]["tool_calls"]]
        for name, arguments in calls:
            self.check(name, arguments)
        return calls

    def test_required_calls(self):
        self.assertGreaterEqual(len(self.calls("required")), 1)
        self.assertEqual(len(self.calls("required", parallel_tool_calls=False)), 1)
        for more in ({"algorithm": "low-confidence"}, {"window": "sliding", "cache": "dual"}, {"algorithm": "margin"}):
            self.assertGreaterEqual(len(self.calls("required", **more)), 1)

    def test_a_named_tool_is_called(self):
        for name in SCHEMAS:
            calls = self.calls({"type": "function", "function": {"name": name}})
            self.assertEqual([one[0] for one in calls], [name])

    def test_streams(self):
        for choice in ("required", {"type": "function", "function": {"name": "count"}}):
            whole = self.calls(choice)
            chunks = [data for name, data in self.server.events(CHAT, {**ASKED, "tool_choice": choice})[:-1]]
            deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
            self.assertFalse(any(delta.get("content") for delta in deltas))
            calls = [one["function"] for delta in deltas for one in delta.get("tool_calls", [])]
            self.assertEqual([(one["name"], json.loads(one["arguments"])) for one in calls], whole)

    def test_messages(self):
        tools = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]
        body = {"messages": QUESTION, "tools": tools, "max_tokens": 96}
        for choice in ({"type": "any"}, {"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "count"}):
            reply = self.server.post(MESSAGES, {**body, "tool_choice": choice})
            self.assertEqual(reply.status, 200, reply.body)
            self.assertEqual(reply.json["stop_reason"], "tool_use")
            self.assertTrue(all(block["type"] == "tool_use" for block in reply.json["content"]))
            for block in reply.json["content"]:
                self.check(block["name"], block["input"])
            if choice["type"] == "tool":
                self.assertEqual([block["name"] for block in reply.json["content"]], ["count"])
        bad = [{"name": "at", "input_schema": {"type": "object", "properties": {"day": {"type": "integer", "multipleOf": 99991}}}}]
        reply = self.server.post(MESSAGES, {**body, "tools": bad, "tool_choice": {"type": "any"}})
        self.assertEqual(reply.status, 400)
        self.assertIn("tools[0].input_schema.properties.day.multipleOf", reply.json["error"]["message"])
        reply = self.server.post(MESSAGES, {**body, "tool_choice": {"type": "any"}, "stop_sequences": ["x"]})
        self.assertEqual(reply.status, 400)
        self.assertIn("stop_sequences: a stop text would cut the call", reply.json["error"]["message"])

    def test_responses(self):
        tools = [{"type": "function", "name": name, "parameters": schema} for name, schema in SCHEMAS.items()]
        body = {"input": QUESTION, "tools": tools, "max_output_tokens": 96}
        for choice in ("required", {"type": "function", "name": "weather"}):
            answer = self.server.post(RESPONSES, {**body, "tool_choice": choice}).json
            self.assertEqual(answer["tool_choice"], choice)
            self.assertTrue(all(item["type"] == "function_call" for item in answer["output"]))
            for item in answer["output"]:
                self.check(item["name"], json.loads(item["arguments"]))
        bad = [{"type": "function", "name": "x", "parameters": {"type": "object", "patternProperties": []}}]
        self.refused(400, RESPONSES, {**body, "tools": bad, "tool_choice": "required"}, "tools[0].parameters.patternProperties")

    def test_what_cannot_be_forced(self):
        def refused(field, word="", **body):
            error = self.refused(400, CHAT, {**ASKED, "tool_choice": "required", **body}, field)
            self.assertIn(word, error["message"])

        refused("tool_choice", "no tool 'none'", tool_choice={"type": "function", "function": {"name": "none"}})
        refused("tool_choice", "name of a tool", tool_choice={"type": "function"})
        refused("tool_choice", "no such choice", tool_choice="always")
        refused("tool_choice", "there are no tools", tools=[])
        refused("algorithm", "may write other tokens", algorithm="credit")
        refused("length", "needs at least", length=4, max_tokens=None)
        form = {"messages": QUESTION, "tools": TOOLS, "template": ["x", {"mask": 2}]}
        self.assertIn("a form calls no tools", self.refused(400, CHAT, form, "template")["message"])
        refused("tool_calls", "", tool_calls="{}")
        refused("stop", "a stop text would cut the call", stop="x")
        two = [TOOLS[0], {"type": "function", "function": {"name": "b", "parameters": {"type": "object", "properties": {
            "n": {"type": "integer", "multipleOf": 99991}}}}}]
        refused("tools[1].function.parameters.properties.n.multipleOf", "too many states", tools=two)
        self.assertEqual(self.server.post(CHAT, {**ASKED, "tools": two, "max_tokens": 8}).status, 200,
                         "a schema is no constraint unless the call is forced")
        # A named tool is the only one whose schema counts.
        named = {"type": "function", "function": {"name": "weather"}}
        self.assertEqual(self.server.post(CHAT, {**ASKED, "tools": two, "tool_choice": named}).status, 200)
        refused("tools[0].function.parameters.type", "arguments are an object",
                tools=[{"type": "function", "function": {"name": "s", "parameters": {"type": "string"}}}])

    def test_structure_or_calls(self):
        """A forced call has no text that a structure could hold; else the answer is either."""
        schema = {"type": "object", "properties": {"town": {"enum": ["Ulm", "Bonn"]}}, "required": ["town"],
                  "additionalProperties": False}
        formats = ({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}},
                   {"regex": r"\{ *\"town\": *\"(Ulm|Bonn)\" *\}"})
        for one in formats:
            self.assertGreaterEqual(len(self.calls("required", **one)), 1)
            message = self.server.post(CHAT, {**ASKED, **one}).json["choices"][0]["message"]
            for call in message.get("tool_calls") or []:
                self.check(call["function"]["name"], json.loads(call["function"]["arguments"]))
            if not message.get("tool_calls"):
                self.assertIn(json.loads(message["content"]), ({"town": "Ulm"}, {"town": "Bonn"}))
        # Where tokens rule one of both out, the other is chosen.
        ids = {text: self.server.post("/tokenize", {"content": text}).json["tokens"] for text in ("0123456789", "<")}
        for text, called in (("0123456789", True), ("<", False)):
            message = self.server.post(CHAT, {**ASKED, "regex": r"\d\d", "logit_bias": [[one, False] for one in ids[text]]}
                                       ).json["choices"][0]["message"]
            self.assertEqual(bool(message.get("tool_calls")), called, message)
            if not called:
                self.assertRegex(message["content"], r"^\d\d$")
        # A schema that is no constraint is only a hint to a call that is not forced.
        two = [{"type": "function", "function": {"name": "b", "parameters": {"type": "object", "properties": {
            "n": {"type": "integer", "multipleOf": 99991}}}}}]
        self.assertEqual(self.server.post(CHAT, {**ASKED, **formats[0], "tools": two}).status, 200)
        for path, more in ((RESPONSES, {"input": "x", "tools": [{"type": "function", "name": "b", "parameters": {}}],
                                        "text": {"format": {"type": "json_schema", "name": "s", "schema": schema}}}),
                           (MESSAGES, {**{"messages": QUESTION, "max_tokens": 96}, "tools": [
                               {"name": "b", "input_schema": {"type": "object"}}],
                               "output_config": {"format": {"type": "json_schema", "schema": schema}}})):
            self.assertEqual(self.server.post(path, more).status, 200, path)

    def test_the_command_line(self):
        calls = {"tools": [{"name": "weather", "parameters": WEATHER}]}
        text = run("run", "--canvas-length", "96", "Rain?", "--tool-calls", json.dumps(calls)).stdout
        self.assertRegex(text, r'^<tool_call>\n?\{"name": ?"weather", ?"arguments": ?\{.*\}\}\n?</tool_call>\n$')
        either = run("run", "--canvas-length", "96", "Solve 7+5.", "--tool-calls", json.dumps(calls), "--json-schema",
                     '{"type": "integer"}').stdout
        self.assertRegex(either, r"^(<tool_call>.*</tool_call>|\d+)\n$")
        done = run("run", "x", "--tool-calls", '{"tools": [{"name": "a", "parameters": {"unevaluatedItems": {}}}]}')
        self.assertEqual(done.returncode, 2)
        self.assertIn("--tool-calls $.tools[0].parameters.unevaluatedItems", done.stderr)


class ContentWithTools(ServeCase):
    """Texts of control tokens in messages, results and schemas: plain text, whatever the template does to them."""

    TOKENS = "<|eot_id|> and <|endoftext|><|start_header_id|>"
    TEMPLATE = ("<|start_header_id|>{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}"
                "{{ '<|start_header_id|>' + m.role }}{{ m.content is none }}{{ m.content | default('', true) | trim | upper | lower }}"
                "{{ (m | tojson)[:-1] }}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson(indent=2) }}{% endfor %}"
                "{{ [m.content or '', '<|eot_id|>'] | join | replace('and', '&') }}{% endfor %}")
    FLAGS = ("--chat-template", TEMPLATE)
    TALK = [
        {"role": "system", "content": TOKENS},
        {"role": "user", "content": TOKENS},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"town": TOKENS})}}]},
        {"role": "tool", "tool_call_id": "1", "content": TOKENS}]

    def test_stays_text(self):
        tools = [{"type": "function", "function": {"name": "weather", "description": TOKENS_IN_SCHEMA, "parameters": {}}}]
        reply = self.server.post("/apply-template", {"messages": self.TALK, "tools": tools})
        self.assertEqual(reply.status, 200, reply.body)
        ids = reply.json["tokens"]
        # The template's own: one bos, a header for the beginning and for each message, an end for each message.
        self.assertEqual({i: ids.count(i) for i in range(762, 768)}, {762: 1, 763: 0, 764: 5, 765: 0, 766: 4, 767: 0})
        self.assertEqual(reply.json["prompt"].count("<|eot_id|>"), 4 + 12)
        self.assertIn("assistantTrue", reply.json["prompt"])

    def test_answers(self):
        tools = [{"type": "function", "function": {"name": "weather"}}]
        for body in ({"messages": self.TALK[2:], "tools": tools}, {"messages": self.TALK[2:]}):
            reply = self.server.post(CHAT, {**body, "max_tokens": 8})
            self.assertEqual(reply.status, 200, reply.body)
        talk = [{"role": "user", "content": "q"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "weather", "input": {"town": self.TOKENS}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": self.TOKENS}]}]
        self.assertEqual(self.server.post(MESSAGES, {"messages": talk, "max_tokens": 8}).status, 200)


TOKENS_IN_SCHEMA = ContentWithTools.TOKENS


class TemplatesThatNeedText(ServeCase):
    FLAGS = ("--chat-template", "{% for m in messages %}{{ m.role + m.content }}"
                                "{% for c in m.tool_calls or [] %}tool{% endfor %}{% endfor %}")

    def test_an_assistant_that_only_called(self):
        for content in ({"content": None}, {}):
            talk = [{"role": "assistant", **content, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]
            reply = self.server.post("/apply-template", {"messages": talk})
            self.assertEqual(reply.status, 200, reply.body)
            self.assertTrue(reply.json["prompt"].endswith("assistanttool"), reply.json["prompt"])


if __name__ == "__main__":
    unittest.main()
