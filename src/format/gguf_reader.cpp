#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/try.h"
#include "format/byte_cursor.h"
#include "format/gguf.h"
#include "format/gguf_arrays.h"
#include "format/gguf_format.h"
#include "format/gguf_integers.h"

namespace dllm {
namespace gguf {

Expected<std::uint64_t> alignment_of(const Metadata& metadata) {
  DLLM_TRY(const auto stored, metadata.integer(kAlignmentKey));
  if (!stored) return kDefaultAlignment;
  const auto alignment = static_cast<std::uint64_t>(*stored);
  if (*stored < 8 || alignment > kMaxAlignment || !std::has_single_bit(alignment))
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("key '{}' is {}, not a power of two from 8 to {}", kAlignmentKey, *stored, kMaxAlignment),
                 "", "32 is the usual value"};
  return alignment;
}

}  // namespace gguf

namespace {

std::string supported_types() {
  std::string names;
  for (const Codec* codec : all_codecs()) names += (names.empty() ? "" : ", ") + std::string(codec->name);
  return names + ", and microscaling formats of dllm";
}

template <class T>
std::int64_t load_integer(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return static_cast<std::int64_t>(value);
}

template <class T>
double load_float(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return static_cast<double>(value);
}

bool is_float(MetaType type) { return type == MetaType::kF32 || type == MetaType::kF64; }

double float_value(MetaType type, const std::byte* from) {
  return type == MetaType::kF32 ? load_float<float>(from) : load_float<double>(from);
}

/// The value of any integer type or bool; u64 wraps.
std::int64_t integer_value(MetaType type, const std::byte* from) {
  switch (type) {
    case MetaType::kI8:
      return load_integer<std::int8_t>(from);
    case MetaType::kU16:
      return load_integer<std::uint16_t>(from);
    case MetaType::kI16:
      return load_integer<std::int16_t>(from);
    case MetaType::kU32:
      return load_integer<std::uint32_t>(from);
    case MetaType::kI32:
      return load_integer<std::int32_t>(from);
    case MetaType::kU64:
    case MetaType::kI64:
      return load_integer<std::int64_t>(from);
    default:
      return load_integer<std::uint8_t>(from);
  }
}

}  // namespace

/// Fills a GgufFile in file order: header, metadata, tensor infos, tensor data.
class GgufParser {
 public:
  explicit GgufParser(std::shared_ptr<const MappedFile> file) : bytes_(file->bytes()), cursor_(bytes_, file->name()) {
    result_.file_ = std::move(file);
  }

  Expected<GgufFile> parse(bool part = false) {
    DLLM_CHECK_OK(parse_version());
    DLLM_TRY(const auto tensors, cursor_.read<std::uint64_t>("the number of tensors"));
    DLLM_TRY(const auto keys, cursor_.read<std::uint64_t>("the number of metadata keys"));
    DLLM_CHECK_OK(parse_metadata(keys));
    if (!part) DLLM_CHECK_OK(refuse_split());
    DLLM_CHECK_OK(parse_tensor_infos(tensors));
    DLLM_CHECK_OK(place_tensors());
    result_.integers_ = gguf::take_integers(integers_, result_.tensors_, info_offsets_);
    if (!integers_.empty()) DLLM_CHECK_OK(index_names());
    return std::move(result_);
  }

 private:
  Error invalid(std::uint64_t offset, std::string what,
                std::string hint = "the file is damaged: fetch it again") const {
    return cursor_.error_at(offset, ErrorCode::kInvalidFile, std::move(what), std::move(hint));
  }
  Error unsupported(std::uint64_t offset, std::string what, std::string hint) const {
    return cursor_.error_at(offset, ErrorCode::kUnsupported, std::move(what), std::move(hint));
  }
  Error located(Error error, std::uint64_t offset) const {
    error.where = cursor_.error_at(offset, error.code, "").where;
    return error;
  }
  /// Offset of a key's entry.
  std::uint64_t key_offset(std::string_view key) const {
    const auto& entries = result_.metadata_.entries();
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].first == key) return key_offsets_[i];
    return 0;
  }

  Expected<void> parse_version();
  Expected<void> parse_metadata(std::uint64_t count);
  Expected<MetaValue> parse_value(std::string_view name);
  Expected<MetaValue> parse_scalar(MetaType type, std::string_view name);
  Expected<MetaValue> parse_array(std::string_view name);
  Expected<std::int64_t> checked_integer(MetaType type, const std::byte* from, std::string_view name) const;
  MetaValue opaque(MetaType type, MetaType element, std::uint64_t start) const;
  Expected<void> refuse_split() const;
  Expected<void> parse_tensor_infos(std::uint64_t count);
  Expected<GgufTensor> parse_tensor_info(std::uint64_t index);
  Expected<void> index_names();
  Expected<void> place_tensors();
  Expected<void> refuse_overlaps() const;

  std::span<const std::byte> bytes_;
  ByteCursor cursor_;
  GgufFile result_;
  std::vector<std::uint64_t> key_offsets_;   ///< of each metadata entry, for messages
  std::vector<std::uint64_t> info_offsets_;  ///< of each tensor's info, for messages
  gguf::IntegerPlaces integers_;
};

