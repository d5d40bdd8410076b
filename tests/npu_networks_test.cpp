// Networks from outside: programs, accuracy simulator and float32 on files that dllm.networks has written
// (tests/app/network_models.py makes the ONNX files).

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "cpu/cpu_backend.h"
#include "npu_backend/accuracy/accuracy_backend.h"
#include "npu_backend/functional/network_run.h"
#include "npu_backend/functional/npu_backend.h"
#include "npu_compiler/compiler/device_step.h"
#include "npu_compiler/compiler/step_time.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"
#include "npu_core/timing/memo.h"

namespace dllm {
namespace {

using npu::Network, npu::NetworkSample;
using Values = std::vector<NetworkSample>;

std::string network_file(const std::string& name) {
  return std::string(DLLM_SOURCE_DIR) + "/tests/networks/" + name + ".safetensors";
}

std::shared_ptr<const Network> network_named(const std::string& name) {
  auto network = npu::load_network(network_file(name));
  EXPECT_TRUE(network) << network.error().message();
  return *network;
}

GraphFactory graph_of(const Network& network) {
  return [&network](StepShape shape) { return network.architecture.build(network.desc, shape); };
}

/// plena-64 with the formats of a machine that has most features; the phone has FP16 lanes and packed weights.
struct OnDevice {
  std::string network, device;
  std::vector<npu::Override> changes;
};

npu::Device device_of(const OnDevice& c) { return *npu::load_device(c.device, c.changes); }

Values by_machine(const Network& network, const OnDevice& c) {
  const auto machine = npu::machine_config(device_of(c));
  auto backend =
      npu::NpuBackend::create(network.desc, graph_of(network), network.weights, *machine, {.positions = network.rows});
  EXPECT_TRUE(backend) << backend.error().message();
  auto values = npu::run_network(**backend, network, network.sample_inputs);
  EXPECT_TRUE(values) << values.error().message();
  return *values;
}

Values by_executor(const Network& network, const OnDevice& c) {
  auto profile = npu::accuracy::device_numerics(device_of(c), c.device, c.changes);
  auto backend = npu::accuracy::AccuracyBackend::create(network.desc, graph_of(network), network.weights, *profile, 2);
  EXPECT_TRUE(backend) << backend.error().message();
  return *npu::run_network(**backend, network, network.sample_inputs);
}

Values in_float32(const Network& network, const Values& inputs) {
  CpuOptions options;
  options.threads = 1;
  options.kv = CpuKvType::kF32;
  options.activations = CpuActivations::kF32;
  const auto backend = *CpuBackend::create(network.desc, graph_of(network), network.weights, options);
  return *npu::run_network(*backend, network, inputs);
}

double largest_difference(const Values& values, const Values& expected) {
  double largest = 0;
  EXPECT_EQ(values.size(), expected.size());
  for (const NetworkSample& one : expected) {
    const auto found = std::ranges::find(values, one.name, &NetworkSample::name);
    EXPECT_NE(found, values.end()) << one.name;
    EXPECT_EQ(found->values.size(), one.values.size());
    EXPECT_GT(std::ranges::max(one.values), 0.1f) << "numbers that are worth comparing";
    largest = std::max(largest, npu::difference(found->values, one.values).largest);
  }
  return largest;
}

class NetworkFile : public testing::TestWithParam<const char*> {};

/// The samples are onnx.reference's, of the ONNX file: what the translation has made of it is the same function.
TEST_P(NetworkFile, ComputesInFloat32WhatTheOnnxFileDoes) {
  const auto network = network_named(GetParam());
  ASSERT_FALSE(network->sample_outputs.empty());
  EXPECT_LT(largest_difference(in_float32(*network, network->sample_inputs), network->sample_outputs), 2e-5);
}

TEST_P(NetworkFile, PricedScheduleIsNearTheSimulation) {
  const auto network = network_named(GetParam());
  for (const char* name : {"dart-512", "mobile-v79-mx"}) {
    const npu::Device device = device_of({GetParam(), name, {}});
    npu::StepRequest request;
    request.size = {.rows = network->rows, .keys = network->rows, .scored = network->step().scored};
    request.network = {network->scored, network->visible, network->causal ? 1 : 0};
    const auto compiled = npu::compile_step(network->shape(), device, request);
    ASSERT_TRUE(compiled) << compiled.error().message();
    npu::TimingOptions options;
    npu::apply_issue(device.issue, options);
    const auto timing = npu::memoised_timing(device, compiled->machine, compiled->step.program, options, "");
    const auto priced = npu::price(*compiled, {});
    ASSERT_TRUE(priced) << priced.error().message();
    EXPECT_NEAR(priced->time.device / static_cast<double>(timing->total), 1, 0.12) << name;
    EXPECT_GT(timing->report["energy_j"].get<double>(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Committed, NetworkFile, testing::Values("bert", "vit", "decoder"));

class NetworkOnDevice : public testing::TestWithParam<OnDevice> {};

TEST_P(NetworkOnDevice, ProgramsAndAccuracySimulatorAgreeBitForBit) {
  const auto network = network_named(GetParam().network);
  const Values machine = by_machine(*network, GetParam()), executor = by_executor(*network, GetParam());
  ASSERT_EQ(machine.size(), executor.size());
  for (std::size_t i = 0; i < machine.size(); ++i) EXPECT_EQ(machine[i].values, executor[i].values) << machine[i].name;
}

/// A format of 8 bits or more keeps a network's answer; BF16 lanes round each operation to 2^-9.
TEST_P(NetworkOnDevice, ValuesStayNearFloat32) {
  const auto network = network_named(GetParam().network);
  for (const NetworkSample& out : by_executor(*network, GetParam())) {
    const auto expected = std::ranges::find(network->sample_outputs, out.name, &NetworkSample::name);
    EXPECT_LT(npu::difference(out.values, expected->values).relative, 0.06) << out.name;
  }
}

const std::vector<npu::Override> kExact = {
    {"numerics.weight", "bf16"}, {"numerics.activation", "bf16"}, {"numerics.kv", "bf16"}};
const std::vector<npu::Override> kBytes = {
    {"numerics.weight", "mxint8:16:ocp"}, {"numerics.activation", "mxint8:16:ocp"}, {"numerics.kv", "mxint8:16:ocp"}};

INSTANTIATE_TEST_SUITE_P(Devices, NetworkOnDevice,
                         testing::Values(OnDevice{"bert", "plena-64", kExact}, OnDevice{"bert", "plena-64", kBytes},
                                         OnDevice{"vit", "plena-64", kExact}, OnDevice{"vit", "plena-64", kBytes},
                                         OnDevice{"decoder", "plena-64", kBytes},
                                         OnDevice{"bert", "mobile-v79", {{"numerics.weight", "fp16"}}},
                                         OnDevice{"vit", "mobile-v79", {{"numerics.weight", "fp16"}}}));

/// Squares of these rows exceed FP16: layer norms shrink them, in the same order everywhere.
TEST(NetworkHalves, LargeRowsStayFinite) {
  const OnDevice phone{"vit", "mobile-v79", {{"numerics.weight", "fp16"}}};
  auto network = *network_named("vit");
  for (float& x : network.sample_inputs[0].values) x *= 80;
  const Values machine = by_machine(network, phone), executor = by_executor(network, phone);
  EXPECT_EQ(machine[0].values, executor[0].values);
  EXPECT_LT(npu::difference(executor[0].values, in_float32(network, network.sample_inputs)[0].values).relative, 0.1);
}

TEST(NetworkInputs, AreCheckedByName) {
  const auto network = network_named("bert");
  const auto refusal = [&](const Values& values) {
    const auto plan = npu::network_plan(*network, values);
    return plan ? std::string() : plan.error().message();
  };
  Values ids = network->sample_inputs;
  ASSERT_EQ(refusal(ids), "");
  ids[0].values[3] = 40;
  EXPECT_NE(refusal(ids).find("none of 40 ids"), std::string::npos) << refusal(ids);
  ids[0].values[3] = 0.5f;
  EXPECT_NE(refusal(ids).find("0.5"), std::string::npos);
  ids[0].values.pop_back();
  EXPECT_NE(refusal(ids).find("7 numbers for 'input_ids', which needs 8"), std::string::npos) << refusal(ids);
  EXPECT_NE(refusal({}).find("0 numbers"), std::string::npos);
  EXPECT_NE(refusal({{"other", {1}}}).find("no input 'other'"), std::string::npos);
}

/// Outputs index what the network's own graph hands out.
TEST(NetworkRun, BackendOfAnotherGraphIsRefused) {
  const auto vit = network_named("vit");
  CpuOptions options;
  options.threads = 1;
  const auto backend = *CpuBackend::create(vit->desc, graph_of(*vit), vit->weights, options);
  Network other = *vit;
  other.handed *= 2;
  ASSERT_TRUE(npu::run_network(*backend, *vit, vit->sample_inputs));
  const auto refused = npu::run_network(*backend, other, vit->sample_inputs);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kMismatch);
}

/// A row of a causal network does not see those after it.
TEST(NetworkMasks, CausalRowsDoNotSeeTheFuture) {
  const auto network = network_named("decoder");
  ASSERT_TRUE(network->causal);
  Values inputs = network->sample_inputs;
  for (std::size_t i = inputs[0].values.size() - 32; i < inputs[0].values.size(); ++i) inputs[0].values[i] += 3;
  const auto before = in_float32(*network, network->sample_inputs)[0].values,
             after = in_float32(*network, inputs)[0].values;
  EXPECT_TRUE(std::equal(before.begin(), before.end() - 32, after.begin()));
  EXPECT_FALSE(std::equal(before.end() - 32, before.end(), after.end() - 32));
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Damaged files give an error, whatever is damaged: never a crash, and never a network with other operators.
TEST(NetworkFiles, DamageIsRefused) {
  const std::string whole = read_file(network_file("bert"));
  const auto path = std::filesystem::path(testing::TempDir()) / "damaged.safetensors";
  const auto refusal = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    const auto network = npu::load_network(path.string());
    return network ? std::string() : network.error().message();
  };
  ASSERT_EQ(refusal(whole), "");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = whole;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    EXPECT_EQ(from.size(), to.size());
    changed.replace(at, from.size(), to);
    return refusal(changed);
  };
  EXPECT_NE(refusal(whole.substr(0, whole.size() - 1)), "");
  EXPECT_NE(refusal(whole.substr(0, 100)), "");
  EXPECT_NE(refusal("").find("damaged"), std::string::npos);
  EXPECT_NE(with("dllm.network", "dllm.netwonk").find("has no 'dllm.network'"), std::string::npos);
  const std::string q = "\\\"";  // quotes in the header's text
  EXPECT_NE(with(q + "version" + q + ": 1", q + "version" + q + ": 7").find("version 7"), std::string::npos);
  EXPECT_NE(with(q + "gelu" + q, q + "golu" + q).find("'golu'"), std::string::npos);
  EXPECT_NE(with(q + "rows" + q + ": 8", q + "rows" + q + ": 9"), "");
  EXPECT_NE(with(q + "heads" + q + ": 2", q + "heads" + q + ": 3").find("3 heads"), std::string::npos);
  EXPECT_NE(with(q + "heads" + q + ": 2", q + "heads" + q + ": 0").find("0 heads"), std::string::npos);
  EXPECT_NE(with(q + "kv_heads" + q + ": 2", q + "kv_heads" + q + ": 1").find("1 of keys"), std::string::npos);
  EXPECT_NE(with(q + "x" + q + ": " + q + "v2" + q, q + "x" + q + ": " + q + "v9" + q).find("'v9'"), std::string::npos);
  EXPECT_NE(with(q + "causal" + q + ": false", q + "causal" + q + ": 12345").find("causal"), std::string::npos);
  EXPECT_NE(with(q + "visible" + q + ": 8", q + "visible" + q + ": 9").find("sees 9"), std::string::npos);
  EXPECT_NE(with(q + "width" + q + ": 32", q + "width" + q + ": 64").find("has 256 numbers, not 512"),
            std::string::npos);
  EXPECT_NE(with(q + "fixed" + q, q + "other" + q), "");
  EXPECT_NE(npu::load_network("bert.onnx").error().message().find("python3 -m dllm.networks bert.onnx"),
            std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace dllm
