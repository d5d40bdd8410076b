#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "format/npy.h"
#include "model/source.h"
#include "model/testing/hf_directory.h"
#include "quant/convert.h"
#include "shared_data.h"

namespace dllm::test {

using nlohmann::json;

inline constexpr const char* kGoldenModels = DLLM_SOURCE_DIR "/tests/golden/models/";

/// references.py's `values`, including rows that it makes equal.
inline std::string tensor_bytes_of(const json& entry) {
  const auto name = entry["name"].get<std::string>();
  const auto dims = entry["shape"].get<std::vector<std::int64_t>>();
  const auto offset = entry["offset"].get<float>(), scale = entry["scale"].get<float>();
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= dim;
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(offset + scale * tiny_value(name, i));
  const std::int64_t row = count / dims.front();
  for (const json& pair : entry.value("equal_rows", json::array())) {
    const auto to = pair[0].get<std::int64_t>(), from = pair[1].get<std::int64_t>();
    std::copy_n(values.begin() + from * row, row, values.begin() + to * row);
  }
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// A tiny checkpoint on disk, and the reference's results for it.
class GoldenModel {
 public:
  using Damage = std::function<void(HfCheckpoint&)>;

  explicit GoldenModel(const std::string& name, const Damage& damage = {})
      : json_(json::parse(read_file(std::string(kGoldenModels) + name + ".json"))) {
    HfCheckpoint checkpoint = make_checkpoint({});  // for its tokenizer
    checkpoint.config = json_["config"];
    checkpoint.tensors.clear();
    for (const json& entry : json_["tensors"])
      checkpoint.tensors.push_back({entry["name"].get<std::string>(), "F32",
                                    entry["shape"].get<std::vector<std::int64_t>>(), tensor_bytes_of(entry)});
    if (damage) damage(checkpoint);
    checkpoint.write(directory_.path(), /*shards=*/2);
    const auto array = parse_npy(read_file(std::string(kGoldenModels) + name + ".npy"), name);
    for (const double value : array->values) logits_.push_back(value);
  }

  const json& description() const { return json_; }
  const std::string& path() const { return directory_.path(); }
  const std::vector<double>& logits() const { return logits_; }
  std::vector<std::int32_t> ids() const { return json_["input_ids"].get<std::vector<std::int32_t>>(); }

  /// The checkpoint as a GGUF of this type, in the same directory; empty on failure.
  std::string write_gguf(const std::string& type) const {
    const auto source = source_from_hf(path());
    if (!source) return ADD_FAILURE() << source.error().message(), "";
    const std::string target = directory_.file(type + ".gguf");
    WriteOptions options;
    options.type = type;
    const auto report = write_model(*source, options, target);
    if (!report) return ADD_FAILURE() << report.error().message(), "";
    return target;
  }

 private:
  TempDirectory directory_;
  json json_;
  std::vector<double> logits_;
};

/// Largest deviation relative to the largest logit.
inline double deviation(const std::vector<float>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return HUGE_VAL;
  double scale = 0, worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    scale = std::max(scale, std::abs(expected[i]));
    worst = std::max(worst, std::abs(static_cast<double>(actual[i]) - expected[i]));
  }
  return worst / scale;
}

}  // namespace dllm::test
