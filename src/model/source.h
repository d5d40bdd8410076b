#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "format/gguf.h"
#include "format/metadata.h"
#include "format/safetensors.h"
#include "format/tensor_info.h"

namespace dllm {

/// A tensor with GGUF's name and shape; its bytes may still need to be put into GGUF's row order.
struct SourceTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  Shape shape;
  std::span<const std::byte> data;
  /// > 0: rows are heads in half-split order, to be interleaved (see permute_qk).
  std::int64_t permute_heads = 0;
  bool mapped = false;  ///< `data` is part of a mapped file (MappedFile::drop_pages)
  /// Instead of `data`: consecutive pieces, such as the experts of a layer, which Hugging Face stores separately.
  std::vector<std::span<const std::byte>> parts{};
};

/// Bytes of the tensor as stored.
std::size_t byte_size(const SourceTensor& tensor);

/// A model in GGUF terms, whatever its source: a GGUF file, a Hugging Face directory, or a test. Running, converting
/// and quantizing all start here.
struct ModelSource {
  std::string name;  ///< path, for messages
  Metadata metadata;
  std::vector<SourceTensor> tensors;
  std::shared_ptr<const void> owner;                       ///< keeps the tensors' bytes alive
  std::vector<std::shared_ptr<const MappedFile>> files{};  ///< that contain the bytes
  /// Whether the reader knows matrices in a device's tiles (numerics/packed.h). Others would take tiles for rows, so
  /// Model::load() refuses such tensors for them.
  bool device_tiles = false;
  std::vector<std::string> warnings{};  ///< about the files' contradictions; Model::load() logs them

  const SourceTensor* find(std::string_view tensor) const;
  /// Whether the files are unchanged since they were opened. Call it after the bytes were read, before the result is
  /// used. Errors: kIo.
  Expected<void> check() const { return check_unchanged(files); }
};

/// Opens a .gguf file or a Hugging Face directory (config.json, *.safetensors, tokenizer.json).
Expected<ModelSource> open_source(const std::string& path);
Expected<ModelSource> source_from_gguf(GgufFile file);
Expected<ModelSource> source_from_hf(const std::string& directory);

/// `general.size_label`: "8.0B", "1.3M"; two digits, in the largest unit that is at most the number.
std::string size_label(const std::vector<SourceTensor>& tensors);

/// The tensor's bytes in GGUF order: its own, or written to `buffer`.
std::span<const std::byte> tensor_bytes(const SourceTensor& tensor, std::vector<std::byte>& buffer);

/// The tensors under the names that graphs declare. `attn_qkv` (all rows of Q, then K, then V, as in LLaDA2) becomes
/// attn_q, attn_k and attn_v; `ffn_gate_up_exps` (for each expert the gate's rows, then as many of up) becomes
/// ffn_gate_exps and ffn_up_exps. These are views of the same bytes, for experts in pieces. Files keep their own
/// spelling. Error: kInvalidFile, if the rows do not match the heads, or cannot be halved.
Expected<std::vector<SourceTensor>> split_fused(const std::vector<SourceTensor>& tensors, std::int64_t q_rows,
                                                std::int64_t kv_rows);

/// llama.cpp's row order for Q/K of the Llama family: within each head, row j of the first half and row j of the second
/// half (a RoPE pair) become neighbours: out[h][2j + i] = in[h][i * d/2 + j]. `data` holds rows of `row_bytes`.
void permute_qk(std::span<const std::byte> data, std::int64_t heads, std::int64_t row_bytes, std::span<std::byte> out);

}  // namespace dllm
