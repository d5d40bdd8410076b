"""Drives headless Chromium through its DevTools protocol over two pipes, without any package."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find_chromium():
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page. A context manager."""

    def __init__(self, width=1440, height=900, seconds=60):
        self.seconds = seconds
        self.profile = tempfile.mkdtemp(prefix="dllm-browser-")
        low_read, self.down = os.pipe()
        self.up, low_write = os.pipe()
        program = find_chromium()
        # The protocol's two pipes must be descriptors 3 and 4 of the browser; here they may already have these numbers.
        down_read, up_write = (fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 20) for one in (low_read, low_write))
        shell = f'exec 3<&{down_read} 4>&{up_write} {down_read}<&- {up_write}>&-; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "sh", program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             f"--user-data-dir={self.profile}", f"--window-size={width},{height}", "about:blank"],
            pass_fds=(down_read, up_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for one in (low_read, low_write, down_read, up_write):
            os.close(one)
        self.buffer, self.number, self.session = b"", 0, None
        self.problems = []  # exceptions and errors of the page
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(domain + ".enable")
        self.call("Browser.setDownloadBehavior", session=False, behavior="allow", downloadPath=self.profile)
        self.size(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.down)
        os.close(self.up)
        shutil.rmtree(self.profile, ignore_errors=True)

    def read(self):
        end = time.monotonic() + self.seconds
        while b"\0" not in self.buffer:
            if not select.select([self.up], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.up, 1 << 20)
            if not piece:
                raise EOFError("the browser has gone")
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(line)
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(message["params"]["exceptionDetails"])[:2000])
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.problems.append(message["params"]["entry"]["text"] + " " + message["params"]["entry"].get("url", ""))
        return message

    def call(self, method, session=True, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session and self.session:
            message["sessionId"] = self.session
        os.write(self.down, json.dumps(message).encode() + b"\0")
        while True:
            reply = self.read()
            if reply.get("id") == self.number:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def value(self, expression):
        """The value of a JavaScript expression, awaited."""
        reply = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in reply:
            raise RuntimeError(f"{expression}: {reply['exceptionDetails']}")
        return reply["result"].get("value")

    def wait(self, expression):
        end = time.monotonic() + self.seconds
        while not (found := self.value(expression)):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {expression}; {self.problems}")
            time.sleep(0.02)
        return found

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, text=None):
        code = {"Enter": 13, "Escape": 27, " ": 32, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
                "Home": 36, "End": 35}.get(key, ord(key[0].upper()))
        shown = text if text is not None else "\r" if key == "Enter" else key if len(key) == 1 else ""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **({"text": shown} if shown else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def click(self, selector):
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def hover(self, selector):
        x, y = self.value(f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                          " return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def text(self, selector):
        return self.value(f"document.querySelector({json.dumps(selector)}).innerText")

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)

    def media(self, **features):
        """Media features, for example prefers_color_scheme="dark", prefers_reduced_motion="reduce"."""
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": k.replace("_", "-"), "value": v} for k, v in features.items()])

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
