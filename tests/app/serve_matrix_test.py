"""`dllm serve` with the packages that applications are written with: LangChain, LiteLLM, instructor, Pydantic AI and
Ollama's client, through every API that each of them speaks; plain, streamed, with tools, with a structure.

    python3 serve_matrix_test.py PATH/TO/dllm [unittest arguments]

`scripts/setup --clients` installs them into build/matrix; without them the test is skipped (exit code 77). A small model
gives no sensible calls or objects by itself, so those that a request forces are asked for.
"""

import asyncio
import os
import pathlib
import sys
import unittest
import warnings

warnings.simplefilter("ignore")  # of the packages about each other
VENV = pathlib.Path(__file__).resolve().parents[2] / "build" / "matrix" / "bin" / "python3"
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LANGSMITH_TRACING="false", PYDANTIC_AI_NO_TELEMETRY="1",
                  OPENAI_API_KEY="secret", ANTHROPIC_API_KEY="secret", no_proxy="127.0.0.1", NO_PROXY="127.0.0.1")

try:
    import anthropic
    import instructor
    import litellm
    import ollama
    import openai
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_ollama import ChatOllama
    from langchain_openai import ChatOpenAI
    from pydantic import BaseModel, Field
    from pydantic_ai import Agent, NativeOutput, ToolOutput
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider
except ImportError as error:
    if VENV.exists() and os.environ.get("DLLM_MATRIX") is None:
        os.environ["DLLM_MATRIX"] = "1"  # once
        os.execv(VENV, [str(VENV), "-B", *sys.argv])
    print(f"skipped: {error} (scripts/setup --clients)")
    sys.exit(77)

from serve_case import QUESTION, TOOL_TEMPLATE, Server  # noqa: E402  (after the packages, as it reads the arguments)

TEXT = QUESTION[0]["content"]
OPENAI_NAME, ANTHROPIC_NAME = "gpt-4o", "claude-sonnet-4-5"  # packages know what these can do, so they ask for all of it


class Count(BaseModel):
    value: int = Field(ge=0, le=1000)
    unit: str = Field(max_length=10)


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city} <|endoftext|>"


class MatrixCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--any-model", "--chat-template", TOOL_TEMPLATE)
        cls.root = f"http://127.0.0.1:{cls.server.port}"
        cls.url = cls.root + "/v1"
        cls.text = cls.server.post("/v1/chat/completions", {"messages": QUESTION}).json["choices"][0]["message"]["content"]

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()


class LangChain(MatrixCase):
    def models(self):
        return {"chat": ChatOpenAI(model=OPENAI_NAME, base_url=self.url, max_retries=0),
                "responses": ChatOpenAI(model=OPENAI_NAME, base_url=self.url, max_retries=0, use_responses_api=True),
                "messages": ChatAnthropic(model=ANTHROPIC_NAME, base_url=self.root, max_retries=0),
                "ollama": ChatOllama(model="tiny-llada", base_url=self.root)}

    def test_plain(self):
        for name, model in self.models().items():
            with self.subTest(name):
                self.assertEqual(model.invoke(TEXT).text, self.text)
                model.invoke([("system", "Be brief."), ("human", "Hello"), ("ai", "Hello!"), ("human", TEXT)])

    def test_streamed(self):
        for name, model in self.models().items():
            with self.subTest(name):
                self.assertEqual("".join(chunk.text for chunk in model.stream(TEXT)), self.text)

    def test_tools(self):
        known = tool(weather)
        call = {"name": "weather", "args": {"city": "Rome"}, "id": "call_1"}
        talk = [HumanMessage("The weather?"), AIMessage("", tool_calls=[call]),
                ToolMessage(weather("Rome"), tool_call_id="call_1"), HumanMessage("And now?")]
        for name, model in self.models().items():
            with self.subTest(name):
                model.bind_tools([known]).invoke(talk)
                if name == "ollama":  # its API forces no calls
                    continue
                forced = model.bind_tools([known], tool_choice="weather")
                answer = forced.invoke(TEXT)
                self.assertEqual([one["name"] for one in answer.tool_calls], ["weather"])
                self.assertEqual(set(answer.tool_calls[0]["args"]), {"city"})
                streamed = None
                for chunk in forced.stream(TEXT):
                    streamed = chunk if streamed is None else streamed + chunk
                self.assertEqual([(one["name"], one["args"]) for one in streamed.tool_calls],
                                 [(one["name"], one["args"]) for one in answer.tool_calls])

    def test_structure(self):
        for name, model in self.models().items():
            for method in ("json_schema", "function_calling"):
                if name == "messages" and method == "json_schema":
                    continue  # Anthropic's package takes the bounds out of the schema, and checks them afterwards
                if name == "ollama" and method == "function_calling":
                    continue
                with self.subTest(name, method=method):
                    self.assertIsInstance(model.with_structured_output(Count, method=method).invoke(TEXT), Count)


class LiteLlm(MatrixCase):
    TOOL = {"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"]}}}

    def ways(self):
        return {"chat": {"model": "openai/" + OPENAI_NAME, "api_base": self.url, "api_key": "secret"},
                "vllm": {"model": "hosted_vllm/tiny-llada", "api_base": self.url},
                "llamafile": {"model": "llamafile/tiny-llada", "api_base": self.url},
                "messages": {"model": "anthropic/" + ANTHROPIC_NAME, "api_base": self.root, "api_key": "secret"},
                "ollama": {"model": "ollama_chat/tiny-llada", "api_base": self.root}}

    def ask(self, way, **more):
        return litellm.completion(messages=[{"role": "user", "content": TEXT}], num_retries=0, drop_params=True, **way, **more)

    def test_plain_and_streamed(self):
        for name, way in self.ways().items():
            with self.subTest(name):
                self.assertEqual(self.ask(way).choices[0].message.content, self.text)
                parts = self.ask(way, stream=True, stream_options={"include_usage": True})
                self.assertEqual("".join(part.choices[0].delta.content or "" for part in parts if part.choices), self.text)

    def test_tools(self):
        for name, way in self.ways().items():
            with self.subTest(name):
                self.ask(way, tools=[self.TOOL])
                if name != "ollama":
                    calls = self.ask(way, tools=[self.TOOL], tool_choice="required").choices[0].message.tool_calls
                    self.assertEqual({one.function.name for one in calls}, {"weather"})

    def test_structure(self):
        for name, way in self.ways().items():
            if name == "messages":
                continue  # it makes a tool of the structure, and does not force its call
            with self.subTest(name):
                Count.model_validate_json(self.ask(way, response_format=Count).choices[0].message.content)


