"""Answers of a given structure: --regex and --json-schema, and the fields of the server.

    python3 structure_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import re
import unittest

from cli_case import CliCase, run
from serve_case import ServeCase

QUESTION = "Dan has 7 apples and eats 3 of them. How many are left?"
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}, "unit": {"enum": ["apples", "pens"]}, "why": {"type": "string", "maxLength": 12}},
    "required": ["answer", "unit"],
    "additionalProperties": False,
}


class Verb(CliCase):
    def test_answers_match(self):
        for regex in (r"[0-9]{1,4}", r"(yes|no), because [a-z ]{5,20}\.", "(é|ü)+x?", ""):
            if not regex:
                self.assertIn("--regex: an empty text", self.fails(2, "run", QUESTION, "--regex", regex))
                continue
            made = json.loads(self.ok("run", "-o", "json", QUESTION, "--regex", regex).stdout)
            self.assertIsNotNone(re.fullmatch(regex, made["text"]), (regex, made["text"]))
            self.assertEqual(made["config"]["options"]["regex"], regex)
        self.assertNotIn("regex", json.loads(self.ok("run", "-o", "json", QUESTION).stdout)["config"]["options"])

    def test_schemas_as_text_and_file(self):
        text = self.ok("run", "--canvas-length", "48", QUESTION, "--json-schema", json.dumps(SCHEMA)).stdout
        answer = json.loads(text)
        self.assertIn(answer["unit"], ("apples", "pens"))
        self.assertIsInstance(answer["answer"], int)
        path = self.dir / "schema.json"
        path.write_text(json.dumps(SCHEMA))
        self.assertEqual(self.ok("run", "--canvas-length", "48", QUESTION, "-jf", path).stdout, text)

    def test_choices(self):
        flags = ("choose", "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?")
        choices = ["7+5=12\n#### 12", "7+5=13\n#### 13", "12 pens"]
        given = [word for text in choices for word in ("--choice", text)]
        made = json.loads(self.ok(*flags, *given, "-o", "json").stdout)["choices"]
        self.assertEqual(made[0]["text"], choices[0])
        self.assertEqual({one["text"] for one in made}, set(choices))
        self.assertAlmostEqual(sum(one["probability"] for one in made), 1)
        self.assertEqual([one["probability"] for one in made], sorted((one["probability"] for one in made), reverse=True))
        self.assertTrue(all(one["log_probability"] < 0 for one in made))
        self.assertTrue(self.ok(*flags, *given).stdout.endswith("\n"))
        self.assertIn("--choice", self.fails(2, *flags, "--choice", "a"))
        self.assertIn("choices: 'a' is given twice", self.fails(2, *flags, "--choice", "a", "--choice", "a"))

    def test_errors_name_the_place(self):
        for schema, place in (({"type": "integer", "multipleOf": 99991}, "$.multipleOf"), ([], "$"), ({"$ref": "#/x"}, "$.$ref")):
            self.assertIn("--json-schema " + place + ":", self.fails(2, "run", "x", "--json-schema", json.dumps(schema)))
        self.assertIn("--regex byte 2", self.fails(2, "run", "x", "--regex", "(a"))
        self.assertIn("needs at least", self.fails(2, "run", "--canvas-length", "3", "x", "--json-schema",
                                                     json.dumps(SCHEMA)))
        self.assertIn("--defer-eos", self.fails(2, "run", "x", "--regex", "a", "--defer-eos"))
        self.assertIn("--regex", self.fails(2, "infill", "a[[2]]", "--regex", "a"))
        self.assertIn("constrained", self.fails(2, "bench", "generate", "--regex", "a"))
        self.fails(3, "run", "x", "-jf", "/nonexistent/schema.json")


CHAT = "/v1/chat/completions"
ASKED = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 64}


def of_schema(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}}


class Server(ServeCase):
    def content(self, **fields):
        reply = self.server.post(CHAT, {**ASKED, **fields})
        self.assertEqual(reply.status, 200, reply.json)
        self.assertEqual(reply.json["choices"][0]["finish_reason"], "stop")
        return reply.json["choices"][0]["message"]["content"]

    def test_schemas(self):
        text = self.content(**of_schema(SCHEMA))
        self.assertEqual(list(json.loads(text))[:2], ["answer", "unit"], "in the order of the schema")
        for same in ({"json_schema": SCHEMA}, {"guided_json": SCHEMA}, {"guided_json": json.dumps(SCHEMA)}):
            self.assertEqual(self.content(**same), text)
        self.assertIsInstance(json.loads(self.content(response_format={"type": "json_object"})), dict)
        digit = {"type": "integer", "minimum": 0, "maximum": 9}
        self.assertIn(json.loads(self.content(response_format={"type": "json_object", "schema": digit})), range(10))
        plain = self.content(max_tokens=24)
        for neutral in ({"response_format": {"type": "text"}}, {"json_schema": {}}, {"response_format": None}):
            self.assertEqual(self.content(max_tokens=24, **neutral), plain)

    def test_expressions_and_choices(self):
        for field in ("regex", "guided_regex"):
            self.assertIsNotNone(re.fullmatch("[0-9]+ (apples|pens)", self.content(**{field: "[0-9]+ (apples|pens)"})))
        choices = ["it is (4)", "none?", "a|b", "\\"]
        self.assertIn(self.content(guided_choice=choices), choices)

    def test_streams_are_prefixes(self):
        whole = self.content(**of_schema(SCHEMA))
        chunks = [data for name, data in self.server.events(CHAT, {**ASKED, **of_schema(SCHEMA)})[:-1]]
        self.assertEqual("".join(one["choices"][0]["delta"].get("content", "") for one in chunks), whole)

    def test_other_routes(self):
        body = {"prompt": QUESTION, "max_tokens": 64, **of_schema(SCHEMA)}
        json.loads(self.server.post("/v1/completions", body).json["choices"][0]["text"])
        form = {"type": "json_schema", "name": "answer", "schema": SCHEMA}
        reply = self.server.post("/v1/responses", {"input": QUESTION, "max_output_tokens": 64, "text": {"format": form}}).json
        json.loads(reply["output"][0]["content"][0]["text"])
        self.assertEqual(reply["text"]["format"]["schema"], SCHEMA)
        reply = self.server.post("/v1/messages", {**ASKED, "guided_json": SCHEMA}).json
        json.loads(reply["content"][0]["text"])

    def test_choices(self):
        question = "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?"
        choices = ["13 pens", "7+5=12\n#### 12"]
        reply = self.server.post("/v1/choose", {"messages": [{"role": "user", "content": question}], "choices": choices}).json
        self.assertEqual(reply["choice"], choices[1])
        self.assertEqual([one["text"] for one in reply["data"]], choices)
        self.assertAlmostEqual(sum(one["probability"] for one in reply["data"]), 1)
        made = json.loads(run("choose", question, "--choice", choices[0], "--choice", choices[1], "-o", "json").stdout)
        self.assertAlmostEqual(made["choices"][0]["log_probability"], reply["data"][1]["log_probability"], 6)
        for wrong in ([], ["a", "a"], [""], "a", ["x" * 200], ["a", 1], None):
            self.refused(400, "/v1/choose", {"context": "x", "choices": wrong}, "choices")
        self.refused(400, "/v1/choose", {"choices": ["a", "b"]}, "context")
        self.refused(400, "/v1/choose", {"context": "x", "choices": ["a", "b"], "other": 1}, "other")

    def test_a_stop_text_cuts_the_answer(self):
        answer = self.server.post(CHAT, {**ASKED, "regex": "ab-cd", "stop": "-c"})
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.json["choices"][0]["message"]["content"], "ab")
        self.assertEqual(answer.json["choices"][0]["finish_reason"], "stop")

    def test_refusals_name_the_path(self):
        place = "response_format.json_schema.schema"
        for schema, path in (({"type": "object", "properties": {"a": {"type": "string", "format": 1}}}, ".properties.a.format"),
                             ({"type": "integer", "multipleOf": 99991}, ".multipleOf"), ([], ""),
                             ({"allOf": [{"format": "date"}, {"format": "time"}]}, ".allOf[1].format"),
                             ({"type": "array", "items": {"$ref": "#/x"}}, ".items.$ref")):
            self.refused(400, CHAT, {**ASKED, **of_schema(schema)}, place + path)
        for wrong in ({"type": "xml"}, {}, [], "json", {"type": "json_schema"}, {"type": "json_schema", "json_schema": {}},
                      {"type": "json_schema", "json_schema": {"schema": SCHEMA, "other": 1}}):
            error = self.refused(400, CHAT, {**ASKED, "response_format": wrong})
            self.assertTrue(error["param"].startswith("response_format"), error)
        schema = {"type": "integer", "minimum": 0, "maximum": 9}
        for wrong, param in (({"type": "text", "json_schema": {"schema": schema}}, "response_format.json_schema"),
                             ({"type": "text", "schema": schema}, "response_format.schema"),
                             ({"type": "json_object", "json_schema": {"schema": schema}}, "response_format.json_schema"),
                             ({"type": "json_schema", "schema": schema, "json_schema": {"schema": schema}}, "response_format.schema")):
            self.refused(400, CHAT, {**ASKED, "response_format": wrong}, param)
        self.refused(400, "/v1/responses", {"input": "x", "text": {"format": {"type": "text", "schema": schema}}}, "text.format.schema")
        self.refused(400, CHAT, {**ASKED, "json_schema": {"type": "x"}}, "json_schema.type")
        self.refused(400, CHAT, {**ASKED, "guided_json": "{"}, "guided_json")
        self.refused(400, CHAT, {**ASKED, "guided_choice": []}, "guided_choice")
        self.refused(400, CHAT, {**ASKED, "guided_regex": "a", **of_schema(SCHEMA)}, "guided_regex")
        self.refused(400, CHAT, {**ASKED, "regex": "a", **of_schema(SCHEMA)}, "regex")
        self.refused(400, CHAT, {**ASKED, "regex": "a", "defer_eos": True}, "defer_eos")
        self.refused(400, CHAT, {**ASKED, "regex": "a{1,9999}b{1,9999}"}, "regex")
        self.refused(400, CHAT, {**ASKED, "regex": "aaaa aaaa aaaa", "length": 1, "max_tokens": None}, "length")
        self.refused(400, CHAT, {**ASKED, "regex": "a", "algorithm": "credit"}, "algorithm")
        self.refused(400, CHAT, {"messages": ASKED["messages"], "template": ["x", {"mask": 2}], "regex": "a"}, "regex")
        tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
        self.refused(400, CHAT, {**ASKED, "regex": "a", "tools": [tool]})
        unread = {"type": "json_schema", "schema": {"unevaluatedItems": {}}}
        self.refused(400, "/v1/responses", {"input": "x", "text": {"format": unread}}, "text.format.schema.unevaluatedItems")


if __name__ == "__main__":
    unittest.main(verbosity=1)
