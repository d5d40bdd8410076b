#include "model/hf_scaled.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "numerics/half.h"
#include "numerics/mx.h"
#include "numerics/tensor_type.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

/// A tensor whose bytes are as many as shape and type take.
struct RawTensor {
  std::string_view dtype;
  std::vector<std::int64_t> dims;  ///< the slowest first
  std::span<const std::byte> bytes;

  RawTensor(std::string_view type, const Shape& shape, std::span<const std::byte> data)
      : dtype(type), dims(shape.rbegin(), shape.rend()), bytes(data) {}

  std::int64_t count() const {
    std::int64_t all = 1;
    for (const std::int64_t dim : dims) all *= dim;
    return all;
  }
};
using RawTensors = std::map<std::string, RawTensor, std::less<>>;

RawTensors raw_tensors(const Safetensors& files) {
  RawTensors all;
  for (const SafeTensor& one : files.tensors()) all.try_emplace(one.name, codec(one.type).name, one.shape, one.data);
  for (const UnreadTensor& one : files.unread())
    if (!one.dtype.empty()) all.try_emplace(one.name, one.dtype, one.shape, one.data);
  return all;
}

/// Values of all codes of an element, NaNs and -0 among them.
template <std::size_t n>
std::array<float, n> values_of(MxElement element) {
  constexpr int kBlock = 8;
  std::array<std::uint16_t, n> codes;
  std::iota(codes.begin(), codes.end(), std::uint16_t{0});
  std::array<std::uint8_t, n / kBlock> scales;
  scales.fill(kMxScaleBias);  // 1
  std::array<float, n> values;
  mx_dequantize({element, MxRule::kOcp, kBlock}, codes.data(), scales.data(), n, values.data());
  return values;
}

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> all = values_of<256>(MxElement::kE4M3);
  return all;
}

const std::array<float, 16>& e2m1_values() {
  static const std::array<float, 16> all = values_of<16>(MxElement::kE2M1);
  return all;
}

/// False if it is infinite or NaN, in BF16 too, where the largest floats become infinite.
bool store_bf16(float value, std::byte* out) {
  const std::uint16_t bits = f32_to_bf16(value);
  std::memcpy(out, &bits, sizeof(bits));
  return (bits & 0x7f80) != 0x7f80;
}

/// Bytes of a float that scales may be stored as; 0: it is another type.
std::size_t scale_bytes(std::string_view dtype) {
  return dtype == "F32" ? 4 : dtype == "BF16" || dtype == "F16" ? 2 : dtype == "F8_E4M3" ? 1 : 0;
}

class Decoder {
 public:
  Decoder(const Safetensors& files, const RawTensors& raw, const Json& quantization, std::string file)
      : files_(files), raw_(raw), quantization_(quantization), file_(std::move(file)) {}

  Expected<void> add(const std::string& name, const RawTensor& tensor) {
    if (name.ends_with(".weight") && tensor.dtype == "F8_E4M3") return add_fp8(name, tensor);
    if (name.ends_with(".weight") && tensor.dtype == "U8") return add_fp4(name, name, tensor);
    if (name.ends_with(".weight_packed") && tensor.dtype == "U8")
      return add_fp4(name.substr(0, name.size() - std::string_view("_packed").size()), name, tensor);
    // Scales of activations and of K/V, which only kernels with the same arithmetic need.
    for (const std::string_view end : {".input_scale", ".input_global_scale", ".output_scale", ".k_scale", ".v_scale"})
      if (name.ends_with(end)) result_.parts.insert(name);
    return {};
  }

  ScaledTensors take() { return std::move(result_); }

 private:
  Error invalid(std::string what, const std::string& name) const {
    return {ErrorCode::kInvalidFile, std::move(what), fmt::format("{}, {}", file_, name),
            "the download is incomplete, or the layout is not one of those that this build reads"};
  }

  const RawTensor* find(const std::string& name) const {
    const auto it = raw_.find(name);
    return it == raw_.end() ? nullptr : &it->second;
  }

