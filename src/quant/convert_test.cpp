// Are written models complete, exact, and identical for every number of threads?
#include "quant/convert.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "model/model.h"
#include "model/testing/hf_directory.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;
using test::make_checkpoint;
using test::read_text;
using test::TempDirectory;
using test::write_text;

const std::string kShipped = DLLM_SOURCE_DIR "/models/tiny-llada-f32.gguf";
const std::string kTestdata = DLLM_SOURCE_DIR "/src/model/testdata/tiny-llada/";

ModelSource open_ok(const std::string& path) {
  auto source = open_source(path);
  if (source) return *std::move(source);
  ADD_FAILURE() << source.error().message();
  return {};
}

WriteReport write_ok(const ModelSource& source, const WriteOptions& options, const std::string& path) {
  auto report = write_model(source, options, path);
  if (report) return *std::move(report);
  ADD_FAILURE() << report.error().message();
  return {};
}

std::vector<float> values_of(const SourceTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(element_count(tensor.shape)));
  std::vector<std::byte> buffer;
  codec(tensor.type).dequantize(tensor_bytes(tensor, buffer).data(), values.data(), element_count(tensor.shape));
  return values;
}

/// A source of two tensors in the test's memory.
struct SmallSource {
  std::vector<float> matrix = std::vector<float>(256 * 700, 0.5f);
  std::vector<float> norm = std::vector<float>(256, 1.f);
  ModelSource source;

  SmallSource() {
    source.name = "memory";
    source.metadata.set("general.architecture", MetaValue::string("llada"));
    const auto add = [&](const char* name, Shape shape, const std::vector<float>& values) {
      source.tensors.push_back({name, TensorType::kF32, std::move(shape), std::as_bytes(std::span(values)), 0});
    };
    add("output_norm.weight", {256}, norm);
    add("blk.0.ffn_up.weight", {256, 700}, matrix);
  }
};

TEST(WriteModel, FloatTypesKeepTheValues) {
  const TempDirectory directory;
  make_checkpoint({.dtype = "BF16", .kv_heads = 2}).write(directory.path());
  const ModelSource source = open_ok(directory.path());
  for (const char* type : {"F32", "F16", "BF16"}) {
    const WriteReport report = write_ok(source, {.type = type, .threads = 2}, directory.file("x.gguf"));
    const ModelSource written = open_ok(directory.file("x.gguf"));
    ASSERT_EQ(written.tensors.size(), source.tensors.size());
    for (std::size_t i = 0; i < source.tensors.size(); ++i) {
      const SourceTensor& tensor = written.tensors[i];
      EXPECT_EQ(tensor.name, source.tensors[i].name);
      EXPECT_EQ(tensor.shape, source.tensors[i].shape);
      EXPECT_EQ(codec(tensor.type).name, tensor.shape.size() == 1 ? "F32" : type);
      EXPECT_EQ(values_of(tensor), values_of(source.tensors[i])) << tensor.name;  // exact: the values fit every type
    }
    EXPECT_TRUE(report.warnings.empty());
    const auto model = Model::load(directory.file("x.gguf"));
    EXPECT_TRUE(model) << model.error().message();
  }
}

/// Such a file would be complete, and no build would load it.
TEST(WriteModel, BlocksOfTheAttentionKeepTheirLength) {
  const TempDirectory directory;
  test::HfCheckpoint checkpoint = make_checkpoint({.family = "llama"});
  checkpoint.config.update({{"architectures", {"A2DLlamaLMHeadModel"}}, {"mask_token_id", 260}, {"block_size", 32}});
  checkpoint.write(directory.path());
  const ModelSource source = open_ok(directory.path());
  const std::string path = directory.file("x.gguf");
  const auto report = write_model(source, {.type = "Q8_0", .block_length = 64}, path);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kUsage);
  EXPECT_EQ(report.error().where, "--block-length");
  EXPECT_NE(report.error().what.find("blocks of 32, not of 64"), std::string::npos);
  EXPECT_NE(report.error().hint.find("leave it out"), std::string::npos);
  EXPECT_FALSE(fs::exists(path));
  for (const std::int32_t length : {32, 0}) {
    write_ok(source, {.type = "Q8_0", .block_length = length}, path);
    const auto model = Model::load(path);
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_EQ((*model)->desc().block_length, 32);
  }
  // Where the model sees the whole canvas, any length is one.
  checkpoint.config["block_size"] = 0;
  checkpoint.write(directory.path());
  write_ok(open_ok(directory.path()), {.type = "Q8_0", .block_length = 64}, path);
  EXPECT_EQ((*Model::load(path))->desc().block_length, 64);
}

