#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "text/testing/fuzz_entry.h"
#include "text/testing/test_data.h"

namespace dllm {
namespace {

using Entry = void (*)(const std::uint8_t*, std::size_t);

void replay(const char* folder, Entry entry) {
  const auto root = std::filesystem::path(DLLM_SOURCE_DIR) / "fuzz/corpus" / folder;
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(root)) {
    const auto bytes = test::read_file(file.path());
    ASSERT_TRUE(bytes.has_value()) << file.path();
    SCOPED_TRACE(file.path());
    entry(reinterpret_cast<const std::uint8_t*>(bytes->data()), bytes->size());
    ++files;
  }
  EXPECT_GT(files, 0U);
}

TEST(FuzzCorpus, TokenizerJson) { replay("tokenizer_json", fuzz_tokenizer_json); }
TEST(FuzzCorpus, ChatTemplate) { replay("chat_template", fuzz_chat_template); }

}  // namespace
}  // namespace dllm
