"""The page of `dllm serve` in headless Chromium: `make web-test`. Skipped if Chromium is not installed.

    python3 serve_browser_test.py PATH/TO/dllm [unittest arguments]
"""

import base64
import glob
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import image_models
from browser import Browser, find_chromium
from cli_case import DLLM, clean_environment
from serve_case import QUESTION, ServeCase

AXE = pathlib.Path(__file__).resolve().parents[2] / "build" / "web" / "node_modules" / "axe-core" / "axe.min.js"
HARDER = pathlib.Path(__file__).resolve().parents[2] / "models" / "harder-llada-f16.gguf"
PNG = HARDER.parent.parent / "src" / "image" / "testdata" / "rgb.png"
TEXT = QUESTION[0]["content"]
HOSTILE = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>'


def trace_of(*flags):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        subprocess.run([DLLM, "run", "--trace", path, *flags], check=True, capture_output=True, env=clean_environment())
        with open(path) as file:
            return json.load(file)


class PageCase(ServeCase):
    def setUp(self):
        self.browser = Browser()
        self.load()

    def tearDown(self):
        self.browser.__exit__()
        self.assertEqual(self.browser.problems, [], "the page logged no error, and its policy stopped nothing")

    def load(self):
        self.browser.open(f"http://127.0.0.1:{self.server.port}/")
        self.browser.wait("!document.querySelector('#send').disabled")

    def ask(self, text, wait=True):
        self.browser.value("document.querySelector('#prompt').focus()")
        self.browser.type(text)
        self.browser.press("Enter")
        if wait:
            self.browser.wait("document.querySelector('#send').textContent === 'Send' && document.querySelectorAll('.foot').length > 0")

    def choose(self, form, **values):
        for key, value in values.items():
            self.browser.value(f"""(() => {{
              const box = document.querySelectorAll('.method')[{form}].querySelector('[name={key}]');
              box.value = {json.dumps(str(value))};
              box.dispatchEvent(new Event(box.tagName === 'SELECT' ? 'change' : 'input'));
            }})()""")

    def frame(self):
        return int(self.browser.value("document.querySelector('#frame').value"))

    def seek(self, frame):
        self.browser.value(f"""(() => {{ const s = document.querySelector('#frame'); s.value = {frame};
          s.dispatchEvent(new Event('input')); }})()""")

    def cells(self, run=0):
        return self.browser.value(f"[...document.querySelectorAll('.run')[{run}].querySelectorAll('.cell')]"
                                  ".map((one) => one.classList.contains('masked') ? null : one.querySelector('.token').textContent)")

    def open_trace(self, trace, name="trace.json"):
        """Drops a file on the page."""
        content = trace if isinstance(trace, str) else json.dumps(trace)
        self.browser.value(f"""(() => {{
          const data = new DataTransfer();
          data.items.add(new File([{json.dumps(content)}], {json.dumps(name)}, {{ type: 'application/json' }}));
          for (const kind of ['dragover', 'drop'])
            document.body.dispatchEvent(new DragEvent(kind, {{ dataTransfer: data, bubbles: true, cancelable: true }}));
        }})()""")


