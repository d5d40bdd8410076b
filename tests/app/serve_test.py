"""`dllm serve` from outside, with plain sockets and http.client: the answers of its APIs and streams.

    python3 serve_test.py PATH/TO/dllm [unittest arguments]
"""

import concurrent.futures
import json
import unittest

from cli_case import run
from serve_case import QUESTION, Server, ServeCase


class Answers(ServeCase):
    def test_chat(self):
        alone = json.loads(run("run", "-o", "json", "--canvas-length", "64", QUESTION[0]["content"]).stdout)
        reply = self.server.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 64}).json
        self.assertEqual(reply["object"], "chat.completion")
        choice = reply["choices"][0]
        self.assertEqual(choice["message"]["content"], alone["text"])
        self.assertEqual(choice["finish_reason"], alone["finish"])
        self.assertEqual(reply["dllm"]["hash"], alone["hash"])
        self.assertEqual(reply["usage"]["completion_tokens"], alone["stats"]["answer_tokens"])
        self.assertEqual(reply["usage"]["prompt_tokens"], len(alone["prompt_ids"]))

    def test_parts_and_roles(self):
        parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"][:20]},
                                              {"type": "text", "text": QUESTION[0]["content"][20:]}]}]
        a = self.server.post("/v1/chat/completions", {"messages": QUESTION}).json
        b = self.server.post("/chat/completions", {"messages": parts, "user": "me", "metadata": {"a": "b"}, "tools": []})
        self.assertEqual(a["dllm"]["hash"], b.json["dllm"]["hash"])

    def test_streams_end_as_the_answer(self):
        for extra in ({}, {"algorithm": "revision", "cache": "vicinity"}, {"algorithm": "low-confidence"},
                      {"temperature": 0.8, "seed": 4, "max_tokens": 48}):
            body = {"messages": QUESTION, "max_tokens": 64, **extra}
            whole = self.server.post("/v1/chat/completions", body).json["choices"][0]
            events = self.server.events("/v1/chat/completions", body)
            self.assertEqual(events[-1], ("", "[DONE]"))
            chunks = [data for name, data in events[:-1]]
            self.assertTrue(all(name == "" for name, data in events))
            self.assertTrue(all(len(chunk["choices"]) == 1 for chunk in chunks), "no chunk without a choice")
            self.assertEqual(chunks[0]["choices"][0]["delta"]["role"], "assistant")
            text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
            self.assertEqual(text, whole["message"]["content"])
            self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], whole["finish_reason"])
            self.assertNotIn("usage", chunks[-1])

    def test_usage_in_streams(self):
        events = self.server.events("/v1/chat/completions",
                                    {"messages": QUESTION, "stream_options": {"include_usage": True}})
        self.assertEqual(events[-2][1]["choices"], [])
        self.assertGreater(events[-2][1]["usage"]["completion_tokens"], 0)
        self.assertIsNone(events[0][1]["usage"])

    def test_the_canvas_on_request(self):
        body = {"messages": QUESTION, "max_tokens": 32, "algorithm": "low-confidence", "diffusing": True,
                "diffusion_events": True}
        chunks = [data for name, data in self.server.events("/v1/chat/completions", body)[:-1]]
        frames = [chunk["choices"][0]["delta"]["content"] for chunk in chunks if "diffusion" in chunk]
        self.assertIn("\u2591", frames[0])
        whole = self.server.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 32,
                                                          "algorithm": "low-confidence"}).json
        self.assertEqual(frames[-1], whole["choices"][0]["message"]["content"])
        steps = [chunk["diffusion"] for chunk in chunks if "changes" in chunk.get("diffusion", {})]
        self.assertEqual([one["nfe"] for one in steps], list(range(1, len(steps) + 1)))
        self.assertTrue(all(len(one["changes"]) >= 1 for one in steps))
        self.assertEqual(self.refused(400, "/v1/chat/completions", {"messages": QUESTION, "diffusing": True},
                                      "diffusing")["type"], "invalid_request_error")

    def test_stop_texts(self):
        body = {"messages": [{"role": "user", "content": "Reverse: a b c d"}], "max_tokens": 32}
        whole = self.server.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"]
        self.assertGreater(len(whole), 2)
        stop = whole[2:4]
        cut = self.server.post("/v1/chat/completions", {**body, "stop": [stop]}).json["choices"][0]
        self.assertEqual(cut["message"]["content"], whole[:whole.index(stop)])
        self.assertEqual(cut["finish_reason"], "stop")
        events = self.server.events("/v1/chat/completions", {**body, "stop": stop})[:-1]
        text = "".join(data["choices"][0]["delta"].get("content", "") for name, data in events)
        self.assertEqual(text, whole[:whole.index(stop)])

    def test_log_probabilities(self):
        body = {"messages": QUESTION, "max_tokens": 32, "logprobs": True}
        choice = self.server.post("/v1/chat/completions", body).json["choices"][0]
        content = choice["logprobs"]["content"]
        self.assertEqual("".join(one["token"] for one in content), choice["message"]["content"])
        self.assertTrue(all(-50 < one["logprob"] <= 0 for one in content))
        self.refused(400, "/v1/chat/completions", {**body, "top_logprobs": 3}, "top_logprobs")

    def test_completions(self):
        prompt = self.server.post("/apply-template", {"messages": QUESTION}).json
        text = self.server.post("/v1/completions", {"prompt": prompt["prompt"], "max_tokens": 64}).json
        ids = self.server.post("/v1/completions", {"prompt": prompt["tokens"], "max_tokens": 64, "logprobs": 0}).json
        chat = self.server.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 64}).json
        self.assertEqual(text["dllm"]["hash"], chat["dllm"]["hash"])
        self.assertEqual(ids["dllm"]["hash"], chat["dllm"]["hash"])
        self.assertEqual("".join(ids["choices"][0]["logprobs"]["tokens"]), ids["choices"][0]["text"])
        many = self.server.post("/v1/completions", {"prompt": [prompt["tokens"], [1, 2, 3]], "n": 2, "max_tokens": 16,
                                                    "temperature": 1, "seed": 9, "echo": True}).json
        self.assertEqual([choice["index"] for choice in many["choices"]], [0, 1, 2, 3])
        self.assertTrue(many["choices"][0]["text"].startswith(prompt["prompt"]))
        self.assertEqual([one["seed"] for one in many["dllm"]], [9, 10, 9, 10])
        echoed = self.server.post("/v1/completions", {"prompt": "Hello a", "max_tokens": 4, "echo": True}).json
        self.assertTrue(echoed["choices"][0]["text"].startswith("Hello a"), echoed["choices"][0]["text"])
        error = self.refused(400, "/v1/completions", {"prompt": "x", "echo": True, "logprobs": 1}, "logprobs")
        self.assertIn("/v1/score", error["message"])
        chunks = self.server.events("/v1/completions", {"prompt": prompt["tokens"], "max_tokens": 64})
        self.assertEqual("".join(data["choices"][0]["text"] for name, data in chunks[:-1]), text["choices"][0]["text"])

    def test_messages(self):
        body = {"max_tokens": 64, "messages": QUESTION, "model": "default"}
        chat = self.server.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 64}).json
        reply = self.server.post("/v1/messages", body).json
        self.assertEqual((reply["type"], reply["role"]), ("message", "assistant"))
        self.assertEqual(reply["content"][0]["text"], chat["choices"][0]["message"]["content"])
        self.assertEqual(reply["stop_reason"], "end_turn")
        events = self.server.events("/v1/messages", body)
        self.assertEqual(events[0][0], "message_start")
        self.assertEqual([name for name, data in events][-3:], ["content_block_stop", "message_delta", "message_stop"])
        text = "".join(data["delta"]["text"] for name, data in events if name == "content_block_delta")
        self.assertEqual(text, reply["content"][0]["text"])
        self.assertTrue(all(data["type"] == name for name, data in events))
        count = self.server.post("/v1/messages/count_tokens", {"messages": QUESTION, "model": "default"}).json
        self.assertEqual(count["input_tokens"], reply["usage"]["input_tokens"])
        wrong = self.server.post("/v1/messages", {"messages": QUESTION})
        self.assertEqual((wrong.status, wrong.json["type"]), (400, "error"))
        self.assertEqual(wrong.json["error"]["type"], "invalid_request_error")

    def test_responses(self):
        chat = self.server.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 64}).json
        body = {"input": QUESTION[0]["content"], "max_output_tokens": 64, "store": True}
        reply = self.server.post("/v1/responses", body).json
        self.assertEqual(reply["status"], "completed")
        self.assertEqual(reply["output"][0]["content"][0]["text"], chat["choices"][0]["message"]["content"])
        self.assertEqual(reply["dllm"]["hash"], chat["dllm"]["hash"])
        events = self.server.events("/v1/responses", {"input": QUESTION, "max_output_tokens": 64})
        self.assertEqual((events[0][0], events[-1][0]), ("response.created", "response.completed"))
        self.assertEqual([data["sequence_number"] for name, data in events], list(range(len(events))))
        text = "".join(data["delta"] for name, data in events if name == "response.output_text.delta")
        self.assertEqual(text, reply["output"][0]["content"][0]["text"])
        self.refused(400, "/v1/responses", {"input": "x", "previous_response_id": "resp_1"}, "previous_response_id")

    def test_infill(self):
        body = {"input_prefix": "3 +", "input_suffix": " = 9", "n_predict": 4, "algorithm": "low-confidence"}
        reply = self.server.post("/infill", body).json
        self.assertTrue(reply["stop"])
        self.assertLessEqual(reply["tokens_predicted"], 4)
        events = self.server.events("/infill", body)
        self.assertEqual("".join(data["content"] for name, data in events), reply["content"])
        other = self.server.post("/infill", {**body, "input_suffix": " = 17 and more"}).json
        self.assertNotEqual(other["dllm"]["hash"], reply["dllm"]["hash"], "the text after it is seen")
        error = self.refused(400, "/infill", {**body, "algorithm": "revision"}, "algorithm")
        self.assertIn("revises", error["message"])

    def test_score(self):
        body = {"messages": QUESTION, "continuation": ["10", "99"], "samples": 0}
        scores = self.server.post("/v1/score", body).json["data"]
        self.assertGreater(scores[0]["log_likelihood"], scores[1]["log_likelihood"])
        one = self.server.post("/v1/score", {**body, "continuation": "10"}).json
        self.assertEqual(one["log_likelihood"], scores[0]["log_likelihood"])
        sampled = {"context": "a b", "continuation": "c d e", "samples": 32, "seed": 3}
        self.assertEqual(self.server.post("/v1/score", sampled).json["data"],
                         self.server.post("/v1/score", sampled).json["data"])
        self.refused(400, "/v1/score", {"context": "x", "continuation": ""}, "continuation")
        self.refused(400, "/v1/score", {"context": "x", "continuation": "y", "sample": 3}, "sample")

    def test_tokens(self):
        ids = [int(one) for one in run("tokenize", "Hello 12").stdout.split()]
        self.assertEqual(self.server.post("/tokenize", {"content": "Hello 12"}).json["tokens"], ids)
        both = self.server.post("/tokenize", {"prompt": "Hello 12", "add_special_tokens": False, "with_pieces": True})
        self.assertEqual([one["id"] for one in both.json["tokens"]], ids)
        self.assertEqual(self.server.post("/detokenize", {"tokens": ids}).json["content"], "Hello 12")
        self.refused(400, "/detokenize", {"tokens": [1 << 29]}, "tokens")
        info = self.server.get("/tokenizer_info").json
        self.assertIn("eos_token", info)
        self.assertIn("messages", info["chat_template"])

    def test_what_it_says_of_itself(self):
        self.assertEqual(self.server.get("/health").json, {"status": "ok"})
        name = self.server.get("/v1/models").json["data"][0]["id"]
        self.assertEqual(self.server.post("/v1/chat/completions", {"messages": QUESTION, "model": name}).status, 200)
        self.assertEqual(self.server.get("/slots").json, [])
        props = self.server.get("/props").json
        self.assertEqual(props["default_generation_settings"]["algorithm"], "threshold")
        self.assertIs(props["modalities"]["vision"], False)
        before = self.server.metric("dllm_requests_finished_total")
        self.server.post("/v1/chat/completions", {"messages": QUESTION})
        self.assertEqual(self.server.metric("dllm_requests_finished_total"), before + 1)
        self.assertEqual(self.server.metric("dllm_num_requests_running"), 0)
        self.assertEqual(self.server.metric("dllm_kv_cache_usage_perc"), 0)

    def test_eight_at_once_are_as_alone(self):
        bodies = [{"messages": QUESTION, "max_tokens": 64}, {"messages": QUESTION, "algorithm": "low-confidence"},
                  {"messages": QUESTION, "max_tokens": 96, "cache": "dual", "window": "sliding"},
                  {"messages": QUESTION, "temperature": 0.7, "seed": 5}, {"messages": QUESTION, "cfg_scale": 0.5},
                  {"messages": QUESTION, "algorithm": "revision", "cache": "vicinity", "max_tokens": 48},
                  {"messages": QUESTION, "algorithm": "origin", "steps": 8, "seed": 3, "max_tokens": 24},
                  {"messages": QUESTION, "exact_length": True, "cache": "prefix"}]

        def answer(body):
            return self.server.post("/v1/chat/completions", body).json["dllm"]["hash"]

        alone = [answer(body) for body in bodies]
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            self.assertEqual(list(pool.map(answer, bodies)), alone)


