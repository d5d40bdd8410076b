#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/try.h"
#include "format/byte_cursor.h"
#include "format/safetensors_index.h"
#include "format/strict_json.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

/// One file: header length (8 bytes), JSON header, data. Offsets in the header count from the start of the data.
class FileParser {
 public:
  explicit FileParser(const MappedFile& file) : bytes_(file.bytes()), name_(file.name()) {}

  /// Fills tensors() and unread().
  Expected<void> parse() {
    ByteCursor cursor(bytes_, name_);
    DLLM_TRY(const auto length, cursor.read<std::uint64_t>("the header's length"));
    if (length > kMaxHeaderBytes)
      return cursor.error_at(0, ErrorCode::kInvalidFile,
                             fmt::format("the header claims {} bytes; the format allows {}", length, kMaxHeaderBytes),
                             "not a .safetensors file, or a damaged one");
    DLLM_TRY(const auto text, cursor.take(length, "the header"));
    data_begin_ = cursor.offset();
    DLLM_TRY(const Json header, parse_strict_json(text, name_, sizeof(length)));
    if (!header.is_object()) return invalid(sizeof(length), "the header is not a JSON object");
    for (const auto& [key, value] : header.items()) {
      if (key != "__metadata__")
        DLLM_CHECK_OK(parse_tensor(key, value));
      else if (!value.is_object())
        return invalid(sizeof(length), "'__metadata__' is not an object");
      else
        for (const auto& [name, entry] : value.items())
          if (entry.is_string()) metadata_[name] = entry.get<std::string>();
    }
    return check_cover();
  }

  std::vector<SafeTensor>& tensors() { return tensors_; }
  std::vector<UnreadTensor>& unread() { return unread_; }
  std::map<std::string, std::string>& metadata() { return metadata_; }

 private:
  Error invalid(std::uint64_t offset, std::string what) const {
    return {ErrorCode::kInvalidFile, std::move(what), fmt::format("{}, offset {:#x}", name_, offset),
            "the file is truncated or damaged: fetch it again"};
  }
  Error unsupported(std::string what, std::string hint) const {
    return {ErrorCode::kUnsupported, std::move(what), fmt::format("{}, offset {:#x}", name_, sizeof(std::uint64_t)),
            std::move(hint)};
  }

  Expected<void> parse_tensor(const std::string& key, const Json& value);
  Expected<Shape> parse_shape(const std::string& subject, const Json& dims) const;
  Expected<void> check_cover();

  /// Where a tensor's data is, counted from the data's start.
  struct Range {
    std::uint64_t begin, end;
    std::string name;
  };

  std::span<const std::byte> bytes_;
  std::string_view name_;
  std::uint64_t data_begin_ = 0;
  std::vector<SafeTensor> tensors_;
  std::vector<UnreadTensor> unread_;
  std::map<std::string, std::string> metadata_;
  std::vector<Range> ranges_;
};

/// Bits of an element of a type that safetensors has and dllm does not read; 0: no such type is known here. (The
/// package's Dtype, version 0.6.)
std::uint64_t other_type_bits(std::string_view type) {
  for (const auto& [name, bits] : {std::pair<std::string_view, std::uint64_t>{"BOOL", 8},
                                   {"U8", 8},
                                   {"I8", 8},
                                   {"F8_E5M2", 8},
                                   {"F8_E4M3", 8},
                                   {"F8_E8M0", 8},
                                   {"U16", 16},
                                   {"I16", 16},
                                   {"U32", 32},
                                   {"I32", 32},
                                   {"U64", 64},
                                   {"I64", 64},
                                   {"F64", 64},
                                   {"C64", 64},
                                   {"F4", 4},
                                   {"F6_E2M3", 6},
                                   {"F6_E3M2", 6}})
    if (name == type) return bits;
  return 0;
}

/// The member, or null if `object` is not an object that has it.
const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

