#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "format/metadata.h"
#include "format/tensor_info.h"

namespace dllm::app {

/// What `inspect` shows for any kind of file. It does not require a known architecture.
struct ModelListing {
  struct Tensor {
    std::string name;
    TensorType type = TensorType::kF32;
    Shape shape;
    std::uint64_t bytes = 0;
    std::optional<std::uint64_t> offset;  ///< in the file; unknown for safetensors
  };

  std::string path = {};
  std::string format = {};        ///< "GGUF v3", "safetensors", "Hugging Face directory"
  std::string architecture = {};  ///< empty if the file does not say
  std::string description = {};   ///< one line, as far as the metadata permits
  Metadata metadata = {};         ///< of a Hugging Face directory: config.json, flattened
  std::vector<Tensor> tensors = {};
  std::vector<std::string> unread = {};  ///< of a checkpoint: what UnreadTensor says of each
};

/// `path`: empty for the embedded model.
Expected<ModelListing> list_model(const std::string& path);

struct ListingView {
  bool metadata = true, tensors = true;
  std::string match = {};    ///< only keys and tensors that contain it
  bool full_arrays = false;  ///< else the first elements and the length
};

std::string listing_text(const ModelListing& listing, const ListingView& view);
nlohmann::ordered_json listing_json(const ModelListing& listing, const ListingView& view);

}  // namespace dllm::app
