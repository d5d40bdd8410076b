"""The WebAssembly build: kernels, answers in node against the native program, and the page in headless Chromium.

    python3 wasm_test.py BUILD/OF/WASM PATH/TO/dllm [unittest arguments]     (make wasm-test)

Browser tests are skipped without Chromium. Times are printed, never asserted.
"""

import functools
import http.server
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "app"))

from browser import Browser, find_chromium  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
DLLM = os.path.abspath(sys.argv.pop(1))
SITE = BUILD / "site"
MODELS = ROOT / "models"
README = "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?"
README_HASH = "96953692ed956716"
PROMPTS = [README, "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?", "Reverse: a b c d",
           "Solve 17+4."]
HARDER_PROMPT = "Grid 30 0111110101 h"


def node_command():
    """Node before version 22 has relaxed SIMD behind a flag."""
    node = shutil.which("node") or shutil.which("nodejs")
    flag = "--experimental-wasm-relaxed-simd"
    known = subprocess.run([node, "--v8-options"], capture_output=True, text=True, check=True).stdout
    return [node, flag] if flag in known else [node]


@functools.cache
def native(model, prompt):
    """hash, NFE and text of the native program."""
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DLLM_ARG_")}
        subprocess.run([DLLM, "run", *(["-m", str(model)] if model else []), "--trace", trace, prompt], check=True,
                       capture_output=True, env=environment)
        result = json.loads(pathlib.Path(trace).read_text())["runs"][0]["result"]
        return result["hash"], result["nfe"], result["text"]


def answers(model, prompts, repeats=1, scalar=False):
    out = subprocess.run([*node_command(), ROOT / "tests/wasm/answers.mjs", SITE, model, str(repeats),
                          "scalar" if scalar else "fast", *prompts],
                         capture_output=True, text=True, check=False)
    if out.returncode != 0:
        raise AssertionError(out.stderr)
    return [json.loads(line) for line in out.stdout.splitlines()]


class Kernels(unittest.TestCase):
    def test_every_set_has_the_bits_of_scalar(self):
        out = subprocess.run([*node_command(), ROOT / "tests/wasm/selftest.mjs", SITE, BUILD / "dllm_kernels_selftest.wasm"],
                             capture_output=True, text=True, check=False)
        self.assertEqual(out.returncode, 0, out.stdout[-3000:] + out.stderr[-1000:])
        for name in ("simd128", "relaxed"):
            if f"{name:12} not available" not in out.stdout:
                self.assertRegex(out.stdout, rf"(?m)^{name} +[1-9][0-9]{{3,}} cases, 0 differ")
        self.assertRegex(out.stdout, r"(?m)^simd128 .* cases, 0 differ")


class Node(unittest.TestCase):
    def test_answers_of_the_embedded_model(self):
        found = answers(MODELS / "tiny-llada-f32.gguf", PROMPTS, repeats=10, scalar=True)
        self.assertEqual(native(None, README)[0], README_HASH)
        for one in (line for line in found if "prompt" in line):
            self.assertEqual((one["hash"], one["nfe"], one["text"]), native(None, one["prompt"]), one)
            self.assertEqual(one["said"], one["text"])
            self.assertGreater(one["steps"], 0)
            if one["asked"] != "":
                self.assertEqual(one["isa"], one["asked"])
            if one["prompt"] == README:
                print(f"{one['program']} {one['isa']}: {one['seconds'] * 1000:.1f} ms", file=sys.stderr)
        self.assertEqual({one["isa"] for one in found} - {"relaxed"}, {"scalar", "simd128"})
        best = [one["isa"] for one in found if one.get("asked") == ""]
        self.assertEqual(best[0], "simd128")
        self.assertTrue(set(best) <= {"simd128", "relaxed"})

    def test_refusals(self):
        found = [one for one in answers(MODELS / "tiny-llada-f32.gguf", ["Solve 17+4."]) if "refused" in one]
        self.assertGreaterEqual(len(found), 2)
        for one in found:
            self.assertEqual(one["refused"][0], [400, "threshold"])
            self.assertEqual([status for status, _ in one["refused"]], [400] * 4)
            self.assertEqual(one["refused"][1], [400, "messages"])
            self.assertEqual(one["broken"][0], 400)
            self.assertNotEqual(one["broken"][1], "")

    def test_other_types(self):
        for kind in ("F16", "Q4_0", "Q8_0"):
            with self.subTest(kind), tempfile.TemporaryDirectory() as folder:
                model = pathlib.Path(folder) / "model.gguf"
                made = subprocess.run([DLLM, "quantize", MODELS / "tiny-llada-f32.gguf", model, kind], capture_output=True,
                                      text=True, check=False)
                self.assertEqual(made.returncode, 0, made.stderr)
                for one in (line for line in answers(model, [README]) if "prompt" in line):
                    self.assertEqual((one["hash"], one["nfe"], one["text"]), native(model, README), one["isa"])

    def test_sizes(self):
        for program in ("dllm.wasm", "dllm-relaxed.wasm"):
            packed = len(lzma.compress((SITE / program).read_bytes()))
            print(f"{program}: {packed / 1e6:.2f} MB compressed", file=sys.stderr)
            self.assertLess(packed, 4_000_000)


