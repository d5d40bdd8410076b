"""Answers of a given structure: --regex and --json-schema.

    python3 structure_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import re
import unittest

from cli_case import CliCase

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
        text = self.ok("run", "-n", "48", QUESTION, "--json-schema", json.dumps(SCHEMA)).stdout
        answer = json.loads(text)
        self.assertIn(answer["unit"], ("apples", "pens"))
        self.assertIsInstance(answer["answer"], int)
        path = self.dir / "schema.json"
        path.write_text(json.dumps(SCHEMA))
        self.assertEqual(self.ok("run", "-n", "48", QUESTION, "-jf", path).stdout, text)

    def test_errors_name_the_place(self):
        for schema, place in (({"type": "integer", "multipleOf": 2}, "$.multipleOf"), ([], "$"), ({"$ref": "#"}, "$.$ref")):
            self.assertIn("--json-schema " + place + ":", self.fails(2, "run", "x", "--json-schema", json.dumps(schema)))
        self.assertIn("--regex byte 2", self.fails(2, "run", "x", "--regex", "(a"))
        self.assertIn("needs at least", self.fails(2, "run", "-n", "3", "x", "--json-schema", json.dumps(SCHEMA)))
        self.assertIn("--temperature", self.fails(2, "run", "x", "--regex", "a", "--temp", "1"))
        self.assertIn("--regex", self.fails(2, "infill", "a[[2]]", "--regex", "a"))
        self.assertIn("constrained", self.fails(2, "bench", "generate", "--regex", "a"))
        self.fails(3, "run", "x", "-jf", "/nonexistent/schema.json")


if __name__ == "__main__":
    unittest.main(verbosity=1)
