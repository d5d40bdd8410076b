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

/// Models with the class of another one, which would give words as that one, but not theirs: the name of the repository
/// or folder has one of these words.
struct NamedModel {
  std::string_view hf_class;  ///< of config.json, or of its auto_map
  std::vector<std::string_view> words;
  std::string_view architecture;
};

const std::vector<NamedModel>& named_models() {
  static const std::vector<NamedModel> all = {{"SDARForCausalLM", {"i-dlm", "idlm"}, "idlm"},
                                              {"Qwen3ForCausalLM", {"refusion"}, "refusion"}};
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

/// nullptr: none of them.
Expected<const Architecture*> find_named(const HfConfig& config, const std::vector<std::string>& classes) {
  for (const NamedModel& model : named_models()) {
    if (std::ranges::find(classes, model.hf_class) == classes.end()) continue;
    for (const std::string_view word : model.words) {
      DLLM_TRY(const bool named, is_named(config, word));
      if (named) return find_architecture(model.architecture);
    }
  }
  return static_cast<const Architecture*>(nullptr);
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
  const Architecture* base = nullptr;
  std::vector<std::string> classes;
  if (config.contains("architectures")) {
    DLLM_TRY(const std::string name, config.architecture());
    classes = {name};
  } else {
    DLLM_TRY(base, find_type(config));
    classes.assign(base->hf_architectures.begin(), base->hf_architectures.end());
  }
  for (const std::vector<std::string>& of : {own_classes(config), classes}) {
    DLLM_TRY(const Architecture* const named, find_named(config, of));
    if (named != nullptr) return named;
  }
  if (base == nullptr) {
    DLLM_TRY(base, find_hf_architecture(classes.front()));
  }
  return find_own(config, base, classes);
}

}  // namespace dllm
