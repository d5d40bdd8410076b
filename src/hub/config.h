#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "dllm/error.h"

/// Models from a hub with Hugging Face's protocol, stored in the cache that Hugging Face's own programs use.
namespace dllm::hub {

struct Config {
  std::string endpoint = "https://huggingface.co";  ///< without a trailing slash
  std::string token;                                ///< sent to the endpoint only; empty: anonymous
  std::string cache;                                ///< folder of the cache (huggingface_hub's HF_HUB_CACHE)
  bool offline = false;                             ///< use only the cache
  int retries = 5;                                  ///< new attempts after a transfer that received nothing
  std::int64_t first_wait_ms = 500;                 ///< before the first of them; doubled each time
};

using Environment = std::function<const char*(const std::string& name)>;
/// This process's.
const char* process_environment(const std::string& name);

/// Reads the variables as huggingface_hub does: HF_ENDPOINT, HF_TOKEN or the file HF_TOKEN_PATH, HF_HUB_CACHE, HF_HOME,
/// XDG_CACHE_HOME, HF_HUB_OFFLINE. Errors: kUsage (an endpoint that is not a URL, no folder for the cache), kIo (the
/// token file cannot be read).
Expected<Config> config_from(const Environment& environment);

/// A user's name for a model: "org/model", or "org/model:Q4_K_M".
struct ModelName {
  std::string repository;
  std::string quant;  ///< empty: not given
};
/// Errors: kUsage.
Expected<ModelName> parse_model_name(std::string_view text);

/// Letters, digits and ._- in one or two parts: safe as part of a path and of a URL.
bool is_repository(std::string_view text);
/// A path that stays inside a repository: relative, no empty, "." or ".." part, no control characters.
bool is_inner_path(std::string_view path);

}  // namespace dllm::hub