class ToolCalls(unittest.TestCase):
    TEMPLATE = ("{% if tools %}Tools: {% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
                "{% for m in messages %}{{ m.role }}: {{ m.content or '' }}"
                "{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}\n{% endfor %}")
    TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}

    def test_templates_get_tools_and_calls(self):
        turns = [{"role": "user", "content": "Rain?"},
                 {"role": "assistant", "content": None, "tool_calls": [
                     {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"town": "Ulm"}'}}]},
                 {"role": "tool", "tool_call_id": "1", "content": "yes"}]
        with Server("--chat-template", self.TEMPLATE) as server:
            text = server.post("/apply-template", {"messages": turns, "tools": [self.TOOL]}).json["prompt"]
            self.assertIn('Tools: {"type": "function", "function": {"name": "weather"', text)
            self.assertIn('<tool_call>{"name": "weather", "arguments": {"town": "Ulm"}}</tool_call>', text)
            self.assertIn("tool: yes", text)
            body = {"messages": turns, "tools": [self.TOOL], "max_tokens": 8}
            reply = server.post("/v1/chat/completions", body).json["choices"][0]
            streamed = "".join(data["choices"][0]["delta"].get("content", "")
                               for name, data in server.events("/v1/chat/completions", body)[:-1])
            self.assertEqual(streamed, reply["message"]["content"])
            self.other_apis_see_the_same(server, text)
            for field, value in (("tool_choice", "always"), ("tools", [{"type": "web"}])):
                error = server.post("/v1/chat/completions", {**body, field: value}).json["error"]
                self.assertEqual(error["param"], field)
            mask = server.get("/tokenizer_info").json["mask_token"]
            self.assertEqual(server.post("/v1/chat/completions", {**body, "messages": [
                {"role": "user", "content": mask}]}).status, 200)

    def other_apis_see_the_same(self, server, text):
        tokens = server.post("/tokenize", {"content": text, "add_special": False}).json["count"]
        tool = {"name": "weather", "input_schema": {"type": "object"}}
        messages = [{"role": "user", "content": "Rain?"},
                    {"role": "assistant", "content": [
                        {"type": "tool_use", "id": "1", "name": "weather", "input": {"town": "Ulm"}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "yes"}]}]
        reply = server.post("/v1/messages", {"messages": messages, "tools": [tool], "max_tokens": 8}).json
        self.assertAlmostEqual(reply["usage"]["input_tokens"], tokens, delta=1)  # the beginning of the text
        items = [{"role": "user", "content": "Rain?"},
                 {"type": "function_call", "call_id": "1", "name": "weather", "arguments": '{"town": "Ulm"}'},
                 {"type": "function_call_output", "call_id": "1", "output": "yes"}]
        tool = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
        answer = server.post("/v1/responses", {"input": items, "tools": [tool], "max_output_tokens": 8}).json
        self.assertEqual(answer["usage"]["input_tokens"], reply["usage"]["input_tokens"])
        self.assertEqual(answer["tools"], [tool])


if __name__ == "__main__":
    unittest.main()
