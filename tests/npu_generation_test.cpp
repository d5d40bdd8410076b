// Whole generations of the embedded model on the NPU's backend: tokens and confidences equal those of the reference
// executor bit for bit, whatever the decoder and the cache; the host's reduction equals the CPU's.

#include "npu_backend/functional/npu_backend.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cpu/cpu_backend.h"
#include "engine/generate.h"
#include "engine/load.h"
#include "engine/resolve.h"
#include "model/model.h"
#include "npu_backend/functional/host_reduction.h"
#include "npu_backend/functional/testing/reference_backend.h"

namespace dllm {
namespace {

std::shared_ptr<const Model> embedded() {
  static const std::shared_ptr<const Model> model = [] {
    const Log quiet([](LogLevel, const std::string&) {});
    return *Model::load(*open_or_embedded(""), quiet);
  }();
  return model;
}

CpuOptions threads_of(int n) {
  CpuOptions options;
  options.threads = n;
  return options;
}

npu::MachineConfig machine(const char* weight, const char* kv) {
  npu::MachineConfig m;
  m.blen = 16, m.mlen = 64, m.vlen = 128, m.hlen = 32;
  m.vram_elements = std::uint64_t{128} * 8192;
  m.mram_elements = std::uint64_t{64 * 64} * 64;
  m.hbm_bytes = std::uint64_t{1} << 28;
  m.weight = *mx_format_from_name(weight);
  m.matrix_kv = m.vector_kv = *mx_format_from_name(kv);
  m.matrix_input = *mx_format_from_name("mxint8:32:ocp");
  return m;
}

npu::NpuBackend::GraphFactory factory() {
  return [](StepShape shape) { return embedded()->build(shape); };
}

std::unique_ptr<npu::NpuBackend> npu_backend(const npu::MachineConfig& config) {
  return *npu::NpuBackend::create(embedded()->desc(), factory(), embedded()->weights(), config, {.positions = 128});
}

Expected<Generation> generate_on(Backend& backend, const std::string& text, GenerateOptions options) {
  const Tokenizer& tokenizer = *embedded()->tokenizer();
  const std::vector<TokenId> prompt = tokenizer.encode(text, true);
  auto resolved = resolve_options(options, backend.desc());
  if (!resolved) return resolved.error();
  return generate({backend, &tokenizer}, prompt, *resolved);
}

const char* const kPrompt =
    "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nReverse: a b c<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n";

struct Method {
  const char* algorithm;
  const char* cache;
  double temperature = 0, guidance = 0;
};

TEST(NpuBackend, GenerationsEqualTheReference) {
  const npu::MachineConfig config = machine("mxint8:32:ocp", "mxint8:32:ocp");
  const auto npu = npu_backend(config);
  npu::test::ReferenceBackend reference(embedded()->desc(), factory(), embedded()->weights(), npu->layout());
  for (const Method& method :
       {Method{"low-confidence", "none"}, Method{"threshold", "prefix"}, Method{"entropy-bound", "dual"},
        Method{"threshold", "dual", 0.7}, Method{"margin", "prefix", 0, 1.0}}) {
    GenerateOptions options;
    options.length = 16;
    options.block_length = 8;
    if (method.algorithm == std::string("low-confidence")) options.decoder.options["steps"] = 4;
    options.decoder.name = method.algorithm;
    options.cache.name = method.cache;
    options.temperature = method.temperature;
    options.cfg_scale = method.guidance;
    const auto got = generate_on(*npu, kPrompt, options), expected = generate_on(reference, kPrompt, options);
    ASSERT_TRUE(got.has_value()) << got.error().message();
    ASSERT_TRUE(expected.has_value()) << expected.error().message();
    EXPECT_EQ(got->ids, expected->ids) << method.algorithm << " " << method.cache;
    EXPECT_EQ(got->confidence, expected->confidence) << method.algorithm << " " << method.cache;
    EXPECT_EQ(got->commit_step, expected->commit_step);
  }
  EXPECT_GT(npu->counters().steps, npu->counters().compiled) << "programs are kept by the shape of the step";
}

/// The loss of quality is measured in docs; this tests that the answer survives 8 bits.
TEST(NpuBackend, AnswersAsTheCpuDoes) {
  GenerateOptions options;
  options.length = 32;
  const auto cpu = *CpuBackend::create(embedded()->desc(), factory(), embedded()->weights(), threads_of(1));
  const auto expected = generate_on(*cpu, kPrompt, options);
  for (const char* format : {"bf16", "mxint8:32:ocp"}) {
    const auto npu = npu_backend(machine(format, format));
    const auto got = generate_on(*npu, kPrompt, options);
    ASSERT_TRUE(got.has_value()) << got.error().message();
    EXPECT_EQ(got->text, expected->text) << format;
  }
}

std::vector<SequenceStep> two_steps(Backend& backend, std::vector<std::unique_ptr<KvCache>>& caches) {
  std::vector<SequenceStep> batch(2);
  for (std::size_t s = 0; s < 2; ++s) {
    caches.push_back(*backend.make_cache(120));
    batch[s].cache = caches.back().get();
    const Position n = s == 0 ? 120 : 100;
    for (Position p = 0; p < n; ++p)
      batch[s].plan.rows.push_back({p, static_cast<TokenId>((100 + 7 * p + static_cast<int>(s)) % 700)});
    batch[s].plan.visible = {{0, n}};
    for (std::int32_t i = 5; i < n; i += 9) batch[s].plan.scored.push_back(i);
    batch[s].request.logits = true;
  }
  return batch;
}

/// Sequences of a batch are independent, a batch that is too large is run in halves, and the rows of a sequence that is
/// too large take turns.
TEST(NpuBackend, BatchesChangeNothing) {
  npu::MachineConfig config = machine("mxint4:32:plena", "mxint4:32:plena");
  // Keys per chunk of softmax follow from the device: here from the size of its matrix SRAM, which is not changed.
  config.mram_elements = std::uint64_t{64 * 64} * 16;
  const auto roomy = npu_backend(config);
  config.vram_elements = std::uint64_t{128} * 1700;
  const auto tight = npu_backend(config);
  config.vram_elements = std::uint64_t{128} * 1024;
  const auto turns = npu_backend(config);
  std::vector<std::unique_ptr<KvCache>> caches;
  auto together = two_steps(*roomy, caches), halves = two_steps(*tight, caches), alone = two_steps(*roomy, caches),
       in_turn = two_steps(*turns, caches);
  const auto all = roomy->forward(together), split = tight->forward(halves);
  ASSERT_TRUE(all.has_value() && split.has_value()) << (split ? "" : split.error().message());
  ASSERT_EQ(roomy->layout().chunk_tiles, tight->layout().chunk_tiles);
  EXPECT_EQ(roomy->counters().steps, 1u);
  EXPECT_EQ(tight->counters().steps, 2u);
  const auto cut = turns->forward(in_turn);
  ASSERT_TRUE(cut.has_value()) << cut.error().message();
  for (std::size_t s = 0; s < 2; ++s) {
    const auto one = roomy->forward({&alone[s], 1});
    EXPECT_EQ((*all)[s].logits, one->front().logits);
    EXPECT_EQ((*all)[s].logits, (*split)[s].logits);
    EXPECT_EQ((*all)[s].logits, (*cut)[s].logits);
  }
}

TEST(NpuBackend, WhatDoesNotFitIsSaid) {
  npu::MachineConfig config = machine("mxint8:32:ocp", "mxint8:32:ocp");
  config.hlen = 16;
  const auto small_heads = npu::NpuBackend::create(embedded()->desc(), factory(), embedded()->weights(), config);
  ASSERT_FALSE(small_heads.has_value());
  EXPECT_NE(small_heads.error().message().find("array.hlen=32"), std::string::npos);
  config = machine("mxint8:32:ocp", "mxint8:32:ocp");
  config.vram_elements = std::uint64_t{128} * 1024;
  config.smoothing.keys = npu::SmoothingCentre::kMinMax;  // rows that decide factors together do not take turns
  const auto tight = npu_backend(config);
  std::vector<std::unique_ptr<KvCache>> caches;
  auto batch = two_steps(*tight, caches);
  const auto scores = tight->forward(batch);
  ASSERT_FALSE(scores.has_value());
  EXPECT_NE(scores.error().message().find("rows of vector SRAM"), std::string::npos);
}

/// The host's reduction against the CPU's, on the CPU's own logits.
TEST(HostReduction, EqualsTheCpu) {
  const auto cpu = *CpuBackend::create(embedded()->desc(), factory(), embedded()->weights(), threads_of(1));
  std::vector<ScoreRequest> requests(10);
  requests[1].rules = {{104, false, true}, {767, false, false}, {5, true, false}};
  requests[2].temperature = 0.8;
  requests[3].temperature = 1.3, requests[3].top_k = 5, requests[3].distribution = ScoreDistribution::kSampled;
  requests[4].temperature = 0.7, requests[4].top_p = 0.8;
  requests[5].top_p = 0.9, requests[5].top_k = 3, requests[5].distribution = ScoreDistribution::kSampled;
  requests[6].top_tokens = 4, requests[6].rules = {{10, false, false}};
  requests[7].temperature = 1.5, requests[7].distribution = ScoreDistribution::kSampled;
  requests[8].temperature = 0.9, requests[8].min_p = 0.2, requests[8].distribution = ScoreDistribution::kSampled;
  requests[9].adjustments = {1.5f, 1, 0.5f, {{3, true, 0, 0}, {104, false, 2, -1}, {700, true, 1, 2}}, {104}};
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::vector<std::unique_ptr<KvCache>> caches;
    auto batch = two_steps(*cpu, caches);
    for (SequenceStep& step : batch) step.request.logits = true;
    const auto plain = *cpu->forward(batch);
    for (SequenceStep& step : batch) step.request = requests[i], step.request.logits = true, step.request.rng = {9, 1};
    batch[0].request.queries = {{0, 3}, {2, 700}};
    const auto expected = *cpu->forward(batch);
    const auto got = npu::score_on_host(batch, {plain[0].logits, plain[1].logits}, embedded()->desc().vocab);
    for (std::size_t s = 0; s < 2; ++s) {
      ASSERT_EQ(got[s].rows.size(), expected[s].rows.size());
      EXPECT_EQ(got[s].queried, expected[s].queried);
      EXPECT_EQ(got[s].logits, expected[s].logits);
      ASSERT_EQ(got[s].top.size(), expected[s].top.size());
      for (std::size_t k = 0; k < got[s].top.size(); ++k) EXPECT_EQ(got[s].top[k].token, expected[s].top[k].token);
      for (std::size_t r = 0; r < got[s].rows.size(); ++r) {
        const RowScore &a = got[s].rows[r], &b = expected[s].rows[r];
        EXPECT_EQ(a.position, b.position);
        EXPECT_EQ(a.token, b.token) << "request " << i;
        EXPECT_EQ(a.logit, b.logit);
        EXPECT_EQ(a.overruled, b.overruled) << "request " << i;
        EXPECT_NEAR(a.confidence, b.confidence, 1e-9) << "request " << i;
        EXPECT_NEAR(a.margin, b.margin, 1e-9) << "request " << i;
        EXPECT_NEAR(a.entropy, b.entropy, 1e-8) << "request " << i;
        if (std::isfinite(b.log_odds))
          EXPECT_NEAR(a.log_odds, b.log_odds, 1e-7) << "request " << i;
        else
          EXPECT_EQ(a.log_odds, b.log_odds);
      }
    }
  }
}

}  // namespace
}  // namespace dllm