class Page(PageCase):
    def test_an_answer_and_its_replay(self):
        self.choose(0, algorithm="low-confidence", steps=8, length=32)
        self.ask(TEXT)
        whole = self.server.post("/v1/chat/completions", {"messages": QUESTION, "algorithm": "low-confidence", "steps": 8,
                                                          "length": 32}).json
        self.assertEqual(self.browser.text(".assistant .bubble"), whole["choices"][0]["message"]["content"])
        self.browser.wait("document.querySelector('#play').textContent === 'Play'")  # it has played to the end
        self.assertEqual(self.frame(), 8)
        self.assertNotIn(None, self.cells())
        self.assertIn("NFE 8 of 8", self.browser.text(".run-facts"))
        self.seek(0)
        self.assertEqual(self.cells(), [None] * 32)
        self.seek(3)
        self.assertEqual(self.cells().count(None), 20)
        self.assertEqual(self.browser.value("document.querySelectorAll('.cell.now').length - 1"), 4, "one is the legend's")
        self.browser.click("#forward")
        self.assertEqual((self.frame(), self.cells().count(None)), (4, 16))

    def test_by_keyboard_alone(self):
        self.choose(0, algorithm="low-confidence", steps=8, length=32)
        self.ask(TEXT)
        self.browser.wait("document.querySelector('#play').textContent === 'Play'")
        self.browser.value("document.activeElement.blur()")
        self.browser.press("[")
        self.assertEqual(self.frame(), 7)
        self.browser.press("c")
        focused = "document.activeElement.getAttribute('aria-label')"
        self.assertTrue(self.browser.value(focused).startswith("Position 0:"))
        self.browser.press("ArrowRight")
        self.browser.press("ArrowDown")
        position = self.browser.value("[...document.querySelectorAll('.run .cell')].indexOf(document.activeElement)")
        self.assertGreater(position, 2)
        self.browser.press("End")
        self.assertTrue(self.browser.value(focused).startswith("Position 31:"))
        self.browser.press("Home")
        self.assertIn("position 0", self.browser.text("#look"))
        self.assertIn("committed", self.browser.text("#look"))
        self.browser.press("]")
        self.assertEqual(self.frame(), 8)
        self.browser.press(" ")
        self.browser.wait("document.querySelector('#play').textContent === 'Pause'")
        self.browser.press("/")
        self.assertEqual(self.browser.value("document.activeElement.id"), "prompt")

    def test_two_methods(self):
        self.browser.click("#compare")
        self.choose(0, algorithm="threshold", length=32)
        self.choose(1, algorithm="low-confidence", steps=16, length=32)
        self.ask(TEXT)
        self.browser.wait("document.querySelectorAll('.run').length === 2")
        self.browser.wait("document.querySelector('#play').textContent === 'Play'")
        facts = self.browser.value("[...document.querySelectorAll('.run-facts')].map((one) => one.textContent)")
        self.assertRegex(facts[0], r"NFE (\d) of \1 · .*s · 32 of 32")
        self.assertRegex(facts[1], r"NFE 16 of 16 · .*s · 32 of 32")
        titles = self.browser.value("[...document.querySelectorAll('.run-title')].map((one) => one.textContent)")
        self.assertEqual([one.split()[0] for one in titles], ["A", "B"])
        self.seek(5)
        self.assertEqual((self.cells(0).count(None), self.cells(1).count(None)), (0, 22))
        self.browser.value("(() => { const s = document.querySelector('#scale'); s.value = 'time';"
                           " s.dispatchEvent(new Event('change')); })()")
        self.assertEqual(self.cells(0).count(None) + self.cells(1).count(None) > 0, True)
        self.assertIn(" of ", self.browser.text("#frame-label"))

    def test_a_trace_goes_out_and_comes_in(self):
        trace = trace_of("--algorithm", "low-confidence", "--steps", "8", "--canvas-length", "32", TEXT)
        self.open_trace(trace)
        self.browser.wait("document.querySelectorAll('.run .cell').length === 32")
        self.assertEqual(self.browser.text(".assistant .bubble"), trace["runs"][0]["result"]["text"])
        self.assertEqual(self.browser.text(".user .bubble"), TEXT)
        self.assertIn("NFE 8 of 8", self.browser.text(".run-facts"))
        self.browser.click("#save")
        saved = os.path.join(self.browser.profile, "dllm-trace.json")
        self.browser.wait("true")
        for _ in range(500):
            if glob.glob(saved):
                break
            self.browser.value("new Promise((done) => setTimeout(done, 20))")
        with open(saved) as file:
            self.assertEqual(json.load(file), trace)

    def test_files_that_are_no_traces(self):
        for content, message in (("{", "not JSON"), ("{}", "not a trace"),
                                 ('{"type": "dllm-trace", "version": 9}', "version 1 is expected")):
            self.open_trace(content, "bad.json")
            self.browser.wait("!document.querySelector('#problem').hidden")
            self.browser.wait(f"document.querySelector('#problem').textContent.includes({json.dumps(message)})")
            self.assertTrue(self.browser.text("#problem").startswith("bad.json: "))
        self.load()

    def test_texts_are_never_markup(self):
        trace = trace_of("--canvas-length", "32", TEXT)
        one = trace["runs"][0]
        one["messages"][0]["content"] = one["result"]["text"] = one["model"]["name"] = HOSTILE
        one["options"]["algorithm"] = one["options"]["window"] = trace["program"] = HOSTILE
        for step in one["steps"]:
            for change in step["changes"]:
                change[2] = HOSTILE
        self.open_trace(trace, HOSTILE + ".json")
        self.browser.wait("document.querySelectorAll('.run .cell').length === 32")
        self.browser.hover(".run .cell")
        self.browser.wait("document.querySelector('#look').textContent.includes('onerror')")
        self.assertEqual(self.browser.value("document.querySelectorAll('img, main script').length"), 0)
        self.assertEqual(self.browser.text(".user .bubble"), HOSTILE)
        self.assertNotEqual(self.browser.value("document.title"), "owned")
        self.ask(HOSTILE)
        self.assertEqual(self.browser.value("document.querySelectorAll('img, main script').length"), 0)

    def test_refusals_name_the_field(self):
        self.choose(0, algorithm="threshold", threshold=7)
        self.ask(TEXT, wait=False)
        self.browser.wait("document.querySelector('.note') !== null")
        self.assertIn("threshold", self.browser.text(".note"))
        self.assertEqual(self.browser.value("document.querySelector('#prompt').value"), TEXT, "nothing is typed twice")
        self.browser.problems.clear()  # the browser logs each status 400

    def test_no_motion_where_none_is_wanted(self):
        self.browser.media(prefers_reduced_motion="reduce")
        self.choose(0, algorithm="low-confidence", steps=16, length=32)
        self.ask(TEXT)
        self.assertEqual(self.browser.text("#play"), "Play")
        self.assertEqual(self.frame(), 16)
        self.assertEqual(self.browser.value("document.getAnimations().length"), 0)

    def test_no_sideways_scrolling(self):
        self.browser.click("#compare")
        self.ask(TEXT)
        for width in (320, 390, 820, 1024, 1440):
            self.browser.size(width, 900)
            self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), width)

    def test_names_for_those_who_do_not_see(self):
        self.ask(TEXT)
        nameless = self.browser.value("""[...document.querySelectorAll('button, input:not([type=file]), select, textarea')]
          .filter((one) => !(one.textContent.trim() || one.getAttribute('aria-label') || one.labels?.length))
          .map((one) => one.outerHTML)""")
        self.assertEqual(nameless, [])


    def test_two_canvases_are_in_sight_together(self):
        self.browser.size(390, 844)
        self.browser.click("#compare")
        self.ask(TEXT)
        self.browser.wait("document.querySelectorAll('.run').length === 2")
        a, b = self.browser.value("[...document.querySelectorAll('.run')].map((one) => one.getBoundingClientRect().toJSON())")
        self.assertEqual(a["top"], b["top"])
        self.assertLessEqual(a["right"], b["left"])
        self.assertLessEqual(b["right"], 390)
        self.assertGreaterEqual(a["top"], 0)
        self.assertLessEqual(max(a["bottom"], b["bottom"]), 844)

    @unittest.skipUnless(AXE.exists(), "axe-core is not installed (scripts/setup --web)")
    def test_axe_finds_nothing(self):
        self.browser.media(prefers_reduced_motion="reduce")
        self.browser.click("#compare")
        for asked in (False, True):
            if asked:
                self.ask(TEXT)
            self.browser.value(AXE.read_text() + "; true")
            for scheme in ("light", "dark"):
                self.browser.media(prefers_reduced_motion="reduce", prefers_color_scheme=scheme)
                for width in (390, 1440):
                    self.browser.size(width, 900)
                    found = self.browser.value("axe.run().then((all) => all.violations.map((one) => [one.id, one.nodes[0].html]))")
                    self.assertEqual(found, [], (asked, scheme, width))


