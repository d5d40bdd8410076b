#pragma once

#include <cstdint>
#include <vector>

namespace dllm {

template <class T>
struct OptionRow;

/// When results of the second path are merged, and which threads it uses (decode/second_path.h).
struct SecondPathOptions {
  enum class Merge {
    kFixed,  ///< merge_delay steps after the launch: the same tokens in every run
    kReady,  ///< at the first boundary between two steps at which they are ready
  };
  Merge refresh_merge = Merge::kFixed;
  std::int32_t merge_delay = 1;
  std::int32_t refresh_threads = 1;
};

std::vector<OptionRow<SecondPathOptions>> second_path_rows();

}  // namespace dllm
