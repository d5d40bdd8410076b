#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <random>

#include "format/gguf.h"
#include "format/testing/test_files.h"
#include "numerics/mx_tensor.h"

namespace dllm {
namespace {

using namespace test;

/// Produces `bytes`, which the closure owns.
GgufWriter::Producer produce(std::string bytes) {
  return [bytes = std::move(bytes)]() -> Expected<std::span<const std::byte>> { return as_bytes(bytes); };
}

Metadata every_type() {
  Metadata meta;
  meta.set("general.architecture", MetaValue::string("llada"));
  meta.set("u32", MetaValue::u32(std::numeric_limits<std::uint32_t>::max()));
  meta.set("u64", MetaValue::u64(std::uint64_t{1} << 62));
  meta.set("i32", MetaValue::i32(-5));
  meta.set("f32", MetaValue::f32(0.1f));
  meta.set("bool", MetaValue::boolean(true));
  meta.set("empty", MetaValue::string(""));
  meta.set("strings", MetaValue::strings({"", std::string("a\0b", 3), "Ġ"}));
  meta.set("i32s", MetaValue::i32s({-1, 0, 1}));
  meta.set("f32s", MetaValue::f32s({1.5f, -0.0f}));
  meta.set("u8", {MetaType::kU8, MetaType::kBool, std::int64_t{255}});
  meta.set("i8", {MetaType::kI8, MetaType::kBool, std::int64_t{-128}});
  meta.set("u16", {MetaType::kU16, MetaType::kBool, std::int64_t{65535}});
  meta.set("i16", {MetaType::kI16, MetaType::kBool, std::int64_t{-32768}});
  meta.set("i64", {MetaType::kI64, MetaType::kBool, std::numeric_limits<std::int64_t>::min()});
  meta.set("f64", {MetaType::kF64, MetaType::kBool, 0.1});
  meta.set("bools", {MetaType::kArray, MetaType::kBool, std::vector<std::int64_t>{0, 1}});
  meta.set("u8s", {MetaType::kArray, MetaType::kU8, std::vector<std::int64_t>{0, 255}});
  meta.set("f64s", {MetaType::kArray, MetaType::kF64, std::vector<double>{0.1}});
  meta.set("none", {MetaType::kArray, MetaType::kU32, std::vector<std::int64_t>{}});
  return meta;
}

TEST(GgufWriter, WritesWhatTheReaderReads) {
  const TempDir dir;
  const std::string path = dir / "model.gguf";
  const Metadata meta = every_type();
  GgufWriter writer(meta);
  ASSERT_TRUE(writer.add("a.weight", TensorType::kF32, {3}, produce(std::string(12, 'a'))));
  ASSERT_TRUE(writer.add("b.weight", TensorType::kQ4_K, {256, 2}, produce(std::string(288, 'b'))));
  ASSERT_TRUE(writer.add("c.weight", TensorType::kBF16, {1, 2, 3, 4}, produce(std::string(48, 'c'))));
  const auto written = writer.write(path);
  ASSERT_TRUE(written) << written.error().message();
  EXPECT_EQ(dir.entries(), 1u);
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->metadata().entries(), meta.entries());
  ASSERT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(file->tensors()[1].shape, (Shape{256, 2}));
  EXPECT_EQ(file->tensors()[2].type, TensorType::kBF16);
  for (const GgufTensor& tensor : file->tensors())
    for (const std::byte byte : tensor.data) ASSERT_EQ(static_cast<char>(byte), tensor.name[0]);
  EXPECT_EQ(file->file().bytes().size() % 32, 0u);  // padded to the end, as llama.cpp expects
}

TEST(GgufWriter, RewritesAFileOfTheGgufPackageByteForByte) {
  const TempDir dir;
  const auto original = GgufFile::open(fixture("python.gguf"));
  ASSERT_TRUE(original) << original.error().message();
  GgufWriter writer(original->metadata());
  for (const GgufTensor& tensor : original->tensors()) {
    const auto data = tensor.data;
    ASSERT_TRUE(writer.add(tensor.name, tensor.type, tensor.shape,
                           [data]() -> Expected<std::span<const std::byte>> { return data; }));
  }
  for (const char* name : {"first.gguf", "second.gguf"}) {
    ASSERT_TRUE(writer.write(dir / name));
    EXPECT_EQ(read_file(dir / name), read_file(fixture("python.gguf")));
  }
}

TEST(GgufWriter, ObeysTheAlignmentKey) {
  const TempDir dir;
  Metadata meta;
  meta.set("general.alignment", MetaValue::u32(256));
  GgufWriter writer(meta);
  ASSERT_TRUE(writer.add("a", TensorType::kF32, {1}, produce("1234")));
  ASSERT_TRUE(writer.add("b", TensorType::kF32, {1}, produce("5678")));
  ASSERT_TRUE(writer.write(dir / "x.gguf"));
  const auto file = GgufFile::open(dir / "x.gguf");
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->alignment(), 256u);
  EXPECT_EQ(file->tensors()[1].offset - file->tensors()[0].offset, 256u);
  EXPECT_EQ(file->tensors()[0].offset % 256, 0u);
}

