#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "decode/cache_policy.h"
#include "decode/decoder.h"
#include "decode/window.h"
#include "dllm/error.h"

namespace dllm {

/// The methods of this build, by the names that flags, requests and results use. An unknown name is a usage error
/// that lists the known ones.
Expected<std::unique_ptr<Window>> make_window(std::string_view name, const WindowConfig& config);
Expected<std::unique_ptr<CachePolicy>> make_cache_policy(std::string_view name, const CachePolicyConfig& config = {});
Expected<std::unique_ptr<Decoder>> make_decoder(std::string_view name, const DecoderConfig& config);

std::vector<std::string> window_names();
std::vector<std::string> cache_policy_names();
std::vector<std::string> decoder_names();

}  // namespace dllm
