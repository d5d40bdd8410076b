#!/usr/bin/env python3
"""Unit tests of scripts/check_includes.py."""

import pathlib
import unittest

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
        self.assertIsNone(self.wrong("isa/i_test.cpp", "npu/test_data.h"))
        self.assertIn("may not include shared.h", self.wrong("isa/i.cpp", "npu/shared.h") or "")

    def test_the_folder_itself_may_include_every_part(self) -> None:
        self.assertIsNone(self.wrong("verbs.cpp", "npu/machine/state.h"))

    def test_parts_of_npu_are_those_of_cmake(self) -> None:
        text = (checked.ROOT / "src/npu/CMakeLists.txt").read_text()
        folders = {p.parent.name for p in (checked.ROOT / "src/npu").glob("*/CMakeLists.txt")}
        self.assertEqual(set(checked.npu_parts(text)), folders)


class Unity(unittest.TestCase):
    def test_names_are_unique_within_a_folder(self) -> None:
        def function(name: str, hidden: str | None) -> checked.Function:
            return checked.Function(name, 1, 1, hidden)
        found = {pathlib.Path("src/a/x.cpp"): [function("f", "namespace dllm/namespace")],
                 pathlib.Path("src/a/y.cpp"): [function("f", "namespace dllm/namespace")],
                 pathlib.Path("src/a/z.cpp"): [function("f", "namespace dllm/namespace z/namespace"),
                                               function("g", None)],
                 pathlib.Path("src/b/x.cpp"): [function("f", "namespace dllm/namespace"), function("g", None)]}
        errors = checked.check_unity(found)
        self.assertEqual(len(errors), 1)
        self.assertTrue(errors[0].startswith("src/a/y.cpp: 'f' is in an anonymous namespace of x.cpp too"))


class Tree(unittest.TestCase):
    def test_the_tree_is_clean(self) -> None:
        self.assertEqual(checked.check_tree(), [])


if __name__ == "__main__":
    unittest.main()
