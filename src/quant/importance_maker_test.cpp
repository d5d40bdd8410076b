// Importance matrices made here: sums against ones computed by hand, experts, and the way from canvases to a file that
// quantizers read.
#include "quant/importance_maker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "format/gguf.h"
#include "model/source.h"
#include "model/testing/hf_directory.h"
#include "quant/canvas_math.h"
#include "quant/convert.h"
#include "quant/importance.h"
#include "quant/make_model.h"

namespace dllm {
namespace {

using test::TempDirectory;

std::shared_ptr<const Model> tiny() {
  static const TempDirectory directory;
  test::make_checkpoint({}).write(directory.path());
  auto source = source_from_hf(directory.path());
  if (!source) return ADD_FAILURE() << source.error().message(), nullptr;
  auto model = Model::load(*std::move(source));
  if (!model) return ADD_FAILURE() << model.error().message(), nullptr;
  return *std::move(model);
}

/// A model with experts, of a shape for tests.
std::shared_ptr<const Model> with_experts(const TempDirectory& directory, const char* shape = "llada-moe-tiny") {
  MakeOptions options;
  options.type = "F32";
  const auto report = make_model(**find_shape(shape), options, directory.file("moe.gguf"));
  if (!report) return ADD_FAILURE() << report.error().message(), nullptr;
  auto source = open_source(directory.file("moe.gguf"));
  auto model = Model::load(*std::move(source));
  if (!model) return ADD_FAILURE() << model.error().message(), nullptr;
  return *std::move(model);
}

std::vector<CalibrationCanvas> canvases_of(const Model& model, int texts) {
  std::vector<CalibrationText> all;
  for (int t = 0; t < texts; ++t) {
    CalibrationText text;
    for (int i = 0; i < 6 + t; ++i) text.prompt.push_back(40 + (7 * i + 3 * t) % 60);
    for (int i = 0; i < 10; ++i) text.answer.push_back(97 + (5 * i + t) % 26);
    all.push_back(std::move(text));
  }
  return *make_canvases(all, model.desc(), {});
}

std::map<std::string, ColumnSums> sums_of(const Model& model, const std::vector<CalibrationCanvas>& canvases) {
  auto sums = column_sums(model, canvases, {.threads = 2});
  if (!sums) return ADD_FAILURE() << sums.error().message(), std::map<std::string, ColumnSums>();
  return {sums->begin(), sums->end()};
}

/// The input of the first layer's Q, K and V is the normalized embedding, whatever the attention.
TEST(ImportanceMaker, TheFirstLayerReadsNormalizedEmbeddings) {
  const auto model = tiny();
  ASSERT_TRUE(model);
  const auto canvases = canvases_of(*model, 3);
  const auto sums = sums_of(*model, canvases);
  const Graph graph = model->build({1, 1});
  const auto row_of = [&](const char* name, std::int64_t row) {
    for (std::size_t i = 0; i < graph.weights.size(); ++i)
      if (graph.weights[i].name == name) {
        std::vector<float> values(64);
        decode_weight_row(model->weights()[i], row, values);
        return values;
      }
    return ADD_FAILURE() << name, std::vector<float>(64);
  };
  const std::vector<float> gain = row_of("blk.0.attn_norm.weight", 0);
  std::vector<double> expected(64);
  double rows = 0;
  bool mask_seen = false;
  for (const CalibrationCanvas& canvas : canvases)
    for (const TokenId token : canvas.tokens) {
      mask_seen = mask_seen || token == *model->desc().mask;
      const std::vector<float> x = row_of("token_embd.weight", token);
      double square = 0;
      for (const float value : x) square += static_cast<double>(value) * value;
      for (std::size_t c = 0; c < 64; ++c)
        expected[c] += std::pow(x[c] * gain[c], 2) / (square / 64 + static_cast<double>(model->desc().norm_eps));
      ++rows;
    }
  EXPECT_TRUE(mask_seen);
  for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
    const ColumnSums& own = sums.at(std::string("blk.0.") + part + ".weight");
    ASSERT_EQ(own.columns, 64);
    EXPECT_EQ(own.counts, std::vector<double>{rows});
    for (std::size_t c = 0; c < 64; ++c) EXPECT_NEAR(own.squares[c], expected[c], 1e-4 * expected[c]) << part << c;
  }
  EXPECT_EQ(sums.at("blk.1.ffn_down.weight").columns, 96);
  EXPECT_NE(sums.at("blk.1.ffn_down.weight").squares, sums.at("blk.0.ffn_down.weight").squares);
  EXPECT_FALSE(sums.contains("output.weight") || sums.contains("token_embd.weight"));
  EXPECT_EQ(sums.size(), 14u);
}

TEST(ImportanceMaker, SumsOfCanvasesAddUpForAnyThreads) {
  const auto model = tiny();
  ASSERT_TRUE(model);
  const auto canvases = canvases_of(*model, 2);
  const auto both = sums_of(*model, canvases), first = sums_of(*model, {canvases[0]}),
             second = sums_of(*model, {canvases[1]});
  for (const auto& [name, sums] : both) {
    EXPECT_EQ(sums.counts[0], first.at(name).counts[0] + second.at(name).counts[0]);
    for (std::size_t c = 0; c < sums.squares.size(); ++c)
      EXPECT_NEAR(sums.squares[c], first.at(name).squares[c] + second.at(name).squares[c], 1e-9 * sums.squares[c]);
  }
  const auto one = column_sums(*model, canvases, {.threads = 1});
  ASSERT_TRUE(one);
  for (const auto& [name, sums] : *one) EXPECT_EQ(sums.squares, both.at(name).squares) << name;
}

/// Rows of a finished block do not see what follows, so more blocks only add to every sum.
TEST(ImportanceMaker, AttentionIsTheModels) {
  const TempDirectory directory;
  MakeOptions options;
  options.type = "F32";
  ASSERT_TRUE(make_model(**find_shape("sdar-tiny"), options, directory.file("sdar.gguf")));
  const auto model = *Model::load(*open_source(directory.file("sdar.gguf")));
  ASSERT_EQ(model->desc().causal_block, 4);
  CalibrationCanvas all;
  for (int i = 0; i < 12; ++i) all.tokens.push_back(40 + (13 * i) % 50);
  CalibrationCanvas front = all;
  front.tokens.resize(4);
  const auto whole = sums_of(*model, {all}), first = sums_of(*model, {front});
  for (const auto& [name, sums] : whole)
    for (std::size_t c = 0; c < sums.squares.size(); ++c)
      EXPECT_GE(sums.squares[c], first.at(name).squares[c]) << name << ", column " << c;
}

TEST(ImportanceMaker, EachRowCountsForTheExpertsThatItUses) {
  const TempDirectory directory;
  const auto model = with_experts(directory);
  ASSERT_TRUE(model);
  const auto canvases = canvases_of(*model, 2);
  const auto sums = sums_of(*model, canvases);
  double rows = 0;
  for (const CalibrationCanvas& canvas : canvases) rows += static_cast<double>(canvas.tokens.size());
  const ColumnSums &gate = sums.at("blk.0.ffn_gate_exps.weight"), &down = sums.at("blk.0.ffn_down_exps.weight");
  ASSERT_EQ(gate.counts.size(), 16u);
  EXPECT_EQ(std::accumulate(gate.counts.begin(), gate.counts.end(), 0.0), 4 * rows) << "4 experts a row";
  EXPECT_EQ(gate.counts, down.counts);
  // Experts read what the router reads, each row four times.
  const ColumnSums& router = sums.at("blk.0.ffn_gate_inp.weight");
  for (std::size_t c = 0; c < 256; ++c) {
    double all = 0;
    for (std::size_t e = 0; e < 16; ++e) all += gate.squares[e * 256 + c];
    EXPECT_NEAR(all, 4 * router.squares[c], 1e-9 * all);
  }
  for (std::size_t e = 0; e < 16; ++e)
    EXPECT_EQ(down.counts[e] > 0, std::any_of(down.squares.begin() + static_cast<std::ptrdiff_t>(e * 256),
                                              down.squares.begin() + static_cast<std::ptrdiff_t>((e + 1) * 256),
                                              [](double square) { return square > 0; }));
}

/// One row takes 4 of 16 experts in each of the two layers.
TEST(ImportanceMaker, CountsUnusedExpertsOnce) {
  const TempDirectory directory;
  const auto model = with_experts(directory);
  ASSERT_TRUE(model);
  ASSERT_EQ(model->desc().layers, 2);
  CalibrationCanvas row;
  row.tokens = {40};
  const auto report = write_importance(*model, {row}, {.dataset = "one"}, directory.file("own.gguf"), true);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->rows, 1);
  EXPECT_EQ(report->unused_experts, 24);
}

