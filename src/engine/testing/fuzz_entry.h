#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <span>
#include <string>

#include "cpu/weight_cache.h"
#include "engine/latency_file.h"

namespace dllm {

/// The body of fuzz/fuzz_caches.cpp, which a test replays over its corpus: any file is a valid cache or is replaced.
/// The bytes are read from a file in memory, because caches are mapped.
inline void fuzz_caches(std::span<const std::byte> bytes) {
  const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) __builtin_trap();
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (const auto table = read_latency_file(path); !table && table.error().what.empty()) __builtin_trap();
  constexpr std::array<std::byte, 64> kWeights{};
  const cpu::CachedTensor tensors[] = {{"a.weight", TensorType::kF32, 4, 4, 0, 64, kWeights},
                                       {"b.weight", TensorType::kQ8_0, 32, 1, 4096, 34, kWeights}};
  ThreadPool pool(1);
  const auto panels = cpu::load_panels({.path = path, .source_size = 7, .source_stamp = 9}, tensors, pool);
  if (!panels && panels.error().what.empty()) __builtin_trap();
  ::close(fd);
}

}  // namespace dllm
