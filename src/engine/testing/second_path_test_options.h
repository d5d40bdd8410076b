#pragma once

#include "dllm/model.h"

namespace dllm::test {

/// Revision whose second path always has work: nothing ever becomes stable.
inline GenerateOptions second_path() {
  GenerateOptions options;
  options.length = 64;
  options.block_length = 8;
  options.decoder.name = "revision";
  options.cache.name = "dual";
  options.decoder.options["visible_threshold"] = 0.3;
  options.decoder.options["stable_threshold"] = 2;
  options.decoder.options["refresh_path"] = "second";
  return options;
}

}  // namespace dllm::test
