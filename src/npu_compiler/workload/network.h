#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "format/safetensors.h"
#include "model/architecture.h"
#include "model/weights.h"
#include "npu_compiler/workload/model_shape.h"

namespace dllm::npu {

/// The name of the text in a .safetensors file that says what its tensors are.
inline constexpr const char* kNetworkKey = "dllm.network";

/// Where rows come from.
struct NetworkInput {
  enum class Kind : std::uint8_t {
    kTokens,    ///< one id per row, for embeddings
    kRows,      ///< numbers that are given for each run
    kConstant,  ///< numbers of the file, the same in all runs: positions
  };
  std::string name;
  Kind kind = Kind::kRows;
  std::vector<std::int64_t> shape;  ///< of the array that is given
  std::int64_t width = 0;           ///< columns of a row; 0 for tokens
  /// [row][column]: index into the array, -1: zero. Of kRows.
  std::vector<std::int64_t> from;
  std::vector<float> values;  ///< [row][column] of kConstant
};

/// An array that is made of what the graph hands out.
struct NetworkOutput {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> from;  ///< index into [row or scored row][column]
};

/// Numbers that belong to an input or output, for a check.
struct NetworkSample {
  std::string name;
  std::vector<float> values;
};

/// A network from outside: a graph of one step over `rows` rows, its weights, and how arrays become rows and back.
struct Network {
  std::string name, source;  ///< the file that it was made of
  std::int64_t rows = 0;
  /// Rows of which the rest of the graph computes something; empty: all, and no operator gathers rows.
  std::vector<std::int32_t> scored;
  std::int64_t visible = 0;          ///< rows that attention sees, from the first on
  bool causal = false;               ///< each row sees itself and those before it
  std::vector<NetworkInput> inputs;  ///< those of kRows and kConstant in the order of op::HiddenIn
  std::vector<NetworkOutput> outputs;
  std::vector<NetworkSample> sample_inputs, sample_outputs;  ///< of one run in float32; may be empty
  std::vector<std::string> left_out;                         ///< what the file's author fixed: "attention_mask = 1"
  std::int64_t ids = 0;                                      ///< token ids are below it
  std::int64_t handed = 0;                                   ///< numbers that the graph hands out
  Architecture architecture;                                 ///< only name and build()
  ModelDesc desc;
  Weights weights;  ///< by WeightId
  Safetensors file;

  ModelShape shape() const { return {desc, &architecture}; }
  StepShape step() const { return {rows, scored.empty() ? rows : static_cast<std::int64_t>(scored.size())}; }
  const NetworkInput* input(std::string_view input_name) const;
};

/// The network in a file's header and tensors. Errors: kInvalidFile, kUnsupported (another version).
Expected<std::shared_ptr<const Network>> read_network(Safetensors file);

/// Reads a file of `python3 -m dllm.networks` (docs/guide/npu-networks.md). Errors: kUnsupported for an ONNX file, with
/// the command that translates it; kInvalidFile for damaged files, with the operator that does not fit.
Expected<std::shared_ptr<const Network>> load_network(const std::string& path);

}  // namespace dllm::npu
