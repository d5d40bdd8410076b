#pragma once

#include <string>

namespace dllm::app {

/// A numerics profile to be written to a file (docs/guide/numerics.md); W4A8KV4 to begin with.
struct NumericsText {
  std::string weight = "mxint4:32:ocp", activation = "mxint8:32:ocp";
  std::string key = "mxint4:32:ocp", value = "mxint4:32:ocp";
  std::string vector = "bf16", sampling = "f64";
  std::string keys = "none", values = "none";  ///< smoothing
  double alpha = 1;

  static NumericsText bf16();
  std::string toml() const;
};

}  // namespace dllm::app
