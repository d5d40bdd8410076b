"""`dllm serve` from outside, by plain sockets and http.client: APIs, streams, errors, limits, disconnects, the end.

    python3 serve_test.py PATH/TO/dllm [unittest arguments]
"""

import concurrent.futures
import json
import os
import random
import socket
import threading
import time
import unittest

from cli_case import run
from serve_case import Server, ServeCase

QUESTION = [{"role": "user", "content": "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?"}]
SLOW = {"messages": [{"role": "user", "content": "Copy: x y z"}], "max_tokens": 256, "algorithm": "low-confidence",
        "exact_length": True}


def wait_until(condition, seconds=600):
    """Polls; the time limit is for hangs only: a sanitized program is thirty times slower."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


class Answers(ServeCase):
    def test_chat(self):
        alone = json.loads(run("run", "-o", "json", "-n", "64", QUESTION[0]["content"]).stdout)
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
        self.assertEqual(self.server.get("/props").json["default_generation_settings"]["algorithm"], "threshold")
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
        for field, value in (("frequency_penalty", 1), ("response_format", {"type": "json_object"}), ("n", 0),
                             ("tools", [{"type": "function", "function": {"name": "f"}}]),
                             ("tool_choice", "required"), ("latency", "/etc/passwd"), ("temperature", "hot"),
                             ("refresh_threads", 2), ("max_tokens", 0), ("logit_bias", {"5": 1}), ("stop", [""])):
            self.refused(400, chat, {"messages": QUESTION, field: value}, field)
        for same in ({"frequency_penalty": 0, "tool_choice": "none", "top_p": 1, "logit_bias": {}},
                     {"temperature": 0, "top_p": 0.9}, {"max_completion_tokens": 16}):
            self.assertEqual(self.server.post(chat, {"messages": QUESTION, **same}).status, 200)
        self.refused(400, chat, {"messages": QUESTION, "max_tokens": 300}, "max_tokens")
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
        """Everything that a connection answers. A client that closes its half is taken to have gone."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=600) as link:
            try:
                link.sendall(data)
                if half_close:
                    link.shutdown(socket.SHUT_WR)
                answer = b""
                while part := link.recv(65536):
                    answer += part
            except (ConnectionResetError, BrokenPipeError):
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
        """Requests bent at random: each gets an answer or a closed connection, and the server lives."""
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


class ToolCalls(unittest.TestCase):
    TEMPLATE = ("{% if tools %}Tools: {% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
                "{% for m in messages %}{{ m.role }}: {{ m.content }}"
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
            for field, value in (("tool_choice", "required"), ("tools", [{"type": "web"}])):
                error = server.post("/v1/chat/completions", {**body, field: value}).json["error"]
                self.assertEqual(error["param"], field)
            mask = server.get("/tokenizer_info").json["mask_token"]
            self.assertEqual(server.post("/v1/chat/completions", {**body, "messages": [
                {"role": "user", "content": mask}]}).status, 400)


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
            self.idle()
            self.assertEqual(self.server.metric("dllm_requests_cancelled_total"), before + 1)

    def test_a_reader_that_sleeps_delays_nobody(self):
        with socket.create_connection(("127.0.0.1", self.server.port)) as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            body = json.dumps({**SLOW, "max_tokens": 64, "stream": True, "diffusing": True, "diffusion_events": True})
            link.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
                         f"{body}".encode())
            wait_until(lambda: self.running()[0] == 1)
            self.idle()  # without anyone reading
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                answer += link.recv(65536)
            self.assertIn(b"[DONE]", answer)


class Ends(unittest.TestCase):
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