Metadata random_metadata(std::mt19937_64& random) {
  Metadata meta;
  const auto number = [&](std::uint64_t below) { return random() % below; };
  for (std::uint64_t i = number(12); i > 0; --i) {
    const std::string key(1 + number(40), static_cast<char>('a' + number(26)));
    switch (number(6)) {
      case 0:
        meta.set(key, MetaValue::u32(static_cast<std::uint32_t>(random())));
        break;
      case 1:
        meta.set(key, MetaValue::string(std::string(number(300), static_cast<char>(number(256)))));
        break;
      case 2:
        meta.set(key, MetaValue::boolean(number(2) == 1));
        break;
      case 3:
        meta.set(key, MetaValue::f32(static_cast<float>(number(1000)) / 7.0f));
        break;
      case 4:
        meta.set(key, MetaValue::strings(std::vector<std::string>(number(9), key)));
        break;
      default:
        meta.set(key, MetaValue::i32s(std::vector<std::int32_t>(number(9), -7)));
        break;
    }
  }
  return meta;
}

TEST(GgufWriter, RandomFilesSurviveTheRoundTrip) {
  const TempDir dir;
  std::mt19937_64 random(1);
  for (int round = 0; round < 60; ++round) {
    const Metadata meta = random_metadata(random);
    GgufWriter writer(meta);
    std::vector<std::string> contents;
    for (std::uint64_t i = 0, count = random() % 6; i < count; ++i) {
      const auto codecs = random() % 4 != 0 ? all_codecs() : mx_codecs();
      const Codec& format = *codecs[random() % codecs.size()];
      Shape shape = {format.block_elems * static_cast<std::int64_t>(1 + random() % 3)};
      for (std::uint64_t d = random() % 4; d > 0; --d) shape.push_back(static_cast<std::int64_t>(1 + random() % 3));
      std::string bytes(static_cast<std::size_t>(format.row_bytes(element_count(shape))), '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      contents.push_back(bytes);
      ASSERT_TRUE(writer.add(fmt::format("t{}", i), format.type, shape, produce(bytes)));
    }
    const std::string path = dir / "random.gguf";
    ASSERT_TRUE(writer.write(path));
    const auto file = GgufFile::open(path);
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_EQ(file->metadata().entries(), meta.entries());
    ASSERT_EQ(file->tensors().size(), contents.size());
    for (std::size_t i = 0; i < contents.size(); ++i)
      EXPECT_TRUE(std::ranges::equal(file->tensors()[i].data, as_bytes(contents[i])));
  }
}

TEST(GgufWriter, RefusesTensorsThatNoReaderTakes) {
  GgufWriter writer{Metadata()};
  const auto refused = [&](std::string name, TensorType type, Shape shape, const std::string& reason) {
    const auto added = writer.add(std::move(name), type, std::move(shape), produce(""));
    return !added && added.error().code == ErrorCode::kUsage &&
           added.error().message().find(reason) != std::string::npos;
  };
  ASSERT_TRUE(writer.add("x", TensorType::kF32, {1}, produce("1234")));
  EXPECT_TRUE(refused("x", TensorType::kF32, {1}, "twice"));
  EXPECT_TRUE(refused("", TensorType::kF32, {1}, "0 bytes"));
  EXPECT_TRUE(refused(std::string(64, 'n'), TensorType::kF32, {1}, "64 bytes"));
  EXPECT_TRUE(refused("y", TensorType::kF32, {}, "0 dimensions"));
  EXPECT_TRUE(refused("y", TensorType::kF32, {1, 1, 1, 1, 1}, "5 dimensions"));
  EXPECT_TRUE(refused("y", TensorType::kF32, {1, 0}, "[1, 0]"));
  EXPECT_TRUE(refused("y", TensorType::kF32, {-1}, "[-1]"));
  EXPECT_TRUE(refused("y", TensorType::kF32, {std::int64_t{1} << 40, std::int64_t{1} << 40}, "too large"));
  EXPECT_TRUE(refused("y", TensorType::kQ4_K, {128}, "Q4_K"));
  EXPECT_TRUE(writer.add(std::string(63, 'n'), TensorType::kF32, {1}, produce("1234")));
}

TEST(GgufWriter, RefusesMetadataThatDoesNotFitItsType) {
  const TempDir dir;
  const MetaValue wrong[] = {
      {MetaType::kU8, MetaType::kBool, std::int64_t{256}},
      {MetaType::kI8, MetaType::kBool, std::int64_t{-129}},
      {MetaType::kU32, MetaType::kBool, std::int64_t{-1}},
      {MetaType::kU64, MetaType::kBool, std::int64_t{-1}},
      {MetaType::kU32, MetaType::kBool, 1.0},
      {MetaType::kF32, MetaType::kBool, std::int64_t{1}},
      {MetaType::kString, MetaType::kBool, true},
      {MetaType::kBool, MetaType::kBool, std::string("true")},
      {MetaType::kString, MetaType::kBool, std::vector<std::string>{}},
      {MetaType::kArray, MetaType::kString, std::string("x")},
      {MetaType::kArray, MetaType::kString, std::vector<double>{1}},
      {MetaType::kArray, MetaType::kU8, std::vector<std::int64_t>{1, 256}},
      {MetaType::kArray, MetaType::kBool, std::vector<std::int64_t>{2}},
      {MetaType::kArray, MetaType::kArray, std::vector<std::int64_t>{2}},
  };
  for (const MetaValue& value : wrong) {
    Metadata meta;
    meta.set("the.key", value);
    const auto written = GgufWriter(meta).write(dir / "x.gguf");
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, ErrorCode::kUsage);
    EXPECT_NE(written.error().message().find("'the.key'"), std::string::npos);
  }
  Metadata meta;
  meta.set("general.alignment", MetaValue::u32(24));
  EXPECT_FALSE(GgufWriter(meta).write(dir / "x.gguf"));
  EXPECT_FALSE(std::filesystem::exists(dir / "x.gguf"));
}