Expected<void> FileParser::parse_tensor(const std::string& key, const Json& value) {
  const std::string subject = "tensor " + quote_name(key);
  const Json* dtype = member(value, "dtype");
  const Json* dims = member(value, "shape");
  const Json* range = member(value, "data_offsets");
  const bool complete = dtype != nullptr && dtype->is_string() && dims != nullptr && dims->is_array() &&
                        range != nullptr && range->is_array() && range->size() == 2 &&
                        (*range)[0].is_number_unsigned() && (*range)[1].is_number_unsigned();
  if (!complete) return invalid(sizeof(std::uint64_t), subject + " lacks a proper 'dtype', 'shape' or 'data_offsets'");

  const auto& type = dtype->get_ref<const std::string&>();
  const bool read = type == "F32" || type == "F16" || type == "BF16";
  DLLM_TRY(Shape shape, parse_shape(subject, *dims));
  const TensorType known = read ? *tensor_type_from_name(type) : TensorType::kF32;
  const auto problem = shape_problem(shape, codec(known));

  const auto begin = (*range)[0].get<std::uint64_t>(), end = (*range)[1].get<std::uint64_t>();
  const std::uint64_t space = bytes_.size() - data_begin_;
  if (begin > end || end > space)
    return invalid(data_begin_ + std::min(begin, space),
                   fmt::format("{} is at bytes {} to {} of the data, but the file has {}", subject, begin, end, space));
  ranges_.push_back({begin, end, key});
  if (problem) {
    unread_.push_back(
        {key, unsupported(subject + " " + *problem, "only tensors of 0 to 4 dimensions with elements are read")});
    return {};
  }
  const std::uint64_t bits = read ? 8 * static_cast<std::uint64_t>(codec(known).block_bytes) : other_type_bits(type);
  // Elements of 4 bytes fit in an int64 (shape_problem), so those of 8 bytes fit here.
  const auto count = static_cast<std::uint64_t>(element_count(shape));
  const std::uint64_t size = bits % 8 == 0 ? count * (bits / 8) : count / 8 * bits + count % 8 * bits / 8;
  if (bits != 0 && end - begin != size)
    return invalid(data_begin_ + begin,
                   fmt::format("{} of shape {} and dtype {} takes {} bytes, but its offsets span {}", subject,
                               to_string(shape), type, size, end - begin));
  if (read)
    tensors_.push_back({key, known, std::move(shape), bytes_.subspan(data_begin_ + begin, size)});
  else
    unread_.push_back({key, unsupported(fmt::format("{} has the dtype {}", subject, quote_name(type)),
                                        "supported: F32, F16, BF16; convert the checkpoint to one of them")});
  if (!read && bits != 0) {
    UnreadTensor& checked = unread_.back();
    checked.dtype = type;
    checked.shape = std::move(shape);
    checked.data = bytes_.subspan(data_begin_ + begin, size);
  }
  return {};
}

Expected<Shape> FileParser::parse_shape(const std::string& subject, const Json& dims) const {
  Shape shape;
  for (const Json& dim : dims) {
    if (!dim.is_number_unsigned() ||
        dim.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return invalid(sizeof(std::uint64_t), subject + " has a dimension that is not a count");
    shape.push_back(dim.get<std::int64_t>());
  }
  std::ranges::reverse(shape);
  if (shape.empty()) shape.push_back(1);
  return shape;
}

/// The format requires that every byte of the data belongs to exactly one tensor.
Expected<void> FileParser::check_cover() {
  // A tensor without elements lies between two others.
  std::ranges::sort(ranges_, {}, [](const Range& range) { return std::pair(range.begin, range.end); });
  std::uint64_t covered = 0;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const Range& range = ranges_[i];
    if (range.begin < covered)
      return invalid(data_begin_ + range.begin, fmt::format("the data of tensor {} overlaps that of tensor {}",
                                                            quote_name(range.name), quote_name(ranges_[i - 1].name)));
    if (range.begin > covered)
      return invalid(data_begin_ + covered, fmt::format("{} bytes before the data of tensor {} belong to no tensor",
                                                        range.begin - covered, quote_name(range.name)));
    covered = range.end;
  }
  if (const std::uint64_t space = bytes_.size() - data_begin_; covered != space)
    return invalid(data_begin_ + covered, fmt::format("the last {} bytes belong to no tensor", space - covered));
  return {};
}

}  // namespace