/// The same model with Q, K and V in one matrix, and gates and ups of its experts in one.
ModelSource fused(ModelSource source) {
  struct Bytes {
    std::shared_ptr<const void> before;
    std::deque<std::vector<std::byte>> matrices;
  };
  const auto bytes = std::make_shared<Bytes>();
  bytes->before = source.owner;
  for (const auto& [name, parts] : std::map<std::string, std::vector<std::string>>{
           {"attn_qkv", {"attn_q", "attn_k", "attn_v"}}, {"ffn_gate_up_exps", {"ffn_gate_exps", "ffn_up_exps"}}})
    for (const char* layer : {"blk.0.", "blk.1.", "blk.2."}) {
      if (source.find(layer + parts[0] + ".weight") == nullptr) continue;
      SourceTensor whole = *source.find(layer + parts[0] + ".weight");
      const std::int64_t experts = whole.shape.size() > 2 ? whole.shape[2] : 1;
      whole.name = layer + name + ".weight";
      whole.shape[1] = 0;
      std::vector<std::byte>& all = bytes->matrices.emplace_back();
      for (std::int64_t e = 0; e < experts; ++e)
        for (const std::string& part : parts) {
          const SourceTensor& one = *source.find(layer + part + ".weight");
          const auto size = one.data.size() / static_cast<std::size_t>(experts);
          const auto piece = one.data.subspan(static_cast<std::size_t>(e) * size, size);
          all.insert(all.end(), piece.begin(), piece.end());
          if (e == 0) whole.shape[1] += one.shape[1];
        }
      whole.data = all;
      whole.mapped = false;
      for (const std::string& part : parts)
        std::erase_if(source.tensors, [&](const SourceTensor& one) { return one.name == layer + part + ".weight"; });
      source.tensors.push_back(std::move(whole));
    }
  source.owner = bytes;
  return source;
}