class Worker(unittest.TestCase):
    def test_a_file_that_comes_while_another_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(SITE / "page" / "wasm" / "worker.js", folder)
            out = subprocess.run([*node_command(), ROOT / "tests/wasm/worker.mjs", folder], capture_output=True, text=True,
                                 check=True, timeout=60)
        self.assertEqual(json.loads(out.stdout), ["first", "second"])


class Site(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".wasm": "application/wasm"}

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, directory=str(SITE), **more)

    def translate_path(self, path):
        return str(MODELS / path[8:]) if path.startswith("/models/") else super().translate_path(path)

    def log_message(self, *_):
        pass


class NextSite(Site):
    """A page without the engine, and after an update another build of offline.js and of the program."""

    updated = False

    def do_GET(self):
        name = self.path[1:]
        if name not in ("blank.html", "offline.js", "dllm.wasm"):
            return super().do_GET()
        body = b'<link rel="icon" href="data:,">' if name == "blank.html" else (SITE / name).read_bytes()
        if NextSite.updated:
            body = body.replace(b'const CACHE = "dllm-', b'const CACHE = "dllm-next-') + b"\n//next"
        self.send_response(200)
        self.send_header("Content-Type", {"html": "text/html", "js": "text/javascript"}.get(name.rsplit(".")[-1], "application/wasm"))
        self.send_header("Cache-Control", "max-age=3600")
        self.end_headers()
        self.wfile.write(body)
        return None


