#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "format/mapped_file.h"
#include "graph/graph.h"
#include "model/architecture.h"
#include "model/source.h"

namespace dllm {

/// W x + scale * B (A x), of one matrix W.
struct AdapterPart {
  std::string weight;  ///< "blk.0.attn_output.weight"
  float scale = 1.f;   ///< multiplies B's elements when the model is loaded
  SourceTensor a, b;   ///< {inputs, rank} and {rank, outputs}; their names are those that with_adapters() declares
};

/// A low-rank adapter (LoRA, arXiv 2106.09685): products added to those of the model, whose weights do not change.
struct Adapter {
  std::string name;          ///< path, for messages
  bool drafts_only = false;  ///< only rows of Region::kCanvas: a draft has it, its verification has not
  std::vector<AdapterPart> parts;
  std::shared_ptr<const void> owner{};  ///< keeps the bytes alive
  std::vector<std::shared_ptr<const MappedFile>> files{};
};

/// What a request for an adapter says.
struct AdapterRequest {
  std::string path;
  float scale = 1.f;
  bool drafts_only = false;
};

/// "FILE" or "FILE:SCALE". Errors: kUsage.
Expected<AdapterRequest> parse_adapter_request(std::string_view text, bool drafts_only);

/// A GGUF adapter (llama.cpp's keys), or a PEFT folder, for a model of this architecture. `heads`, `kv_heads`: those of
/// the model, whose rows of Q and K may be stored in another order than PEFT's. Errors: kIo, kInvalidFile,
/// kUnsupported.
Expected<Adapter> open_adapter(const AdapterRequest& request, const Architecture& architecture, std::int64_t heads,
                               std::int64_t kv_heads);

/// Tensors of this prefix in a model's own file are an adapter for its drafts (`dllm convert` writes them).
inline constexpr std::string_view kDraftAdapter = "draft_adapter.";
inline constexpr std::string_view kDraftAdapterScale = "dllm.draft_adapter_scale";

/// Takes the draft adapter out of a model's tensors; without parts: there is none. Errors: kInvalidFile.
Expected<Adapter> take_draft_adapter(const Metadata& metadata, std::vector<SourceTensor>& tensors);

/// The folder `linear_spec_lora` of a Hugging Face model as tensors of that prefix, and their scale in `metadata`;
/// nothing if there is no such folder. Returns what keeps their bytes alive, and the files.
Expected<Adapter> add_draft_adapter(const std::string& directory, const Architecture& architecture, Metadata& metadata,
                                    std::vector<SourceTensor>& tensors);

/// The graph with two small products and a sum after each adapted one, and a choice of rows if the adapter is for
/// drafts. B is expected to be scaled. Weight ids of the model stay.
Graph with_adapters(Graph graph, std::span<const Adapter> adapters);

/// Whether every part finds a product of its shape. Errors: kInvalidFile, kUnsupported; the place is adapter and
/// matrix.
Expected<void> check_adapters(const Graph& graph, std::span<const Adapter> adapters);

}  // namespace dllm
