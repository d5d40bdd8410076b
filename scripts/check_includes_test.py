#!/usr/bin/env python3
"""Unit tests of scripts/check_includes.py."""

import pathlib
import tempfile
import unittest
import unittest.mock

import check_includes as checked

SOURCE = '''// void not_a_function() {
#include "base/try.h"
namespace dllm {
namespace {

constexpr Row kRows[] = {{1}, {2}};
const char* text = "void quoted() {";
char brace = '{';
auto raw = R"x(int raw() { )")x";

template <int (*f)(int), class T = std::vector<int>>
int one() { return 1; }

}  // namespace

struct Foo : Bar {
  Foo() : a_{1}, b_(2) {
    call([] { return 1'000; });
  }
  int get() const noexcept { return a_; }
  bool operator()(int x) const { return x == a_; }
  int a_{0};
};

Expected<std::vector<int>> Foo::many(
    int count, const std::string& name = "")
    const {
  for (int i = 0; i < count; ++i) {
    if (i) continue;
  }
  return {};
}

TEST(Suite, Name) {
  EXPECT_EQ(1, 1);
}
}  // namespace dllm
'''


class Functions(unittest.TestCase):
    def test_names_lines_and_places(self) -> None:
        found = {f.name: f for f in checked.functions(SOURCE)}
        self.assertEqual(list(found), ["one", "Foo", "get", "operator()", "Foo::many", "TEST"])
        self.assertEqual((found["one"].line, found["one"].lines), (11, 2))
        self.assertEqual((found["Foo"].line, found["Foo"].lines), (17, 3))
        self.assertEqual((found["Foo::many"].line, found["Foo::many"].lines), (25, 8))
        self.assertEqual([name for name, f in found.items() if f.hidden], ["one"])

    def test_initialisers_and_types_are_none(self) -> None:
        for text in ("int x = f() + g({1, 2});", "enum class E { kA };", "struct S { int a = 1; };",
                     "std::function<int()> f = [] { return 1; };", "namespace a::b { class C; }"):
            self.assertEqual(list(checked.functions(text)), [], text)

    def test_parameters(self) -> None:
        for head, count in (("void f()", 0), ("void f( )", 0), ("int f(int a)", 1),
                            ("bool operator()(int x, int y) const", 2),
                            ("template <class A, class B> void f(std::map<A, B> a, int (*g)(int, int) = nullptr)", 2),
                            ("void f(Size size = {1, 2}, int b = g(1, 2), F32 (&sum)[kRows][kCount])", 3),
                            ("Foo(int a, int b) : a_(a), b_(b, 1), c_(2)", 2),
                            ("auto f(auto a, std::function<int(int, int)> b) -> std::pair<int, int>", 2)):
            self.assertEqual(checked.parameter_count(head), count, head)

    def test_limit_of_parameters(self) -> None:
        def errors(count: int) -> list[str]:
            text = "void f(" + ", ".join(f"int a{i}" for i in range(count)) + ") {}"
            return checked.check_parameters({pathlib.Path("a.cpp"): list(checked.functions(text))})
        self.assertEqual(errors(7), [])
        self.assertEqual(errors(8), ["a.cpp:1: f has 8 parameters, 7 at the most; what belongs together is a struct"])


class Lengths(unittest.TestCase):
    def test_limits_and_exceptions(self) -> None:
        def errors(lines: int, exceptions: dict[str, int]) -> list[str]:
            return checked.check_lengths({"a.cpp f": lines}, 60, exceptions, "function")
        self.assertEqual(errors(60, {}), [])
        self.assertEqual(errors(61, {}), ["a.cpp f: 61 lines; a function may have 60"])
        self.assertEqual(errors(70, {"a.cpp f": 70}), [])
        self.assertEqual(errors(71, {"a.cpp f": 70}), ["a.cpp f: 71 lines; a function may have 70"])
        self.assertIn("needs no exception", errors(60, {"a.cpp f": 70})[0])
        self.assertIn("needs no exception", errors(1, {"gone.cpp g": 70})[0])


class Parts(unittest.TestCase):
    parts: dict[str, set[str]] = {"isa": set(), "device": {"shared.h"}, "machine": set()}

    def wrong(self, file: str, included: str) -> str | None:
        return checked.check_part("npu", self.parts, pathlib.PurePath(file), included)

    def test_only_downwards(self) -> None:
        self.assertIsNone(self.wrong("machine/m.cpp", "npu/device/device.h"))
        self.assertIsNone(self.wrong("machine/m.cpp", "npu/machine/state.h"))
        self.assertEqual(self.wrong("device/d.cpp", "npu/machine/state.h"), "npu/device may not include npu/machine")
        self.assertEqual(self.wrong("device/d.cpp", "npu/nowhere/x.h"), "'nowhere' is no part of npu")

    def test_headers_of_the_folder_above(self) -> None:
        self.assertIsNone(self.wrong("device/d.cpp", "npu/shared.h"))
        self.assertIn("may not include shared.h", self.wrong("isa/i.cpp", "npu/shared.h") or "")

    def test_the_folder_itself_may_include_every_part(self) -> None:
        self.assertIsNone(self.wrong("verbs.cpp", "npu/machine/state.h"))

    def test_parts_of_products_are_those_of_cmake(self) -> None:
        for product in checked.PRODUCTS:
            folders = {p.parent.name for p in (checked.ROOT / "src" / product).glob("*/CMakeLists.txt")}
            self.assertEqual(set(checked.product_parts(product)), folders)