  /// `what` of `name` where there is no such scale, or why it is not read.
  Error without(const std::string& scale, std::string what, const std::string& name) const {
    const auto unread = std::ranges::find(files_.unread(), scale, &UnreadTensor::name);
    return unread != files_.unread().end() ? unread->why : invalid(std::move(what), name);
  }

  Expected<std::pair<std::int64_t, std::int64_t>> matrix(const std::string& name, const RawTensor& tensor) const {
    if (tensor.dims.size() == 2) return std::pair(tensor.dims[0], tensor.dims[1]);
    return invalid("only matrices are stored with scales", name);
  }

  /// Floats of a scale tensor.
  Expected<std::vector<float>> scales(const std::string& name, const RawTensor& tensor) const {
    const std::size_t width = scale_bytes(tensor.dtype);
    if (width == 0) return invalid(fmt::format("scales of type {}", tensor.dtype), name);
    std::vector<float> values(tensor.bytes.size() / width);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::byte* const from = tensor.bytes.data() + i * width;
      std::uint16_t half = 0;
      if (width == 4) {
        std::memcpy(&values[i], from, 4);
      } else if (width == 2) {
        std::memcpy(&half, from, 2);
        values[i] = tensor.dtype == "F16" ? f16_to_f32(half) : bf16_to_f32(half);
      } else {
        values[i] = e4m3_values()[std::to_integer<std::uint8_t>(*from)];
      }
      if (!std::isfinite(values[i])) return invalid("a scale is not a number", name);
    }
    return values;
  }

  Expected<float> one_scale(const std::string& name) {
    const RawTensor* const tensor = find(name);
    if (tensor == nullptr) return without(name, "the scale of the whole matrix is missing", name);
    DLLM_TRY(const std::vector<float> values, scales(name, *tensor));
    if (values.size() != 1 || values[0] == 0) return invalid("one scale of the whole matrix was expected", name);
    result_.parts.insert(name);
    return values[0];
  }

  /// Not zeroed: every byte is written.
  std::span<std::byte> room(std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    return {result_.bytes.emplace_back(std::make_unique_for_overwrite<std::byte[]>(size)).get(), size};
  }

  void finish(const std::string& name, TensorType type, std::int64_t rows, std::int64_t columns,
              std::span<const std::byte> bytes) {
    result_.tensors.push_back({name, type, {columns, rows}, bytes});
  }

  /// Rows and columns that share a scale.
  Expected<std::pair<std::int64_t, std::int64_t>> scale_block(const std::string& name, const RawTensor& scale,
                                                              std::int64_t rows, std::int64_t columns) const {
    if (scale.count() == 1) return std::pair(rows, columns);
    if (scale.count() == rows && scale.dims.front() == rows) return std::pair(std::int64_t{1}, columns);
    std::vector<std::int64_t> block = {128, 128};
    const auto take = [&block](const Json& holder, const char* key) {
      const auto it = holder.find(key);
      if (it == holder.end() || !it->is_array() || it->size() != 2) return;
      if ((*it)[0].is_number_integer() && (*it)[1].is_number_integer()) block = it->get<std::vector<std::int64_t>>();
    };
    take(quantization_, "weight_block_size");
    if (const auto groups = quantization_.find("config_groups"); groups != quantization_.end() && groups->is_object())
      for (const Json& group : *groups)
        if (const auto weights = group.is_object() ? group.find("weights") : group.end();
            group.is_object() && weights != group.end() && weights->is_object())
          take(*weights, "block_structure");
    const auto fits = [](std::int64_t n, std::int64_t size, std::int64_t parts) {
      return size > 0 && (n - 1) / size + 1 == parts;
    };
    if (scale.dims.size() == 2 && fits(rows, block[0], scale.dims[0]) && fits(columns, block[1], scale.dims[1]))
      return std::pair(block[0], block[1]);
    return invalid(fmt::format("scales of shape [{}] do not fit a matrix of {} x {} in blocks of {} x {}",
                               fmt::join(scale.dims, ", "), rows, columns, block[0], block[1]),
                   name);
  }

  Expected<void> add_fp8(const std::string& name, const RawTensor& tensor) {
    DLLM_TRY(const auto size, matrix(name, tensor));
    const auto [rows, columns] = size;
    std::string scale_name = name + "_scale_inv";  // transformers' name: the inverse of what quantized it
    if (find(scale_name) == nullptr) scale_name = name + "_scale";
    const RawTensor* const scale = find(scale_name);
    if (scale == nullptr) return without(scale_name, "FP8 without a scale", name);
    DLLM_TRY(const std::vector<float> values, scales(scale_name, *scale));
    DLLM_TRY(const auto block, scale_block(scale_name, *scale, rows, columns));
    const std::array<float, 256>& codes = e4m3_values();
    const std::span<std::byte> out = room(rows * columns * 2);
    bool finite = true;
    for (std::int64_t r = 0, at = 0; r < rows; ++r) {
      const float* factor = values.data() + r / block.first * ((columns - 1) / block.second + 1);
      for (std::int64_t left = columns; left > 0; left -= block.second, ++factor)
        for (const std::int64_t end = at + std::min(left, block.second); at < end; ++at) {
          const auto i = static_cast<std::size_t>(at);
          const float weight = codes[std::to_integer<std::uint8_t>(tensor.bytes[i])] * *factor;
          finite &= store_bf16(weight, out.data() + i * 2);
        }
    }
    if (!finite) return invalid("a weight is not a number, or is infinite", name);
    result_.parts.insert({name, scale_name});
    finish(name, TensorType::kBF16, rows, columns, out);
    return {};
  }

  /// Two codes a byte, the first in the low half.
  Expected<void> add_fp4(const std::string& name, const std::string& stored, const RawTensor& tensor) {
    DLLM_TRY(const auto size, matrix(stored, tensor));
    const std::int64_t rows = size.first, columns = size.second * 2;
    const std::string scale_name = name + "_scale";
    const RawTensor* const scale = find(scale_name);
    if (scale == nullptr) return without(scale_name, "four-bit floats without scales", stored);
    const bool power = scale->dtype == "U8" || scale->dtype == "F8_E8M0";
    const std::int64_t group = power ? 32 : 16;
    if (columns % group != 0 || scale->dims != std::vector<std::int64_t>{rows, columns / group})
      return invalid(fmt::format("scales of shape [{}] do not fit a matrix of {} x {} in groups of {}",
                                 fmt::join(scale->dims, ", "), rows, columns, group),
                     scale_name);
    result_.parts.insert({stored, scale_name});
    return power ? add_mxfp4(name, tensor, *scale, rows, columns) : add_nvfp4(name, tensor, *scale, rows, columns);
  }

  Expected<void> add_nvfp4(const std::string& name, const RawTensor& tensor, const RawTensor& scale, std::int64_t rows,
                           std::int64_t columns) {
    DLLM_TRY(const std::vector<float> values, scales(name + "_scale", scale));
    // compressed-tensors stores what the scales were multiplied by, modelopt what they are to be multiplied by.
    const bool divides = find(name + "_global_scale") != nullptr;
    DLLM_TRY(const float whole, one_scale(name + (divides ? "_global_scale" : "_scale_2")));
    const std::span<std::byte> out = room(rows * columns * 2);
    const std::array<float, 16>& codes = e2m1_values();
    bool finite = true;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float factor = divides ? values[i] / whole : values[i] * whole;
      for (std::size_t j = 0; j < 8; ++j) {
        const auto pair = std::to_integer<std::uint8_t>(tensor.bytes[i * 8 + j]);
        finite &= store_bf16(codes[pair & 15] * factor, out.data() + (i * 16 + 2 * j) * 2);
        finite &= store_bf16(codes[pair >> 4] * factor, out.data() + (i * 16 + 2 * j + 1) * 2);
      }
    }
    if (!finite) return invalid("a weight is not a number, or is infinite", name);
    finish(name, TensorType::kBF16, rows, columns, out);
    return {};
  }

  /// GGML's blocks: the scale, then code j in the low half of byte j and code j + 16 in the high one.
  Expected<void> add_mxfp4(const std::string& name, const RawTensor& tensor, const RawTensor& scale, std::int64_t rows,
                           std::int64_t columns) {
    const std::span<std::byte> out = room(rows * columns / 32 * 17);
    for (std::size_t i = 0; i < scale.bytes.size(); ++i) {
      if (scale.bytes[i] == std::byte{255}) return invalid("a scale is not a number", name + "_scale");
      std::byte* const to = out.data() + i * 17;
      to[0] = scale.bytes[i];
      const auto code = [&](std::size_t j) {
        const std::byte pair = tensor.bytes[i * 16 + j / 2];
        return j % 2 == 0 ? pair & std::byte{15} : pair >> 4;
      };
      for (std::size_t j = 0; j < 16; ++j) to[1 + j] = code(j) | code(j + 16) << 4;
      const int exponent = std::to_integer<int>(to[0]) - 127;
      for (std::size_t j = 0; j < 32 && exponent > 125; ++j)  // 2^126 times 4 is infinite
        if (std::isinf(std::ldexp(e2m1_values()[std::to_integer<std::size_t>(code(j))], exponent)))
          return invalid("a weight is infinite", name);
    }
    finish(name, TensorType::kMXFP4, rows, columns, out);
    return {};
  }

  const Safetensors& files_;
  const RawTensors& raw_;
  const Json& quantization_;
  std::string file_;
  ScaledTensors result_;
};

