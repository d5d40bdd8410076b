#include "experiment/numerics_text.h"

#include <fmt/format.h>

namespace dllm::app {

NumericsText NumericsText::bf16() {
  NumericsText text;
  text.weight = text.activation = text.key = text.value = "bf16";
  return text;
}

std::string NumericsText::toml() const {
  return fmt::format(
      "name = \"experiment\"\nsummary = \"of dllm experiment\"\n"
      "[formats]\nweight = \"{}\"\nactivation = \"{}\"\nkey = \"{}\"\nvalue = \"{}\"\nlogits = \"bf16\"\n"
      "[precision]\nvector = \"{}\"\nsampling = \"{}\"\n"
      "[smoothing]\nkeys = \"{}\"\nvalues = \"{}\"\nalpha = {:.4f}\n",
      weight, activation, key, value, vector, sampling, keys, values, alpha);
}

}  // namespace dllm::app
