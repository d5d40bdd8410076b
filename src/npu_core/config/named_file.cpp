#include "npu_core/config/named_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/input_file.h"
#include "base/nearest.h"

namespace dllm::npu {

std::optional<EmbeddedFile> find_embedded_file(EmbeddedFiles files, std::string_view name) {
  const auto at = std::ranges::find(files, name, &EmbeddedFile::name);
  return at == files.end() ? std::nullopt : std::optional<EmbeddedFile>(*at);
}

std::vector<std::string> shipped_names(EmbeddedFiles files, std::string_view folder) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : files)
    if (file.name.starts_with(folder)) names.emplace_back(file.name.substr(folder.size()));
  return names;
}

Expected<NamedText> read_named(EmbeddedFiles files, std::string_view folder, std::string_view kind,
                               const std::string& name_or_path, const std::vector<std::string>& shipped) {
  if (const auto file = find_embedded_file(files, std::string(folder) + name_or_path))
    return NamedText{std::string(file->text), name_or_path + ".toml"};
  if (auto text = read_input(name_or_path)) return NamedText{*std::move(text), name_or_path};
  const std::string near = nearest(name_or_path, shipped);
  return Error{
      ErrorCode::kUsage, fmt::format("'{}' is neither a shipped {} nor a readable file", name_or_path, kind), "",
      near.empty() ? fmt::format("shipped: {}", fmt::join(shipped, ", ")) : fmt::format("did you mean '{}'?", near)};
}

}  // namespace dllm::npu