TEST(WriteModel, ReportCountsWhatWasWritten) {
  const TempDirectory directory;
  make_checkpoint({}).write(directory.path());
  const ModelSource source = open_ok(directory.path());
  std::vector<std::pair<std::string, std::int64_t>> seen;
  WriteOptions options{.type = "Q4_K_M", .model_name = "renamed", .canvas_length = 96, .block_length = 16};
  options.progress = [&](std::string_view tensor, std::int64_t done, std::int64_t total) {
    EXPECT_EQ(total, 21);
    seen.emplace_back(tensor, done);
  };
  const WriteReport report = write_ok(source, options, directory.file("x.gguf"));
  EXPECT_EQ(report.tensors, 21);
  EXPECT_EQ(report.tensors_by_type, (std::map<TensorType, std::int64_t>{
                                        {TensorType::kF32, 5}, {TensorType::kQ5_0, 13}, {TensorType::kQ8_0, 3}}));
  EXPECT_EQ(report.fallbacks.size(), 16u);
  EXPECT_EQ(report.bytes_in, report.elements * 4);
  ASSERT_EQ(seen.size(), 22u);
  EXPECT_EQ(seen.front(), (std::pair<std::string, std::int64_t>("token_embd.weight", 0)));
  EXPECT_EQ(seen.back(), (std::pair<std::string, std::int64_t>("", 21)));
  const ModelSource written = open_ok(directory.file("x.gguf"));
  std::int64_t bytes = 0;
  for (const SourceTensor& tensor : written.tensors) bytes += static_cast<std::int64_t>(tensor.data.size());
  EXPECT_EQ(report.bytes_out, bytes);
  EXPECT_EQ(**written.metadata.string("general.name"), "renamed");
  EXPECT_EQ(**written.metadata.integer("dllm.canvas_length"), 96);
  EXPECT_EQ(**written.metadata.integer("diffusion.block_length"), 16);
  EXPECT_EQ(**written.metadata.integer("general.file_type"), 15);
  EXPECT_EQ(**written.metadata.integer("general.quantization_version"), 2);
}

TEST(WriteModel, MicroscalingFilesNameTheirFormat) {
  const TempDirectory directory;
  const ModelSource source = open_ok(kShipped);
  const WriteReport report = write_ok(source, {.type = "mxint4:16:plena", .threads = 2}, directory.file("x.gguf"));
  const ModelSource written = open_ok(directory.file("x.gguf"));
  EXPECT_EQ(**written.metadata.string("dllm.mx_format"), "mxint4:16:plena");
  EXPECT_EQ(**written.metadata.integer("general.file_type"),
            static_cast<std::int64_t>(*tensor_type_from_name("mxint4:16:plena")));
  EXPECT_EQ(report.tensors_by_type.size(), 3u);  // with the table and the norms
  const SourceTensor& tensor = *written.find("blk.0.ffn_down.weight");
  const std::vector<float> exact = values_of(*source.find("blk.0.ffn_down.weight"));
  std::vector<std::byte> expected(tensor.data.size());
  codec(tensor.type).quantize(exact.data(), expected.data(), static_cast<std::int64_t>(exact.size()));
  EXPECT_TRUE(std::ranges::equal(tensor.data, expected));
  const auto model = Model::load(directory.file("x.gguf"));
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ((*model)->weights()[0].type, TensorType::kBF16);

  // Another type is another format: the key does not survive.
  write_ok(written, {.type = "F16"}, directory.file("y.gguf"));
  EXPECT_FALSE(open_ok(directory.file("y.gguf")).metadata.contains("dllm.mx_format"));
}

