#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "decode/cache/cache_policy.h"
#include "decode/decoder/decoder.h"
#include "decode/loop/canvas_sampler.h"
#include "decode/loop/soft_masks.h"
#include "decode/method_entry.h"
#include "decode/mode/mode.h"
#include "decode/window/suffix.h"
#include "decode/window/window.h"
#include "dllm/error.h"

namespace dllm {

using DecoderEntry = MethodEntry<Decoder>;
using WindowEntry = MethodEntry<Window>;
using CacheEntry = MethodEntry<CachePolicy>;
using SuffixEntry = MethodEntry<Suffix>;
using SmoothingEntry = MethodEntry<SmoothConfig>;
using ModeEntry = MethodEntry<ModeConfig>;
using CanvasEntry = MethodEntry<CanvasOptions>;

/// The methods of this build, one list per part of the decoding. Decoders that register_decoder() has added come last.
const std::vector<DecoderEntry>& decoders();
const std::vector<WindowEntry>& windows();
const std::vector<CacheEntry>& caches();
const std::vector<SuffixEntry>& suffixes();
const std::vector<SmoothingEntry>& smoothings();
/// For models that were trained for several (ModelDesc::modes).
const std::vector<ModeEntry>& modes();
/// For models that refine whole canvases instead of filling masks (Refiner).
const std::vector<CanvasEntry>& canvas_decoders();

/// Adds a decoder at run time (the Python package's dllm.Decoder), or replaces one of the same name that was added
/// before. Lists returned earlier stay valid and do not contain it. Thread-safe. Errors: kUsage if this build has a
/// decoder of the name, or if it is no name (lower-case letters, digits, hyphens).
Expected<void> register_decoder(DecoderEntry entry);
/// How often a decoder was added or replaced: what was derived from an earlier list is out of date.
std::size_t registered_decoders();
/// Whether the decoder of this name, if there is one, was added at run time.
bool is_replaceable(std::string_view name);

}  // namespace dllm
