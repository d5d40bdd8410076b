#pragma once

#include "dllm/error.h"
#include "npu_compiler/runtime/memory_plan.h"

namespace dllm::npu {

/// A program without the planner, as a runtime that maps what it is asked for.
struct Paging {
  double seconds = 0;          ///< that a run which follows others waits for mappings
  std::int64_t mapped = 0;     ///< buffers mapped in that run
  std::int64_t evictions = 0;  ///< in that run
  std::int64_t pinned_bytes = 0;
};

/// Pinned before the first run: one mapping of all activations, each at its own offset, and one of all small lasting
/// tensors, written ones among them (keys and values). Every other tensor is a buffer of its own, mapped in front of
/// the operator that reads it, at the lowest gap that holds it; if there is none, the least recently used buffers that
/// the operator does not read are unmapped until there is. Nothing is mapped in advance. Precondition: indices in
/// range. Errors: kResource, "mapping failed", with sizes and the reason: larger than the largest mapping, no gap of
/// this size (with the bytes that are free in all), or too many mappings.
Expected<Paging> page_program(const MemoryProgram& program, const MemoryLimits& limits);

}  // namespace dllm::npu
