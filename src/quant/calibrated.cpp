#include "quant/calibrated.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "base/hash.h"
#include "base/parallel.h"
#include "base/try.h"
#include "model/model.h"
#include "numerics/mx_tensor.h"
#include "quant/activation_file.h"
#include "quant/canvas_runner.h"
#include "quant/stages.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kChunkRows = 512, kPanelRows = 16;

/// Words of a tensor that its identity depends on: all of a small one, evenly spaced ones of a large one.
std::uint64_t hash_bytes(std::uint64_t hash, std::span<const std::byte> bytes) {
  const std::size_t words = bytes.size() / 8, step = words / (std::size_t{1} << 20) + 1;
  for (std::size_t i = 0; i < words; i += step) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + 8 * i, 8);
    hash = mix64(hash, word);
  }
  return mix64(hash, bytes.size());
}

/// Source, types, method and canvases.
std::uint64_t identity_of(const ModelSource& source, const std::vector<TypeChoice>& choices,
                          const CalibrationOptions& options, const std::vector<CalibrationCanvas>& canvases) {
  Fnv1a text;
  text.add(options.method).add(fmt::format("|{}|", options.damping));
  for (const SourceTensor& tensor : source.tensors) text.add(tensor.name).add("|");
  std::uint64_t hash = text.value();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    hash = mix64(hash, static_cast<std::uint64_t>(choices[i].type));
    hash = hash_bytes(hash, source.tensors[i].data);
  }
  for (const CalibrationCanvas& canvas : canvases) {
    for (const TokenId token : canvas.tokens) hash = mix64(hash, static_cast<std::uint32_t>(token));
    for (const std::int32_t row : canvas.scored) hash = mix64(hash, static_cast<std::uint32_t>(row));
    hash = mix64(hash, canvas.tokens.size());
  }
  return hash;
}

/// Quantizes the matrices of a model one after the other, into files.
class MatrixQuantizer {
 public:
  MatrixQuantizer(const ModelSource& source, const std::vector<TypeChoice>& choices, const WriteOptions& options,
                  const CalibrationOptions& calibration, const QuantMethod& method)
      : source_(source),
        choices_(choices),
        options_(options),
        calibration_(calibration),
        method_(method),
        pool_(options.threads) {}

  /// Everything up to prepared().
  Expected<void> run(const std::string& target) {
    DLLM_TRY(model_, Model::load(source_, Log()));
    views_ = model_->weights();
    std::vector<CalibrationCanvas> canvases;
    if (method_.calibrated()) {
      DLLM_CHECK_OK(CanvasRunner::check(model_->build({1, 1})));
      if (!calibration_.canvases)
        return Error{ErrorCode::kUsage, fmt::format("method {} needs a calibration", calibration_.method),
                     "--calibration", "a file of prompts with answers"};
      DLLM_TRY(canvases, calibration_.canvases(*model_));
    }
    directory_ = fmt::format("{}.{:016x}.partial", target, identity_of(source_, choices_, calibration_, canvases));
    std::error_code failure;
    fs::create_directory(directory_, failure);
    if (failure) return Error{ErrorCode::kIo, failure.message(), directory_, ""};
    graph_ = model_->build({1, 1});
    DLLM_TRY(stages_, calibration_stages(graph_));
    bool any = false;
    for (const CalibrationStage& stage : stages_)
      for (const WeightId id : stage.weights) any = any || wanted(id);
    if (!any)
      return Error{ErrorCode::kUnsupported, fmt::format("no matrix has a type that {} supports", calibration_.method),
                   options_.type, "MX formats, Q4_0 and Q8_0; rtn for others"};
    return method_.calibrated() ? calibrate(canvases) : quantize_all();
  }

