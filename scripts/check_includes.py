#!/usr/bin/env python3
"""Fails if the code departs from the rules of docs/design/architecture.md:

- a module includes or links a module that is not below it (ALLOWED);
- a part of a module (a folder of src/app, src/text or of a product) includes a part that is not below it (PARTS, and
  the lists of dllm_product() in CMake);
- code that users run includes a header of a folder testing/, which is for tests and fuzz targets;
- the hardware's programs in rtl/ include another module than npu_core and what that one includes; those in rtl/answer,
  which run whole answers, may;
- a C++ file is longer than 400 lines or a function longer than 60, and is not a listed exception (LONG_FILES,
  LONG_FUNCTIONS); exceptions that are no longer needed must be removed;
- a function has more than seven parameters: what belongs together is a struct;
- a header of src/ includes all of nlohmann/json.hpp where json_fwd.hpp would do (JSON_BY_VALUE lists the others);
- headers include each other;
- two sources of one folder use the same name in their anonymous namespaces: a unity build compiles them as one unit.
"""

import pathlib
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Each module may include the modules listed for it here, and public headers. There are no cycles by construction: a
# module lists only modules that are above it in this table.
ALLOWED: dict[str, list[str]] = {
    "base": [],
    "image": ["base"],
    "hub": ["base"],
    "numerics": ["base"],
    "format": ["numerics", "base"],
    "text": ["format", "base"],
    "constrain": ["text", "base"],
    "graph": ["format", "numerics", "base"],
    "model": ["graph", "format", "text", "numerics", "base"],
    "quant": ["model", "graph", "format", "numerics", "base"],
    "backend": ["model", "graph", "base"],
    "ranks": ["backend", "model", "graph", "base"],
    "cpu": ["ranks", "backend", "model", "graph", "format", "numerics", "base"],
    "vulkan": ["cpu", "backend", "model", "graph", "format", "numerics", "base"],
    "npu_core": ["format", "numerics", "base"],
    "npu_compiler": ["npu_core", "model", "graph", "format", "numerics", "base"],
    "npu_backend": ["npu_compiler", "npu_core", "backend", "model", "graph", "format", "numerics", "base"],
    "decode": ["backend", "constrain", "model", "base"],
    "engine": ["decode", "npu_backend", "npu_compiler", "npu_core", "vulkan", "cpu", "ranks", "backend", "model", "graph",
               "constrain", "text", "format", "image", "base"],
    "browser": ["engine", "text", "base"],
    "eval": ["engine", "model", "text", "format", "base"],
    "serve": ["eval", "engine", "constrain", "text", "base"],
    "app": ["hub", "serve", "eval", "engine", "quant", "decode", "npu_backend", "npu_compiler", "npu_core", "cpu", "ranks", "backend",
            "model", "graph", "text", "format", "numerics", "image", "base"],
}

# Parts of a module in their order: each may include those before it and the headers of the module's own folder that
# are named with it. The module's own folder may include every part. (The parts of the products are read from their
# CMakeLists.txt; testing/ comes after them.)
PARTS: dict[str, dict[str, set[str]]] = {
    "app": {"cli": set(), "npu": set(), "bench": set()},
    "text": {"tokenizer": {"marked_text.h", "utf8.h"}, "jinja": {"marked_text.h", "utf8.h"}},
}
# Pairs that the order would allow but that should not be needed.
APART = {("app", "bench", "npu"), ("text", "jinja", "tokenizer")}
PRODUCTS = ("npu_core", "npu_compiler", "npu_backend")

# Headers whose structs hold JSON by value, or whose functions read it. All others include json_fwd.hpp.
JSON_BY_VALUE = {"src/constrain/testing/validate.h", "src/model/testing/fuzz_entry.h",
                 "src/model/testing/hf_directory.h", "src/npu_compiler/sweep/testing/fuzz_entry.h",
                 "src/npu_compiler/workload/testing/fuzz_entry.h", "src/npu_core/timing/testing/fuzz_entry.h",
                 "src/npu_core/timing/memo.h", "src/serve/json.h"}