TEST(WriteModel, BytesDoNotDependOnThreads) {
  const TempDirectory directory;
  make_checkpoint({.width = 256, .layers = 2, .heads = 4, .kv_heads = 2, .ffn_width = 512}).write(directory.path());
  const ModelSource source = open_ok(directory.path());
  for (const char* type : {"F16", "Q8_0", "Q4_0", "Q4_K_M", "Q6_K"}) {
    write_ok(source, {.type = type, .threads = 1}, directory.file("one.gguf"));
    const std::string one = read_text(directory.file("one.gguf"));
    for (const int threads : {2, 3, 7}) {
      write_ok(source, {.type = type, .threads = threads}, directory.file("many.gguf"));
      EXPECT_TRUE(one == read_text(directory.file("many.gguf"))) << type << ", " << threads << " threads";
    }
  }
}

TEST(WriteModel, QuantizedTensorsAreWhatTheCodecMakesOfTheirRows) {
  SmallSource small;
  for (std::size_t i = 0; i < small.matrix.size(); ++i) small.matrix[i] = std::sin(static_cast<float>(i) * 0.37f);
  const TempDirectory directory;
  write_ok(small.source, {.type = "Q6_K", .threads = 3}, directory.file("x.gguf"));
  const ModelSource written = open_ok(directory.file("x.gguf"));
  std::vector<std::byte> expected(static_cast<std::size_t>(700 * codec(TensorType::kQ6_K).row_bytes(256)));
  codec(TensorType::kQ6_K).quantize(small.matrix.data(), expected.data(), 256 * 700);
  EXPECT_TRUE(std::ranges::equal(written.find("blk.0.ffn_up.weight")->data, expected));
}

TEST(WriteModel, EqualTypesAreCopiedAndOthersWarnOfRequantization) {
  SmallSource small;
  for (std::size_t i = 0; i < small.matrix.size(); ++i) small.matrix[i] = std::cos(static_cast<float>(i) * 0.11f);
  const TempDirectory directory;
  write_ok(small.source, {.type = "Q8_0"}, directory.file("a.gguf"));
  const ModelSource first = open_ok(directory.file("a.gguf"));
  EXPECT_TRUE(write_ok(first, {.type = "Q8_0", .threads = 2}, directory.file("b.gguf")).warnings.empty());
  EXPECT_TRUE(read_text(directory.file("a.gguf")) == read_text(directory.file("b.gguf")));

  const WriteReport report = write_ok(first, {.type = "Q4_K"}, directory.file("c.gguf"));
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_NE(report.warnings[0].find("1 tensors were quantized already (Q8_0)"), std::string::npos);
  EXPECT_EQ(open_ok(directory.file("c.gguf")).find("blk.0.ffn_up.weight")->type, TensorType::kQ4_K);
  EXPECT_TRUE(write_ok(first, {.type = "F16"}, directory.file("d.gguf")).warnings.empty());
}

TEST(WriteModel, DamagedWeightsNameTensorAndElement) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const char* type : {"F32", "F16", "Q8_0", "Q4_K"}) {
      SmallSource small;
      small.matrix[256 * 600 + 7] = small.matrix[256 * 301 + 17] = bad;
      const TempDirectory directory;
      const auto report = write_model(small.source, {.type = type, .threads = 3}, directory.file("x.gguf"));
      ASSERT_FALSE(report) << type;
      EXPECT_EQ(report.error().code, ErrorCode::kInvalidFile);
      EXPECT_NE(report.error().message().find("blk.0.ffn_up.weight: element 77073 (row 301, column 17)"),
                std::string::npos)
          << report.error().message();
    }
}

