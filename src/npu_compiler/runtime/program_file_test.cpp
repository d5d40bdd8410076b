#include "npu_compiler/runtime/program_file.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dllm::npu {
namespace {

constexpr const char* kProgramText = R"(
[[tensor]]
name = "w"
bytes = 1000
granule = 100
lasting = true
[[tensor]]
name = "x"
bytes = 10
[[operator]]
name = "up"
us = 2.5
reads = ["w"]
writes = ["x"]
)";

TEST(ProgramFile, IsReadAsWritten) {
  const auto program = parse_memory_program(kProgramText, "p.toml");
  ASSERT_TRUE(program) << program.error().what;
  ASSERT_EQ(program->tensors.size(), 2u);
  EXPECT_EQ(program->tensors[0].granule, 100);
  EXPECT_TRUE(program->tensors[0].lasting);
  EXPECT_FALSE(program->tensors[1].lasting);
  ASSERT_EQ(program->ops.size(), 1u);
  EXPECT_DOUBLE_EQ(program->ops[0].seconds, 2.5e-6);
  EXPECT_EQ(program->ops[0].reads, std::vector<std::int32_t>{0});
  EXPECT_EQ(program->ops[0].writes, std::vector<std::int32_t>{1});
}

TEST(ProgramFile, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> changes[] = {{"reads = [\"w\"]", "reads = [\"v\"]"},
                                                         {"us = 2.5", "us = -1"},
                                                         {"bytes = 10\n", "bytes = 0\n"},
                                                         {"granule = 100", "granule = 2000"},
                                                         {"name = \"x\"", "name = \"w\""},
                                                         {"lasting = true", "lasting = true\nodd = 1"},
                                                         {"bytes = 10\n", "bytes = 10\ngranule = 2\n"}};
  for (const auto& [from, to] : changes) {
    std::string text = kProgramText;
    text.replace(text.find(from), std::string_view(from).size(), to);
    const auto program = parse_memory_program(text, "p.toml");
    ASSERT_FALSE(program) << to;
    EXPECT_TRUE(program.error().where.starts_with("p.toml:")) << program.error().where;
  }
}

}  // namespace
}  // namespace dllm::npu