MAX_FILE, MAX_FUNCTION, MAX_PARAMETERS = 400, 60, 7
# Files and functions that are currently longer. Entries may only be removed, and numbers may only decrease.
LONG_FILES = {
    "src/model/source_hf_test.cpp": 449,
    "src/npu_core/machine/matrix_test.cpp": 406,
}
LONG_FUNCTIONS = {
    "src/cpu/kernels/pairs-inl.h pair_tile": 122,
    "src/model/model_test.cpp metadata_damages": 62,
    "src/npu_core/isa/isa_test.cpp TEST": 73,
}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
ALONE = re.compile(r"\bALONE\s+([a-z0-9_\s.]+)")
DEPS = re.compile(r"\bDEPS\s+([a-z_\s]+?)(?:\b[A-Z_]+\b|\))")
SOURCES = re.compile(r"\bSOURCES\s+((?:[^\s)A-Z]\S*\s+)*)")
PRODUCT_PARTS = re.compile(r"\bPARTS\s+([a-z_\s]+?)(?:\b[A-Z_]+\b|\))")

COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^()\s\\]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'|^[ \t]*\#(?:\\\n|[^\n])*", re.S | re.M)
PARENTHESISED = re.compile(r"\([^()]*\)")
NAME_BEFORE_PARENTHESIS = re.compile(r"(operator\s*[^\s\w]+|[~\w:]+)\s*\(")
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
AFTER_PARAMETERS = re.compile(r"\)\s*(const|noexcept|override|final|->|$|:)")
INITIALISER_LIST = re.compile(r"\)[^()]*(?<!:):(?!:)")
QUALIFIED_END = re.compile(r"\)\s*(?:(?:const|noexcept|override|final)\s*)*$")


class Function(NamedTuple):
    name: str
    line: int  # of its first line, from 1
    lines: int
    parameters: int
    hidden: str | None  # its namespaces, if one is anonymous and it is not a member; such names belong to one unit


def blanked(text: str) -> str:
    """The source without comments, preprocessor lines and the contents of literals; line numbers are kept."""
    def blank(match: re.Match[str]) -> str:
        token = match.group(0)
        return ('""' if token[0] in "R\"'" else "") + "\n" * token.count("\n")
    return COMMENT_OR_LITERAL.sub(blank, text)


def without_template(head: str) -> str:
    """`head` without its template parameters, which may be functions."""
    while match := re.match(r"\s*template\s*<", head):
        depth, at = 1, match.end()
        while depth > 0 and at < len(head):
            depth += (head[at] == "<") - (head[at] == ">" and head[at - 1] != "-")
            at += 1
        head = head[at:]
    return head


def function_name(head: str) -> str | None:
    """The function whose body follows `head`, the text between the last ; or brace and this one; None: no function."""
    head = without_template(head)
    if "(" not in head:
        return None
    flat = head
    while (shorter := PARENTHESISED.sub("", flat)) != flat:
        flat = shorter
    if "operator" not in head and "=" in flat:
        return None
    if SCOPE.search(flat) and not AFTER_PARAMETERS.search(head):
        return None
    match = NAME_BEFORE_PARENTHESIS.search(head)
    return match.group(1) if match else None


def parameter_count(head: str) -> int:
    """Of the function whose body follows `head`. Commas in types and default values separate no parameters."""
    head = without_template(head)
    match = NAME_BEFORE_PARENTHESIS.search(head)
    assert match is not None
    depth, commas, some = 0, 0, False  # depth: parentheses, braces and template arguments open within the list
    for before, c in zip(head[match.end() - 1:], head[match.end():]):
        if c in "([{" or (c == "<" and (before.isalnum() or before == "_")):
            depth += 1
        elif c == ")" and depth == 0:
            break
        elif c in ")]}" or (c == ">" and before != "-" and depth > 0):
            depth -= 1
        commas += c == "," and depth == 0
        some = some or not c.isspace()
    return commas + some


def is_member_initialiser(head: str) -> bool:
    """`Foo() : a_{1}, b_{2} {`: a brace after a name initialises a member, others begin the body."""
    return bool(INITIALISER_LIST.search(head) and re.search(r"[\w>]$", head) and not QUALIFIED_END.search(head))


def functions(source: str) -> Iterator[Function]:
    """Every function with a body, including those of classes; lambdas and local classes count as part of theirs."""
    scopes: list[str] = []
    head: list[str] = []
    head_line, line, depth = 0, 1, 0  # depth: braces open within a body or an initialiser
    name: str | None = None
    parameters = 0
    keep_head = False
    for c in blanked(source):
        if depth > 0:
            depth += (c == "{") - (c == "}")
            if depth == 0:
                if name is not None:
                    path = "/".join(scopes)
                    hidden = path if "namespace" in scopes and "class" not in path and "::" not in name else None
                    yield Function(name, head_line, line - head_line + 1, parameters, hidden)
                if keep_head:
                    head.append("{}")
                else:
                    head, head_line = [], 0
        elif c == "{":
            text = "".join(head).strip()
            name, keep_head = function_name(text), False
            parameters = parameter_count(text) if name is not None else 0
            if name is not None and is_member_initialiser(text):
                name, keep_head, depth = None, True, 1
            elif name is not None or "=" in text:
                depth = 1
            else:
                scopes.append(text if text.startswith("namespace") else "class")
                head, head_line = [], 0
        elif c in "};":
            if c == "}" and scopes:
                scopes.pop()
            head, head_line = [], 0
        else:
            if head_line == 0 and not c.isspace():
                head_line = line
            if head_line > 0:
                head.append(c)
        line += c == "\n"


