"""Prompts with images, through a server's APIs and the command line, on a tiny model with random weights.

    python3 serve_images_test.py PATH/TO/dllm [unittest arguments]
"""

import base64
import json
import pathlib
import select
import struct
import unittest
import zlib

import image_models
from cli_case import CliCase, run
from serve_case import Server

IMAGES = pathlib.Path(__file__).parent.parent.parent / "src" / "image" / "testdata"
PNG, OTHER, JPEG, WEBP = (IMAGES / name for name in ("rgb.png", "grey.png", "colour.jpg", "lossless.webp"))
SHORT = ("--canvas-length", "8", "--seed", "1", "-t", "2")


def encoded(path):
    return base64.b64encode(path.read_bytes()).decode()


def url(path):
    return f"data:image/png;base64,{encoded(path)}"


class Images(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = image_models.write(cls.dir / "model")
        if not image_models.decodes(cls.model, PNG):
            raise unittest.SkipTest("this build decodes no PNG")

    def answer(self, *flags, model=None, tower=None):
        result = self.ok("run", "-m", model or self.model, "--mmproj", tower or self.model, *SHORT, "-o", "json", *flags, "hi")
        return json.loads(result.stdout)

    def test_run(self):
        one = self.answer("--image", PNG)
        self.assertEqual(one["prompt_ids"], [262, 263, 263, 263, 263, 264, 104, 105])
        self.assertEqual(self.answer("--image", PNG)["confidence"], one["confidence"])
        self.assertNotEqual(self.answer("--image", OTHER)["confidence"], one["confidence"])
        self.assertNotEqual(self.answer()["confidence"], one["confidence"])
        both = self.answer("--image", PNG, "--image", OTHER)
        self.assertEqual(both["prompt_ids"].count(262), 2)
        if image_models.decodes(self.model, WEBP):
            self.assertEqual(self.answer("--image", WEBP)["confidence"], one["confidence"], "the same pixels")

    def test_converted(self):
        one = self.answer("--image", PNG)
        text, tower = self.dir / "text.gguf", self.dir / "tower.gguf"
        told = self.ok("convert", self.model, "-o", text, "--type", "F32", "--mmproj", tower).stderr
        self.assertIn("of the vision tower", told)
        self.assertEqual(self.answer("--image", PNG, model=text, tower=tower)["confidence"], one["confidence"])
        self.assertIn("one file", self.fails(2, "convert", self.model, "-o", text, "--mmproj", text))
        small = self.dir / "small.gguf"
        self.ok("convert", self.model, "-o", self.dir / "q.gguf", "--type", "Q8_0", "--mmproj", small)
        self.assertLess(small.stat().st_size, tower.stat().st_size)

    def test_chat(self):
        talk = f"/image {PNG}\nhi\n/image\n/image {self.dir / 'none.png'}\n/quit\n".encode()
        result = run("chat", "-m", self.model, "--mmproj", self.model, *SHORT, stdin=talk)
        self.assertIn("the next message has this image", result.stderr)
        self.assertIn("a file name is missing", result.stderr)
        self.assertIn("none.png", result.stderr)

    def test_refusals(self):
        model = ("-m", self.model, *SHORT)
        self.assertIn("--mmproj", self.fails(2, "run", *model, "--image", PNG, "hi"))
        self.assertIn("none.png", self.fails(3, "run", *model, "--mmproj", self.model, "--image", self.dir / "none.png", "hi"))
        cut = self.dir / "cut.png"
        cut.write_bytes(PNG.read_bytes()[:100])
        self.assertIn("image 1", self.fails(3, "run", *model, "--mmproj", self.model, "--image", cut, "hi"))
        whole = pathlib.Path(__file__).parent.parent.parent / "models" / "tiny-llada-f32.gguf"
        self.assertIn("no vision tower", self.fails(3, "run", *model, "--mmproj", whole, "--image", PNG, "hi"))
        self.assertIn("--mmproj", self.fails(3, "run", "--mmproj", self.model, "hi"), "the embedded model reads none")

    def test_apis(self):
        with Server("-m", self.model, "--mmproj", self.model, "--canvas-length", "8") as server:
            def content(path, body, of):
                reply = server.post(path, {"seed": 1, **body})
                self.assertEqual(reply.status, 200, reply.body)
                return of(reply.json)

            chat = lambda image: content("/v1/chat/completions", {"messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": url(image), "detail": "low"}}, {"type": "text", "text": "hi"}]}]},
                lambda reply: (reply["choices"][0]["message"]["content"], reply["usage"]["prompt_tokens"]))
            one = chat(PNG)
            self.assertEqual(one[1], 8)
            expected = self.answer("--image", PNG)["text"]
            self.assertEqual(one[0], expected)
            self.assertEqual(chat(PNG), one)
            self.assertEqual(content("/v1/responses", {"input": [{"role": "user", "content": [
                {"type": "input_image", "image_url": url(PNG)}, {"type": "input_text", "text": "hi"}]}]},
                lambda reply: reply["output"][-1]["content"][0]["text"]), expected)
            self.assertEqual(content("/v1/messages", {"max_tokens": 8, "messages": [{"role": "user", "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded(PNG)}},
                {"type": "text", "text": "hi"}]}]}, lambda reply: reply["content"][-1]["text"]), expected)
            name = server.get("/v1/models").json["data"][0]["id"]
            ollama = {"model": name, "stream": False, "options": {"seed": 1}}
            self.assertEqual(content("/api/chat", {**ollama, "messages": [
                {"role": "user", "content": "hi", "images": [encoded(PNG)]}]},
                lambda reply: reply["message"]["content"]), expected)
            self.assertEqual(content("/api/generate", {**ollama, "prompt": "hi", "images": [encoded(PNG)]},
                                     lambda reply: reply["response"]), expected)
            # By these, clients know that they may send images.
            self.assertIs(server.get("/props").json["modalities"]["vision"], True)
            self.assertIn("vision", server.post("/api/show", {"model": name}).json["capabilities"])
            for image, word in (({"url": "https://example.org/a.png"}, "fetches no images"),
                                ({"url": "data:image/png;base64,????"}, "base64"),
                                ({"url": url(PNG)[:122]}, "image 1"), ({}, "url")):
                reply = server.post("/v1/chat/completions", {"messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": image}]}]})
                self.assertEqual(reply.status, 400, reply.body)
                self.assertIn(word, reply.json["error"]["message"])

    def test_images_of_tools(self):
        """Templates take results as texts: their images stand before the user's next words, or in a message behind the results."""
        template = ("{# tools #}{% for m in messages %}{{ m.role[0] }}{% if m.content is string %}{{ m.content }}{% else %}"
                    "{% for p in m.content or [] %}{% if p.type == 'image' %}<|image|>{% else %}{{ p.text }}{% endif %}"
                    "{% endfor %}{% endif %}{% endfor %}")
        part = lambda image: {"type": "image_url", "image_url": {"url": url(image)}}
        block = lambda image: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded(image)}}
        call = lambda one: {"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        calls = {"role": "assistant", "content": "", "tool_calls": [call("1"), call("2")]}
        with Server("-m", self.model, "--mmproj", self.model, "--canvas-length", "8", "--chat-template", template) as server:
            def asked(messages, path="/v1/chat/completions", **body):
                reply = server.post(path, {"seed": 1, ("input" if path.endswith("responses") else "messages"): messages, **body})
                self.assertEqual(reply.status, 200, reply.body)
                return reply.json["dllm"]["hash"]

            results = [{"role": "tool", "tool_call_id": "1", "content": [part(PNG), {"type": "text", "text": "a"}]},
                       {"role": "tool", "tool_call_id": "2", "content": "b"}]
            plain = [{"role": "tool", "tool_call_id": "1", "content": "a"}, results[1]]
            told = {"role": "user", "content": [part(OTHER), {"type": "text", "text": "hi"}]}
            first = asked([calls, *plain, {"role": "user", "content": [part(PNG), *told["content"]]}])
            self.assertEqual(asked([calls, *results, told]), first)
            self.assertNotEqual(asked([calls, *plain, told]), first)
            last = asked([calls, *plain, {"role": "user", "content": [part(PNG)]}])
            self.assertEqual(asked([calls, *results]), last)
            self.assertEqual(asked([
                {"role": "assistant", "content": [{"type": "tool_use", "id": one, "name": "look", "input": {}} for one in "12"]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": [block(PNG), {"type": "text", "text": "a"}]},
                    {"type": "tool_result", "tool_use_id": "2", "content": "b"},
                    block(OTHER), {"type": "text", "text": "hi"}]}], "/v1/messages", max_tokens=8), first)
            self.assertEqual(asked([
                *({"type": "function_call", "call_id": one, "name": "look", "arguments": "{}"} for one in "12"),
                {"type": "function_call_output", "call_id": "1", "output": [
                    {"type": "input_image", "image_url": url(PNG)}, {"type": "input_text", "text": "a"}]},
                {"type": "function_call_output", "call_id": "2", "output": "b"}], "/v1/responses"), last)

    def test_others_do_not_wait(self):
        """Large images take seconds: texts are answered meanwhile, and clients that leave end the work between two images."""
        rows = b"".join(b"\0" + bytes(500) for _ in range(4000))  # 4000 x 4000 pixels of one bit
        chunks = [(b"IHDR", struct.pack(">IIBBBBB", 4000, 4000, 1, 0, 0, 0, 0)), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
        large = b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks)
        parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(large).decode()}}]
        body = json.dumps({"messages": [{"role": "user", "content": parts * 24}]})
        with Server("-m", self.model, "--mmproj", self.model, "--canvas-length", "8") as server:
            busy = [server.connect() for _ in range(3)]
            for connection in busy:
                connection.request("POST", "/v1/chat/completions", body)
            for _ in range(4):  # the first may be read before the images are
                reply = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
                self.assertEqual(reply.status, 200, reply.body)
            answered = select.select([connection.sock for connection in busy], [], [], 0)[0]
            for connection in busy:
                connection.close()
            self.assertEqual(answered, [], "the texts came first")
            server.terminate()
            self.assertEqual(server.process.wait(timeout=120), 0)
            server.reader.join()
            self.assertEqual([line["status"] for line in server.log() if "status" in line], [200] * 4 + [499] * 3)


if __name__ == "__main__":
    unittest.main()