TEST(WriteModel, WeightsBeyondTheTypesRangeAreErrors) {
  SmallSource small;
  small.matrix[5] = 70000.f;
  const TempDirectory directory;
  const auto report = write_model(small.source, {.type = "F16"}, directory.file("x.gguf"));
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message().find("element 5 (row 0, column 5) is too large for type F16"), std::string::npos);
  EXPECT_TRUE(write_model(small.source, {.type = "BF16"}, directory.file("x.gguf")));
  EXPECT_TRUE(write_model(small.source, {.type = "Q8_0"}, directory.file("x.gguf")));
}

TEST(WriteModel, AFailedWriteLeavesTheTargetAlone) {
  SmallSource small;
  const TempDirectory directory;
  write_text(directory.file("x.gguf"), "precious");
  small.matrix[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(write_model(small.source, {.type = "F32"}, directory.file("x.gguf")));
  EXPECT_EQ(read_text(directory.file("x.gguf")), "precious");

  WriteOptions cancelled{.type = "F32"};
  cancelled.cancelled = [calls = 0]() mutable { return ++calls > 1; };
  const auto report = write_model(small.source, cancelled, directory.file("x.gguf"));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(read_text(directory.file("x.gguf")), "precious");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 1) << "a partial file was left behind";
}

TEST(WriteModel, ASourceThatChangesMeanwhileIsAnError) {
  for (const bool truncated : {false, true}) {
    SmallSource small;
    const TempDirectory directory;
    const std::string from = directory.file("from.gguf"), to = directory.file("to.gguf");
    write_ok(small.source, {.type = "F32"}, from);
    write_text(to, "precious");
    WriteOptions options{.type = "F16"};
    options.progress = [&](std::string_view, std::int64_t done, std::int64_t) {
      if (done != 1) return;
      if (truncated) return fs::resize_file(from, 6000);
      std::fstream(from, std::ios::in | std::ios::out | std::ios::binary).seekp(-64, std::ios::end) << "other";
      fs::last_write_time(from, fs::last_write_time(from) + std::chrono::seconds(1));
    };
    const auto report = write_model(open_ok(from), options, to);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, ErrorCode::kIo);
    EXPECT_EQ(report.error().what, "the file changed while it was read");
    EXPECT_EQ(read_text(to), "precious");
    EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 2);
  }
}

TEST(WriteModel, ReplacesNeitherASourceNorWhatAppears) {
  SmallSource small;
  const TempDirectory directory;
  const std::string target = directory.file("x.gguf");
  WriteOptions options{.type = "F32", .replace = false};
  options.progress = [&](std::string_view, std::int64_t done, std::int64_t) {
    if (done == 1) write_text(target, "first");
  };
  EXPECT_FALSE(write_model(small.source, options, target));
  EXPECT_EQ(read_text(target), "first");

  const TempDirectory checkpoint;
  make_checkpoint({.kv_heads = 2}).write(checkpoint.path());
  const ModelSource source = open_ok(checkpoint.path());
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    const auto report = write_model(source, {.type = "F32"}, checkpoint.file(name));
    ASSERT_FALSE(report) << name;
    EXPECT_EQ(report.error().code, ErrorCode::kUsage);
  }
}

TEST(WriteModel, RefusesBadArguments) {
  SmallSource small;
  const TempDirectory directory;
  const auto code_of = [&](const WriteOptions& options, const std::string& path) {
    const auto report = write_model(small.source, options, path);
    return report ? std::optional<ErrorCode>() : report.error().code;
  };
  EXPECT_EQ(code_of({.type = "Q9"}, directory.file("x.gguf")), ErrorCode::kUsage);
  EXPECT_EQ(code_of({.type = "F32", .threads = 0}, directory.file("x.gguf")), ErrorCode::kUsage);
  EXPECT_EQ(code_of({.type = "F32"}, directory.path()), ErrorCode::kUsage);
  EXPECT_EQ(code_of({.type = "F32"}, directory.file("no/such/folder/x.gguf")), ErrorCode::kIo);
  write_ok(small.source, {.type = "F32"}, directory.file("x.gguf"));
  const auto itself = write_model(open_ok(directory.file("x.gguf")), {.type = "F16"}, directory.path() + "/./x.gguf");
  ASSERT_FALSE(itself);
  EXPECT_EQ(itself.error().code, ErrorCode::kUsage);
}

