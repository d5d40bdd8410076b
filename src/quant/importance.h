#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm {

/// An importance matrix as llama.cpp's llama-imatrix writes it: for the matrices of a model, by GGUF name, the mean
/// square of each column's inputs. Quantizers weight the errors of a column with it.
class Importance {
 public:
  /// Reads a GGUF file of sums and counts (tensors NAME.in_sum2 and NAME.counts), or a file of the older format (.dat).
  /// Errors: kIo, kInvalidFile (damaged; sums without counts; numbers that are not finite or negative).
  static Expected<Importance> open(const std::string& path);
  /// The older format's bytes; `name` is for messages.
  static Expected<Importance> parse_old(std::span<const std::byte> bytes, const std::string& name);

  /// [experts][columns] of a matrix; empty: the file says nothing about it.
  std::span<const float> find(std::string_view matrix) const;

  std::size_t size() const { return values_.size(); }
  /// Of the file: its name without folders, the texts that it was made from, and how many chunks of them; llama.cpp
  /// keeps these in the models that it quantizes.
  const std::string& file() const { return file_; }
  const std::string& dataset() const { return dataset_; }
  std::int64_t chunks() const { return chunks_; }

 private:
  static Expected<Importance> read_gguf(const std::string& path);
  Expected<void> add(std::string matrix, std::vector<float> values);

  std::string file_, dataset_;
  std::int64_t chunks_ = 0;
  std::map<std::string, std::vector<float>, std::less<>> values_;
};

}  // namespace dllm
