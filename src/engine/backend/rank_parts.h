#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "graph/split.h"
#include "model/model.h"
#include "ranks/communicator.h"

namespace dllm {

/// What a rank reads of a GGUF file: its header, and its part of the weights.
struct FilePart {
  struct Range {
    std::uint64_t first = 0, count = 0;
    auto operator<=>(const Range&) const = default;
  };
  std::uint64_t file_bytes = 0;
  std::vector<Range> ranges;   ///< ascending, with gaps between them
  std::uint64_t checksum = 0;  ///< of their bytes, one after the other (base/checksum.h)

  std::uint64_t bytes() const;
  /// Names what is in the part: two with the same have the same bytes at the same places.
  std::string digest() const;
  std::vector<std::byte> encoded() const;
  /// Errors: kIo.
  static Expected<FilePart> decode(std::span<const std::byte> bytes);
};

/// Checksums of a model's parts that were read before, while its file stays as it is.
using PartSums = std::map<std::vector<FilePart::Range>, std::uint64_t>;

/// The part of rank `split.rank`. `known`: saves reading such parts, and gets new ones; may be null. `drafter`: reads
/// tensors of this file too, which are added; may be null. Adapters that are not in the file are left out. Errors:
/// kUnsupported (the model is no single GGUF file, or changed by options).
Expected<FilePart> part_of_file(const Model& model, const RankSplit& split, PartSums* known = nullptr,
                                const Model* drafter = nullptr);
/// All of a model's file. Errors: kUnsupported.
Expected<FilePart> whole_file(const Model& model, PartSums* known = nullptr);

/// A folder of parts that ranks 0 have sent, as files with holes, for the next time. Several processes may use one.
class PartFolder {
 public:
  /// `most`: bytes of all files. Both are checked when a part is to be written. `keeps`: whether parts are found and
  /// kept there; else their files are gone once they are mapped. Names and checksums find damage, not forgery, so that
  /// parts of ranks 0 which have not proved a key must not be kept.
  PartFolder(std::string path, std::uint64_t most, bool keeps = true)
      : path_(std::move(path)), most_(most), keeps_(keeps) {}

  /// The file of a part, whose bytes have been read and compared; empty: it is not there.
  std::string find(const FilePart& part) const;
  /// Makes room by removing the files that were not used for the longest time. Errors: kResource (the part is too
  /// large), kUsage (no folder).
  Expected<void> make_room(const FilePart& part) const;

  bool keeps() const { return keeps_; }
  std::string file_of(const FilePart& part) const;

 private:
  std::string path_;
  std::uint64_t most_;
  bool keeps_;
};

/// Writes a part as it arrives.
class PartWriter {
 public:
  /// Errors: kIo.
  static Expected<std::unique_ptr<PartWriter>> create(const PartFolder& folder, const FilePart& part);
  virtual ~PartWriter() = default;
  /// The next bytes. Errors: kIo (also: more than the part has).
  virtual Expected<void> append(std::span<const std::byte> bytes) = 0;
  /// The file's path, when all bytes are there and have their checksum; of a folder that keeps nothing, until this
  /// object ends. Errors: kIo.
  virtual Expected<std::string> commit() = 0;
};

/// Of rank 0, while it sends weights.
struct SendWatch {
  std::function<void(const std::string&)> tell{};  ///< for people
  std::function<bool()> go_on{};                   ///< false ends it with kCancelled on all ranks
  PartSums* known = nullptr;                       ///< of this model, between groups
};

/// What is sent, and how it is opened.
struct SentModel {
  std::function<Expected<FilePart>(const RankSplit& split, PartSums* known)> part{};  ///< of rank 0's model
  /// Of a worker, which gets a file or the part of one.
  std::function<Expected<std::shared_ptr<const Model>>(const std::string& path)> open{};
};

/// All ranks call it together, before each makes its part of the backend: ranks without a model (`own` is null) get
/// their part from rank 0, or find it in `folder`. Returns `own`, not owned, or the model of the part. Errors: the
/// same on all ranks; that of `split`; kUnsupported as part_of_file(); kCancelled. `sent`: by default part_of_file()
/// and Model::load().
Expected<std::shared_ptr<const Model>> share_weights(const Model* own, Communicator& ranks,
                                                     const Expected<SplitKind>& split, const PartFolder& folder,
                                                     const SendWatch& watch = {}, SentModel sent = {});

}  // namespace dllm
