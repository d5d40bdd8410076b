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

  Expected<std::vector<SafeTensor>> parse() {
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
    std::vector<SafeTensor> tensors;
    for (const auto& [key, value] : header.items()) {
      if (key == "__metadata__") {
        if (!value.is_object()) return invalid(sizeof(length), "'__metadata__' is not an object");
        continue;
      }
      DLLM_TRY(auto tensor, parse_tensor(key, value));
      tensors.push_back(std::move(tensor));
    }
    DLLM_CHECK_OK(check_cover(tensors));
    return tensors;
  }

 private:
  Error invalid(std::uint64_t offset, std::string what) const {
    return {ErrorCode::kInvalidFile, std::move(what), fmt::format("{}, offset {:#x}", name_, offset),
            "the file is truncated or damaged: fetch it again"};
  }
  Error unsupported(std::string what, std::string hint) const {
    return {ErrorCode::kUnsupported, std::move(what), fmt::format("{}, offset {:#x}", name_, sizeof(std::uint64_t)),
            std::move(hint)};
  }

  Expected<SafeTensor> parse_tensor(const std::string& key, const Json& value) const;
  Expected<Shape> parse_shape(const std::string& subject, const Json& dims) const;
  Expected<void> check_cover(const std::vector<SafeTensor>& tensors) const;

  std::span<const std::byte> bytes_;
  std::string_view name_;
  std::uint64_t data_begin_ = 0;
};

/// The member, or null if `object` is not an object that has it.
const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

Expected<SafeTensor> FileParser::parse_tensor(const std::string& key, const Json& value) const {
  const std::string subject = "tensor " + quote_name(key);
  const Json* dtype = member(value, "dtype");
  const Json* dims = member(value, "shape");
  const Json* range = member(value, "data_offsets");
  const bool complete = dtype != nullptr && dtype->is_string() && dims != nullptr && dims->is_array() &&
                        range != nullptr && range->is_array() && range->size() == 2 &&
                        (*range)[0].is_number_unsigned() && (*range)[1].is_number_unsigned();
  if (!complete) return invalid(sizeof(std::uint64_t), subject + " lacks a proper 'dtype', 'shape' or 'data_offsets'");

  SafeTensor tensor;
  tensor.name = key;
  const auto& type = dtype->get_ref<const std::string&>();
  const auto known = tensor_type_from_name(type);
  if (type != "F32" && type != "F16" && type != "BF16")
    return unsupported(fmt::format("{} has the dtype {}", subject, quote_name(type)),
                       "supported: F32, F16, BF16; convert the checkpoint to one of them");
  tensor.type = *known;
  DLLM_TRY(tensor.shape, parse_shape(subject, *dims));
  if (const auto problem = shape_problem(tensor.shape, codec(tensor.type)))
    return unsupported(subject + " " + *problem, "only tensors of 0 to 4 dimensions with elements are read");

  const auto begin = (*range)[0].get<std::uint64_t>(), end = (*range)[1].get<std::uint64_t>();
  const std::uint64_t space = bytes_.size() - data_begin_;
  if (begin > end || end > space)
    return invalid(data_begin_ + std::min(begin, space),
                   fmt::format("{} is at bytes {} to {} of the data, but the file has {}", subject, begin, end, space));
  const auto size = static_cast<std::uint64_t>(codec(tensor.type).row_bytes(element_count(tensor.shape)));
  if (end - begin != size)
    return invalid(data_begin_ + begin,
                   fmt::format("{} of shape {} and dtype {} takes {} bytes, but its offsets span {}", subject,
                               to_string(tensor.shape), type, size, end - begin));
  tensor.data = bytes_.subspan(data_begin_ + begin, size);
  return tensor;
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
Expected<void> FileParser::check_cover(const std::vector<SafeTensor>& tensors) const {
  std::vector<const SafeTensor*> order;
  for (const SafeTensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const SafeTensor* tensor) { return tensor->data.data(); });
  std::uint64_t covered = data_begin_;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto begin = static_cast<std::uint64_t>(order[i]->data.data() - bytes_.data());
    if (begin < covered)
      return invalid(begin, fmt::format("the data of tensor {} overlaps that of tensor {}", quote_name(order[i]->name),
                                        quote_name(order[i - 1]->name)));
    if (begin > covered)
      return invalid(covered, fmt::format("{} bytes before the data of tensor {} belong to no tensor", begin - covered,
                                          quote_name(order[i]->name)));
    covered += order[i]->data.size();
  }
  if (covered != bytes_.size())
    return invalid(covered, fmt::format("the last {} bytes belong to no tensor", bytes_.size() - covered));
  return {};
}

}  // namespace

Expected<Safetensors> Safetensors::parse(std::shared_ptr<const MappedFile> file) {
  Safetensors result;
  DLLM_TRY(result.tensors_, FileParser(*file).parse());
  result.files_.push_back(std::move(file));
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
    if (shards.at(shard).find(tensor) == nullptr)
      return invalid(
          fmt::format("tensor {} is not in {}, where the index has it", quote_name(tensor), quote_name(shard)));
  Safetensors result;
  for (auto& [shard, parsed] : shards) {
    for (SafeTensor& tensor : parsed.tensors_) {
      const auto listed = expected.find(tensor.name);
      if (listed == expected.end() || listed->second != shard)
        return invalid(fmt::format("tensor {} is in {}, but {}", quote_name(tensor.name), quote_name(shard),
                                   listed == expected.end() ? "the index does not list it"
                                                            : "the index has it in " + quote_name(listed->second)));
      result.tensors_.push_back(std::move(tensor));
    }
    result.files_.push_back(std::move(parsed.files_.front()));
  }
  std::ranges::sort(result.tensors_, {}, &SafeTensor::name);
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