class Instructor(MatrixCase):
    def test_structure(self):
        modes = instructor.Mode
        chat = openai.OpenAI(base_url=self.url, max_retries=0)
        ways = [(instructor.from_openai, chat, mode, {}) for mode in
                (modes.TOOLS, modes.JSON_SCHEMA, modes.TOOLS_STRICT, modes.RESPONSES_TOOLS)]
        ways.append((instructor.from_anthropic, anthropic.Anthropic(base_url=self.root, max_retries=0), modes.ANTHROPIC_TOOLS,
                     {"max_tokens": 4096}))
        for make, client, mode, more in ways:
            with self.subTest(mode=mode):
                found = make(client, mode=mode).create(model=OPENAI_NAME, messages=[{"role": "user", "content": TEXT}],
                                                       response_model=Count, max_retries=0, **more)
                self.assertIsInstance(found, Count)

    def test_streamed(self):
        client = instructor.from_openai(openai.OpenAI(base_url=self.url, max_retries=0), mode=instructor.Mode.JSON_SCHEMA)
        parts = list(client.create_partial(model=OPENAI_NAME, messages=[{"role": "user", "content": TEXT}], response_model=Count))
        Count.model_validate(parts[-1].model_dump())


class PydanticAi(MatrixCase):
    def models(self):
        own = OpenAIProvider(base_url=self.url, api_key="secret")
        return {"chat": OpenAIChatModel(OPENAI_NAME, provider=own), "responses": OpenAIResponsesModel(OPENAI_NAME, provider=own),
                "messages": AnthropicModel(ANTHROPIC_NAME, provider=AnthropicProvider(base_url=self.root, api_key="secret"))}

    def test_plain_and_streamed(self):
        async def streamed(model):
            async with Agent(model).run_stream(TEXT) as run:
                return "".join([part async for part in run.stream_text(delta=True)])

        for name, model in self.models().items():
            with self.subTest(name):
                self.assertEqual(Agent(model).run_sync(TEXT).output, self.text)
            with self.subTest(name, stream=True):
                self.assertEqual(asyncio.run(streamed(self.models()[name])), self.text)

    def test_structure(self):
        for name, model in self.models().items():
            for kind in (ToolOutput, NativeOutput):
                if (name, kind) == ("messages", NativeOutput):
                    continue  # without the bounds, as above
                with self.subTest(name, kind=kind.__name__):
                    self.assertIsInstance(Agent(model, output_type=kind(Count), retries=0).run_sync(TEXT).output, Count)

    def test_a_structure_beside_tools(self):
        """The model may call, as often as it likes, before it answers."""
        for name, model in self.models().items():
            if name == "messages":
                continue
            with self.subTest(name):
                agent = Agent(model, output_type=NativeOutput(Count), tools=[weather], retries=0)
                reply = asyncio.run(self.first_request(agent))
                self.assertTrue(reply)

    @staticmethod
    async def first_request(agent):
        async with agent.iter(TEXT) as run:
            async for node in run:
                if Agent.is_call_tools_node(node):
                    return node.model_response.parts
        return []


class Ollama(MatrixCase):
    NAME = "tiny-llada"

    def setUp(self):
        self.client = ollama.Client(host=self.root)

    def test_plain_and_streamed(self):
        turns = [{"role": "user", "content": TEXT}]
        self.assertEqual(self.client.chat(model=self.NAME, messages=turns).message.content, self.text)
        parts = self.client.chat(model=self.NAME, messages=turns, stream=True, think=False, keep_alive="5m")
        self.assertEqual("".join(part.message.content for part in parts), self.text)
        options = {"num_predict": 4096, "seed": 1, "top_k": 40, "top_p": 0.9, "num_ctx": 512}
        self.assertTrue(self.client.generate(model=self.NAME, prompt=TEXT, options=options).done)
        parts = list(self.client.generate(model=self.NAME, prompt=TEXT, stream=True))
        self.assertEqual([part.done for part in parts[-2:]], [False, True])

    def test_tools_and_structure(self):
        turns = [{"role": "user", "content": TEXT}, {"role": "assistant", "tool_calls": [
            {"function": {"name": "weather", "arguments": {"city": "Rome"}}}]},
            {"role": "tool", "tool_name": "weather", "content": weather("Rome")}]
        self.client.chat(model=self.NAME, messages=turns, tools=[weather])
        text = self.client.chat(model=self.NAME, messages=turns[:1], format=Count.model_json_schema()).message.content
        Count.model_validate_json(text)

    def test_models(self):
        self.assertEqual([one.model for one in self.client.list().models], ["tiny-llada:latest"])
        self.assertEqual(self.client.show(self.NAME).details.family, "llada")
        self.assertEqual(len(self.client.ps().models), 1)
        with self.assertRaises(ollama.ResponseError) as none:
            self.client.embed(model=self.NAME, input="x")
        self.assertEqual(none.exception.status_code, 404)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
