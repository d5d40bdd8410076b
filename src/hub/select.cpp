#include "hub/select.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/try.h"
#include "hub/text.h"

namespace dllm::hub {
namespace {

/// "name-00001-of-00003.gguf"
bool is_part(std::string_view path) {
  constexpr std::string_view shape = "-#####-of-#####.gguf";
  if (path.size() < shape.size()) return false;
  path.remove_prefix(path.size() - shape.size());
  return std::ranges::equal(path, shape, [](char c, char wanted) {
    return wanted == '#' ? std::isdigit(static_cast<unsigned char>(c)) != 0 : c == wanted;
  });
}

bool is_gguf(std::string_view path) { return lower(path).ends_with(".gguf"); }

/// Image projectors and importance matrices use the same container but are not models.
bool is_model(std::string_view path) {
  const std::string name = lower(path.substr(path.rfind('/') + 1));
  return is_gguf(name) && name.find("mmproj") == name.npos && name.find("imatrix") == name.npos;
}

/// The name, without ".gguf" and part numbers, ends in the tag after one of - . _ or a folder.
bool has_quant(std::string_view path, std::string_view quant) {
  std::string stem = lower(path);
  stem.resize(stem.size() - 5);
  if (is_part(path)) stem.resize(stem.size() - 15);
  const std::string tag = lower(quant);
  if (stem == tag) return true;
  if (!stem.ends_with(tag)) return false;
  const char before = stem[stem.size() - tag.size() - 1];
  // "_" also occurs within types: Q4_K_M does not end in a tag K_M. Types have a digit before their first underscore.
  if (before == '_') return tag.substr(0, tag.find('_')).find_first_of("0123456789") != std::string::npos;
  return std::string_view("-./").find(before) != std::string_view::npos;
}

/// All parts of the model whose first part this is; of another path, itself. Errors: kUsage (it is a later part), or
/// one that the repository lacks.
Expected<Selection> whole_model(const std::string& path, const std::vector<std::string>& paths,
                                std::string_view where) {
  if (!is_part(path)) return Selection{{path}, false};
  const std::string stem = path.substr(0, path.size() - 20), count = path.substr(path.size() - 10, 5);
  Selection selection;
  for (int i = 1; i <= std::stoi(count); ++i) {
    selection.files.push_back(fmt::format("{}-{:05}-of-{}.gguf", stem, i, count));
    if (std::ranges::find(paths, selection.files.back()) == paths.end())
      return Error{ErrorCode::kUsage, fmt::format("the repository lacks '{}'", selection.files.back()),
                   std::string(where), "the model is split, and all parts are needed"};
  }
  if (selection.files.empty() || selection.files.front() != path)
    return Error{ErrorCode::kUsage, fmt::format("'{}' is a later part of a split model", path), std::string(where),
                 "give the first part"};
  return selection;
}

Expected<Selection> select_gguf(std::vector<std::string> paths, std::string_view quant, std::string_view where) {
  const std::string known = fmt::format("{}", fmt::join(paths, ", "));
  if (!quant.empty()) std::erase_if(paths, [quant](const std::string& path) { return !has_quant(path, quant); });
  const std::vector<std::string> all = paths;
  // A split model is one choice: its first part.
  std::erase_if(paths, [](const std::string& path) { return is_part(path) && path.find("-00001-of-") == path.npos; });
  if (paths.size() == 1) return whole_model(paths.front(), all, where);
  const std::string repository(where.substr(0, where.find(':')));
  if (paths.empty())
    return Error{ErrorCode::kUsage, fmt::format("no GGUF file ends in '{}'", quant), std::string(where),
                 "there are: " + known};
  return Error{ErrorCode::kUsage, fmt::format("{} GGUF files fit", paths.size()), std::string(where),
               fmt::format("choose one as {}:Q4_K_M, or with --hf-file; there are: {}", repository, known)};
}

bool is_checkpoint_file(std::string_view path, bool model_files) {
  constexpr std::array<std::string_view, 4> texts = {".json", ".jinja", "merges.txt", "vocab.txt"};
  if (path.find('/') != path.npos) return false;  // other formats and originals have their own folders
  if (path.ends_with(".safetensors")) return !model_files || path.starts_with("model");
  return std::ranges::any_of(texts, [path](std::string_view end) { return path.ends_with(end); });
}

}  // namespace

Expected<Selection> select_files(const std::vector<std::string>& paths, std::string_view quant, std::string_view file,
                                 std::string_view where) {
  if (!file.empty()) {
    if (std::ranges::find(paths, file) != paths.end()) {
      return whole_model(std::string(file), paths, where);
    }
    return Error{ErrorCode::kUsage, fmt::format("there is no file '{}'", file), std::string(where),
                 fmt::format("there are: {}", fmt::join(paths, ", "))};
  }
  std::vector<std::string> gguf;
  std::ranges::copy_if(paths, std::back_inserter(gguf), is_model);
  if (!gguf.empty()) return select_gguf(std::move(gguf), quant, where);
  if (!quant.empty())
    return Error{ErrorCode::kUsage, "the repository has no GGUF files", std::string(where),
                 "leave the type out; dllm convert --type makes a smaller file of the checkpoint"};
  const bool model_files = std::ranges::any_of(paths, [](const std::string& path) {
    return path.starts_with("model") && path.ends_with(".safetensors") && path.find('/') == std::string::npos;
  });
  Selection selection{{}, true};
  std::ranges::copy_if(paths, std::back_inserter(selection.files),
                       [&](const std::string& path) { return is_checkpoint_file(path, model_files); });
  const auto has = [&selection](std::string_view end) {
    return std::ranges::any_of(selection.files, [end](const std::string& path) { return path.ends_with(end); });
  };
  if (has(".safetensors") && has("config.json")) return selection;
  return Error{ErrorCode::kUsage, "neither GGUF files nor a safetensors checkpoint", std::string(where),
               paths.empty() ? "the repository is empty" : fmt::format("there are: {}", fmt::join(paths, ", "))};
}

}  // namespace dllm::hub