class Products(unittest.TestCase):
    def errors(self, file: str, text: str) -> list[str]:
        """What is wrong with a file of these lines, if it were in the tree."""
        parts: dict[str, dict[str, set[str]]] = {
            name: {part: set() for part in checked.product_parts(name)} for name in checked.PRODUCTS}
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(checked, "ROOT", pathlib.Path(folder)):
            path = checked.ROOT / file
            path.parent.mkdir(parents=True)
            path.write_text(text)
            module = pathlib.PurePath(file).parts[1]
            if path.name == "CMakeLists.txt":
                return checked.check_links(checked.ROOT / "src" / module)
            return checked.check_includes(module, parts.get(module, {}), path)

    def test_the_core_knows_no_model_and_no_compiler(self) -> None:
        for other in ("graph/graph.h", "model/weights.h", "backend/backend.h", "npu_compiler/compiler/step.h"):
            self.assertEqual(self.errors("src/npu_core/machine/m.cpp", f'#include "{other}"\n'),
                             [f"src/npu_core/machine/m.cpp:1: npu_core may not include {other.split('/')[0]}"])
        self.assertEqual(self.errors("src/npu_core/machine/m.cpp", '#include "format/npy.h"\n'), [])

    def test_the_compiler_knows_no_backend(self) -> None:
        self.assertIn("npu_compiler may not include backend",
                      self.errors("src/npu_compiler/compiler/c.cpp", '#include "backend/step_plan.h"\n')[0])
        self.assertIn("npu_compiler may not include npu_backend",
                      self.errors("src/npu_compiler/compiler/c.cpp", '#include "npu_backend/timed/timed_backend.h"\n')[0])

    def test_the_hardware_knows_the_core_alone(self) -> None:
        text = '#include "npu_core/isa/isa.h"\n#include "test/core_bench.h"\n#include <vector>\n#include "engine/load.h"\n'
        self.assertEqual(checked.check_hardware(pathlib.PurePath("rtl/test/core_test.cpp"), text),
                         ["rtl/test/core_test.cpp:4: rtl may not include engine"])
        self.assertEqual(checked.check_hardware(pathlib.PurePath("rtl/answer/main.cpp"), text), [])

    def test_links_of_products(self) -> None:
        self.assertIn("npu_core may not link graph",
                      self.errors("src/npu_core/CMakeLists.txt", "dllm_product(npu_core PARTS isa DEPS graph base)\n")[0])
        self.assertIn("npu_core may not link npu_compiler",
                      self.errors("src/npu_core/CMakeLists.txt", "dllm_product(npu_core DEPS npu_compiler LIBS x)\n")[0])

    def test_only_tests_use_folders_called_testing(self) -> None:
        include = '#include "npu_compiler/testing/reference/executor.h"\n'
        self.assertIn("is for tests", self.errors("src/npu_backend/accuracy/a.cpp", include)[0])
        self.assertIn("is for tests", self.errors("src/npu_compiler/compiler/a.cpp", include)[0])
        for file in ("npu_backend/accuracy/a_test.cpp", "npu_compiler/compiler/a_test.cpp", "npu_backend/functional/testing/b.h"):
            self.assertEqual(self.errors(f"src/{file}", include), [], file)
        self.assertIn("name it after TESTING", self.errors(
            "src/text/CMakeLists.txt", "dllm_module(text COLD\n  SOURCES utf8.cpp testing/fuzz_entry.cpp\n  DEPS base)\n")[0])
        self.assertEqual(self.errors(
            "src/text/CMakeLists.txt", "dllm_module(text SOURCES utf8.cpp\n  TESTING testing/fuzz_entry.cpp DEPS base)\n"), [])


class Unity(unittest.TestCase):
    def test_names_are_unique_within_a_folder(self) -> None:
        def function(name: str, hidden: str | None) -> checked.Function:
            return checked.Function(name, 1, 1, 0, hidden)
        found = {pathlib.Path("src/a/x.cpp"): [function("f", "namespace dllm/namespace")],
                 pathlib.Path("src/a/y.cpp"): [function("f", "namespace dllm/namespace")],
                 pathlib.Path("src/a/z.cpp"): [function("f", "namespace dllm/namespace z/namespace"),
                                               function("g", None)],
                 pathlib.Path("src/b/x.cpp"): [function("f", "namespace dllm/namespace"), function("g", None)]}
        errors = checked.check_unity(found)
        self.assertEqual(len(errors), 1)
        self.assertTrue(errors[0].startswith("src/a/y.cpp: 'f' is in an anonymous namespace of x.cpp too"))


class Cycles(unittest.TestCase):
    def errors(self, **includes: list[str]) -> list[str]:
        return checked.check_cycles({pathlib.Path(f"src/m/{name}.h"): "".join(f'#include "m/{other}.h"\n' for other in others)
                                     for name, others in includes.items()})

    def test_headers_that_include_each_other_are_named(self) -> None:
        self.assertEqual(self.errors(a=["b", "c"], b=["c"], c=["missing"]), [])
        self.assertEqual(self.errors(a=["a"]), ["src/m/a.h: includes itself: a.h -> a.h"])
        self.assertEqual(self.errors(a=["b"], b=["c"], c=["b"], d=["b", "c"]),
                         ["src/m/b.h: includes itself: b.h -> c.h -> b.h"])


class Tree(unittest.TestCase):
    def test_the_tree_is_clean(self) -> None:
        """With a lower limit of parameters, so that it also shows that the tree's are counted."""
        limit = checked.MAX_PARAMETERS
        with unittest.mock.patch.object(checked, "MAX_PARAMETERS", limit - 1):
            errors = checked.check_tree()
        others = [error for error in errors if f"has {limit} parameters" not in error]
        self.assertEqual(others, [])
        self.assertNotEqual(errors, [], f"there are functions of {limit} parameters")


if __name__ == "__main__":
    unittest.main()
