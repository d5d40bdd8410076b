"""The page of `dllm serve`: its files, their headers, and its requests to the server.

    python3 serve_page_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import re
import unittest

from cli_case import CliCase
from serve_case import QUESTION, Server, ServeCase

TYPES = {"html": "text/html", "css": "text/css", "svg": "image/svg+xml", "js": "text/javascript"}


def policy(reply):
    """The directives of a Content-Security-Policy."""
    parts = reply.headers["Content-Security-Policy"].split("; ")
    return {one.split()[0]: one.split()[1:] for one in parts}


class Files(ServeCase):
    def files(self):
        """All files named by the page, and all modules imported by its modules."""
        page = self.server.get("/")
        self.assertEqual(page.status, 200)
        found = {"/": page}
        names = set(re.findall(r'(?:href|src)="(page/[^"]+)"', page.body.decode()))
        while names:
            path = "/" + names.pop()
            if path in found:
                continue
            found[path] = self.server.get(path)
            self.assertEqual(found[path].status, 200, path)
            if path.endswith(".js"):
                names |= {"page/" + name for name in re.findall(r'from "\./([^"]+)"', found[path].body.decode())}
        return found

    def test_types_and_headers(self):
        found = self.files()
        self.assertGreater(len(found), 10)
        for path, reply in found.items():
            kind = path.rsplit(".", 1)[-1] if "." in path else "html"
            self.assertEqual(reply.headers["Content-Type"], TYPES[kind] + "; charset=utf-8", path)
            self.assertEqual(reply.headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(reply.headers["Referrer-Policy"], "no-referrer")
            self.assertEqual(reply.headers["Cache-Control"], "no-cache")

    def test_nothing_but_itself_may_run(self):
        for path, reply in self.files().items():
            rules = policy(reply)
            self.assertEqual(rules["default-src"], ["'none'"], path)
            for name in ("script-src", "style-src", "connect-src", "img-src"):
                self.assertEqual(rules[name], ["'self'"], path)
            for name in ("base-uri", "form-action", "frame-ancestors", "trusted-types"):
                self.assertEqual(rules[name], ["'none'"], path)
            self.assertEqual(rules["require-trusted-types-for"], ["'script'"])
            self.assertNotIn(b"://", re.sub(rb"http://www\.w3\.org/\S+", b"", reply.body), "no other server is named: " + path)
            for danger in (b"innerHTML", b"outerHTML", b"insertAdjacentHTML", b"document.write", b"eval("):
                self.assertNotIn(danger, reply.body, path)
        page = self.server.get("/").body.decode()
        self.assertIsNone(re.search(r"<[^>]*\s(on\w+|style)=", page), "no scripts or styles in attributes")

    def test_what_a_browser_has_is_not_sent_again(self):
        for path in ("/", "/page/main.js"):
            first = self.server.get(path)
            again = self.server.get(path, **{"If-None-Match": first.headers["ETag"]})
            self.assertEqual((again.status, again.body), (304, b""))
            self.assertEqual(again.headers["ETag"], first.headers["ETag"])
            self.assertNotIn("Content-Length", again.headers, "it would be the length of what is not sent")
            self.assertEqual(self.server.get(path, **{"If-None-Match": '"other"'}).body, first.body)
            head = self.server.ask("HEAD", path)
            self.assertEqual((head.status, head.body), (200, b""))
            self.assertEqual(head.headers["Content-Length"], str(len(first.body)))

    def test_other_paths_and_methods(self):
        for path in ("/page/", "/page/nothing.js", "/page/../serve.cpp", "/page/%2e%2e/x", "/index.html", "/page/main.js/"):
            self.assertEqual(self.server.get(path).status, 404, path)
        self.assertEqual(self.server.post("/", {}).status, 405)
        self.assertEqual(self.server.get("/", Host="evil.example").status, 403)

    def test_the_options(self):
        options = self.server.get("/options").json
        parts = {part["key"]: {one["name"]: one for one in part["methods"]} for part in options["parts"]}
        self.assertTrue(parts["algorithm"]["threshold"]["usable"])
        self.assertFalse(parts["algorithm"]["levenshtein"]["usable"], "no trained head of this model")
        threshold = parts["algorithm"]["threshold"]["options"][0]
        self.assertEqual((threshold["key"], threshold["type"], threshold["minimum"]), ("threshold", "number", 0))
        self.assertIn("length", [one["key"] for one in options["common"]])
        self.assertNotIn("latency", [one["key"] for part in options["parts"] for method in part["methods"]
                                     for one in method["options"]], "files are the operator's")
        for part in options["parts"]:
            for method in part["methods"]:
                if not method["usable"]:
                    self.refused(400, "/v1/chat/completions", {"messages": QUESTION, part["key"]: method["name"]})


class Keys(ServeCase):
    FLAGS = ("--api-key", "secret")

    def test_the_page_is_open_and_the_model_is_not(self):
        self.assertEqual(self.server.get("/").status, 200)
        self.assertEqual(self.server.get("/page/main.js").status, 200)
        self.assertEqual(self.server.get("/options").status, 401)
        self.assertEqual(self.server.get("/options", Authorization="Bearer secret").status, 200)


class Traces(CliCase):
    """`dllm run --trace` and the events of the server have the same parts."""

    QUESTION = QUESTION[0]["content"]

    def steps(self, trace):
        return [{key: value for key, value in step.items() if key != "seconds"} for step in trace["runs"][0]["steps"]]

    def test_the_file_and_the_events_agree(self):
        flags = {"algorithm": "low-confidence", "steps": 8, "length": 32}
        file = self.dir / "trace.json"
        given = [word for key, value in flags.items() for word in ("--" + key.replace("length", "canvas-length"), value)]
        out = self.ok("run", "--trace", file, *given, self.QUESTION).stdout
        trace = json.loads(file.read_text())
        self.assertEqual((trace["type"], trace["version"], len(trace["runs"])), ("dllm-trace", 1, 1))
        one = trace["runs"][0]
        self.assertEqual(one["messages"], QUESTION)
        self.assertEqual(one["result"]["text"], out.removesuffix("\n"))
        self.assertEqual(len(one["steps"]), one["result"]["steps"])
        seconds = [step["seconds"] for step in one["steps"]]
        self.assertEqual(seconds, sorted(seconds))
        # Both clocks count seconds of the same steps: a factor of a thousand would mean different units.
        self.assertLess(seconds[-1], 1000 * one["result"]["seconds"])
        canvas = {}
        for step in one["steps"]:
            self.assertEqual(step["positions"], 32)
            canvas.update({position: token for position, token, text, confidence in step["changes"]})
            self.assertEqual(step["masked"], 32 - sum(token >= 0 for token in canvas.values()))
        with Server() as server:
            chunks = [data for name, data in server.events("/v1/chat/completions", {
                "messages": QUESTION, "diffusion_events": True, **flags})[:-1]]
        told = [chunk["diffusion"] for chunk in chunks if "diffusion" in chunk]
        self.assertEqual(self.steps({"runs": [{"steps": told[:-1]}]}), self.steps(trace))
        self.assertTrue(told[-1]["final"])
        self.assertEqual(told[-1]["options"], one["options"])
        same = ("text", "finish", "answer_tokens", "nfe", "steps", "seed", "hash")
        self.assertEqual([told[-1]["result"][key] for key in same], [one["result"][key] for key in same])

    def test_positions_that_become_masks_again(self):
        file = self.dir / "remask.json"
        self.ok("run", "--trace", file, "--algorithm", "hierarchical-remask", "--threshold", "0.5", "--low-threshold", "0.1",
                "--remask-threshold", "0.5", "--temperature", "2", "--seed", "3", "--canvas-length", "32",
                "Dan has 7 apples")
        changes = [change for step in json.loads(file.read_text())["runs"][0]["steps"] for change in step["changes"]]
        again = [change for change in changes if change[1] == -1]
        self.assertGreater(len(again), 0)
        self.assertTrue(all(change[2:] == ["", 0] for change in again))

    def test_files_that_cannot_be_written(self):
        self.assertIn("missing", self.fails(3, "run", "--trace", self.dir / "missing" / "t.json", "x"))
        self.fails(2, "run", "--trace", self.dir, "x")


if __name__ == "__main__":
    unittest.main(verbosity=1)