Expected<Safetensors> Safetensors::parse(std::shared_ptr<const MappedFile> file) {
  Safetensors result;
  FileParser parser(*file);
  DLLM_CHECK_OK(parser.parse());
  result.tensors_ = std::move(parser.tensors());
  result.unread_ = std::move(parser.unread());
  result.metadata_ = std::move(parser.metadata());
  result.files_.push_back(std::move(file));
  std::ranges::sort(result.unread_, {}, &UnreadTensor::name);
  std::ranges::sort(result.tensors_, {}, &SafeTensor::name);
  return result;
}

Expected<Safetensors> Safetensors::open_index(const std::string& path) {
  DLLM_TRY(const auto index, MappedFile::open(path));
  DLLM_TRY(const auto expected, parse_safetensors_index(index->bytes(), path));
  std::map<std::string, Safetensors> shards;
  for (const auto& [tensor, shard] : expected) {
    if (shards.contains(shard)) continue;
    DLLM_TRY(auto file, MappedFile::open((std::filesystem::path(path).parent_path() / shard).string()));
    DLLM_TRY(auto parsed, parse(std::move(file)));
    shards.emplace(shard, std::move(parsed));
  }
  const auto invalid = [&](std::string what) {
    return Error{ErrorCode::kInvalidFile, std::move(what), path,
                 "index and shards are not of one model: fetch all again"};
  };
  for (const auto& [tensor, shard] : expected)
    if (const Safetensors& file = shards.at(shard);
        file.find(tensor) == nullptr && !std::ranges::binary_search(file.unread_, tensor, {}, &UnreadTensor::name))
      return invalid(
          fmt::format("tensor {} is not in {}, where the index has it", quote_name(tensor), quote_name(shard)));
  Safetensors result;
  const auto listed_there = [&](const std::string& tensor, const std::string& shard) -> Expected<void> {
    const auto listed = expected.find(tensor);
    if (listed != expected.end() && listed->second == shard) return {};
    return invalid(fmt::format(
        "tensor {} is in {}, but {}", quote_name(tensor), quote_name(shard),
        listed == expected.end() ? "the index does not list it" : "the index has it in " + quote_name(listed->second)));
  };
  for (auto& [shard, parsed] : shards) {
    for (SafeTensor& tensor : parsed.tensors_) {
      DLLM_CHECK_OK(listed_there(tensor.name, shard));
      result.tensors_.push_back(std::move(tensor));
    }
    for (UnreadTensor& tensor : parsed.unread_) {
      DLLM_CHECK_OK(listed_there(tensor.name, shard));
      result.unread_.push_back(std::move(tensor));
    }
    result.files_.push_back(std::move(parsed.files_.front()));
  }
  std::ranges::sort(result.tensors_, {}, &SafeTensor::name);
  std::ranges::sort(result.unread_, {}, &UnreadTensor::name);
  return result;
}

Expected<Safetensors> Safetensors::open(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    for (const std::string_view name : {kIndexName, kSingleName})
      if (const fs::path candidate = fs::path(path) / name; fs::exists(candidate, ignored))
        return open(candidate.string());
    return Error{ErrorCode::kIo, fmt::format("the directory has neither {} nor {}", kIndexName, kSingleName), path,
                 "give the directory of a Hugging Face model"};
  }
  if (path.ends_with(".json")) return open_index(path);
  DLLM_TRY(auto file, MappedFile::open(path));
  return parse(std::move(file));
}

const SafeTensor* Safetensors::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {},
                                              [](const SafeTensor& tensor) -> std::string_view { return tensor.name; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

}  // namespace dllm
