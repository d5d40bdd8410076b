"""Answers with a given form: `template` of chat completions and /infill, and `dllm infill`.

    python3 serve_form_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import unittest

from cli_case import CliCase
from serve_case import QUESTION, ServeCase

FORM = ["12+3=", {"mask": 2}, "\n", {"mask": 2}, "-5=", {"mask": 2}, "\n#### ", {"mask": 2}]


def joined(form, slots):
    """The text that a form and its gaps' texts make."""
    rest = list(slots)
    return "".join(part if isinstance(part, str) else rest.pop(0) for part in form)


class Templates(ServeCase):
    def test_given_text_never_changes(self):
        for extra in ({}, {"algorithm": "low-confidence"}, {"cache": "dual", "window": "sliding"}, {"temperature": 2, "seed": 5}):
            reply = self.server.post("/v1/chat/completions", {"messages": QUESTION, "template": FORM, **extra}).json
            slots = reply["dllm"]["slots"]
            self.assertEqual(len(slots), 4)
            self.assertEqual(reply["choices"][0]["message"]["content"], joined(FORM, slots), extra)
            self.assertEqual(reply["choices"][0]["finish_reason"], "stop")

    def test_the_model_sees_what_is_given(self):
        body = {"messages": [{"role": "user", "content": "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?"}]}
        reply = self.server.post("/v1/chat/completions", {**body, "template": ["7+5=", {"mask": 2}, "\n#### ", {"mask": 2}]}).json
        self.assertEqual(reply["dllm"]["slots"], ["12", "12"])

    def test_streams_and_events(self):
        body = {"messages": QUESTION, "template": FORM}
        whole = self.server.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"]
        chunks = [data for name, data in self.server.events("/v1/chat/completions", {**body, "diffusion_events": True})[:-1]]
        self.assertEqual("".join(one["choices"][0]["delta"].get("content", "") for one in chunks), whole)
        steps = [one["diffusion"] for one in chunks if "changes" in one.get("diffusion", {})]
        first = {position: (text, confidence) for position, token, text, confidence in steps[0]["changes"]}
        self.assertEqual(first[0], ("1", 1.0), "the first step tells what is given")
        canvas = {}
        for step in steps:
            canvas.update({position: text for position, token, text, confidence in step["changes"]})
        self.assertEqual(sorted(canvas), list(range(steps[0]["positions"])))

    def test_infill(self):
        form = ["Dan has 7", {"mask": 3}, ". How many", {"mask": 4}]
        reply = self.server.post("/infill", {"template": form}).json
        self.assertEqual(reply["content"], joined(form, reply["dllm"]["slots"]))
        self.assertTrue(reply["stop"])

    def test_gaps_are_filled_unless_they_may_end(self):
        """The model would end the second gap at once, if it might."""
        question = [{"role": "user", "content": "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?"}]
        form = ["7+5=12\n#### 12", {"mask": 2}, "!", {"mask": 1}]
        for path, body in (("/v1/chat/completions", {"messages": question}), ("/infill", {})):
            for more in ({}, {"algorithm": "low-confidence"}, {"logit_bias": {"5": 1}}):
                filled = self.server.post(path, {**body, **more, "template": form}).json["dllm"]
                self.assertNotIn("", filled["slots"], (path, more))
                self.assertEqual(filled["empty_slots"], [])
        ended = self.server.post("/v1/chat/completions", {"messages": question, "template": form, "suppress_eos": False}).json["dllm"]
        self.assertEqual(ended["empty_slots"], [i for i, text in enumerate(ended["slots"]) if text == ""])
        self.assertIn(0, ended["empty_slots"])

    def test_refusals(self):
        chat, base = "/v1/chat/completions", {"messages": QUESTION}
        for wrong in ([], "x", [{"mask": 0}], [{"mask": 1.5}], [{"mask": 2, "other": 1}], [7], ["x", {}], [{"mask": 100000}],
                      [{"mask": 400}, {"mask": 400}], ["x" * 100000, {"mask": 1}]):
            error = self.refused(400, chat, {**base, "template": wrong})
            self.assertTrue(error["param"].startswith("template"), error)
        self.refused(400, chat, {**base, "template": ["no gap"]})
        self.refused(400, chat, {**base, "template": FORM, "max_tokens": 5}, "max_tokens")
        self.refused(400, chat, {**base, "template": FORM, "stop": "x"})
        self.refused(400, chat, {**base, "template": FORM, "algorithm": "revision"})
        self.refused(400, "/infill", {"template": FORM, "input_prefix": "x"}, "template")
        self.refused(400, "/infill", {})
        self.refused(400, "/v1/completions", {"prompt": "x", "template": FORM}, "template")


class Verb(CliCase):
    def test_infill(self):
        text = "12+3=[[2]]\n[[2]]-5=[[2]]\n#### [[2]]"
        made = json.loads(self.ok("infill", "-o", "json", "--ask", QUESTION[0]["content"], text).stdout)
        self.assertEqual(made["text"], joined(FORM, made["slots"]))
        self.assertEqual(self.ok("infill", "--ask", QUESTION[0]["content"], text).stdout, made["text"] + "\n")
        gaps = ("infill", "--ask", QUESTION[0]["content"], "12+3=15\n15-5=10\n#### 10[[2]].")
        self.assertNotIn("warning", self.ok(*gaps).stderr)
        self.assertIn("warning: gap 1 is empty", self.ok(*gaps, "--suppress-eos=false").stderr)
        plain = self.ok("infill", "a[[x]] b[[3]] c[[").stdout
        self.assertTrue(plain.startswith("a[[x]] b") and plain.endswith(" c[[\n"), plain)

    def test_usage(self):
        self.assertIn("[[4]]", self.fails(2, "infill", "no gap"))
        self.assertIn("[[0]]", self.fails(2, "infill", "x[[0]]"))
        self.fails(2, "infill", "x[[99999999999999999999]]")
        self.fails(2, "infill", "-n", "8", "x[[2]]")
        self.fails(2, "infill", "--algorithm", "revision", "x[[2]]")


if __name__ == "__main__":
    unittest.main(verbosity=1)