Expected<void> GgufParser::parse_version() {
  const auto magic = cursor_.read<std::uint32_t>("the magic number");
  if (!magic || *magic != gguf::kMagic)
    return invalid(0, bytes_.empty() ? "the file is empty" : "not a GGUF file: it does not start with 'GGUF'",
                   "expected a .gguf file; a Hugging Face model is given by its directory");
  DLLM_TRY(const auto version, cursor_.read<std::uint32_t>("the version"));
  if (version == 1)
    return unsupported(4, "GGUF version 1 is not read", "convert the model again: converters write version 3 now");
  if ((version & 0xffffu) == 0 && version != 0)  // versions are small: 3 reads as 0x03000000
    return unsupported(4, "the file is a big-endian GGUF", "convert it with gguf-convert-endian of the gguf package");
  if (version != 2 && version != 3)
    return unsupported(4, fmt::format("GGUF version {} is not known", version), "this build reads versions 2 and 3");
  result_.version_ = version;
  return {};
}

Expected<void> GgufParser::parse_metadata(std::uint64_t count) {
  constexpr std::uint64_t kLeastBytes = 8 + 4 + 1;  // key length, type, u8 (an empty key is refused below)
  if (count > cursor_.remaining() / kLeastBytes)
    return invalid(16, fmt::format("{} metadata keys do not fit in {} bytes", count, cursor_.remaining()));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t start = cursor_.offset();
    DLLM_TRY(const auto key, cursor_.read_string(fmt::format("metadata key {}", i)));
    if (key.empty() || key.size() > gguf::kMaxKeyBytes)
      return invalid(start,
                     fmt::format("metadata key {} has {} bytes, not 1 to {}", i, key.size(), gguf::kMaxKeyBytes));
    if (result_.metadata_.contains(key)) return invalid(start, fmt::format("key {} occurs twice", quote_name(key)));
    DLLM_TRY(auto value, parse_value(fmt::format("key {}", quote_name(key))));
    result_.metadata_.set(std::string(key), std::move(value));
    key_offsets_.push_back(start);
  }
  auto alignment = gguf::alignment_of(result_.metadata_);
  if (!alignment) return located(std::move(alignment).error(), key_offset(gguf::kAlignmentKey));
  result_.alignment_ = *alignment;
  return {};
}

Expected<MetaValue> GgufParser::parse_value(std::string_view name) {
  const std::uint64_t start = cursor_.offset();
  DLLM_TRY(const auto number, cursor_.read<std::uint32_t>(name));
  const auto type = static_cast<MetaType>(number);
  if (type == MetaType::kArray) return parse_array(name);
  if (element_bytes(type) == 0)
    return unsupported(start, fmt::format("{} has the unknown value type {}", name, number),
                       "the file is damaged or of a newer GGUF version");
  return parse_scalar(type, name);
}

Expected<MetaValue> GgufParser::parse_scalar(MetaType type, std::string_view name) {
  MetaValue value{type, MetaType::kBool, false};
  if (type == MetaType::kString) {
    DLLM_TRY(const auto text, cursor_.read_string(name));
    value.payload = std::string(text);
    return value;
  }
  DLLM_TRY(const auto raw, cursor_.take(element_bytes(type), name));
  if (is_float(type)) {
    value.payload = float_value(type, raw.data());
    return value;
  }
  DLLM_TRY(const std::int64_t integer, checked_integer(type, raw.data(), name));
  if (type == MetaType::kU64 && integer < 0) return opaque(type, MetaType::kBool, cursor_.offset() - raw.size());
  if (type == MetaType::kBool)
    value.payload = integer != 0;
  else
    value.payload = integer;
  return value;
}

