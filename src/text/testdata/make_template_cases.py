#!/usr/bin/env python3
"""Records template_cases.json: what jinja2 renders, in the environment that transformers builds for chat templates.

    python3 make_template_cases.py > template_cases.json        (jinja2 3.1)

A case is {"name", "template", "variables", "expected"} or, where jinja2 raises, {"name", "template", "variables",
"error": true}. The templates and their variables are in template_models.py, template_expressions.py and
template_statements.py.
"""
import json
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from template_expressions import DATA, EXPRESSIONS
from template_models import CONVERSATIONS, MODELS, TOOLS
from template_statements import STATEMENTS


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(lineno)

    def _body(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


ENV = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
ENV.filters["tojson"] = tojson
ENV.globals["raise_exception"] = raise_exception


def record(cases, name, template, variables):
    case = {"name": name, "template": template, "variables": variables}
    try:
        case["expected"] = ENV.from_string(template).render(**variables)
    except Exception as error:  # whatever jinja2 or Python raises: our engine must refuse it too
        case["error"] = True
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    cases.append(case)


def main():
    cases = []
    for model, template in MODELS.items():
        for name, messages in CONVERSATIONS.items():
            for prompt in (True, False):
                if not prompt and name not in ("turns", "system_turns", "tool"):
                    continue
                variables = {"messages": messages, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>"}
                record(cases, f"{model}/{name}/{'prompt' if prompt else 'complete'}", template, variables)
        for name in ("one", "tool", "tools_twice"):
            variables = {"messages": CONVERSATIONS[name], "add_generation_prompt": True, "bos_token": "<s>",
                         "eos_token": "</s>", "tools": TOOLS}
            record(cases, f"{model}/{name}/tools", template, variables)
    expressions, pending = [], ""
    for line in EXPRESSIONS.split("\n"):
        pending = pending + "\n" + line if pending else line
        if pending.count('"') % 2 == 0 or "'" in pending:
            expressions.append(pending)
            pending = ""
    for expression in expressions:
        record(cases, f"expression/{expression}", "{{ " + expression + " }}", DATA)
    for name, template in STATEMENTS.items():
        record(cases, f"statement/{name}", template, DATA)
    # Variables are the same for many cases: stored once, named by index.
    pool = []
    for case in cases:
        if case["variables"] not in pool:
            pool.append(case["variables"])
        case["variables"] = pool.index(case["variables"])
    json.dump({"jinja2": jinja2.__version__, "variables": pool, "cases": cases}, sys.stdout, ensure_ascii=False, indent=0)
    print()
    print(f"{len(cases)} cases, {sum('error' in c for c in cases)} errors", file=sys.stderr)


if __name__ == "__main__":
    main()