@unittest.skipUnless(find_chromium(), "there is no Chromium (scripts/setup --browser)")
class Update(unittest.TestCase):
    def test_the_program_that_was_used_is_kept_through_an_update(self):
        """In the new build's form, although the browser's own cache has the old one."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NextSite)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        NextSite.updated = False
        program = ("caches.keys().then(async (names) => Promise.all(names.map(async (name) => { const cache = await caches.open(name);"
                   " const one = await cache.match('dllm.wasm'); return [name, one ? (await one.text()).slice(-6) : '']; })))")
        with Browser(seconds=int(os.environ.get("DLLM_BROWSER_SECONDS", "120"))) as browser:
            try:
                browser.open(url + "blank.html")
                browser.value("navigator.serviceWorker.register('offline.js').then(() => navigator.serviceWorker.ready)"
                              ".then(({ active }) => active.postMessage(new URL('dllm.wasm', location.href).href))")
                browser.wait(f"{program}.then((all) => all.length === 1 && all[0][1] !== '')")
                NextSite.updated = True
                browser.value("navigator.serviceWorker.ready.then((one) => one.update()).then(() => true)")
                browser.wait("caches.keys().then((all) => all.length === 1 && all[0].startsWith('dllm-next-'))")
                self.assertEqual([kept for _, kept in browser.value(program)], ["//next"])
            finally:
                server.shutdown()
                server.server_close()
            self.assertEqual(browser.problems, [])


@unittest.skipUnless(find_chromium(), "there is no Chromium (scripts/setup --browser)")
class Page(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.stop)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self.browser = Browser(seconds=int(os.environ.get("DLLM_BROWSER_SECONDS", "120")))
        self.addCleanup(self.close)
        self.load()

    def stop(self):
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def close(self):
        self.browser.__exit__()
        self.assertEqual(self.browser.problems, [], "the page logged no error, and its policy stopped nothing")

    def load(self):
        self.browser.open(self.url)
        self.browser.wait("!document.querySelector('#send').disabled")

    def ask(self, text, wait=True):
        self.browser.value("document.querySelector('#prompt').focus()")
        self.browser.type(text)
        self.browser.press("Enter")
        if wait:
            self.browser.wait("document.querySelector('#send').textContent === 'Send' && document.querySelectorAll('.foot').length > 0")

    def result(self, body):
        """The last event of an answer that is asked for beside the page."""
        return json.loads(self.browser.value(f"""import('./page/transport.js').then(async ({{ send }}) => {{
          const reply = await send('v1/chat/completions', {{ body: {json.dumps(json.dumps(body))} }});
          const lines = (await reply.text()).split('\\n\\n').filter((one) => one.startsWith('data: {{'));
          return lines.at(-1).slice(6); }})"""))["diffusion"]["result"]

    def drop_model(self, name):
        self.browser.value(f"""fetch('models/{name}').then((one) => one.blob()).then((blob) => {{
          const data = new DataTransfer();
          data.items.add(new File([blob], {json.dumps(name)}));
          document.body.dispatchEvent(new DragEvent('drop', {{ dataTransfer: data, bubbles: true, cancelable: true }}));
        }})""")

    def test_an_answer_and_its_canvas(self):
        self.ask(README)
        digest, nfe, text = native(None, README)
        self.assertEqual(self.browser.text(".assistant .bubble"), text)
        self.browser.wait("document.querySelector('#play').textContent === 'Play'")
        self.assertIn(f"NFE {nfe} of {nfe}", self.browser.text(".run-facts"))
        cells = "[...document.querySelectorAll('.run .cell')].map((one) => one.querySelector('.token').textContent).join('')"
        self.assertTrue(self.browser.value(cells).startswith("7+5=12"), "the canvas has the answer from its first position on")
        self.browser.value("""(() => { const s = document.querySelector('#frame'); s.value = 0;
          s.dispatchEvent(new Event('input')); })()""")
        self.assertEqual(self.browser.value(cells), "", "before the first pass all positions are masks")
        self.assertEqual(self.result({"messages": [{"role": "user", "content": README}]})["hash"], digest)
        props = json.loads(self.browser.value(
            "import('./page/transport.js').then(({ send }) => send('props', {})).then((one) => one.text())"))
        times = [self.result({"messages": [{"role": "user", "content": README}]})["seconds"] for _ in range(10)]
        print(f"Chromium, {props['isa']}: {min(times) * 1000:.1f} ms", file=sys.stderr)
        self.assertIn(props["isa"], ("simd128", "relaxed"))

    def test_examples_and_methods_are_the_servers(self):
        self.assertEqual(self.browser.value("document.querySelectorAll('.example').length"), 4)
        methods = self.browser.value("[...document.querySelector('[name=algorithm]').options].map((one) => one.value)")
        self.assertIn("low-confidence", methods)
        body = {"messages": [{"role": "user", "content": README}], "algorithm": "low-confidence", "steps": 8, "length": 32}
        self.assertEqual(self.result(body)["nfe"], 8)

    def test_a_model_of_the_visitors_own(self):
        name = "harder-llada-f16.gguf"
        self.drop_model(name)
        self.browser.wait(f"document.title.startsWith({json.dumps(name)}) && !document.querySelector('#send').disabled")
        self.assertEqual(self.browser.value("document.querySelectorAll('.example').length"), 0)
        self.ask(HARDER_PROMPT)
        self.assertEqual(self.browser.text(".assistant .bubble"), native(MODELS / name, HARDER_PROMPT)[2])
        self.browser.value("(() => { const box = document.querySelector('#models'); box.value = 'tiny-llada';"
                           " box.dispatchEvent(new Event('change')); })()")
        self.browser.wait("document.title.startsWith('tiny-llada') && !document.querySelector('#send').disabled")
        self.assertEqual(self.result({"messages": [{"role": "user", "content": README}]})["hash"], README_HASH)

    def test_files_that_are_no_models(self):
        self.browser.value("""(() => {
          const data = new DataTransfer();
          data.items.add(new File(['GGUF, but not really'], 'bad.gguf'));
          document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
        })()""")
        self.browser.wait("!document.querySelector('#problem').hidden")
        self.assertIn("bad.gguf", self.browser.text("#problem"))
        self.load()

    def test_the_page_stays_responsive_and_stops(self):
        self.drop_model("harder-llada-f16.gguf")
        self.browser.wait("document.title.startsWith('harder') && !document.querySelector('#send').disabled")
        self.browser.value("""window.longest = 0; window.last = performance.now(); window.ticking = setInterval(() => {
          const now = performance.now(); window.longest = Math.max(window.longest, now - window.last); window.last = now; }, 10);
          document.querySelector('[name=algorithm]').value = 'low-confidence';
          document.querySelector('[name=algorithm]').dispatchEvent(new Event('change')); true""")
        self.browser.value("""(() => { const box = document.querySelector('.method [name=length]');
          box.value = '256'; box.dispatchEvent(new Event('input')); })()""")
        self.ask(HARDER_PROMPT, wait=False)
        self.browser.wait("Number(document.querySelector('#frame').max) >= 2")
        self.browser.press("Escape")
        self.browser.wait("document.querySelector('#send').textContent === 'Send'")
        self.assertIn("stopped", self.browser.text(".run-facts"))
        print(f"longest pause of the page: {self.browser.value('window.longest'):.0f} ms", file=sys.stderr)
        # The engine is free again.
        body = {"messages": [{"role": "user", "content": HARDER_PROMPT}]}
        self.assertEqual(self.result(body)["hash"], native(MODELS / "harder-llada-f16.gguf", HARDER_PROMPT)[0])

    def test_without_a_network(self):
        self.browser.wait("navigator.serviceWorker.ready.then(() => caches.keys()).then((one) => one.length === 1)")
        self.browser.wait("caches.keys().then(([name]) => caches.open(name)).then((one) => one.keys())"
                          ".then((all) => all.some((one) => one.url.endsWith('.wasm')))")
        self.stop()
        self.load()
        self.ask(README)
        self.assertEqual(self.browser.text(".assistant .bubble"), native(None, README)[2])
        self.assertEqual(self.result({"messages": [{"role": "user", "content": README}]})["hash"], README_HASH)


if __name__ == "__main__":
    unittest.main(verbosity=1)
