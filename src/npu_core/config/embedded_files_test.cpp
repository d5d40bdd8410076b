#include "npu_core/config/embedded_files.h"

#include <gtest/gtest.h>

#include <string>

#include "format/toml_table.h"

namespace dllm::npu {
namespace {

TEST(EmbeddedFiles, EveryOneParses) {
  EXPECT_FALSE(core_profiles().empty());
  for (const EmbeddedFile& file : core_profiles()) {
    auto root = TomlTable::parse(file.text, std::string(file.name));
    EXPECT_TRUE(root) << root.error().message();
  }
  EXPECT_FALSE(find_embedded_file(core_profiles(), "none"));
}

}  // namespace
}  // namespace dllm::npu
