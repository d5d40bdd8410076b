// Are importance matrices read in both formats, and are damaged ones, and those of other models, refused?
#include "quant/importance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "model/testing/hf_directory.h"
#include "quant/convert.h"
#include "quant/testing/fuzz_entry.h"

namespace dllm {
namespace {

using test::TempDirectory;
using test::write_text;

std::string word(std::int32_t value) { return {reinterpret_cast<const char*>(&value), 4}; }
std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), 4 * values.size()};
}
std::string entry(const std::string& name, std::int32_t calls, const std::vector<float>& values) {
  return word(static_cast<std::int32_t>(name.size())) + name + word(calls) +
         word(static_cast<std::int32_t>(values.size())) + floats(values);
}

Expected<Importance> parse(const std::string& bytes) {
  return Importance::parse_old(std::as_bytes(std::span(bytes)), "old.dat");
}

std::vector<float> found(const Importance& importance, const char* matrix) {
  const auto values = importance.find(matrix);
  return {values.begin(), values.end()};
}

struct Sums {
  std::string name;
  std::vector<float> sums, counts;
};

void write_gguf(const std::string& path, const std::vector<Sums>& all, TensorType type = TensorType::kF32) {
  Metadata metadata;
  metadata.set("general.type", MetaValue::string("imatrix"));
  metadata.set("imatrix.datasets", MetaValue::strings({"words.txt"}));
  metadata.set("imatrix.chunk_count", MetaValue::u32(9));
  GgufWriter writer(std::move(metadata));
  for (const Sums& one : all) {
    const auto columns = static_cast<std::int64_t>(one.sums.size()),
               counts = static_cast<std::int64_t>(one.counts.size());
    const auto add = [&](const std::string& name, TensorType as, Shape shape, const std::vector<float>& values) {
      const auto bytes = std::as_bytes(std::span(values));
      const auto size = static_cast<std::size_t>(codec(as).row_bytes(element_count(shape)));
      ASSERT_TRUE(writer.add(name, as, std::move(shape), [=] { return bytes.first(size); }));
    };
    add(one.name + ".in_sum2", type, {columns}, one.sums);
    if (counts > 0) add(one.name + ".counts", TensorType::kF32, {1, counts}, one.counts);
  }
  ASSERT_TRUE(writer.write(path));
}

TEST(Importance, OldFilesHaveMeansTimesCalls) {
  const std::string matrices = word(2) + entry("a", 4, {4, 8, 0}) + entry("b", 0, {5});
  for (const std::string& end : {std::string(), word(7) + word(4) + "text", word(7) + word(0)}) {
    const auto importance = parse(matrices + end);
    ASSERT_TRUE(importance) << importance.error().message();
    EXPECT_EQ(importance->size(), 2u);
    EXPECT_EQ(found(*importance, "a"), (std::vector<float>{1, 2, 0}));
    EXPECT_EQ(found(*importance, "b"), (std::vector<float>{5}));
    EXPECT_TRUE(importance->find("c").empty());
    EXPECT_EQ(importance->chunks(), end.empty() ? 0 : 7);
    EXPECT_EQ(importance->dataset(), end.size() == 12 ? "text" : "");
  }
}

TEST(Importance, DamagedOldFilesAreErrors) {
  const std::string whole = word(1) + entry("name", 4, {4, 8}) + word(7) + word(4) + "text";
  const std::size_t matrices = whole.size() - 12;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto importance = parse(whole.substr(0, size));
    const bool early = size >= matrices && size < matrices + 8;  // a file of an early version, or some bytes after it
    EXPECT_EQ(bool{importance}, early) << size;
    if (!importance) {
      EXPECT_EQ(importance.error().code, ErrorCode::kInvalidFile);
    }
  }
  EXPECT_FALSE(parse(word(0)));
  EXPECT_FALSE(parse(word(-1)));
  EXPECT_FALSE(parse(word(1) + word(-5) + "name" + word(1) + word(1) + floats({1})));
  EXPECT_FALSE(parse(word(1) + word(4) + "name" + word(1) + word(-1) + floats({1})));
  EXPECT_FALSE(parse(word(1) + word(4) + "name" + word(1) + word(0)));
  for (const float bad : {-1.f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    EXPECT_FALSE(parse(word(1) + entry("name", 1, {1, bad}))) << bad;
}

TEST(Importance, GgufFilesHaveSumsAndCounts) {
  const TempDirectory directory;
  const std::string path = directory.file("i.gguf");
  write_gguf(path, {{"a", {4, 8, 2}, {2}}, {"experts", {3, 6, 7, 9}, {3, 0}}});
  const auto importance = Importance::open(path);
  ASSERT_TRUE(importance) << importance.error().message();
  EXPECT_EQ(importance->size(), 2u);
  EXPECT_EQ(found(*importance, "a"), (std::vector<float>{2, 4, 1}));
  EXPECT_EQ(found(*importance, "experts"), (std::vector<float>{1, 2, 1, 1}));  // the second was never chosen
  EXPECT_EQ(importance->file(), "i.gguf");
  EXPECT_EQ(importance->dataset(), "words.txt");
  EXPECT_EQ(importance->chunks(), 9);
  write_text(directory.file("i.dat"), word(1) + entry("a", 1, {3}));
  EXPECT_EQ(found(*Importance::open(directory.file("i.dat")), "a"), (std::vector<float>{3}));
}

TEST(Importance, DamagedGgufFilesAreErrors) {
  const TempDirectory directory;
  const std::string path = directory.file("i.gguf");
  const auto refused = [&](const std::vector<Sums>& all, TensorType type = TensorType::kF32) {
    write_gguf(path, all, type);
    const auto importance = Importance::open(path);
    return !importance && importance.error().code == ErrorCode::kInvalidFile;
  };
  EXPECT_FALSE(refused({{"a", {1, 2}, {1}}}));
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({{"a", {1, 2}, {}}}));
  EXPECT_TRUE(refused({{"a", {1, 2, 3}, {1, 1}}}));
  EXPECT_TRUE(refused({{"a", {1, -2}, {1}}}));
  EXPECT_TRUE(refused({{"a", {1, 2}, {1}}}, TensorType::kF16));
  EXPECT_FALSE(Importance::open(directory.file("absent")));
}