Expected<MetaValue> GgufParser::parse_array(std::string_view name) {
  const std::uint64_t start = cursor_.offset();
  DLLM_TRY(const auto number, cursor_.read<std::uint32_t>(name));
  const auto element = static_cast<MetaType>(number);
  if (element == MetaType::kArray) {
    DLLM_CHECK_OK(skip_nested_array(cursor_, name));
    return opaque(MetaType::kArray, element, start);
  }
  const std::uint64_t size = element_bytes(element);
  if (size == 0)
    return unsupported(start, fmt::format("{} has the unknown element type {}", name, number),
                       "the file is damaged or of a newer GGUF version");
  DLLM_TRY(const auto count, cursor_.read<std::uint64_t>(name));
  if (count > cursor_.remaining() / size)
    return invalid(start, fmt::format("{} has {} elements of type {}, but only {} bytes follow", name, count,
                                      meta_type_name(element), cursor_.remaining()));
  MetaValue value{MetaType::kArray, element, false};
  if (element == MetaType::kString) {
    std::vector<std::string> strings;
    strings.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      DLLM_TRY(const auto text, cursor_.read_string(name));
      strings.emplace_back(text);
    }
    value.payload = std::move(strings);
    return value;
  }
  DLLM_TRY(const auto raw, cursor_.take(count * size, name));
  if (is_float(element)) {
    std::vector<double> numbers(count);
    for (std::uint64_t i = 0; i < count; ++i) numbers[i] = float_value(element, raw.data() + i * size);
    value.payload = std::move(numbers);
    return value;
  }
  std::vector<std::int64_t> integers(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    DLLM_TRY(integers[i], checked_integer(element, raw.data() + i * size, name));
    if (element == MetaType::kU64 && integers[i] < 0) return opaque(MetaType::kArray, element, start);
  }
  value.payload = std::move(integers);
  return value;
}

/// The bytes from `start` to the cursor as a value.
MetaValue GgufParser::opaque(MetaType type, MetaType element, std::uint64_t start) const {
  const auto bytes = bytes_.subspan(start, cursor_.offset() - start);
  return {type, element, OpaqueValue{std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())}};
}

/// `from` is inside the file.
Expected<std::int64_t> GgufParser::checked_integer(MetaType type, const std::byte* from, std::string_view name) const {
  const std::int64_t value = integer_value(type, from);
  const auto offset = static_cast<std::uint64_t>(from - bytes_.data());
  if (type == MetaType::kBool && value > 1) return invalid(offset, fmt::format("{} holds the bool {}", name, value));
  return value;
}

Expected<void> GgufParser::refuse_split() const {
  constexpr std::string_view kKey = "split.count";
  auto count = result_.metadata_.integer(kKey);
  if (!count) return located(std::move(count).error(), key_offset(kKey));
  if (count->value_or(0) <= 1) return {};
  return unsupported(key_offset(kKey), fmt::format("the model is split over {} GGUF files ('{}')", **count, kKey),
                     "give NAME-00001-of-0000N.gguf, or merge them: llama-gguf-split --merge FIRST OUT");
}

Expected<void> GgufParser::parse_tensor_infos(std::uint64_t count) {
  constexpr std::uint64_t kLeastBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, one dimension, type, offset
  if (count > cursor_.remaining() / kLeastBytes)
    return invalid(8, fmt::format("the infos of {} tensors do not fit in {} bytes", count, cursor_.remaining()));
  result_.tensors_.reserve(count);
  info_offsets_.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    info_offsets_.push_back(cursor_.offset());
    DLLM_TRY(auto tensor, parse_tensor_info(i));
    result_.tensors_.push_back(std::move(tensor));
  }
  return index_names();
}