class OtherPages(PageCase):
    """A page of another origin, which sends what the official clients send."""

    @classmethod
    def setUpClass(cls):
        class Blank(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(b"<title>another page</title>")

            def log_message(self, *_):
                pass

        cls.site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blank)
        threading.Thread(target=cls.site.serve_forever, daemon=True).start()
        cls.FLAGS = ("--cors-origin", f"http://127.0.0.1:{cls.site.server_port}")
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        cls.site.shutdown()
        cls.site.server_close()
        super().tearDownClass()

    def load(self):
        self.browser.open(f"http://127.0.0.1:{self.site.server_port}/")

    def test_listed_pages_use_the_api(self):
        headers = {"Authorization": "Bearer none", "Content-Type": "application/json", "x-stainless-lang": "js",
                   "x-stainless-retry-count": "0", "anthropic-version": "2023-06-01", "x-api-key": "none",
                   "anthropic-dangerous-direct-browser-access": "true", "OpenAI-Organization": "x"}
        sent = {"method": "POST", "headers": headers, "body": json.dumps({"messages": QUESTION, "user": "me"})}
        answer = self.browser.value(f"""fetch('http://127.0.0.1:{self.server.port}/v1/chat/completions', {json.dumps(sent)})
          .then(async (reply) => [reply.status, reply.headers.get('x-request-id'), (await reply.json()).choices[0].message.content])""")
        self.assertEqual((answer[0], answer[2]), (200, self.server.post("/v1/chat/completions", {"messages": QUESTION}).json[
            "choices"][0]["message"]["content"]))
        self.assertTrue(answer[1])


