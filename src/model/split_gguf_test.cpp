// Models in several GGUF files, as llama-gguf-split writes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "model/source.h"
#include "model/testing/hf_directory.h"

namespace dllm {
namespace {

using test::TempDirectory;

class SplitGguf : public ::testing::Test {
 protected:
  SplitGguf() {
    test::make_checkpoint({}).write(hf_.path());
    whole_ = *source_from_hf(hf_.path());
  }
  std::string part(int number, int count) const {
    const auto digits = [](int value) { return "0000" + std::to_string(value); };
    return directory_.file("m-" + digits(number) + "-of-" + digits(count) + ".gguf");
  }
  /// Part `number` of three, with every third tensor; the first has the metadata.
  void write(int number, std::int64_t said = -1, int skip = 0) const {
    Metadata metadata = number == 1 ? whole_.metadata : Metadata();
    metadata.set("split.no", MetaValue::u32(static_cast<std::uint32_t>(said < 0 ? number - 1 : said)));
    metadata.set("split.count", MetaValue::u32(3));
    metadata.set("split.tensors.count", MetaValue::u32(static_cast<std::uint32_t>(whole_.tensors.size())));
    GgufWriter writer(metadata);
    for (std::size_t i = static_cast<std::size_t>(number - 1 + skip); i < whole_.tensors.size(); i += 3) {
      const SourceTensor& tensor = whole_.tensors[i];
      ASSERT_TRUE(writer.add(
          tensor.name, tensor.type, tensor.shape,
          [this, &tensor]() -> Expected<std::span<const std::byte>> { return tensor_bytes(tensor, buffer_); }));
    }
    const auto written = writer.write(part(number, 3));
    ASSERT_TRUE(written) << written.error().message();
  }
  std::string error() const {
    const auto source = open_source(part(1, 3));
    return source ? "no error" : source.error().message();
  }

  TempDirectory hf_, directory_;
  ModelSource whole_;
  mutable std::vector<std::byte> buffer_;
};

TEST_F(SplitGguf, PartsAreOneModel) {
  for (int number = 1; number <= 3; ++number) write(number);
  const auto source = open_source(part(1, 3));
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_EQ(source->tensors.size(), whole_.tensors.size());
  EXPECT_EQ(source->files.size(), 3U);
  EXPECT_TRUE(source->check());
  for (const SourceTensor& tensor : whole_.tensors) {
    const SourceTensor* const found = source->find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    std::vector<std::byte> a, b;
    EXPECT_TRUE(std::ranges::equal(tensor_bytes(tensor, a), tensor_bytes(*found, b))) << tensor.name;
  }
  EXPECT_EQ(*source->metadata.integer("split.count"), std::nullopt) << "what is written from it is whole";
  EXPECT_EQ(source->metadata.entries().size(), whole_.metadata.entries().size());
}

TEST_F(SplitGguf, WhatIsMissingOrMixedIsNamed) {
  write(1), write(2);
  EXPECT_NE(error().find("m-00003-of-00003.gguf"), std::string::npos) << error();
  write(3, 1);
  EXPECT_NE(error().find("part 2 of 3, and its name says 3 of 3"), std::string::npos) << error();
  write(3, 2, 1);  // tensors of the first part
  EXPECT_NE(error().find("is in two parts"), std::string::npos) << error();
  write(3, 2, 3);  // one less
  EXPECT_NE(error().find("'split.tensors.count'"), std::string::npos) << error();
  write(3);
  EXPECT_EQ(error(), "no error");
  const auto later = open_source(part(2, 3));
  ASSERT_FALSE(later);
  EXPECT_NE(later.error().message().find("NAME-00001-of-0000N.gguf"), std::string::npos);
  // A part under another name.
  std::filesystem::copy_file(part(1, 3), directory_.file("other.gguf"));
  const auto renamed = open_source(directory_.file("other.gguf"));
  ASSERT_FALSE(renamed);
  EXPECT_NE(renamed.error().message().find("split over 3 GGUF files"), std::string::npos);
  std::filesystem::copy_file(part(1, 3), part(1, 2));
  std::filesystem::copy_file(part(2, 3), part(2, 2));
  const auto fewer = open_source(part(1, 2));
  ASSERT_FALSE(fewer);
  EXPECT_NE(fewer.error().message().find("part 1 of 3, and its name says 1 of 2"), std::string::npos);
}

TEST(GgufParts, AreNamedByTheirFirst) {
  EXPECT_EQ(gguf_parts("a/m-00001-of-00002.gguf"),
            (std::vector<std::string>{"a/m-00001-of-00002.gguf", "a/m-00002-of-00002.gguf"}));
  for (const char* path : {"m.gguf", "", "m-00002-of-00003.gguf", "m-00001-of-0000x.gguf", "m-00001-of-00000.gguf",
                           "m-00001-of-00001.gguf", "m-00001-of-00002.GGUF"})
    EXPECT_EQ(gguf_parts(path), std::vector<std::string>{path});
}

}  // namespace
}  // namespace dllm
