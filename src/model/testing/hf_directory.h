#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dllm::test {

/// A directory that lives as long as the object.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);

/// A tensor as safetensors has it: dims with the slowest first.
struct HfTensor {
  std::string name;
  std::string dtype = "F32";
  std::vector<std::int64_t> dims;
  std::string bytes;
};

/// The files of a Hugging Face checkpoint before they are written, so that tests can damage them. Null JSON and empty
/// text mean that there is no such file.
struct HfCheckpoint {
  nlohmann::json config, tokenizer, tokenizer_config, generation_config;
  std::string chat_template_jinja;
  std::vector<HfTensor> tensors;

  HfTensor* find(const std::string& name);
  void erase(const std::string& name);
  void set(const std::string& name, const std::vector<std::int64_t>& dims);  ///< replaces or adds, values of tiny_value
  /// `shards` > 1 writes an index; tensors are distributed over the shards.
  void write(const std::string& directory, int shards = 1) const;
};

struct HfSpec {
  std::string family = "llada";  ///< llada, dream, llama
  std::string dtype = "F32";     ///< F32, F16, BF16
  std::int64_t width = 64, layers = 2, heads = 4, kv_heads = 4, ffn_width = 96;
  bool tied = false;
};

inline constexpr std::int64_t kTinyTokens = 262;  ///< 256 bytes, one merge, five special tokens
inline constexpr std::int64_t kTinyRows = 272;

/// A valid checkpoint: byte-level tokenizer with one merge ("h e"), weights of tiny_value().
HfCheckpoint make_checkpoint(const HfSpec& spec);

/// The weight at `index` of a tensor: exactly representable in every float type.
float tiny_value(const std::string& tensor, std::int64_t index);

}  // namespace dllm::test
