// How ranks come to the same model and to a split that fits.
#include "engine/backend/ranks_setup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/rope_request.h"
#include "random_model.h"
#include "ranks/testing/local_group.h"

namespace dllm {
namespace {

template <class Change>
std::string fingerprint_after(const Change& change) {
  ModelSource source = test::random_source({});
  change(source);
  return model_fingerprint(**Model::load(std::move(source)));
}

/// A key of the model's own, by the end of its name.
std::string key_of(const ModelSource& source, const std::string& end) {
  for (const auto& [key, value] : source.metadata.entries())
    if (key.size() > end.size() && key.compare(key.size() - end.size(), end.size(), end) == 0) return key;
  ADD_FAILURE() << end;
  return end;
}

TEST(RankSetup, WhateverDecidesTheNumbersIsInTheFingerprint) {
  const std::string own = fingerprint_after([](ModelSource&) {});
  EXPECT_EQ(fingerprint_after([](ModelSource&) {}), own);
  EXPECT_EQ(fingerprint_after([](ModelSource& source) {
              source.metadata.set("general.name", MetaValue::string("another name"));
              source.metadata.set("tokenizer.ggml.model", MetaValue::string("none"));
            }),
            own);
  EXPECT_NE(fingerprint_after([](ModelSource& source) { ASSERT_TRUE(rescale_rope({"linear", 2, 0}, source)); }), own);
  EXPECT_NE(fingerprint_after([](ModelSource& source) {
              source.metadata.set(key_of(source, "layer_norm_rms_epsilon"), MetaValue::f32(0.001f));
            }),
            own);
  EXPECT_NE(fingerprint_after([](ModelSource& source) {
              auto& tensor = source.tensors.front();
              static std::vector<std::byte> changed;
              changed.assign(tensor.data.begin(), tensor.data.end());
              changed.front() ^= std::byte{1};
              tensor.data = changed;
            }),
            own);
}

/// Four ranks whose memory holds two copies of the weights.
RankFacts four_ranks(const Model& model, std::vector<std::uint64_t> machines) {
  std::int64_t bytes = 0;
  for (const SourceTensor& tensor : model.tensors()) bytes += static_cast<std::int64_t>(tensor.data.size());
  RankFacts facts;
  facts.latency_s = 1;  // so that the split with the fewest exchanges is the best
  facts.memory.assign(4, 2 * bytes);
  facts.machine = std::move(machines);
  return facts;
}

TEST(RankSetup, RanksOfOneMachineShareItsMemory) {
  const auto model = *Model::load(test::random_source({.width = 128, .layers = 4, .ffn_width = 256}));
  const auto chosen = [&](std::vector<std::uint64_t> machines) {
    const auto choice = choose_split(*model, four_ranks(*model, std::move(machines)), 32, 1e9);
    return choice ? choice->reason : choice.error().message();
  };
  EXPECT_EQ(chosen({1, 2, 3, 4}).find("lacks"), std::string::npos) << chosen({1, 2, 3, 4});
  EXPECT_EQ(chosen({0, 0, 0, 0}).find("lacks"), std::string::npos) << "nothing is known of them";
  EXPECT_NE(chosen({7, 7, 7, 7}).find("a machine lacks"), std::string::npos) << chosen({7, 7, 7, 7});
  EXPECT_NE(chosen({7, 8, 7, 7}).find("a machine lacks"), std::string::npos) << "three copies of them";
  EXPECT_EQ(chosen({7, 8, 7, 8}).find("lacks"), std::string::npos) << "two copies on each";
}

/// One row cannot be shared: what decodes a token at a time is split by outputs where that pays.
TEST(RankSetup, TheSplitDependsOnTheRowsOfAStep) {
  const auto llama = *Model::load(test::random_source({.architecture = "llama", .width = 256, .ffn_width = 1024}));
  const auto llada = *Model::load(test::random_source({.width = 256, .ffn_width = 1024}));
  EXPECT_EQ(usual_rows(llama->desc(), nullptr), 1);
  EXPECT_EQ(usual_rows(llada->desc(), nullptr), 32);
  const auto sdar = *Model::load(test::random_source({.architecture = "sdar"}));
  EXPECT_EQ(usual_rows(sdar->desc(), nullptr), sdar->desc().causal_block);
  const auto chosen = [](const Model& model, std::int64_t rows) {
    RankFacts facts = four_ranks(model, {1, 2, 3, 4});
    facts.latency_s = 1e-6;
    facts.seconds_per_byte = 1.5e-9;
    const auto choice = choose_split(model, facts, rows, 1e10);
    return choice ? choice->reason : choice.error().message();
  };
  EXPECT_TRUE(chosen(*llama, 1).starts_with("outputs")) << chosen(*llama, 1);
  // By rows each rank would read all weights for one row.
  EXPECT_TRUE(chosen(*llada, 4).starts_with("outputs")) << chosen(*llada, 4);
  EXPECT_TRUE(chosen(*llada, 32).starts_with("rows")) << chosen(*llada, 32);
}

TEST(RankSetup, AllRanksComputeAlike) {
  const auto group = test::local_group(2);
  for (const bool same : {true, false}) {
    std::thread other([&] {
      const auto checked = check_same_arithmetic(same ? "exact" : "int8", *group[1]);
      EXPECT_EQ(checked.has_value(), same);
    });
    const auto checked = check_same_arithmetic("exact", *group[0]);
    other.join();
    EXPECT_EQ(checked.has_value(), same);
    EXPECT_TRUE(same || checked.error().code == ErrorCode::kMismatch);
  }
}

TEST(RankSetup, WhatDraftsTakesMemoryToo) {
  const auto model = *Model::load(test::random_source({.width = 128, .layers = 4, .ffn_width = 256}));
  const RankFacts facts = four_ranks(*model, {7, 8, 7, 8});  // each machine holds two copies of the model
  EXPECT_TRUE(check_fits(*model, facts, SplitKind::kRows));
  EXPECT_FALSE(check_fits(*model, facts, SplitKind::kRows, model.get()));
  EXPECT_TRUE(check_fits(*model, facts, SplitKind::kOutputs, model.get()));
  const auto choice = choose_split(*model, facts, 32, 1e9, {}, model.get());
  ASSERT_TRUE(choice) << choice.error().message();
  EXPECT_NE(choice->reason.find("a machine lacks"), std::string::npos) << choice->reason;
}

/// What is sent is counted in the form in which it is sent.
TEST(RankSetup, ExchangesDependOnActivationsAndTheCache) {
  const auto bytes = [](TensorType weights, SplitKind kind, CpuKvType kv, CpuActivations activations) {
    const auto model =
        *Model::load(test::random_source({.width = 128, .layers = 4, .ffn_width = 256, .type = weights}));
    CpuOptions cpu;
    cpu.kv = kv;
    cpu.activations = activations;
    const StepExchange moved = step_exchange(*model, split_graph(model->build({32, 32}), {kind, 0, 2}), 0, 2, cpu);
    EXPECT_GT(moved.gathers, 2);
    return moved.bytes;
  };
  using enum CpuActivations;
  const auto outputs = [&](TensorType type, CpuActivations activations) {
    return bytes(type, SplitKind::kOutputs, CpuKvType::kAuto, activations);
  };
  EXPECT_LT(outputs(TensorType::kQ8_0, kAuto), outputs(TensorType::kQ8_0, kF32)) << "codes";
  EXPECT_EQ(outputs(TensorType::kQ8_0, kInt8), outputs(TensorType::kQ8_0, kAuto));
  EXPECT_EQ(outputs(TensorType::kF32, kAuto), outputs(TensorType::kF32, kF32)) << "nothing reads codes";
  const auto rows = [&](TensorType type, CpuKvType kv) { return bytes(type, SplitKind::kRows, kv, kAuto); };
  const double f32 = rows(TensorType::kQ8_0, CpuKvType::kF32), f16 = rows(TensorType::kQ8_0, CpuKvType::kF16),
               q8 = rows(TensorType::kQ8_0, CpuKvType::kQ8_0), q4 = rows(TensorType::kQ8_0, CpuKvType::kQ4_0);
  EXPECT_GT(f16, q8);
  // Per number 4, 2, 34/32 and 18/32 bytes; what else is sent is the same.
  EXPECT_NEAR((f32 - f16) / (f16 - q8), 2 / (2 - 34.0 / 32), 1e-3);
  EXPECT_NEAR((f16 - q8) / (q8 - q4), (2 - 34.0 / 32) / (16.0 / 32), 1e-3);
  EXPECT_EQ(rows(TensorType::kF32, CpuKvType::kAuto), rows(TensorType::kF32, CpuKvType::kF32));
}

TEST(RankSetup, MachinesAreMeasured) {
  const auto group = test::local_group(2);
  std::vector<RankFacts> facts(2);
  std::thread other([&] { facts[1] = *measure_ranks(*group[1]); });
  facts[0] = *measure_ranks(*group[0]);
  other.join();
  ASSERT_EQ(facts[0].machine.size(), 2U);
  EXPECT_NE(facts[0].machine[0], 0U);
  EXPECT_EQ(facts[0].machine[0], facts[0].machine[1]);
  EXPECT_EQ(facts[0].machine, facts[1].machine);
}

/// Who waits for a part is told why there is none.
TEST(RankSetup, NoSplitIsAnErrorOfAllRanks) {
  const auto model = *Model::load(test::random_source({}));
  const auto group = test::local_group(2);
  std::vector<std::string> errors(2);
  const auto make = [&](int rank, const Expected<SplitKind>& split) {
    CpuOptions options;
    options.threads = 1;
    const auto made = make_part(*model, options, *group[static_cast<std::size_t>(rank)], split);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kResource);
    errors[static_cast<std::size_t>(rank)] = made.error().message();
  };
  std::thread other([&] { make(1, SplitKind::kOutputs); });
  make(0, Error{ErrorCode::kResource, "no split fits", "--split", "start more workers"});
  other.join();
  EXPECT_EQ(errors[0], "--split: no split fits (start more workers)");
  EXPECT_EQ(errors[1], "rank 0: --split: no split fits (start more workers)");
}

}  // namespace
}  // namespace dllm