/// Quantizers look by the names of the file.
TEST(ImportanceMaker, FusedMatricesHaveTheSumsOfTheirParts) {
  const TempDirectory directory;
  const auto plain = with_experts(directory, "llada2-tiny");
  ASSERT_TRUE(plain);
  const ModelSource source = fused(*open_source(directory.file("moe.gguf")));
  const auto loaded = Model::load(source);
  ASSERT_TRUE(loaded) << loaded.error().message();
  const Model* const model = loaded->get();
  const auto canvases = canvases_of(*model, 2);
  const auto sums = sums_of(*model, canvases), before = sums_of(*plain, canvases);
  EXPECT_EQ(sums.size(), before.size() + 5) << "3 layers with Q, K and V, 2 with experts";
  for (const auto& [name, part] : {std::pair("blk.0.attn_qkv.weight", "blk.0.attn_q.weight"),
                                   {"blk.2.attn_qkv.weight", "blk.2.attn_v.weight"},
                                   {"blk.1.ffn_gate_up_exps.weight", "blk.1.ffn_up_exps.weight"}}) {
    ASSERT_TRUE(sums.contains(name)) << name;
    EXPECT_EQ(sums.at(name).squares, before.at(part).squares) << name;
    EXPECT_EQ(sums.at(name).counts, before.at(part).counts) << name;
  }
  ASSERT_TRUE(write_importance(*model, canvases, {}, directory.file("own.gguf"), true));
  WriteOptions options;
  options.type = "Q4_K_M";
  options.importance = std::make_shared<const Importance>(*Importance::open(directory.file("own.gguf")));
  const auto written = write_model(source, options, directory.file("q4.gguf"));
  ASSERT_TRUE(written) << written.error().message();
  EXPECT_EQ(written->warnings,
            std::vector<std::string>{"the importance matrix does not have 1 of the matrices: output.weight"});
}

TEST(ImportanceMaker, ModelsThatCannotBeMeasuredAreNamedWithoutFlagsOfQuantize) {
  const TempDirectory directory;
  const auto model = with_experts(directory, "diffusion-gemma-tiny");
  ASSERT_TRUE(model);
  const auto sums = column_sums(*model, {}, {});
  ASSERT_FALSE(sums);
  EXPECT_EQ(sums.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(sums.error().where, "--model");
  EXPECT_EQ(sums.error().hint.find("rtn"), std::string::npos);
}

TEST(ImportanceMaker, FilesAreReadAndChangeWhatIsRounded) {
  const TempDirectory directory;
  const auto model = with_experts(directory);
  ASSERT_TRUE(model);
  const auto canvases = canvases_of(*model, 4);
  const std::string path = directory.file("own.gguf");
  const auto report = write_importance(*model, canvases, {.dataset = "words", .threads = 2}, path, true);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->canvases, 4);
  const auto read = Importance::open(path);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(static_cast<std::int64_t>(read->size()), report->matrices);
  EXPECT_EQ(read->dataset(), "words");
  EXPECT_EQ(read->chunks(), 4);
  const auto sums = sums_of(*model, canvases);
  for (const auto& [name, one] : sums) {
    const auto means = read->find(name);
    ASSERT_EQ(means.size(), one.squares.size()) << name;
    for (std::size_t i = 0; i < means.size(); ++i) {
      const double count = one.counts[i / static_cast<std::size_t>(one.columns)];
      EXPECT_NEAR(means[i], count > 0 ? one.squares[i] / count : 1, 1e-5 * (1 + means[i])) << name;
    }
  }
  const auto quantized = [&](bool weighted) {
    WriteOptions options;
    options.type = "Q4_K_M";
    if (weighted) options.importance = std::make_shared<const Importance>(*read);
    const auto source = open_source(directory.file("moe.gguf"));
    const std::string target = directory.file(weighted ? "weighted.gguf" : "plain.gguf");
    const auto written = write_model(*source, options, target);
    EXPECT_TRUE(written) << written.error().message();
    return test::read_text(target);
  };
  EXPECT_NE(quantized(true), quantized(false));
  EXPECT_FALSE(write_importance(*model, canvases, {}, path, false)) << "the file exists";
  const auto cancelled = write_importance(*model, canvases, {.cancelled = [] { return true; }}, path, true);
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace dllm
