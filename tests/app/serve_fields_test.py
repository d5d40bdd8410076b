"""Fields, headers and errors that clients of other servers send and expect.

    python3 serve_fields_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import time
import unittest

from serve_case import Server, ServeCase

CHAT, COMPLETIONS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
QUESTION = [{"role": "user", "content": "Solve 17+4."}]
BODIES = {CHAT: {"messages": QUESTION}, COMPLETIONS: {"prompt": "17+4="}, MESSAGES: {"messages": QUESTION, "max_tokens": 32},
          RESPONSES: {"input": QUESTION}}
SCHEMA = {"type": "object", "properties": {"answer": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["answer"]}


class Fields(ServeCase):
    def ignored(self, path, status=200, **fields):
        reply = self.server.post(path, {**BODIES[path], **fields})
        self.assertEqual(reply.status, status, (fields, reply.body))
        return (reply.headers.get("x-dllm-ignored") or "").split(", ")

    def hash(self, path, **fields):
        reply = self.server.post(path, {**BODIES[path], **fields})
        self.assertEqual(reply.status, 200, (fields, reply.body))
        return reply.json["dllm"]["hash"]

    def test_hints_are_ignored_by_name(self):
        for path in BODIES:
            plain = self.hash(path)
            for field, value in (("user", "u"), ("service_tier", "auto"), ("prompt_cache_key", "k"), ("verbosity", "low"),
                                 ("xtc_threshold", 0.1), ("dry_base", 1.75), ("repeat_last_n", 64), ("priority", 1), ("speed", "fast"),
                                 ("cache_control", {"type": "ephemeral"}), ("reasoning_effort", "high"),
                                 ("thinking", {"type": "adaptive"}), ("min_keep", 1), ("spaces_between_special_tokens", True),
                                 ("usage", {"include": True}), ("models", ["a", "b"]), ("keep_alive", "5m"), ("truncate", True)):
                name = "thinking" if field == "thinking" else field
                self.assertEqual(self.ignored(path, **{field: value}), [name], (path, field))
                self.assertEqual(self.hash(path, **{field: value}), plain)

    def test_values_that_ask_for_nothing_are_not_named(self):
        for path in BODIES:
            for field, value in (("top_k", -1), ("min_tokens", 0), ("stop_token_ids", []), ("ignore_eos", False),
                                 ("skip_special_tokens", True), ("mirostat", 0), ("n_probs", 0), ("mcp_servers", []), ("store", False),
                                 ("use_beam_search", False), ("xtc_probability", 0), ("dry_multiplier", 0.0), ("lora", []),
                                 ("seed", -1),
                                 ("bad_words", []), ("safe_prompt", False), ("extra_body", {}),
                                 ("user", None), ("fallbacks", []), ("truncation", "auto")):
                self.assertEqual(self.ignored(path, **{field: value}), [""], (path, field))

    def test_what_would_change_the_words_is_refused(self):
        for path in BODIES:
            for field, value in (("min_tokens", 3), ("stop_token_ids", [5]), ("mirostat", 2), ("xtc_probability", 0.5),
                                 ("dry_multiplier", 0.8), ("lora", [{"id": 0, "scale": 1}]), ("bad_words", ["x"]),
                                 ("use_beam_search", True),
                                 ("typical_p", 0.5), ("tfs_z", 0.5), ("guided_grammar", "root ::= x"), ("allowed_token_ids", [1]),
                                 ("nonsense", 1), ("container", "c"), ("mcp_servers", [{"type": "url", "url": "x", "name": "y"}])):
                error = self.server.post(path, {**BODIES[path], field: value})
                self.assertEqual(error.status, 400, (path, field))
                self.assertIn(field, error.json["error"]["message"])
        self.refused(400, CHAT, {"messages": QUESTION, "repeat_last_n": 64, "repeat_penalty": 1.5}, "repeat_last_n")

    def test_what_clients_keep_with_messages(self):
        plain = self.hash(CHAT, messages=[*QUESTION, {"role": "assistant", "content": "21"}, *QUESTION])
        for more, ignored in (({"created": 5}, "created"), ({"timestamp": "t", "metadata": {"a": 1}}, "metadata"),
                              ({"index": 0, "finish_reason": "stop"}, "finish_reason"), ({"images": []}, ""),
                              ({"prefix": False, "partial": False, "audio": None}, "")):
            messages = [*QUESTION, {"role": "assistant", "content": "21", **more}, *QUESTION]
            self.assertIn(ignored, ",".join(self.ignored(CHAT, messages=messages)), more)
            self.assertEqual(self.hash(CHAT, messages=messages), plain)
        for more in ({"prefix": True}, {"images": ["x"]}, {"nonsense": 1}):
            reply = self.server.post(CHAT, {"messages": [*QUESTION, {"role": "assistant", "content": "2", **more}]})
            self.assertEqual(reply.status, 400, more)
            self.assertIn(next(iter(more)), reply.json["error"]["message"])

    def test_llama_cpps_own_route(self):
        body = {"prompt": "17+4=", "n_predict": 64}
        theirs = self.server.post("/completion", body).json
        ours = self.server.post(COMPLETIONS, body).json
        self.assertEqual((theirs["content"], theirs["dllm"]["hash"]), (ours["choices"][0]["text"], ours["dllm"]["hash"]))
        self.assertEqual((theirs["stop"], theirs["stop_type"], theirs["prompt"]), (True, "eos", "17+4="))
        self.assertEqual((theirs["tokens_predicted"], theirs["tokens_evaluated"]),
                         (ours["usage"]["completion_tokens"], ours["usage"]["prompt_tokens"]))
        cut = self.server.post("/completion", {**body, "n_predict": 1, "ignore_eos": True}).json
        self.assertEqual(cut["stop_type"], "limit")
        ids = self.server.post("/tokenize", {"content": "17+4=", "add_special": True}).json["tokens"]
        by_ids = self.server.post("/completion", {"prompt": ids}).json
        self.assertEqual(by_ids["content"], theirs["content"])
        self.assertNotIn("prompt", by_ids)
        lines = [json.loads(line[6:]) for line in self.server.post("/completion", {**body, "stream": True}).body.splitlines()
                 if line.startswith(b"data: ")]
        self.assertEqual("".join(line["content"] for line in lines), theirs["content"])
        self.assertEqual([line["stop"] for line in lines], [False] * (len(lines) - 1) + [True])
        for wrong in ({}, {"prompt": ["a", "b"]}, {"prompt": 3}):
            self.refused(400, "/completion", wrong, "prompt")

    def test_log_probabilities_for_ollama(self):
        body = {"model": "default", "messages": QUESTION, "stream": False}
        with_logs = self.server.post("/api/chat", {**body, "logprobs": True}).json
        chat = self.server.post(CHAT, {"messages": QUESTION, "logprobs": True}).json
        self.assertEqual(with_logs["logprobs"], chat["choices"][0]["logprobs"]["content"])
        for more in ({"logprobs": False}, {"logprobs": False, "top_logprobs": 0, "truncate": True, "shift": False}):
            reply = self.server.post("/api/chat", {**body, **more})
            self.assertEqual((reply.status, "logprobs" in reply.json), (200, False), reply.body)
        self.assertEqual(self.server.post("/api/chat", {**body, "logprobs": True, "top_logprobs": 3}).status, 400)
        made = self.server.post("/api/generate", {"model": "default", "prompt": "Solve 17+4.", "stream": True, "logprobs": True})
        self.assertTrue(json.loads(made.body.splitlines()[-1])["logprobs"])

    def test_streams_and_errors_have_the_header(self):
        reply = self.server.post(CHAT, {"messages": QUESTION, "stream": True, "user": "u"})
        self.assertEqual(reply.headers["x-dllm-ignored"], "user")
        reply = self.server.post(CHAT, {"messages": QUESTION, "stream": True, "stream_options": {"include_obfuscation": True}})
        self.assertEqual(reply.headers["x-dllm-ignored"], "stream_options.include_obfuscation")

    def test_ignore_eos(self):
        for path in (CHAT, COMPLETIONS):
            body = {**BODIES[path], "ignore_eos": True, "max_tokens": 24}
            for more in ({}, {"logit_bias": {"16": 0.5}}):
                reply = self.server.post(path, {**body, **more}).json
                self.assertEqual((reply["usage"]["completion_tokens"], reply["choices"][0]["finish_reason"]), (24, "length"))
        self.refused(400, CHAT, {"messages": QUESTION, "ignore_eos": 1}, "ignore_eos")

    def test_skip_special_tokens(self):
        header = "<|start_header_id|>"
        body = {"logit_bias": {"764": 100}, "length": 8, "skip_special_tokens": False}
        for path, text in ((CHAT, lambda r: r["choices"][0]["message"]["content"]), (COMPLETIONS, lambda r: r["choices"][0]["text"]),
                           (RESPONSES, lambda r: r["output"][0]["content"][0]["text"]), (MESSAGES, lambda r: r["content"][0]["text"])):
            body = {**body, "max_tokens": 8} if path == MESSAGES else body
            self.assertEqual(text(self.server.post(path, {**BODIES[path], **body}).json), header * 8, path)
            hidden = {**BODIES[path], **body, "skip_special_tokens": True}
            self.assertEqual(text(self.server.post(path, hidden).json), "", path)
        for path in (CHAT, COMPLETIONS):
            reply = self.server.post(path, {**BODIES[path], **body, "logprobs": path == CHAT or 0}).json["choices"][0]
            logs = reply["logprobs"]
            tokens = [one["token"] for one in logs["content"]] if path == CHAT else logs["tokens"]
            self.assertEqual(tokens, [header] * 8)
        text = "".join(data["choices"][0]["delta"].get("content") or "" for _,
                       data in self.server.events(CHAT, {**BODIES[CHAT], **body})[:-1])
        self.assertEqual(text, header * 8)

    def test_top_logprobs(self):
        for path in (CHAT, RESPONSES):
            self.assertEqual(self.ignored(path, top_logprobs=0), [""])
            self.refused(400, path, {**BODIES[path], "top_logprobs": 3}, "top_logprobs")

    def test_created_is_the_answers(self):
        time.sleep(1.1)
        for path, key in ((CHAT, "created"), (COMPLETIONS, "created"), (RESPONSES, "created_at")):
            before = int(time.time())
            created = self.server.post(path, BODIES[path]).json[key]
            self.assertIn(created, range(before, int(time.time()) + 1))

    def test_parts_of_messages(self):
        part = {"type": "text", "text": "Solve 17+4."}
        for path in (CHAT, MESSAGES):
            plain = self.hash(path)
            body = {"messages": [{"role": "user", "content": [{**part, "cache_control": {"type": "ephemeral"}}]}]}
            self.assertEqual(self.hash(path, **body), plain)
            self.assertEqual(self.ignored(path, **body), ["cache_control"])
            self.ignored(path, 400, messages=[{"role": "user", "content": [{**part, "colour": "red"}]}])
        self.ignored(CHAT, 400, messages=[{"role": "user", "content": "x", "colour": "red"}])
        self.ignored(MESSAGES, 400, messages=[{"role": "assistant", "content": [part], "colour": "red"}])

    def test_responses_context_management(self):
        self.assertEqual(self.ignored(RESPONSES, context_management=[{"type": "compaction", "compact_threshold": 200000}]),
                         ["context_management"])
        self.ignored(RESPONSES, 400, context_management=[{"type": "compaction", "compact_threshold": 10}])
        self.ignored(RESPONSES, 400, context_management={"edits": []})


class LikeClaudeCode(ServeCase):
    FLAGS = ("--chat-template",
             "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}")
    BODY = {
        "model": "default", "max_tokens": 32000, "temperature": 0, "stream": False, "metadata": {"user_id": "u"},
        "system": [{"type": "text", "text": "You help.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Solve 17+4.", "cache_control": {"type": "ephemeral"}}]}],
        "tools": [{"name": "Read", "description": "d", "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#",
                                                                        "type": "object",
                   "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": False},
                   "strict": True, "eager_input_streaming": True, "defer_loading": False, "input_examples": [{"path": "a"}],
                   "cache_control": {"type": "ephemeral"}}],
        "tool_choice": {"type": "auto"}, "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}, "mcp_servers": [],
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}

    def test_a_request(self):
        reply = self.server.post(MESSAGES + "?beta=true", self.BODY, **{"anthropic-version": "2023-06-01", "anthropic-beta": "x,y"})
        self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(reply.json["context_management"], {"applied_edits": []})
        self.assertEqual(reply.headers["x-dllm-ignored"], "cache_control, metadata, output_config.effort, thinking, "
                                                          "tools.eager_input_streaming, tools.strict")
        counted = {key: value for key, value in self.BODY.items() if key not in ("max_tokens", "stream", "temperature", "metadata")}
        count = self.server.post(MESSAGES + "/count_tokens", counted)
        self.assertEqual(count.status, 200, count.body)
        self.assertEqual(count.json["input_tokens"], reply.json["usage"]["input_tokens"])

    def test_input_examples_are_in_the_prompt(self):
        with_examples = self.server.post(MESSAGES, self.BODY).json["usage"]["input_tokens"]
        tools = [{key: value for key, value in self.BODY["tools"][0].items() if key != "input_examples"}]
        self.assertLess(self.server.post(MESSAGES, {**self.BODY, "tools": tools}).json["usage"]["input_tokens"], with_examples)

    def test_structures(self):
        body = {"messages": QUESTION, "max_tokens": 64}
        format = {"type": "json_schema", "schema": SCHEMA}
        for field in ({"output_config": {"format": format, "effort": "low"}}, {"output_format": format}):
            reply = self.server.post(MESSAGES, {**body, **field})
            self.assertEqual(reply.status, 200, reply.body)
            self.assertIn(json.loads(reply.json["content"][0]["text"])["answer"], range(100))
        for wrong, place in (({"output_config": {"format": {"type": "json_schema", "schema": {"type": "x"}}}},
                              "output_config.format.schema.type"),
                             ({"output_config": {"format": format}, "output_format": format}, "output_format"),
                             ({"output_config": {"effort": "none"}}, "output_config.effort"),
                             ({"output_config": {"colour": 1}}, "output_config.colour")):
            reply = self.server.post(MESSAGES, {**body, **wrong})
            self.assertEqual(reply.status, 400, reply.body)
            self.assertIn(place, reply.json["error"]["message"])

    def test_edits_that_are_due(self):
        edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 5}}
        reply = self.server.post(MESSAGES, {**self.BODY, "context_management": {"edits": [edit]}})
        self.assertEqual(reply.status, 400)
        edit["trigger"]["value"] = 100000
        self.assertEqual(self.server.post(MESSAGES, {**self.BODY, "context_management": {"edits": [edit]}}).status, 200)


class Http(unittest.TestCase):
    STAINLESS = ("authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-package-version,"
                 "x-stainless-retry-count,"
                 "x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout,x-stainless-helper-method")
    ANTHROPIC = "anthropic-beta,anthropic-dangerous-direct-browser-access,anthropic-version,content-type,x-api-key,x-stainless-lang"

    def test_headers_of_the_official_clients(self):
        with Server("--cors-origin", "http://page.example", "--api-key", "k") as server:
            for asked in (self.STAINLESS, self.ANTHROPIC, "openai-organization, openai-project"):
                reply = server.ask("OPTIONS", CHAT, headers={"Origin": "http://page.example", "Access-Control-Request-Method": "POST",
                                                             "Access-Control-Request-Headers": asked})
                self.assertEqual(reply.status, 204)
                allowed = {name.strip().lower() for name in reply.headers["Access-Control-Allow-Headers"].split(",")}
                self.assertLessEqual({name.strip() for name in asked.split(",")}, allowed)
            reply = server.ask("OPTIONS", CHAT, headers={"Origin": "http://page.example", "Access-Control-Request-Headers": "x-evil"})
            self.assertNotIn("x-evil", reply.headers["Access-Control-Allow-Headers"])
            reply = server.post(CHAT, {"messages": QUESTION, "user": "u"}, Origin="http://page.example", Authorization="Bearer k")
            self.assertIn("X-Dllm-Ignored", reply.headers["Access-Control-Expose-Headers"])

    def test_keys_are_each_judged(self):
        with Server("--api-key", "k") as server:
            for headers, status in (({"Authorization": "Bearer k"}, 200), ({"x-api-key": "k"}, 200),
                                    ({"Authorization": "bearer k"}, 200),
                                    ({"Authorization": "Bearer wrong", "x-api-key": "k"}, 200),
                                    ({"Authorization": "Bearer k", "x-api-key": "wrong"}, 200),
                                    ({"Authorization": "Bearer wrong", "x-api-key": "wrong"}, 401), ({"Authorization": "Basic k"}, 401),
                                    ({}, 401)):
                self.assertEqual(server.post(CHAT, {"messages": QUESTION}, **headers).status, status, headers)

    def test_host_without_case_and_coded_bodies(self):
        with Server() as server:
            for host in ("LocalHost", "LOCALHOST:1", "127.0.0.1"):
                self.assertEqual(server.post(CHAT, {"messages": QUESTION}, Host=host).status, 200, host)
            self.assertEqual(server.post(CHAT, {"messages": QUESTION}, Host="Page.Example").status, 403)
            origin = f"http://LocalHost:{server.port}"
            self.assertEqual(server.post(CHAT, {"messages": QUESTION}, Host=f"localhost:{server.port}", Origin=origin).status, 200)
            for coding, status in (("gzip", 415), ("br", 415), ("identity", 200), ("Identity", 200)):
                self.assertEqual(server.post(CHAT, {"messages": QUESTION}, **{"Content-Encoding": coding}).status, status, coding)


class ManyMessages(unittest.TestCase):
    def test_templates_may_leave_them_out(self):
        """Six hundred messages are longer than the context of 512 tokens; what the template makes of them is not."""
        template = "{% for m in messages %}{% if loop.index0 % 100 == 0 %}{{ m.role }}{% endif %}{% endfor %}"
        talk = [{"role": ("user", "assistant")[i % 2], "content": f"message {i}"} for i in range(600)]
        with Server("--chat-template", template) as server:
            reply = server.post("/apply-template", {"messages": talk})
            self.assertEqual(reply.status, 200, reply.body)
            self.assertTrue(reply.json["prompt"].endswith(">" + "user" * 6), reply.body)
            whole = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a" * 200_000}]})
            self.assertEqual(whole.json["error"]["code"], "context_length_exceeded")


if __name__ == "__main__":
    unittest.main()