class Thoughts(PageCase):
    """The words are given by an expression, as the embedded model does not think."""
    FLAGS = ("--chat-template", "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>"
             "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\n{% endfor %}assistant:",
             "--regex", "<think>\\nhm\\n</think>\\n\\n21")

    def test_they_are_apart(self):
        self.ask(TEXT)
        self.assertEqual(self.browser.text(".assistant .bubble"), "21")
        self.assertEqual(self.browser.value("document.querySelector('.thinking').textContent"), "hm")
        opened = "document.querySelector('.thoughts').open"
        self.assertFalse(self.browser.value(opened), "closed once there is a text")
        self.browser.click(".thoughts summary")
        self.assertTrue(self.browser.value(opened))
        # They go back with the answer.
        self.browser.value("window.sent = []; window.real = window.fetch; window.fetch = (path, init) => {"
                           " if (init && init.body) window.sent.push(init.body); return window.real(path, init); }; true")
        self.ask("And now?", wait=False)
        self.browser.wait("window.sent.length > 0")
        talk = json.loads(self.browser.value("window.sent[0]"))["messages"]
        self.assertEqual(talk[1], {"role": "assistant", "content": "21", "reasoning_content": "hm"})
        self.browser.wait("document.querySelectorAll('.thinking').length === 2")


