#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dllm/error.h"

namespace dllm::npu {

/// A buffer of a program: a weight, a cache, an activation.
struct MemoryTensor {
  std::string name;
  std::int64_t bytes = 0;
  /// Granularity of staging: an operator can process each `granule` bytes independently. 0: only the whole.
  std::int64_t granule = 0;
  /// Keeps its contents between two runs of the program: weights, keys and values. Other tensors live from their first
  /// to their last use.
  bool lasting = false;
};

struct MemoryOp {
  std::string name;
  double seconds = 0;                       ///< of computation
  std::vector<std::int32_t> reads, writes;  ///< indices into MemoryProgram::tensors
};

/// A repeated program: operators in order, and their buffers.
struct MemoryProgram {
  std::vector<MemoryTensor> tensors;
  std::vector<MemoryOp> ops;
};

/// The operators between which a tensor is used, both included; first < 0: no operator uses it.
struct TensorLife {
  std::int32_t first = -1, last = -1;
};
/// One per tensor of a program whose indices are in range.
std::vector<TensorLife> tensor_lives(const MemoryProgram& program);

/// The addresses that a device sees at once, and the cost of changing them.
struct MemoryLimits {
  std::int64_t window_bytes = 0;   ///< 0: all of memory
  std::int64_t staging_bytes = 0;  ///< two slots of half of it, for what is not resident
  std::int64_t page_bytes = 4096;  ///< mappings are aligned to it
  std::int64_t alignment = 128;    ///< of activations within their mapping
  std::int64_t mapping_bytes = 0;  ///< of the largest mapping; 0: any
  std::int64_t mappings = 0;       ///< maximum; 0: any number
  double map_us = 0, map_us_per_page = 0;
  double copy_gbps = 0;  ///< > 0: staged parts are copied into slots that stay mapped; 0: each is mapped
};

/// A range of device addresses that is mapped once, for the whole run.
struct MemoryMapping {
  std::int64_t address = 0, bytes = 0;
  enum Use { kScratch, kStaging, kResident } use = kResident;
};

struct TensorPlace {
  enum Kind {
    kUnused,    ///< no operator uses it
    kResident,  ///< at `address` in all runs
    kStaged,    ///< in a staging slot while it is used
    kScratch,   ///< at `address` from its first to its last use
  } kind = kUnused;
  std::int64_t address = 0;
  std::int32_t mapping = -1;  ///< index into MemoryPlan::mappings; -1: staged or unused
};

/// One transfer into a staging slot, in a run that follows others. Times are relative to the start of that run; a
/// transfer that began in the previous run has a negative `start`.
struct StagedPart {
  std::int32_t tensor = 0, op = 0;
  std::int64_t offset = 0, bytes = 0;  ///< of the tensor
  std::int32_t slot = 0;
  double start = 0, ready = 0;  ///< of the transfer, seconds
  double begin = 0, end = 0;    ///< of the work on it
  double waited = 0;            ///< delay of `begin` by the transfer: the part that was not hidden
};

struct MemoryPlan {
  std::vector<TensorPlace> places;      ///< one per tensor
  std::vector<MemoryMapping> mappings;  ///< by address
  std::vector<StagedPart> parts;        ///< in the order of use
  std::int64_t scratch_bytes = 0, resident_bytes = 0, staged_bytes = 0;
  std::int64_t slot_bytes = 0;  ///< 0: nothing is staged

  double seconds = 0;           ///< of a run that follows others
  double first_seconds = 0;     ///< of the first run
  double compute_seconds = 0;   ///< of all operators
  double transfer_seconds = 0;  ///< of all parts
  double waiting_seconds = 0;   ///< seconds - compute_seconds
  /// Time of a run without the planner: if not everything fits, every tensor that can be staged is moved before each
  /// operator that reads it, never in advance.
  double paging_seconds = 0;
  double hidden_seconds() const { return transfer_seconds - waiting_seconds; }
  std::int64_t window_used() const;  ///< end of the last mapping
};

/// Places every tensor of a program within the window (the swap-optimized memory runtime of llada.cpp, arXiv
/// 2606.13740). Lasting tensors are either resident, packed in the order of their first use into as few mappings as the
/// limits allow, or staged through two slots; the choice hides as many transfers as possible under computation. Others
/// share one mapping by lifetimes. Deterministic. Errors: kUsage for an inconsistent program (an index out of range, a
/// size below 1, a time below 0); kResource with the sizes if no placement exists.
Expected<MemoryPlan> plan_memory(const MemoryProgram& program, const MemoryLimits& limits);

}  // namespace dllm::npu
