#include "model/hf_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/try.h"

namespace dllm {
namespace {

/// Models whose weights this build could read, and whose decoding it does not have. They would give words, but not
/// theirs.
struct RefusedModel {
  std::string_view hf_class;  ///< of config.json, or of its auto_map
  /// In the name of the repository, where others have the class too; none: no other has it.
  std::vector<std::string_view> words;
  std::string_view name, reason;
};

const std::vector<RefusedModel>& refused_models() {
  static const std::vector<RefusedModel> all = {
      {"WeDLMForCausalLM",
       {},
       "WeDLM",
       "its masks are read after every decided token, those behind them included, and keep their own positions "
       "(topological reordering, arXiv 2512.22737)"},
      {"SDARForCausalLM",
       {"i-dlm", "idlm"},
       "I-DLM",
       "its attention is causal, and a pass verifies a draft and predicts the next one (introspective strided "
       "decoding, arXiv 2604.11035)"},
      {"Qwen3ForCausalLM",
       {"refusion"},
       "ReFusion",
       "it fills slots in any order, and each from left to right with masks behind (arXiv 2512.13586)"},
  };
  return all;
}

bool ends_word(char c) { return c == '-' || c == '.' || c == '_' || c == '/' || c == '\\'; }

bool has_word(std::string text, std::string_view word) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || ends_word(text[at - 1])) && (end == text.size() || ends_word(text[end]))) return true;
  }
  return false;
}

/// Whether the folder itself is named so; in a hub's cache, where it is named after the commit, that of the repository.
bool names_word(const std::filesystem::path& path, std::string_view word) {
  const std::filesystem::path folder = (path / "").lexically_normal().parent_path();
  return has_word(folder.filename().string(), word) ||
         std::ranges::any_of(folder, [word](const std::filesystem::path& part) {
           return part.string().starts_with("models--") && has_word(part.string(), word);
         });
}

Expected<void> refuse_known(const HfConfig& config, const std::vector<std::string>& classes) {
  for (const RefusedModel& model : refused_models()) {
    if (std::ranges::find(classes, model.hf_class) == classes.end()) continue;
    bool meant = model.words.empty();
    for (const std::string_view word : model.words) {
      DLLM_TRY(const bool named, is_named(config, word));
      meant = meant || named;
    }
    if (meant)
      return Error{ErrorCode::kUnsupported, fmt::format("{} is not supported: {}", model.name, model.reason),
                   config.file(),
                   model.words.empty() ? "" : "if it is another model, give the folder a name without that word"};
  }
  return {};
}

/// The classes of `auto_map` that transformers would load as a language model: "modeling_x.Class", also of another
/// repository ("owner/name--modeling_x.Class").
std::vector<std::string> own_classes(const HfConfig& config) {
  std::vector<std::string> classes;
  const auto map = config.json().find("auto_map");
  if (map == config.json().end() || !map->is_object()) return classes;
  for (const char* key : {"AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModel"}) {
    const auto it = map->find(key);
    if (it == map->end() || !it->is_string()) continue;
    const auto path = it->get<std::string>();
    classes.push_back(path.substr(path.rfind('.') + 1));
  }
  return classes;
}

/// Files of derived models may keep the name of their base in `architectures`, while `auto_map` names the code that
/// decodes them (the first release of Stable-DiffCoder is a LlamaForCausalLM). As the base they would be decoded
/// autoregressively. `classes`: those that the file or its type names, of `base`.
Expected<const Architecture*> find_own(const HfConfig& config, const Architecture* base,
                                       const std::vector<std::string>& classes) {
  ModelDesc defaults;
  base->set_defaults(defaults);
  const std::vector<std::string> own = own_classes(config);
  if (!defaults.autoregressive() || own.empty() || std::ranges::find_first_of(own, classes) != own.end()) return base;
  for (const std::string& one : own)
    if (const auto known = find_hf_architecture(one)) return *known;
  return Error{ErrorCode::kUnsupported,
               fmt::format("the checkpoint has code of its own, '{}', which may decode it otherwise than a '{}'",
                           own.front(), classes.front()),
               config.file() + ", auto_map", "if it decodes like one, remove auto_map from config.json"};
}

/// The architecture of `model_type`, the case aside.
Expected<const Architecture*> find_type(const HfConfig& config) {
  DLLM_TRY(std::string type, config.string_or("model_type", ""));
  if (type.empty())
    return Error{ErrorCode::kInvalidFile, "neither 'architectures' nor 'model_type' says what the model is",
                 config.file(), "is this a model's config.json?"};
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  DLLM_TRY(const Architecture* const found, find_architecture(type));
  if (!found->hf_architectures.empty()) return found;
  return Error{ErrorCode::kUnsupported, fmt::format("models of type '{}' are read from GGUF files only", type),
               config.file(), ""};
}

}  // namespace

Expected<bool> is_named(const HfConfig& config, std::string_view word) {
  DLLM_TRY(const std::string origin, config.string_or("_name_or_path", ""));
  std::error_code ignored;
  return names_word(origin, word) || names_word(std::filesystem::absolute(config.file(), ignored).parent_path(), word);
}

Expected<const Architecture*> find_hf_model(const HfConfig& config) {
  DLLM_CHECK_OK(refuse_known(config, own_classes(config)));
  const Architecture* base = nullptr;
  std::vector<std::string> classes;
  if (config.contains("architectures")) {
    DLLM_TRY(const std::string name, config.architecture());
    classes = {name};
    DLLM_CHECK_OK(refuse_known(config, classes));
    DLLM_TRY(base, find_hf_architecture(name));
  } else {
    DLLM_TRY(base, find_type(config));
    classes.assign(base->hf_architectures.begin(), base->hf_architectures.end());
    DLLM_CHECK_OK(refuse_known(config, classes));
  }
  return find_own(config, base, classes);
}

}  // namespace dllm