TEST(GgufWriter, KeepsTheOldFileWhenAProducerFails) {
  const TempDir dir;
  const std::string path = dir / "model.gguf";
  test::write_file(path, "old");
  GgufWriter short_one{Metadata()};
  ASSERT_TRUE(short_one.add("x", TensorType::kF32, {2}, produce("1234")));
  const auto mismatch = short_one.write(path);
  ASSERT_FALSE(mismatch);
  EXPECT_EQ(mismatch.error().code, ErrorCode::kMismatch);
  GgufWriter cancelled{Metadata()};
  ASSERT_TRUE(cancelled.add("x", TensorType::kF32, {2}, []() -> Expected<std::span<const std::byte>> {
    return Error{ErrorCode::kCancelled, "stopped", "", ""};
  }));
  const auto stopped = cancelled.write(path);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(dir.entries(), 1u);
}

TEST(GgufWriter, StreamsATensorInPieces) {
  const TempDir dir;
  const auto pieces = [](std::vector<std::string> parts) -> GgufWriter::Stream {
    return [parts = std::move(parts)](const GgufWriter::Sink& sink) -> Expected<void> {
      for (const std::string& part : parts)
        if (auto taken = sink(as_bytes(part)); !taken) return taken;
      return {};
    };
  };
  const auto write = [&](GgufWriter::Stream stream) {
    GgufWriter writer{Metadata()};
    EXPECT_TRUE(writer.add_stream("x", TensorType::kF32, {2}, std::move(stream)));
    const auto size = writer.file_bytes();
    EXPECT_TRUE(size);
    auto written = writer.write(dir / "x.gguf");
    if (written) {
      EXPECT_EQ(std::filesystem::file_size(dir / "x.gguf"), *size);
    }
    return written;
  };
  ASSERT_TRUE(write(pieces({"123", "", "45678"})));
  const auto file = GgufFile::open(dir / "x.gguf");
  ASSERT_TRUE(file);
  EXPECT_TRUE(std::ranges::equal(file->tensors()[0].data, as_bytes("12345678")));
  for (const auto& wrong : {pieces({"1234"}), pieces({"12345678", "9"}), pieces({})}) {
    const auto written = write(wrong);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, ErrorCode::kMismatch);
  }
}

TEST(GgufWriter, ReportsWhatTheSystemRefuses) {
  const TempDir dir;
  GgufWriter writer{Metadata()};
  ASSERT_TRUE(writer.add("x", TensorType::kF32, {1 << 16}, produce(std::string(1 << 18, 'x'))));
  const auto missing = writer.write(dir / "missing/model.gguf");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
  EXPECT_EQ(missing.error().where, dir / "missing/model.gguf");

  std::filesystem::create_directories(dir / "taken.gguf/x");
  const auto taken = writer.write(dir / "taken.gguf");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kUsage);
  EXPECT_EQ(dir.entries(), 1u);
}

}  // namespace
}  // namespace dllm
