#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "base/output_file.h"
#include "base/try.h"
#include "format/gguf.h"
#include "format/gguf_format.h"

namespace dllm {
namespace {

constexpr std::size_t kMaxNameBytes = 63;  // llama.cpp's GGML_MAX_NAME less the terminator

template <class T>
void put(std::string& out, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out.append(raw, sizeof(T));
}

void put_string(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint64_t>(text.size()));
  out.append(text);
}

template <class T>
bool put_checked(std::string& out, std::int64_t value) {
  if constexpr (sizeof(T) < sizeof(value)) {
    if (value < std::int64_t{std::numeric_limits<T>::min()} || value > std::int64_t{std::numeric_limits<T>::max()})
      return false;
  } else if constexpr (std::is_unsigned_v<T>) {
    if (value < 0) return false;
  }
  put(out, static_cast<T>(value));
  return true;
}

/// False if the type is not an integer or cannot hold the value.
bool put_integer(std::string& out, MetaType type, std::int64_t value) {
  switch (type) {
    case MetaType::kU8:
      return put_checked<std::uint8_t>(out, value);
    case MetaType::kI8:
      return put_checked<std::int8_t>(out, value);
    case MetaType::kU16:
      return put_checked<std::uint16_t>(out, value);
    case MetaType::kI16:
      return put_checked<std::int16_t>(out, value);
    case MetaType::kU32:
      return put_checked<std::uint32_t>(out, value);
    case MetaType::kI32:
      return put_checked<std::int32_t>(out, value);
    case MetaType::kU64:
      return put_checked<std::uint64_t>(out, value);
    case MetaType::kI64:
      return put_checked<std::int64_t>(out, value);
    default:
      return false;
  }
}

bool put_float(std::string& out, MetaType type, double value) {
  if (type == MetaType::kF32)
    put(out, static_cast<float>(value));
  else if (type == MetaType::kF64)
    put(out, value);
  else
    return false;
  return true;
}

bool put_text(std::string& out, MetaType type, std::string_view text) {
  if (type != MetaType::kString) return false;
  put_string(out, text);
  return true;
}

/// Appends a payload as a value of `type`; false if the type cannot hold it.
struct ScalarWriter {
  std::string& out;
  MetaType type;

  bool operator()(bool value) const {
    if (type != MetaType::kBool) return false;
    put(out, static_cast<std::uint8_t>(value ? 1 : 0));
    return true;
  }
  bool operator()(std::int64_t value) const { return put_integer(out, type, value); }
  bool operator()(double value) const { return put_float(out, type, value); }
  bool operator()(const std::string& value) const { return put_text(out, type, value); }
  template <class T>
  bool operator()(const T&) const {
    return false;
  }
};

struct ArrayWriter {
  std::string& out;
  MetaType element;

  template <class T>
  bool operator()(const std::vector<T>& values) const {
    put(out, static_cast<std::uint32_t>(element));
    put(out, static_cast<std::uint64_t>(values.size()));
    for (const T& value : values)
      if (!put_element(value)) return false;
    return true;
  }
  template <class T>
  bool operator()(const T&) const {
    return false;
  }

 private:
  bool put_element(std::int64_t value) const {
    if (element != MetaType::kBool) return put_integer(out, element, value);
    if (value != 0 && value != 1) return false;
    put(out, static_cast<std::uint8_t>(value));
    return true;
  }
  bool put_element(double value) const { return put_float(out, element, value); }
  bool put_element(const std::string& value) const { return put_text(out, element, value); }
};

bool put_value(std::string& out, const MetaValue& value) {
  put(out, static_cast<std::uint32_t>(value.type));
  if (const auto* opaque = std::get_if<OpaqueValue>(&value.payload)) {
    out += opaque->bytes;
    return true;
  }
  if (value.type == MetaType::kArray) return std::visit(ArrayWriter{out, value.element}, value.payload);
  return std::visit(ScalarWriter{out, value.type}, value.payload);
}

Expected<void> pad_to(OutputFile& file, std::uint64_t alignment) {
  const std::string zeros((alignment - file.size() % alignment) % alignment, '\0');
  return file.append(zeros.data(), zeros.size());
}

std::uint64_t data_bytes(TensorType type, const Shape& shape) {
  return static_cast<std::uint64_t>(codec(type).row_bytes(element_count(shape)));
}

}  // namespace

GgufWriter::GgufWriter(Metadata metadata) : metadata_(std::move(metadata)) {}