class ImagesOfQuestions(PageCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        model = image_models.write(pathlib.Path(folder.name) / "model")
        if not image_models.decodes(model, PNG):
            raise unittest.SkipTest("this build decodes no PNG")
        cls.FLAGS = ("-m", model, "--mmproj", model, "--canvas-length", "8")
        super().setUpClass()

    def drop(self, name, kind="image/png", bytes_more=0):
        picture = base64.b64encode(PNG.read_bytes()).decode()
        self.browser.value(f"""(() => {{
          const bytes = Uint8Array.from(atob('{picture}'), (c) => c.charCodeAt(0));
          const data = new DataTransfer();
          data.items.add(new File([bytes, new Uint8Array({bytes_more})], {json.dumps(name)}, {{ type: '{kind}' }}));
          document.body.dispatchEvent(new DragEvent('drop', {{ dataTransfer: data, bubbles: true, cancelable: true }}));
        }})()""")

    def names(self, selector):
        return self.browser.value(f"[...document.querySelectorAll('{selector} li')].map((one) => one.firstChild.textContent)")

    def test_they_go_with_the_next_message(self):
        self.browser.wait("!document.querySelector('#attach').hidden")
        for name in ("one.png", "two.png"):
            self.drop(name)
            self.browser.wait(f"document.querySelector('#images').textContent.includes('{name}')")
        self.browser.click("#images li:first-child button")
        self.assertEqual(self.names("#images"), ["two.png"])
        self.browser.value("window.sent = []; window.real = window.fetch; window.fetch = (path, init) => {"
                           " if (init && init.body) window.sent.push(init.body); return window.real(path, init); }; true")
        self.ask("hi")
        self.assertEqual(self.names(".message.user .images"), ["two.png"])
        self.assertEqual(self.names("#images"), [])
        content = json.loads(self.browser.value("window.sent[0]"))["messages"][0]["content"]
        self.assertEqual([part["type"] for part in content], ["image_url", "text"])
        self.assertTrue(content[0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR"))
        self.drop("no.gif", "image/gif")
        self.browser.wait("document.querySelector('#problem').textContent.includes('no.gif: PNG, JPEG and WebP')")
        self.drop("large.png", bytes_more=4 << 20)
        limit = "large.png: the images of a conversation fit into 4.0 MiB"
        self.browser.wait(f"document.querySelector('#problem').textContent.includes('{limit}')")
        self.assertEqual(self.names("#images"), [])


class SeveralModels(PageCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        for name in ("a", "b"):
            shutil.copy(HARDER.with_name("tiny-llada-f32.gguf"), pathlib.Path(folder.name) / f"{name}.gguf")
        cls.FLAGS = ("--models-dir", folder.name)
        super().setUpClass()

    def loaded(self, name):
        return self.server.metric(f'dllm_model_events_total{{event="loaded",model="{name}"}}')

    def test_one_is_chosen(self):
        box = "document.querySelector('#models')"
        self.assertFalse(self.browser.value(f"{box}.hidden"))
        self.assertEqual(self.browser.value(f"[...{box}.options].map((one) => one.value)"), ["a", "b"])
        self.assertEqual((self.browser.value(f"{box}.value"), self.loaded("a")), ("a", 1))
        self.assertIn("loaded when chosen", self.browser.value(f"{box}.options[1].text"))
        self.browser.value(f"{box}.value = 'b'; {box}.dispatchEvent(new Event('change')); true")
        self.browser.wait("document.title.startsWith('b ') && !document.querySelector('#send').disabled")
        self.assertEqual(self.browser.value(f"{box}.options[1].text"), "b")
        self.ask(TEXT)
        self.assertNotEqual(self.browser.text(".assistant .bubble"), "")
        self.assertEqual(self.loaded("b"), 1)
        counted = self.server.get("/metrics").body.decode()
        self.assertRegex(counted, r'dllm_requests_submitted_total\{model="b"\} 1')
        self.load()  # it is remembered
        self.assertEqual(self.browser.value(f"{box}.value"), "b")


class LongAnswers(PageCase):
    FLAGS = ("-m", HARDER)

    def test_stopping(self):
        self.choose(0, algorithm="low-confidence", length=256)
        self.ask("Grid 30 0111110101 h", wait=False)
        self.browser.wait("Number(document.querySelector('#frame').max) >= 2")
        self.browser.press("Escape")
        self.browser.wait("document.querySelector('#send').textContent === 'Send'")
        self.assertIn("stopped", self.browser.text(".run-facts"))
        self.browser.wait("fetch('slots').then((one) => one.json()).then((list) => list.length === 0)")


class Keys(PageCase):
    FLAGS = ("--api-key", "secret")

    def load(self):
        self.browser.open(f"http://127.0.0.1:{self.server.port}/")
        self.browser.wait("document.querySelector('#key-dialog').open")

    def test_the_key_is_asked_for(self):
        self.browser.value("document.querySelector('#key').focus()")
        self.browser.type("secret")
        self.browser.press("Enter")
        self.browser.wait("!document.querySelector('#send').disabled")
        self.ask(TEXT)
        self.assertNotEqual(self.browser.text(".assistant .bubble"), "")
        self.browser.problems.clear()  # the browser logs the status 401


if __name__ == "__main__":
    if not find_chromium():
        print("skipped: there is no Chromium (scripts/setup --browser)", file=sys.stderr)
        sys.exit(77)
    unittest.main(verbosity=1)