def product_parts(name: str) -> list[str]:
    """Of the whole product: a build may leave parts out."""
    found = PRODUCT_PARTS.findall((ROOT / "src" / name / "CMakeLists.txt").read_text())
    return max((parts.split() for parts in found), key=len, default=[])


def check_part(module: str, parts: dict[str, set[str]], inside: pathlib.PurePath, included: str) -> str | None:
    """What is wrong with including `included`, if anything. `inside`: the including file, within the module."""
    source, target = inside.parts[0] if len(inside.parts) > 1 else "", included.split("/")[1]
    if source not in parts or target == source:
        return None
    order = list(parts)
    if included.count("/") == 1:
        name = included.split("/")[1]
        if name in parts[source]:
            return None
        return f"{module}/{source} may not include {name} of the folder above"
    if target not in order:
        return f"'{target}' is no part of {module}"
    if order.index(target) > order.index(source) or (module, source, target) in APART:
        return f"{module}/{source} may not include {module}/{target}"
    return None


def check_includes(module: str, parts: dict[str, set[str]], path: pathlib.Path) -> list[str]:
    errors = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        included, place = match.group(1), f"{path.relative_to(ROOT)}:{number}"
        target = included.split("/")[0]
        if "/" not in included or target == "dllm":
            continue
        if "/testing/" in included:
            of_tests = path.stem.endswith("_test") or path.stem.startswith("test_")
            if "testing" not in path.parts and not of_tests:
                errors.append(f"{place}: '{included}' is for tests")
            elif target == module:
                continue
        if target == module:
            inside = path.relative_to(ROOT / "src" / module)
            if parts and (wrong := check_part(module, parts, inside, included)):
                errors.append(f"{place}: {wrong}")
        elif target not in ALLOWED:
            if target not in (p.name for p in path.parent.iterdir()):
                errors.append(f"{place}: '{included}' is in no known module")
        elif target not in ALLOWED[module]:
            errors.append(f"{place}: {module} may not include {target}")
    return errors


def check_hardware(path: pathlib.PurePath, text: str) -> list[str]:
    """`path`: a C++ file below rtl/. Folders of rtl/ itself are named as in `test/core_bench.h`."""
    if path.parts[:2] == ("rtl", "answer"):
        return []
    allowed = {"npu_core", "dllm", "test", *ALLOWED["npu_core"]}
    return [f"{path}:{number}: rtl may not include {match.group(1).split('/')[0]}"
            for number, line in enumerate(text.splitlines(), 1)
            if (match := INCLUDE.match(line)) and "/" in match.group(1) and match.group(1).split("/")[0] not in allowed]


def check_links(folder: pathlib.Path) -> list[str]:
    """What CMake links to the module, and its sources: those of folders testing/ belong after TESTING."""
    errors = []
    for cmake in sorted(folder.rglob("CMakeLists.txt")):
        text, place = cmake.read_text(), cmake.relative_to(ROOT)
        errors += [f"{place}: {folder.name} may not link {dep}"
                   for match in DEPS.finditer(text) for dep in match.group(1).split()
                   if dep not in ALLOWED[folder.name] and not (folder / dep).is_dir()]
        errors += [f"{place}: {source} is for tests: name it after TESTING"
                   for match in SOURCES.finditer(text) for source in match.group(1).split() if "testing/" in source]
    return errors


def check_lengths(lengths: dict[str, int], limit: int, exceptions: dict[str, int], what: str) -> list[str]:
    """`lengths`: by "path" or "path function". An exception must be removed once its subject is short enough."""
    errors = []
    for key, lines in lengths.items():
        if lines > max(limit, exceptions.get(key, 0)):
            errors.append(f"{key}: {lines} lines; a {what} may have {max(limit, exceptions.get(key, 0))}")
    errors += [f"scripts/check_includes.py: '{key}' needs no exception any more: remove it" for key in exceptions
               if lengths.get(key, 0) <= limit]
    return errors