Expected<void> GgufWriter::add(std::string name, TensorType type, Shape shape, Producer producer) {
  return add_stream(std::move(name), type, std::move(shape),
                    [producer = std::move(producer)](const Sink& sink) -> Expected<void> {
                      DLLM_TRY(const auto bytes, producer());
                      return sink(bytes);
                    });
}

Expected<void> GgufWriter::add_stream(std::string name, TensorType type, Shape shape, Stream stream) {
  if (name.empty() || name.size() > kMaxNameBytes)
    return Error{ErrorCode::kUsage,
                 fmt::format("tensor name {} has {} bytes, not 1 to {}", quote_name(name), name.size(), kMaxNameBytes),
                 "", ""};
  if (const auto problem = shape_problem(shape, codec(type)))
    return Error{ErrorCode::kUsage, fmt::format("tensor {} {}", quote_name(name), *problem), "", ""};
  if (!names_.insert(name).second)
    return Error{ErrorCode::kUsage, fmt::format("tensor {} is added twice", quote_name(name)), "", ""};
  entries_.push_back({std::move(name), type, std::move(shape), std::move(stream)});
  return {};
}

Expected<std::string> GgufWriter::header(std::uint64_t alignment) const {
  std::string out;
  put(out, gguf::kMagic);
  put(out, gguf::kVersion);
  put(out, static_cast<std::uint64_t>(entries_.size()));
  put(out, static_cast<std::uint64_t>(metadata_.entries().size()));
  for (const auto& [key, value] : metadata_.entries()) {
    if (key.empty() || key.size() > gguf::kMaxKeyBytes)
      return Error{ErrorCode::kUsage, fmt::format("metadata key {} has {} bytes", quote_name(key), key.size()), "", ""};
    put_string(out, key);
    if (!put_value(out, value))
      return Error{ErrorCode::kUsage,
                   fmt::format("the value of key {} does not fit its type {}{}", quote_name(key),
                               value.type == MetaType::kArray ? "array of " : "",
                               meta_type_name(value.type == MetaType::kArray ? value.element : value.type)),
                   "", ""};
  }
  std::uint64_t offset = 0;  // from the start of the data section
  for (const Entry& entry : entries_) {
    put_string(out, entry.name);
    put(out, static_cast<std::uint32_t>(entry.shape.size()));
    for (const std::int64_t dim : entry.shape) put(out, static_cast<std::uint64_t>(dim));
    put(out, static_cast<std::uint32_t>(entry.type));
    put(out, offset);
    const auto next = gguf::align_up(offset + data_bytes(entry.type, entry.shape), alignment);
    if (!next || *next > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return Error{ErrorCode::kUsage, fmt::format("the file would be too large at tensor {}", quote_name(entry.name)),
                   "", ""};
    offset = *next;
  }
  return out;
}

Expected<std::uint64_t> GgufWriter::file_bytes() const {
  DLLM_TRY(const std::uint64_t alignment, gguf::alignment_of(metadata_));
  DLLM_TRY(const std::string head, header(alignment));
  // header() has rejected sizes that overflow.
  std::uint64_t size = gguf::align_up(head.size(), alignment).value_or(0);
  for (const Entry& entry : entries_)
    size += gguf::align_up(data_bytes(entry.type, entry.shape), alignment).value_or(0);
  return size;
}

Expected<void> GgufWriter::write(const std::string& path, OutputOptions options) {
  DLLM_TRY(const std::uint64_t alignment, gguf::alignment_of(metadata_));
  DLLM_TRY(const std::string head, header(alignment));
  DLLM_TRY(OutputFile file, OutputFile::create(path, std::move(options)));
  DLLM_CHECK_OK(file.append(head.data(), head.size()));
  DLLM_CHECK_OK(pad_to(file, alignment));
  for (const Entry& entry : entries_) {
    const std::uint64_t expected = data_bytes(entry.type, entry.shape);
    std::uint64_t produced = 0;
    const auto mismatch = [&] {
      return Error{
          ErrorCode::kMismatch,
          fmt::format("tensor {} was produced with {} bytes instead of {}", quote_name(entry.name), produced, expected),
          path, ""};
    };
    DLLM_CHECK_OK(entry.stream([&](std::span<const std::byte> bytes) -> Expected<void> {
      produced += bytes.size();
      if (produced > expected) return mismatch();
      return file.append(bytes.data(), bytes.size());
    }));
    if (produced != expected) return mismatch();
    DLLM_CHECK_OK(pad_to(file, alignment));
  }
  return file.commit();
}

}  // namespace dllm
