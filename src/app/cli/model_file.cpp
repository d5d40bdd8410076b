#include "app/cli/model_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "app/cli/flags.h"
#include "base/input_file.h"
#include "base/log.h"
#include "base/try.h"
#include "engine/embedded_model.h"

namespace dllm::app {
namespace {

namespace fs = std::filesystem;

Expected<std::string> read_beside(const fs::path& path, const char* name) {
  const fs::path beside = path.parent_path() / name;
  std::error_code ignored;
  return fs::exists(beside, ignored) ? read_input(beside.string()) : Expected<std::string>(std::string());
}

Expected<Tokenizer> create_with_warnings(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::create(std::move(spec));
  if (tokenizer)
    for (const std::string& warning : tokenizer->spec().warnings) Log().warning("{}", warning);
  return tokenizer;
}

Expected<Tokenizer> tokenizer_from_hf(const fs::path& tokenizer_json) {
  DLLM_TRY(const std::string tokenizer, read_input(tokenizer_json.string()));
  DLLM_TRY(const std::string config, read_beside(tokenizer_json, "tokenizer_config.json"));
  DLLM_TRY(const std::string special, read_beside(tokenizer_json, "special_tokens_map.json"));
  DLLM_TRY(TokenizerSpec spec, Tokenizer::spec_from_hf(tokenizer, config, special));
  return create_with_warnings(std::move(spec));
}

}  // namespace

Expected<FileKind> file_kind(const std::string& path) {
  std::error_code failure;
  const auto status = fs::status(path, failure);
  if (!fs::exists(status)) return Error{ErrorCode::kIo, "no such file or directory", path, ""};
  if (fs::is_directory(status)) return FileKind::kHfDirectory;
  DLLM_TRY(const std::string magic, read_beginning(path, 4));
  if (magic == "GGUF") return FileKind::kGguf;
  const std::string name = fs::path(path).filename().string();
  if (name.ends_with(".safetensors") || name.ends_with(".index.json")) return FileKind::kSafetensors;
  if (name.ends_with(".json")) return FileKind::kTokenizerJson;
  return Error{ErrorCode::kInvalidFile, "neither a GGUF nor a safetensors file", path,
               "give a .gguf file, a .safetensors file or a Hugging Face directory"};
}

Expected<GgufFile> open_gguf(const std::string& path) {
  if (!path.empty()) return GgufFile::open(path);
  return GgufFile::parse(MappedFile::wrap(embedded_model(), "embedded tiny-llada"));
}

Expected<Tokenizer> open_tokenizer(const std::string& path) {
  if (!path.empty()) {
    DLLM_TRY(const FileKind kind, file_kind(path));
    if (kind == FileKind::kHfDirectory) return tokenizer_from_hf(fs::path(path) / "tokenizer.json");
    if (kind == FileKind::kTokenizerJson) return tokenizer_from_hf(path);
    if (kind == FileKind::kSafetensors)
      return Error{ErrorCode::kInvalidFile, "safetensors files hold no tokenizer", path, "give the directory"};
  }
  DLLM_TRY(const GgufFile file, open_gguf(path));
  if (!file.metadata().contains("tokenizer.ggml.model"))
    return Error{ErrorCode::kInvalidFile, "the file has no tokenizer", path.empty() ? "embedded model" : path, ""};
  DLLM_TRY(TokenizerSpec spec, Tokenizer::spec_from_gguf(file.metadata()));
  return create_with_warnings(std::move(spec));
}

Expected<std::vector<TokenId>> parse_ids(std::string_view text, const std::string& where) {
  std::vector<TokenId> ids;
  constexpr std::string_view separators = ", \t\r\n";
  for (;;) {
    const auto begin = text.find_first_not_of(separators);
    if (begin == std::string_view::npos) return ids;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(separators));
    const auto id = parse_number<TokenId>(word);
    if (!id) return Error{ErrorCode::kUsage, fmt::format("'{}' is not a token id", word), where, ""};
    ids.push_back(*id);
    text.remove_prefix(word.size());
  }
}

}  // namespace dllm::app
