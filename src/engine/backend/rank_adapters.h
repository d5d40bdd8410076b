#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "model/adapter.h"
#include "model/model.h"
#include "ranks/communicator.h"

namespace dllm {

/// The adapters of rank 0's model that its file does not contain, as bytes: their matrices in GGUF's order, and the
/// scales, which each rank multiplies B by itself.
std::vector<std::byte> encode_adapters(const Model& model);
/// Copies what encode_adapters() wrote; shapes, types and sizes are checked. Errors: kIo.
Expected<std::vector<Adapter>> decode_adapters(std::span<const std::byte> bytes);

/// A hash of names, shapes, scales and some of the bytes of a model's adapters; empty: it has none.
std::string adapters_fingerprint(const Model& model);

/// All ranks call it together. `model`: rank 0's; `lacks`: whether this rank needs its adapters. Returns them, or none
/// to ranks that lack none. Errors: those of Communicator and decode_adapters(), the same on all ranks.
Expected<std::vector<Adapter>> share_adapters(const Model* model, bool lacks, Communicator& ranks);

}  // namespace dllm