Expected<GgufTensor> GgufParser::parse_tensor_info(std::uint64_t index) {
  const std::uint64_t start = cursor_.offset();
  GgufTensor tensor;
  DLLM_TRY(tensor.name, cursor_.read_string(fmt::format("the name of tensor {}", index)));
  if (tensor.name.empty()) return invalid(start, fmt::format("tensor {} has no name", index));
  const std::string subject = fmt::format("tensor {}", quote_name(tensor.name));
  DLLM_TRY(const auto dims, cursor_.read<std::uint32_t>(subject));
  if (dims == 0 || dims > kMaxDims)
    return invalid(start, fmt::format("{} has {} dimensions instead of 1 to {}", subject, dims, kMaxDims));
  for (std::uint32_t d = 0; d < dims; ++d) {
    DLLM_TRY(const auto dim, cursor_.read<std::uint64_t>(subject));
    if (dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return invalid(start, fmt::format("{} has a dimension of {}", subject, dim));
    tensor.shape.push_back(static_cast<std::int64_t>(dim));
  }
  DLLM_TRY(const auto number, cursor_.read<std::uint32_t>(subject));
  const Codec* codec = find_codec(number);
  if (const std::size_t bytes = gguf::integer_bytes(tensor.name, number); codec == nullptr && bytes > 0) {
    if (const auto problem = gguf::list_problem(tensor.shape)) return invalid(start, subject + " " + *problem);
    integers_.emplace_back(index, bytes);
    codec = find_codec(static_cast<std::uint32_t>(TensorType::kF32));  // for the shape; the bytes are counted apart
  }
  if (codec == nullptr) {
    const gguf::ForeignType* const foreign = gguf::find_foreign(number);
    const bool unpacked = foreign != nullptr && foreign->unpacked;
    return unsupported(start,
                       fmt::format("{} has the tensor type {}{}, which this build does not know", subject, number,
                                   foreign == nullptr ? "" : fmt::format(" ({})", foreign->name)),
                       fmt::format("{}supported: {}", unpacked ? "python3 -m dllm.unpack rewrites such matrices; " : "",
                                   supported_types()));
  }
  tensor.type = codec->type;
  if (const auto problem = shape_problem(tensor.shape, *codec)) return invalid(start, subject + " " + *problem);
  DLLM_TRY(tensor.offset, cursor_.read<std::uint64_t>(subject));
  if (tensor.offset % result_.alignment_ != 0)
    return invalid(start, fmt::format("{}'s data offset {:#x} is not a multiple of the alignment {}", subject,
                                      tensor.offset, result_.alignment_));
  return tensor;
}

Expected<void> GgufParser::index_names() {
  const auto& tensors = result_.tensors_;
  auto& order = result_.by_name_;
  order.resize(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto name_of = [&](std::size_t i) -> const std::string& { return tensors[i].name; };
  std::ranges::sort(order,
                    [&](std::size_t a, std::size_t b) { return std::tie(name_of(a), a) < std::tie(name_of(b), b); });
  const auto twin = std::ranges::adjacent_find(order, {}, name_of);
  if (twin == order.end()) return {};
  return invalid(info_offsets_[*(twin + 1)], fmt::format("tensor {} occurs twice", quote_name(name_of(*twin))));
}

Expected<void> GgufParser::place_tensors() {
  if (result_.tensors_.empty()) return {};
  const auto start = gguf::align_up(cursor_.offset(), result_.alignment_).value_or(UINT64_MAX);
  for (std::size_t i = 0; i < result_.tensors_.size(); ++i) {
    GgufTensor& tensor = result_.tensors_[i];
    const std::uint64_t size = gguf::bytes_of(tensor, i, integers_);
    const std::uint64_t space = start <= bytes_.size() ? bytes_.size() - start : 0;
    if (tensor.offset > space || size > space - tensor.offset)
      return invalid(
          info_offsets_[i],
          fmt::format("tensor {} needs {} bytes at offset {:#x} of the data, but the file has {} bytes of data",
                      quote_name(tensor.name), size, tensor.offset, space),
          "the download is incomplete: fetch the file again");
    tensor.offset += start;
    tensor.data = bytes_.subspan(tensor.offset, size);
  }
  return refuse_overlaps();
}

Expected<void> GgufParser::refuse_overlaps() const {
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& tensor : result_.tensors_) order.push_back(&tensor);
  std::ranges::sort(order, {}, &GgufTensor::offset);
  for (std::size_t i = 1; i < order.size(); ++i)
    if (order[i]->offset < order[i - 1]->offset + order[i - 1]->data.size())
      return invalid(order[i]->offset, fmt::format("the data of tensor {} overlaps that of tensor {}",
                                                   quote_name(order[i]->name), quote_name(order[i - 1]->name)));
  return {};
}

Expected<GgufFile> GgufFile::open(const std::string& path) {
  DLLM_TRY(auto file, MappedFile::open(path));
  auto parsed = parse(file);
  DLLM_CHECK_OK(file->check());  // first: a file that has changed may look damaged
  return parsed;
}
Expected<GgufFile> GgufFile::open_part(const std::string& path) {
  DLLM_TRY(auto file, MappedFile::open(path));
  auto parsed = GgufParser(file).parse(/*part=*/true);
  DLLM_CHECK_OK(file->check());  // as in open()
  return parsed;
}

Expected<GgufFile> GgufFile::parse(std::shared_ptr<const MappedFile> file) {
  return GgufParser(std::move(file)).parse();
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto name_of = [&](std::size_t i) -> std::string_view { return tensors_[i].name; };
  const auto found = std::ranges::lower_bound(by_name_, name, {}, name_of);
  return found != by_name_.end() && name_of(*found) == name ? &tensors_[*found] : nullptr;
}

}  // namespace dllm