  /// Matrices whose values could have been chosen, and were not: the graph does not multiply by them under that name.
  std::int64_t left_out() const {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const SourceTensor& tensor = source_.tensors[i];
      if (tensor.type != choices_[i].type && BlockGrid::of(choices_[i].type) && !prepared_.contains(tensor.name) &&
          tensor.name != "token_embd.weight")
        ++count;
    }
    return count;
  }

  const std::map<std::string, std::shared_ptr<const MappedFile>>& prepared() const { return prepared_; }

  void remove_directory() {
    prepared_.clear();
    std::error_code ignored;
    if (!directory_.empty()) fs::remove_all(directory_, ignored);
  }

 private:
  const std::string& name_of(WeightId id) const { return graph_.weights[static_cast<std::size_t>(id)].name; }

  /// The tensor of the source with that name, if its type is to be chosen here.
  std::optional<std::size_t> wanted(WeightId id) const {
    for (std::size_t i = 0; i < source_.tensors.size(); ++i)
      if (source_.tensors[i].name == name_of(id) && source_.tensors[i].type != choices_[i].type &&
          BlockGrid::of(choices_[i].type))
        return i;
    return std::nullopt;
  }

  Expected<void> quantize_all() {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      DLLM_CHECK_OK(tell(s, 0));
      DLLM_CHECK_OK(quantize_stage(stages_[s], std::nullopt));
    }
    return {};
  }

  std::string state_path(std::size_t stage) const { return fmt::format("{}/activations-{}", directory_, stage); }

  Expected<void> calibrate(const std::vector<CalibrationCanvas>& canvases) {
    std::vector<CanvasChunk> chunks;
    for (std::size_t first = 0, end = 0; first < canvases.size(); first = end) {
      std::int64_t rows = 0;
      while (end < canvases.size() && (end == first || rows < kChunkRows))
        rows += static_cast<std::int64_t>(canvases[end++].tokens.size());
      chunks.emplace_back(std::span(canvases).subspan(first, end - first));
    }
    std::size_t done = stages_.size();  // stages that an earlier call has finished
    while (done > 0 && !fs::exists(state_path(done - 1))) --done;
    for (std::size_t s = 0; s < done; ++s)
      for (const WeightId id : stages_[s].weights) DLLM_CHECK_OK(take(id));
    for (std::size_t s = done; s < stages_.size(); ++s) DLLM_CHECK_OK(run_stage(s, chunks));
    return {};
  }

  Expected<void> run_stage(std::size_t s, std::vector<CanvasChunk>& chunks) {
    const CalibrationStage& stage = stages_[s];
    const std::int32_t mask = model_->desc().causal_block;
    const CanvasRunner runner(graph_, views_, mask, pool_), original(graph_, model_->weights(), mask, pool_);
    const std::int64_t width = graph_.values[static_cast<std::size_t>(stage.input)].width;
    Triangle hessian(width);
    cross_.assign(method_.correct ? static_cast<std::size_t>(width * width) : 0, 0.0);
    const std::int64_t outputs =
        method_.correct && stage.residual != kNoId ? graph_.values[static_cast<std::size_t>(stage.residual)].width : 0;
    lost_.assign(static_cast<std::size_t>(width * outputs), 0.0);
    std::optional<ActivationReader> before;
    if (s > 0) {
      DLLM_TRY(before, ActivationReader::open(state_path(s - 1)));
    }
    DLLM_TRY(ActivationWriter after, ActivationWriter::create(state_path(s)));
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      DLLM_CHECK_OK(tell(s, static_cast<double>(c) / static_cast<double>(chunks.size())));
      CanvasChunk chunk(chunks[c].canvases);
      if (before) DLLM_CHECK_OK(before->read(chunk));
      runner.run(chunk, stage.first, stage.end);
      const ActivationRows& input = chunk.values.at(stage.input);
      add_products(hessian, input.values.data(), input.rows(), pool_);
      DLLM_CHECK_OK(after.append(chunk, stage.live));
      if (!method_.correct) continue;
      CanvasChunk exact(chunks[c].canvases);
      if (before) DLLM_CHECK_OK(before->read(exact));
      original.run(exact, stage.first, stage.end);
      add_differences(cross_, input.values.data(), width, input.values.data(),
                      exact.values.at(stage.input).values.data(), width, input.rows(), pool_);
      if (outputs > 0)
        add_differences(lost_, input.values.data(), width, chunk.values.at(stage.residual).values.data(),
                        exact.values.at(stage.residual).values.data(), outputs, input.rows(), pool_);
      DLLM_CHECK_OK(after.append(exact, stage.live));
    }
    DLLM_CHECK_OK(quantize_stage(stage, std::move(hessian)));
    DLLM_CHECK_OK(after.commit());
    std::error_code ignored;
    if (s > 0) fs::remove(state_path(s - 1), ignored);
    return {};
  }

  Expected<void> quantize_stage(const CalibrationStage& stage, std::optional<Triangle> hessian) {
    // Weights of one input usually have one type, and so share the factor.
    std::optional<RowQuantizer> quantizer;
    std::optional<TensorType> type;
    for (std::size_t w = 0; w < stage.weights.size(); ++w) {
      const auto tensor = wanted(stage.weights[w]);
      if (!tensor) continue;
      const TensorType to = choices_[*tensor].type;
      if (type != to) {
        bool last = true;
        for (std::size_t other = w + 1; other < stage.weights.size(); ++other)
          if (const auto next = wanted(stage.weights[other])) last = last && choices_[*next].type == to;
        std::optional<Triangle> own = last ? std::move(hessian) : hessian;
        DLLM_TRY(quantizer, RowQuantizer::create(*BlockGrid::of(to), method_, std::move(own), calibration_.damping));
        type = to;
      }
      DLLM_CHECK_OK(quantize(stage.weights[w], *tensor, *quantizer));
    }
    return {};
  }

  Expected<void> quantize(WeightId id, std::size_t tensor, const RowQuantizer& quantizer) {
    const WeightView& view = views_[static_cast<std::size_t>(id)];
    const std::int64_t columns = view.shape[0], rows = element_count(view.shape) / columns;
    const std::int64_t row_bytes = codec(choices_[tensor].type).row_bytes(columns);
    std::vector<std::byte> bytes(static_cast<std::size_t>(rows * row_bytes));
    // Scales in binary16 end at 65504.
    const double most = mx_format_of(choices_[tensor].type) ? HUGE_VAL : 32768.0;
    std::atomic<bool> fits{true};
    parallel_pieces(pool_, rows, kPanelRows, [&](std::int64_t first, std::int64_t end, int) {
      std::vector<float> row(static_cast<std::size_t>(columns));
      std::vector<double> w;
      for (std::int64_t r = first; r < end; ++r) {
        decode_weight_row(view, r, row);
        w.insert(w.end(), row.begin(), row.end());
      }
      if (!std::ranges::all_of(w, [&](double x) { return std::fabs(x) < most; }))
        return fits.store(false, std::memory_order_relaxed);
      for (std::int64_t r = first; method_.correct && r < end; ++r)
        quantizer.correct(
            std::span(w).subspan(static_cast<std::size_t>((r - first) * columns), static_cast<std::size_t>(columns)),
            cross_, lost_.empty() ? nullptr : lost_.data() + r, rows);
      quantizer.quantize(w, columns,
                         std::span(bytes).subspan(static_cast<std::size_t>(first * row_bytes),
                                                  static_cast<std::size_t>((end - first) * row_bytes)),
                         row_bytes);
    });
    if (!fits)
      return Error{ErrorCode::kInvalidFile, "a weight is not a finite number, or too large for the type", name_of(id),
                   "--method rtn says which one"};
    DLLM_CHECK_OK(write_file(tensor_path(id), bytes));
    return take(id);
  }

  std::string tensor_path(WeightId id) const { return fmt::format("{}/weight-{}", directory_, id); }

  /// What follows reads the quantized weight.
  Expected<void> take(WeightId id) {
    const auto tensor = wanted(id);
    if (!tensor) return {};
    DLLM_TRY(auto file, MappedFile::open(tensor_path(id)));
    WeightView& view = views_[static_cast<std::size_t>(id)];
    view.type = choices_[*tensor].type;
    view.data = file->bytes();
    prepared_[source_.tensors[*tensor].name] = std::move(file);
    return {};
  }

  Expected<void> tell(std::size_t stage, double part) const {
    if (options_.cancelled && options_.cancelled())
      return Error{ErrorCode::kCancelled, "the quantization was cancelled", directory_,
                   "the same command continues with these partial results"};
    if (options_.progress)
      options_.progress(
          graph_.values[static_cast<std::size_t>(stages_[stage].input)].name,
          static_cast<std::int64_t>(1000 * (static_cast<double>(stage) + part) / static_cast<double>(stages_.size())),
          1000);
    return {};
  }

  const ModelSource& source_;
  const std::vector<TypeChoice>& choices_;
  const WriteOptions& options_;
  const CalibrationOptions& calibration_;
  QuantMethod method_;
  ThreadPool pool_;
  std::shared_ptr<const Model> model_;
  Graph graph_;
  Weights views_;
  std::vector<CalibrationStage> stages_;
  /// Of the stage, if the method corrects: X^T (Y - X), and X^T (what the residual stream has lost), [column][output].
  std::vector<double> cross_, lost_;
  std::string directory_;
  std::map<std::string, std::shared_ptr<const MappedFile>> prepared_;
};

}  // namespace

