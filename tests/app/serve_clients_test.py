"""`dllm serve` with common clients: OpenAI's and Anthropic's Python packages, and curl.

    python3 serve_clients_test.py PATH/TO/dllm [unittest arguments]

`scripts/setup --clients` installs the packages into build/clients; without them the test is skipped (exit code 77).
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

VENV = pathlib.Path(__file__).resolve().parents[2] / "build" / "clients" / "bin" / "python3"

try:
    import anthropic
    import openai
except ImportError:
    if VENV.exists() and os.environ.get("DLLM_CLIENTS") is None:
        os.environ["DLLM_CLIENTS"] = "1"  # once
        os.execv(VENV, [str(VENV), "-B", *sys.argv])
    print("skipped: the packages openai and anthropic are not installed (scripts/setup --clients)")
    sys.exit(77)

from serve_case import Server  # noqa: E402  (after the packages, as it reads the arguments)
from serve_thinking_test import ANSWER, TEXT, THINK, THOUGHTS, WEATHER, literally  # noqa: E402

QUESTION = "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?"
TURNS = [{"role": "user", "content": QUESTION}]
DIGIT_1 = "16"  # a token id of the embedded model; the answer is 10


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--api-key", "secret")
        url = f"http://127.0.0.1:{cls.server.port}"
        cls.url = url
        cls.openai = openai.OpenAI(base_url=url + "/v1", api_key="secret", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0)
        cls.model = cls.openai.models.list().data[0].id
        reply = cls.openai.chat.completions.create(model=cls.model, messages=TURNS, max_tokens=64)
        cls.text = reply.choices[0].message.content

    @classmethod
    def tearDownClass(cls):
        cls.openai.close()
        cls.anthropic.close()
        cls.server.__exit__()

    def test_openai_chat(self):
        reply = self.openai.chat.completions.create(model=self.model, messages=TURNS, max_completion_tokens=64,
                                                    temperature=0, logprobs=True, extra_body={"algorithm": "threshold"})
        self.assertEqual(reply.choices[0].message.content, self.text)
        self.assertEqual(reply.choices[0].finish_reason, "stop")
        self.assertGreater(reply.usage.total_tokens, reply.usage.prompt_tokens)
        self.assertLessEqual(reply.choices[0].logprobs.content[0].logprob, 0)

    def test_openai_streams(self):
        text, usage = "", None
        for chunk in self.openai.chat.completions.create(model=self.model, messages=TURNS, max_tokens=64, stream=True):
            text += chunk.choices[0].delta.content or ""  # as most programs read it
        self.assertEqual(text, self.text)
        for chunk in self.openai.chat.completions.create(model=self.model, messages=TURNS, max_tokens=64, stream=True,
                                                         stream_options={"include_usage": True}):
            usage = chunk.usage or usage
        self.assertGreater(usage.completion_tokens, 0)
        with self.openai.chat.completions.stream(model=self.model, messages=TURNS, max_tokens=64) as stream:
            self.assertEqual(stream.get_final_completion().choices[0].message.content, self.text)
        frames = [chunk.choices[0].delta.content for chunk in self.openai.chat.completions.create(
            model=self.model, messages=TURNS, max_tokens=64, stream=True,
            extra_body={"diffusing": True, "diffusion_events": True}) if chunk.choices[0].delta.content]
        self.assertEqual(frames[-1], self.text)

    def test_openai_completions_and_responses(self):
        reply = self.openai.completions.create(model=self.model, prompt="3 + 4 =", max_tokens=16, seed=1)
        streamed = "".join(chunk.choices[0].text for chunk in self.openai.completions.create(
            model=self.model, prompt="3 + 4 =", max_tokens=16, seed=1, stream=True))
        self.assertEqual(reply.choices[0].text, streamed)
        response = self.openai.responses.create(model=self.model, input=QUESTION, max_output_tokens=64)
        self.assertEqual(response.output_text, self.text)
        with self.openai.responses.stream(model=self.model, input=TURNS, max_output_tokens=64) as stream:
            deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            self.assertEqual(stream.get_final_response().output_text, self.text)
        self.assertEqual(deltas, self.text)

    def test_openai_errors(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.openai.chat.completions.create(model="gpt-4", messages=TURNS)
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.openai.chat.completions.create(model=self.model, messages=TURNS, frequency_penalty=1000)
        self.assertEqual(caught.exception.param, "frequency_penalty")
        reply = self.openai.chat.completions.create(model=self.model, messages=TURNS, logit_bias={DIGIT_1: -100},
                                                    presence_penalty=0.5)
        self.assertNotEqual(reply.choices[0].message.content, self.text)
        with self.assertRaises(openai.AuthenticationError):
            self.openai.with_options(api_key="wrong").models.list()

    def test_anthropic(self):
        reply = self.anthropic.messages.create(model=self.model, max_tokens=64, messages=TURNS)
        self.assertEqual((reply.content[0].text, reply.stop_reason), (self.text, "end_turn"))
        with self.anthropic.messages.stream(model=self.model, max_tokens=64, messages=TURNS) as stream:
            self.assertEqual("".join(stream.text_stream), self.text)
            self.assertEqual(stream.get_final_message().usage.output_tokens, reply.usage.output_tokens)
        count = self.anthropic.messages.count_tokens(model=self.model, messages=TURNS)
        self.assertEqual(count.input_tokens, reply.usage.input_tokens)
        with self.assertRaises(anthropic.BadRequestError):
            self.anthropic.messages.create(model=self.model, max_tokens=64, messages=TURNS, extra_body={"top_k": -3})

    @unittest.skipUnless(shutil.which("curl"), "curl is not installed")
    def test_curl(self):
        def curl(*args):
            return subprocess.run(["curl", "-sS", "-H", "Authorization: Bearer secret", *args], capture_output=True,
                                  text=True, timeout=600, check=True).stdout

        self.assertIn('"ok"', curl(self.url + "/health"))
        body = '{"messages": [{"role": "user", "content": "3 + 4 ="}], "stream": true}'
        self.assertTrue(curl("-N", self.url + "/v1/chat/completions", "-d", body).endswith("data: [DONE]\n\n"))
        long = curl("-o", "/dev/null", "-w", "%{http_code}", self.url + "/v1/completions", "-d", "x" * 100000)
        self.assertEqual(long, "400")


class ThinkingClients(unittest.TestCase):
    """Answers with thoughts. Their words are an expression's, and the template is a test's."""
    SAYS = {"regex": literally(ANSWER)}

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--chat-template", THINK)
        url = f"http://127.0.0.1:{cls.server.port}"
        cls.openai = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.openai.close()
        cls.anthropic.close()
        cls.server.__exit__()

    def test_openai_chat(self):
        asked = {"model": "default", "messages": TURNS, "max_tokens": 128, "reasoning_effort": "high", "extra_body": self.SAYS}
        reply = self.openai.chat.completions.create(**asked)
        message = reply.choices[0].message
        self.assertEqual((message.content, message.reasoning_content, message.reasoning), (TEXT, THOUGHTS, THOUGHTS))
        self.assertGreater(reply.usage.completion_tokens_details.reasoning_tokens, 0)
        text, thoughts = "", ""
        for chunk in self.openai.chat.completions.create(**asked, stream=True):
            text += chunk.choices[0].delta.content or ""
            thoughts += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
        self.assertEqual((text, thoughts), (TEXT, THOUGHTS))
        with self.openai.chat.completions.stream(**asked) as stream:
            self.assertEqual(stream.get_final_completion().choices[0].message.content, TEXT)
        again = [*TURNS, message.model_dump(), *TURNS]
        self.assertTrue(self.openai.chat.completions.create(model="default", messages=again, max_tokens=16).id)

    def test_openai_responses(self):
        asked = {"model": "default", "input": QUESTION, "max_output_tokens": 128, "reasoning": {"effort": "low", "summary": "auto"},
                 "include": ["reasoning.encrypted_content"], "store": False, "top_logprobs": 0, "extra_body": self.SAYS}
        response = self.openai.responses.create(**asked)
        self.assertEqual([item.type for item in response.output], ["reasoning", "message"])
        self.assertEqual((response.output[0].content[0].text, response.output_text), (THOUGHTS, TEXT))
        self.assertGreater(response.usage.output_tokens_details.reasoning_tokens, 0)
        with self.openai.responses.stream(**asked) as stream:
            deltas = [(event.type, event.delta) for event in stream if event.type.endswith("text.delta")]
            final = stream.get_final_response()
        self.assertEqual("".join(text for kind, text in deltas if kind == "response.reasoning_text.delta"), THOUGHTS)
        self.assertEqual("".join(text for kind, text in deltas if kind == "response.output_text.delta"), TEXT)
        self.assertEqual([item.type for item in final.output], ["reasoning", "message"])
        items = [item.model_dump(exclude_none=True) for item in response.output]
        again = self.openai.responses.create(model="default", input=[*TURNS, *items, *TURNS], max_output_tokens=16)
        plain = self.openai.responses.create(model="default", input=[*TURNS, items[1], *TURNS], max_output_tokens=16)
        self.assertGreater(again.usage.input_tokens, plain.usage.input_tokens)

    def test_anthropic(self):
        asked = {"model": "default", "max_tokens": 2048, "messages": TURNS, "thinking": {"type": "enabled", "budget_tokens": 1024},
                 "extra_body": self.SAYS}
        reply = self.anthropic.messages.create(**asked)
        self.assertEqual([block.type for block in reply.content], ["thinking", "text"])
        self.assertEqual((reply.content[0].thinking, reply.content[1].text), (THOUGHTS, TEXT))
        self.assertGreater(reply.usage.output_tokens_details.thinking_tokens, 0)
        with self.anthropic.messages.stream(**asked) as stream:
            events = [(event.type, getattr(event, "thinking", "")) for event in stream]
            final = stream.get_final_message()
        self.assertEqual("".join(text for kind, text in events if kind == "thinking"), THOUGHTS)
        self.assertEqual([block.to_dict() for block in final.content], [block.to_dict() for block in reply.content])
        again = [*TURNS, {"role": "assistant", "content": reply.content}, *TURNS]
        counts = [self.anthropic.messages.count_tokens(model="default", messages=talk, thinking=thinking).input_tokens
                  for talk in (again, [*TURNS, {"role": "assistant", "content": TEXT}, *TURNS])
                  for thinking in ({"type": "adaptive"}, {"type": "disabled"})]
        self.assertGreater(counts[0], counts[2])
        self.assertGreater(counts[1], counts[0])

    def test_anthropic_as_agents_do(self):
        tools = [{"name": "weather", "description": "d", "input_schema": WEATHER, "strict": True, "input_examples": [{"town": "Ulm"}],
                  "eager_input_streaming": True, "defer_loading": False, "cache_control": {"type": "ephemeral"}}]
        reply = self.anthropic.beta.messages.create(
            model="default", max_tokens=128, messages=TURNS, tools=tools, tool_choice={"type": "any"}, mcp_servers=[],
            thinking={"type": "adaptive"}, output_config={"effort": "medium"}, betas=["context-management-2025-06-27"],
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})
        self.assertEqual(reply.stop_reason, "tool_use")
        self.assertEqual(reply.content[-1].input, {"town": "Ulm"})
        self.assertEqual(reply.context_management.applied_edits, [])
        talk = [*TURNS, {"role": "assistant", "content": reply.content},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": reply.content[-1].id, "content": "rain"}]}]
        raw = self.anthropic.messages.with_raw_response.create(model="default", max_tokens=64, messages=talk, tools=tools)
        self.assertIn("tools.strict", raw.headers["x-dllm-ignored"])
        schema = {"type": "object", "properties": {"answer": {"enum": [7, 21]}}, "required": ["answer"], "additionalProperties": False}
        reply = self.anthropic.messages.create(model="default", max_tokens=64, messages=TURNS,
                                               output_config={"format": {"type": "json_schema", "schema": schema}})
        self.assertIn(json.loads(reply.content[0].text)["answer"], (7, 21))


if __name__ == "__main__":
    unittest.main()