/// What config.json says about the weights; an empty object: nothing. Errors: kUnsupported.
Expected<Json> read_quantization(const HfConfig& config) {
  const auto it = config.json().find("quantization_config");
  if (it == config.json().end() || it->is_null()) return Json::object();
  const HfConfig own = HfConfig::of(it->is_object() ? *it : Json::object(), config.file() + ", quantization_config");
  DLLM_TRY(const std::string method, own.string_or("quant_method", ""));
  const auto unsupported = [&own](std::string what) {
    return Error{
        ErrorCode::kUnsupported, std::move(what), own.file(),
        "read are fp8, mxfp4, compressed-tensors and modelopt with FP8, NVFP4 or MXFP4; or take the checkpoint that "
        "it was made from"};
  };
  if (method != "fp8" && method != "compressed-tensors" && method != "modelopt" && method != "mxfp4")
    return unsupported(fmt::format("the weights are quantized by '{}'", method));
  DLLM_TRY(const std::string format, own.string_or("format", ""));
  for (const std::string_view known : {"", "dense", "float-quantized", "naive-quantized", "nvfp4-pack-quantized",
                                       "mxfp4-pack-quantized", "mixed-precision"})
    if (format == known) {
      const auto transform = it->find("transform_config");
      if (transform == it->end() || transform->is_null() || transform->empty()) return *it;
      return unsupported("the weights were rotated, and activations would have to be (transform_config)");
    }
  return unsupported(fmt::format("the weights are stored as '{}'", format));
}

}  // namespace

Expected<ScaledTensors> decode_scaled(const Safetensors& files, const HfConfig& config,
                                      const std::function<bool(std::string_view)>& is_left_out) {
  DLLM_TRY(const Json quantization, read_quantization(config));
  const bool some = std::ranges::any_of(files.unread(), [](const UnreadTensor& tensor) {
    return tensor.name.ends_with(".weight") || tensor.name.ends_with(".weight_packed");
  });
  if (quantization.empty() && !some) return ScaledTensors();
  // Their scales would be named in the error otherwise.
  for (const UnreadTensor& tensor : files.unread())
    if (tensor.dtype.empty() && tensor.name.ends_with(".weight") && !is_left_out(tensor.name)) return tensor.why;
  const RawTensors raw = raw_tensors(files);
  Decoder decoder(files, raw, quantization, config.file());
  for (const auto& [name, tensor] : raw)
    if (!is_left_out(name)) DLLM_CHECK_OK(decoder.add(name, tensor));
  return decoder.take();
}

}  // namespace dllm
