"""Prompts with images, through a server's APIs and the command line, on a tiny model with random weights.

    python3 serve_images_test.py PATH/TO/dllm [unittest arguments]
"""

import base64
import json
import pathlib
import struct
import time
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


def blank(side):
    """A black PNG of one bit, in base64: a few kilobytes."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(bytes(1 + side // 8) * side, 9)
    file = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)) + chunk(b"IDAT", rows)
            + chunk(b"IEND", b""))
    return base64.b64encode(file).decode()


def decodes(model, path):
    return "does not decode" not in run("run", "-m", model, "--mmproj", model, "--image", path, *SHORT, "hi").stderr


class Images(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = image_models.write(cls.dir / "model")
        if not decodes(cls.model, PNG):
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
        if decodes(self.model, WEBP):
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
            for image, word in (({"url": "https://example.org/a.png"}, "fetches no images"),
                                ({"url": "data:image/png;base64,????"}, "base64"),
                                ({"url": url(PNG)[:122]}, "image 1"), ({}, "url")):
                reply = server.post("/v1/chat/completions", {"messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": image}]}]})
                self.assertEqual(reply.status, 400, reply.body)
                self.assertIn(word, reply.json["error"]["message"])

    def test_images_delay_only_each_other_and_end_with_their_client(self):
        large = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{blank(6000)}"}}
        body = json.dumps({"max_tokens": 1, "messages": [{"role": "user", "content": [large] * 16}]})
        with Server("-m", self.model, "--mmproj", self.model, "--canvas-length", "8") as server:
            links = [server.connect() for _ in range(4)]
            for link in links:
                link.request("POST", "/v1/chat/completions", body)
            texts = 5  # the first may overtake the longer bodies
            for _ in range(texts):
                text = server.post("/v1/chat/completions", {"max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]})
                self.assertEqual(text.status, 200, text.body)
            # Perhaps one more: each of the others decodes for seconds.
            self.assertLessEqual(server.metric("dllm_requests_submitted_total"), texts + 1, "the texts waited for images")
            for link in links:
                link.close()
            end = time.monotonic() + 300
            while len(gone := [line for line in server.log() if line.get("status") == 499]) < 4 and time.monotonic() < end:
                time.sleep(0.05)
        self.assertEqual(len(gone), 4, server.lines)
        self.assertTrue(any("nobody waits" in line.get("error", "") for line in gone), gone)


if __name__ == "__main__":
    unittest.main()
