#pragma once

#include "cpu/kernels/kernel_set.h"

namespace dllm::cpu {

/// The fastest way to decode codes of `format` on this processor, for a product of `rows`: all have the same bits. Of
/// few rows there is no choice. Which it is depends on what else needs the ports of the dot products
/// (kernels/pairs-inl.h, kernels/exact-tiles-inl.h), so it is measured: in milliseconds, at the first product of enough
/// rows with the format. Thread-safe. Throws std::bad_alloc.
Decoding faster_decoding(const KernelSet& kernels, const PackedFormat& format, std::int64_t rows);

}  // namespace dllm::cpu
