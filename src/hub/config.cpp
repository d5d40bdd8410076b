#include "hub/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/input_file.h"
#include "base/os_files.h"
#include "base/try.h"
#include "hub/text.h"

namespace dllm::hub {
namespace {

std::string value_of(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? "" : value;
}

bool is_true(std::string_view value) {
  const std::string text = lower(value);
  return text == "1" || text == "true" || text == "yes" || text == "on";
}

/// ~/.cache/huggingface, or where environment variables move it; empty if none of them is set.
std::string hf_home(const Environment& environment) {
  if (const std::string home = value_of(environment, "HF_HOME"); !home.empty()) return home;
  if (const std::string cache = value_of(environment, "XDG_CACHE_HOME"); !cache.empty()) return cache + "/huggingface";
  const std::string home = value_of(environment, kHomeVariable);
  return home.empty() ? "" : home + "/.cache/huggingface";
}

Expected<std::string> read_token(const Environment& environment, const std::string& home) {
  const std::string given = value_of(environment, "HF_TOKEN");
  if (const std::string token(trimmed(given)); !token.empty()) return token;
  const std::string named = value_of(environment, "HF_TOKEN_PATH");
  if (named.empty() && home.empty()) return std::string();
  const std::string path = named.empty() ? home + "/token" : named;
  std::error_code unknown;
  if (named.empty() && !std::filesystem::exists(path, unknown)) return std::string();
  const Expected<std::string> content = read_input(path);
  if (!content)
    return Error{ErrorCode::kIo, fmt::format("the token cannot be read: {}", content.error().what), path,
                 "see HF_TOKEN_PATH, or set HF_TOKEN"};
  return std::string(trimmed(*content));
}

bool is_name(std::string_view text) {
  constexpr std::string_view marks = "._-";
  if (text.empty() || text.size() > 96 || text.front() == '.' || text.front() == '-') return false;
  // Folders of the cache are named models--org--name.
  if (text.find("--") != text.npos || text.find("..") != text.npos) return false;
  return std::ranges::all_of(
      text, [&](unsigned char c) { return std::isalnum(c) != 0 || marks.find(static_cast<char>(c)) != marks.npos; });
}

}  // namespace

bool is_repository(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == text.npos) return is_name(text);
  return is_name(text.substr(0, slash)) && is_name(text.substr(slash + 1));
}

bool is_inner_path(std::string_view path) {
  if (path.empty() || path.size() > 1024) return false;
  if (std::ranges::any_of(path, [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '\\'; })) return false;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || file_name_at(part) != 0) return false;
    begin = end + 1;
  }
  return true;
}

Expected<ModelName> parse_model_name(std::string_view text) {
  ModelName name;
  const auto colon = text.find(':');
  name.repository = text.substr(0, colon);
  if (colon != text.npos) name.quant = text.substr(colon + 1);
  const bool quant_ok = colon == text.npos || is_name(name.quant);
  if (is_repository(name.repository) && quant_ok) return name;
  return Error{ErrorCode::kUsage, "no name of a model on a hub", fmt::format("'{}'", text),
               "org/model, or org/model:Q4_K_M for one of its GGUF files"};
}

const char* process_environment(const std::string& name) { return std::getenv(name.c_str()); }

Expected<Config> config_from(const Environment& environment) {
  Config config;
  if (std::string endpoint = value_of(environment, "HF_ENDPOINT"); !endpoint.empty()) {
    while (endpoint.ends_with('/')) endpoint.pop_back();
    if (!endpoint.starts_with("https://") && !endpoint.starts_with("http://"))
      return Error{ErrorCode::kUsage, fmt::format("'{}' is not a valid address of a hub", endpoint), "HF_ENDPOINT",
                   "https://host, or http://host:port"};
    config.endpoint = std::move(endpoint);
  }
  const std::string home = hf_home(environment);
  config.cache = value_of(environment, "HF_HUB_CACHE");
  if (config.cache.empty() && !home.empty()) config.cache = home + "/hub";
  if (config.cache.empty())
    return Error{ErrorCode::kUsage, "there is no folder to keep models in", "HF_HUB_CACHE", "set it, or HOME"};
  DLLM_TRY(config.token, read_token(environment, home));
  config.offline = is_true(value_of(environment, "HF_HUB_OFFLINE"));
  return config;
}

}  // namespace dllm::hub
