#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "dllm/error.h"

/// Models from a hub that speaks Hugging Face's protocol, kept in the cache that Hugging Face's own programs share.
namespace dllm::hub {

struct Config {
  std::string endpoint = "https://huggingface.co";  ///< without a trailing slash
  std::string token;                                ///< sent to the endpoint only; empty: anonymous
  std::string cache;                                ///< folder of the cache (huggingface_hub's HF_HUB_CACHE)
  bool offline = false;                             ///< answer from the cache alone
  int retries = 5;                                  ///< new attempts after a transfer that brought nothing
  std::int64_t first_wait_ms = 500;                 ///< before the first of them; doubled each time
};

using Environment = std::function<const char*(const std::string& name)>;

/// As huggingface_hub reads them: HF_ENDPOINT, HF_TOKEN or the file HF_TOKEN_PATH, HF_HUB_CACHE, HF_HOME,
/// XDG_CACHE_HOME, HF_HUB_OFFLINE. Errors: kUsage (an endpoint that is no URL, no folder for the cache), kIo (a token
/// file that is named and cannot be read).
Expected<Config> config_from(const Environment& environment);

/// What a user names: "org/model", or "org/model:Q4_K_M".
struct ModelName {
  std::string repository;
  std::string quant;  ///< empty: none was given
};
/// Errors: kUsage.
Expected<ModelName> parse_model_name(std::string_view text);

/// Letters, digits and ._- in one or two parts: safe as part of a path and of a URL.
bool is_repository(std::string_view text);
/// A path inside a repository that stays inside: relative, no empty, "." or ".." part, no control characters.
bool is_inner_path(std::string_view path);

}  // namespace dllm::hub