TEST(Importance, SurvivesTheFuzzersCorpusAndChangesOfIt) {
  std::mt19937 random(3);
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(DLLM_SOURCE_DIR "/fuzz/corpus/importance")) {
    ++files;
    const std::string text = test::read_text(file.path().string());
    fuzz_importance(text);
    for (int round = 0; round < 300 && !text.empty(); ++round) {
      std::string changed = text;
      for (unsigned edits = 1 + random() % 4; edits > 0; --edits)
        changed[random() % changed.size()] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
      fuzz_importance(changed);
    }
  }
  EXPECT_GE(files, 9);
}

/// A model of two matrices in memory.
struct Two {
  std::vector<float> values = std::vector<float>(256 * 4, 0.5f);
  ModelSource source;
  Two() {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 101) / 100.f - 0.5f;
    source.name = "memory";
    source.metadata.set("general.architecture", MetaValue::string("llada"));
    const auto bytes = std::as_bytes(std::span(values));
    source.tensors.push_back({"token_embd.weight", TensorType::kF32, {256, 4}, bytes, 0});
    source.tensors.push_back({"experts.weight", TensorType::kF32, {256, 2, 2}, bytes, 0});
  }
};

WriteOptions with(const std::string& bytes) {
  WriteOptions options{.type = "Q3_K"};
  options.importance = std::make_shared<const Importance>(*parse(bytes));
  options.recipe.importance = true;
  return options;
}

TEST(Importance, OfAnotherModelIsAnError) {
  const TempDirectory directory;
  const Two model;
  const auto fits = std::vector<float>(512, 1.f), other = std::vector<float>(256, 1.f);
  const auto report = write_model(model.source, with(word(1) + entry("experts.weight", 1, other)), directory.file("x"));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kMismatch);
  EXPECT_EQ(report.error().where, "experts.weight");
  // llama.cpp has other numbers for tables.
  const auto table =
      write_model(model.source, with(word(2) + entry("experts.weight", 1, fits) + entry("token_embd.weight", 1, {1})),
                  directory.file("x"));
  ASSERT_TRUE(table) << table.error().message();
  EXPECT_TRUE(table->warnings.empty());
  const auto none = write_model(model.source, with(word(1) + entry("other.weight", 1, fits)), directory.file("x"));
  ASSERT_TRUE(none);
  ASSERT_EQ(none->warnings.size(), 1u);
  EXPECT_NE(none->warnings[0].find("experts.weight"), std::string::npos);
}

TEST(Importance, EachExpertHasItsOwn) {
  const TempDirectory directory;
  const Two model;
  std::vector<float> weights(512);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>((i * 7919 + i / 256) % 1000 + 1);
  WriteOptions options = with(word(1) + entry("experts.weight", 1, weights));
  options.threads = 3;
  ASSERT_TRUE(write_model(model.source, options, directory.file("x.gguf")));
  const auto written = open_source(directory.file("x.gguf"));
  ASSERT_TRUE(written);
  const Codec& q3_k = codec(TensorType::kQ3_K);
  std::vector<std::byte> expected(static_cast<std::size_t>(4 * q3_k.row_bytes(256)));
  for (int row = 0; row < 4; ++row)
    q3_k.quantize_weighted(model.values.data() + 256 * row, weights.data() + 256 * (row / 2),
                           expected.data() + row * q3_k.row_bytes(256), 256);
  EXPECT_TRUE(std::ranges::equal(written->find("experts.weight")->data, expected));
  EXPECT_EQ(*written->metadata.string("quantize.imatrix.file"), "");
  EXPECT_EQ(*written->metadata.integer("quantize.imatrix.entries_count"), 1);
}

}  // namespace
}  // namespace dllm
