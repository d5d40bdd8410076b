#include "format/gguf_arrays.h"

#include <fmt/format.h>

#include "base/try.h"

namespace dllm {

/// Bytes of an element, for strings the minimum; 0 if it is not an element type.
std::uint64_t element_bytes(MetaType type) {
  switch (type) {
    case MetaType::kU8:
    case MetaType::kI8:
    case MetaType::kBool:
      return 1;
    case MetaType::kU16:
    case MetaType::kI16:
      return 2;
    case MetaType::kU32:
    case MetaType::kI32:
    case MetaType::kF32:
      return 4;
    case MetaType::kU64:
    case MetaType::kI64:
    case MetaType::kF64:
    case MetaType::kString:
      return 8;
    case MetaType::kArray:
      break;
  }
  return 0;
}

namespace {

constexpr int kMostArrayLevels = 8;

Expected<void> skip_arrays(ByteCursor& cursor, std::string_view name, int level) {
  const std::uint64_t start = cursor.offset();
  if (level > kMostArrayLevels)
    return cursor.error(ErrorCode::kUnsupported,
                        fmt::format("{} has arrays in more than {} levels", name, kMostArrayLevels));
  DLLM_TRY(const auto count, cursor.read<std::uint64_t>(name));
  for (std::uint64_t i = 0; i < count; ++i) {
    DLLM_TRY(const auto number, cursor.read<std::uint32_t>(name));
    const auto element = static_cast<MetaType>(number);
    if (element == MetaType::kArray) {
      DLLM_CHECK_OK(skip_arrays(cursor, name, level + 1));
      continue;
    }
    const std::uint64_t size = element_bytes(element);
    if (size == 0)
      return cursor.error_at(start, ErrorCode::kUnsupported,
                             fmt::format("{} has the unknown element type {}", name, number),
                             "the file is damaged or of a newer GGUF version");
    DLLM_TRY(const auto elements, cursor.read<std::uint64_t>(name));
    if (elements > cursor.remaining() / size)
      return cursor.error_at(start, ErrorCode::kInvalidFile,
                             fmt::format("{} has {} elements of type {}, but only {} bytes follow", name, elements,
                                         meta_type_name(element), cursor.remaining()),
                             "the file is truncated or damaged: fetch it again");
    if (element != MetaType::kString)
      DLLM_CHECK_OK(cursor.take(elements * size, name));
    else
      for (std::uint64_t e = 0; e < elements; ++e) DLLM_CHECK_OK(cursor.read_string(name));
  }
  return {};
}

}  // namespace

Expected<void> skip_nested_array(ByteCursor& cursor, std::string_view name) { return skip_arrays(cursor, name, 1); }

}  // namespace dllm