def check_parameters(found: dict[pathlib.Path, list[Function]]) -> list[str]:
    return [f"{path}:{f.line}: {f.name} has {f.parameters} parameters, {MAX_PARAMETERS} at the most; what belongs "
            "together is a struct" for path, defined in found.items() for f in defined if f.parameters > MAX_PARAMETERS]


def check_unity(found: dict[pathlib.Path, list[Function]]) -> list[str]:
    """Functions of anonymous namespaces that two sources of a folder define, unless CMake compiles one of them alone."""
    errors = []
    owners: dict[tuple[pathlib.Path, str, str], pathlib.Path] = {}
    alone: dict[pathlib.Path, set[str]] = {}
    for path, defined in found.items():
        if path.suffix != ".cpp" or path.stem.endswith("_test") or path.parts[0] != "src":
            continue
        cmake = ROOT / path.parent / "CMakeLists.txt"
        if path.parent not in alone:
            text = cmake.read_text() if cmake.exists() else ""
            alone[path.parent] = {name for match in ALONE.finditer(text) for name in match.group(1).split()}
        if path.name in alone[path.parent]:
            continue
        for namespaces, name in sorted({(f.hidden, f.name) for f in defined if f.hidden}):
            first = owners.setdefault((path.parent, namespaces, name), path)
            if first != path:
                errors.append(f"{path}: '{name}' is in an anonymous namespace of {first.name} too; in a unity build "
                              "both are one unit")
    return errors


def check_cycles(texts: dict[pathlib.Path, str]) -> list[str]:
    """Headers of src/ that include each other. Each may have the others' text or none of it, by who comes first."""
    errors = []
    included = {path: [pathlib.Path("src", match.group(1)) for line in text.splitlines()
                       if (match := INCLUDE.match(line))] for path, text in texts.items()}
    known: set[pathlib.Path] = set()  # they and what they include have been looked at

    def visit(path: pathlib.Path, above: list[pathlib.Path]) -> None:
        if path in above:
            errors.append(f"{path}: includes itself: {' -> '.join(p.name for p in [*above[above.index(path):], path])}")
        elif path in included and path not in known:
            for other in included[path]:
                visit(other, [*above, path])
            known.add(path)

    for path in sorted(included):
        visit(path, [])
    return errors


def sources() -> list[pathlib.Path]:
    return [path for folder in ("include", "src", "python", "research", "tests", "examples", "bench", "fuzz")
            for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".h", ".cpp")]


def check_tree() -> list[str]:
    errors = []
    order = list(ALLOWED)
    for module, below in ALLOWED.items():
        errors += [f"table: {module} lists {b}, which is not below it" for b in below
                   if order.index(b) > order.index(module)]
    parts: dict[str, dict[str, set[str]]] = {
        **PARTS, **{name: {part: set() for part in [*product_parts(name), "testing"]} for name in PRODUCTS}}
    for folder in sorted(p for p in (ROOT / "src").iterdir() if p.is_dir()):
        if folder.name not in ALLOWED:
            errors.append(f"src/{folder.name}: not in the table of scripts/check_includes.py")
            continue
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".h", ".cpp"):
                errors += check_includes(folder.name, parts.get(folder.name, {}), path)
        errors += check_links(folder)
    for path in sorted((ROOT / "rtl").rglob("*")):
        if path.suffix in (".h", ".cpp"):
            errors += check_hardware(path.relative_to(ROOT), path.read_text())
    texts = {path.relative_to(ROOT): path.read_text() for path in sources()}
    errors += [f"{path}: includes all of JSON; json_fwd.hpp is enough for declarations" for path, text in texts.items()
               if path.suffix == ".h" and path.parts[0] == "src" and "<nlohmann/json.hpp>" in text
               and str(path) not in JSON_BY_VALUE]
    found = {path: list(functions(text)) for path, text in texts.items()}
    errors += check_lengths({str(p): t.count("\n") for p, t in texts.items()}, MAX_FILE, LONG_FILES, "file")
    longest: dict[str, int] = {}
    for path, defined in found.items():
        for f in defined:
            key = f"{path} {f.name}"
            longest[key] = max(longest.get(key, 0), f.lines)
    errors += check_lengths(longest, MAX_FUNCTION, LONG_FUNCTIONS, "function")
    return errors + check_parameters(found) + check_cycles(texts) + check_unity(found)


def main() -> int:
    errors = check_tree()
    print("\n".join(errors) if errors else "includes: all arrows run downwards", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
