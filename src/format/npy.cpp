#include "format/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "numerics/half.h"

namespace dllm {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

Error damaged(const std::string& name, std::string what) {
  return {ErrorCode::kInvalidFile, std::move(what), name, ""};
}

/// The text after `'key':` in the header's Python dictionary.
std::string_view entry(std::string_view header, std::string_view key) {
  const std::string quoted = "'" + std::string(key) + "':";
  const std::size_t at = header.find(quoted);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + quoted.size());
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

template <class T>
double load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return static_cast<double>(value);
}

double load_half(const char* bytes) {
  std::uint16_t bits;
  std::memcpy(&bits, bytes, 2);
  return static_cast<double>(f16_to_f32(bits));
}

struct Type {
  std::string_view name;
  std::size_t bytes;
  double (*load)(const char*);
};

constexpr Type kTypes[] = {
    {"<f4", 4, load<float>},         {"<f2", 2, load_half},           {"<f8", 8, load<double>},
    {"<i4", 4, load<std::int32_t>},  {"<u4", 4, load<std::uint32_t>}, {"<i8", 8, load<std::int64_t>},
    {"<u8", 8, load<std::uint64_t>}, {"<i2", 2, load<std::int16_t>},  {"<u2", 2, load<std::uint16_t>},
    {"|i1", 1, load<std::int8_t>},   {"|u1", 1, load<std::uint8_t>},  {"|b1", 1, load<std::uint8_t>},
};

Expected<std::vector<std::size_t>> parse_shape(std::string_view text, const std::string& name) {
  std::vector<std::size_t> shape;
  if (!text.starts_with('(')) return damaged(name, "the header has no shape");
  text = text.substr(1, std::min(text.find(')'), text.size()) - 1);
  while (!text.empty()) {
    text.remove_prefix(std::min(text.find_first_not_of(" ,"), text.size()));
    if (text.empty()) break;
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc()) return damaged(name, "the shape is not a list of numbers");
    shape.push_back(size);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  return shape;
}

template <class T>
std::string write(const std::vector<T>& values, std::string_view type) {
  std::string header = "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (" +
                       std::to_string(values.size()) + ",), }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string bytes(kMagic);
  bytes += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  bytes += header;
  const std::size_t start = bytes.size();
  bytes.resize(start + values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data() + start, values.data(), values.size() * sizeof(T));
  return bytes;
}

}  // namespace

Expected<NpyArray> parse_npy(std::string_view bytes, const std::string& name) {
  if (!bytes.starts_with(kMagic) || bytes.size() < 12) return damaged(name, "this is not a NumPy file");
  const int version = bytes[6];
  const std::size_t length_bytes = version == 1 ? 2 : 4, start = 8 + length_bytes;
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i)
    length |= std::size_t{static_cast<unsigned char>(bytes[8 + i])} << (8 * i);
  if (version < 1 || version > 3 || length > bytes.size() - start) return damaged(name, "the header is damaged");
  const std::string_view header = bytes.substr(start, length);
  const std::string_view data = bytes.substr(start + length);
  if (entry(header, "fortran_order").starts_with("True"))
    return Error{ErrorCode::kUnsupported, "the array is in Fortran order", name, "save numpy.ascontiguousarray(x)"};
  const std::string_view descr = entry(header, "descr");
  const auto type = std::ranges::find_if(
      kTypes, [&](const Type& t) { return descr.substr(0, 1) == "'" && descr.substr(1).starts_with(t.name); });
  if (type == std::end(kTypes))
    return Error{ErrorCode::kUnsupported,
                 "elements of type " + std::string(descr.substr(0, std::min<std::size_t>(descr.find(','), 32))), name,
                 "save float32 or an integer type"};
  auto shape = parse_shape(entry(header, "shape"), name);
  if (!shape) return std::move(shape).error();
  NpyArray array{*std::move(shape), {}};
  std::size_t count = 1;
  for (const std::size_t size : array.shape)
    if (__builtin_mul_overflow(count, size, &count)) return damaged(name, "the shape is too large");
  if (count > data.size() / type->bytes || count * type->bytes != data.size())
    return damaged(name, "the data's size does not agree with the shape");
  array.values.resize(count);
  for (std::size_t i = 0; i < count; ++i) array.values[i] = type->load(data.data() + i * type->bytes);
  return array;
}

std::string npy_of(const std::vector<float>& values) { return write(values, "<f4"); }
std::string npy_of(const std::vector<std::uint32_t>& values) { return write(values, "<u4"); }

}  // namespace dllm