/// The shipped model as the Hugging Face checkpoint it was converted from: rows of Q and K back in half-split order.
test::HfCheckpoint checkpoint_of(const ModelSource& gguf) {
  test::HfCheckpoint checkpoint;
  const auto name_of = [](std::string name) {
    const std::pair<const char*, const char*> renames[] = {{"blk.", "model.transformer.blocks."},
                                                           {"attn_output", "attn_out"},
                                                           {"attn_q.", "q_proj."},
                                                           {"attn_k.", "k_proj."},
                                                           {"attn_v.", "v_proj."},
                                                           {"ffn_norm", "ff_norm"},
                                                           {"ffn_gate", "ff_proj"},
                                                           {"ffn_up", "up_proj"},
                                                           {"ffn_down", "ff_out"},
                                                           {"token_embd", "model.transformer.wte"},
                                                           {"output_norm", "model.transformer.ln_f"},
                                                           {"output.", "model.transformer.ff_out."}};
    for (const auto& [from, to] : renames)
      if (const auto at = name.find(from); at != std::string::npos) name.replace(at, std::strlen(from), to);
    return name;
  };
  for (const SourceTensor& tensor : gguf.tensors) {
    std::string bytes(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    const bool permuted =
        tensor.name.find("attn_q.") != std::string::npos || tensor.name.find("attn_k.") != std::string::npos;
    for (std::size_t row = 0; permuted && row < 128; ++row) {
      const std::size_t within = row % 32, from = row - within + (within % 16) * 2 + within / 16;
      std::memcpy(bytes.data() + row * 512, tensor.data.data() + from * 512, 512);
    }
    std::vector<std::int64_t> dims(tensor.shape.rbegin(), tensor.shape.rend());
    checkpoint.tensors.push_back({name_of(tensor.name), "F32", std::move(dims), std::move(bytes)});
  }
  return checkpoint;
}

TEST(TinyLlada, ShippedFileIsTheConversionOfItsCheckpoint) {
  ASSERT_TRUE(fs::exists(kShipped));
  const TempDirectory directory;
  checkpoint_of(open_ok(kShipped)).write(directory.path());
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(kTestdata + name, directory.file(name));
  write_ok(open_ok(directory.path()),
           {.type = "F32", .threads = 2, .model_name = "tiny-llada", .canvas_length = 64, .block_length = 32},
           directory.file("x.gguf"));
  EXPECT_TRUE(read_text(directory.file("x.gguf")) == read_text(kShipped));
}

TEST(TinyLlada, ShippedFileIsTheConversionOfTheOriginal) {
  const char* from_environment = std::getenv("DLLM_SHARED_DATA");
  const std::string original =
      std::string(from_environment ? from_environment : DLLM_SOURCE_DIR "/../shared/data") + "/tiny-llada";
  if (!fs::exists(original + "/model.safetensors"))
    GTEST_SKIP() << "extra test: needs the original checkpoint (set DLLM_SHARED_DATA to the folder above tiny-llada)";
  const TempDirectory directory;
  write_ok(open_ok(original),
           {.type = "F32", .threads = 2, .model_name = "tiny-llada", .canvas_length = 64, .block_length = 32},
           directory.file("x.gguf"));
  EXPECT_TRUE(read_text(directory.file("x.gguf")) == read_text(kShipped));
}

}  // namespace
}  // namespace dllm
