#pragma once

#include "cpu/kernels/kernel_set.h"

namespace dllm::cpu {

/// The faster way to decode codes of `format` on this processor, for a product of many rows: both have the same bits.
/// Which it is depends on what else needs the ports of the dot products (kernels/pairs-inl.h), so it is measured: in a
/// millisecond, at the first call for the set and the format. Thread-safe. Throws std::bad_alloc.
Decoding faster_decoding(const KernelSet& kernels, const PackedFormat& format);

}  // namespace dllm::cpu