namespace {

Expected<WriteReport> write_turned(const ModelSource& source, WriteOptions options,
                                   const CalibrationOptions& calibration, const std::string& path) {
  DLLM_TRY(const auto choices, plan_types(source, options, path));
  RotationOptions rotation{.rotation = std::exchange(options.rotation, Rotation::kNone),
                           .order = options.rotation_order,
                           .threads = options.threads,
                           .cancelled = options.cancelled};
  for (const TypeChoice& choice : choices) rotation.types.push_back(choice.type);
  DLLM_TRY(const ModelSource rotated, rotated_source(source, rotation, path + ".rotated"));
  DLLM_TRY(WriteReport report, write_quantized(rotated, std::move(options), calibration, path));
  report.bytes_in = 0;
  for (const SourceTensor& tensor : source.tensors) report.bytes_in += static_cast<std::int64_t>(byte_size(tensor));
  for (std::string& warning : requantization_warnings(source, choices)) report.warnings.push_back(std::move(warning));
  return report;
}

}  // namespace

Expected<WriteReport> write_quantized(const ModelSource& source, WriteOptions options,
                                      const CalibrationOptions& calibration, const std::string& path) {
  const auto method = quant_method(calibration.method);
  if (!method) return Error{ErrorCode::kUsage, fmt::format("unknown method '{}'", calibration.method), "--method", ""};
  if (options.rotation != Rotation::kNone) return write_turned(source, std::move(options), calibration, path);
  if (method->plain()) return write_model(source, options, path);
  DLLM_TRY(const auto choices, plan_types(source, options, path));
  MatrixQuantizer quantizer(source, choices, options, calibration, *method);
  DLLM_CHECK_OK(quantizer.run(path));
  options.prepared = &quantizer.prepared();
  options.metadata.emplace_back("dllm.quantization.method", MetaValue::string(calibration.method));
  if (method->calibrated())
    options.metadata.emplace_back("dllm.quantization.calibration", MetaValue::string(calibration.description));
  DLLM_TRY(WriteReport report, write_model(source, options, path));
  if (const std::int64_t count = quantizer.left_out(); count > 0)
    report.warnings.push_back(fmt::format("{} matrices were rounded to nearest: {} does not support fused projections",
                                          count, calibration.method));
  quantizer.remove_directory();
  return report;
}

}  // namespace dllm
