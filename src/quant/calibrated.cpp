#include "quant/calibrated.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "base/hash.h"
#include "base/try.h"
#include "dllm/version.h"
#include "model/model.h"
#include "quant/activation_file.h"
#include "quant/canvas_experts.h"
#include "quant/canvas_runner.h"
#include "quant/partial_results.h"
#include "quant/product_quantizer.h"
#include "quant/stage_inputs.h"
#include "quant/stages.h"

namespace dllm {
namespace {

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
  // Another version may compute otherwise.
  text.add("dllm " DLLM_VERSION "|").add(options.method).add(fmt::format("|{}|", options.damping));
  for (const SourceTensor& tensor : source.tensors) text.add(tensor.name).add("|");
  std::uint64_t hash = text.value();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    hash = mix64(hash, static_cast<std::uint64_t>(choices[i].type));
    hash = hash_bytes(hash, source.tensors[i].data);
    for (const std::span<const std::byte> part : source.tensors[i].parts) hash = hash_bytes(hash, part);
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
        pool_(options.threads),
        products_(method, calibration.damping, pool_) {}

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
    graph_ = model_->build({1, 1});
    DLLM_TRY(stages_, calibration_stages(graph_));
    bool any = false;
    for (const CalibrationStage& stage : stages_)
      for (const WeightId id : stage.weights) any = any || wanted(id);
    if (!any)
      return Error{ErrorCode::kUnsupported, fmt::format("no matrix has a type that {} supports", calibration_.method),
                   options_.type, "MX formats, Q4_0 and Q8_0; rtn for others"};
    DLLM_TRY(PartialResults opened,
             PartialResults::open(target, identity_of(source_, choices_, calibration_, canvases), options_.log));
    partial_.emplace(std::move(opened));
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

  const std::map<std::string, SealedFile>& prepared() const { return prepared_; }

  void remove_directory() {
    prepared_.clear();
    if (partial_) partial_->remove_all();
  }

 private:
  const std::string& name_of(WeightId id) const { return graph_.weight(id).name; }

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
      for (const WeightId id : stages_[s].weights) {
        if (!taken(id)) DLLM_CHECK_OK(quantize({&id, 1}, nullptr));
        DLLM_CHECK_OK(take(id));
      }
    }
    return {};
  }

  static std::string state_name(std::size_t stage) { return fmt::format("activations-{}", stage); }

  /// The inputs of a stage, if they are there.
  Expected<ActivationFile> inputs_of(std::size_t stage) const {
    std::optional<SealedFile> file = partial_->find(state_name(stage));
    if (file) return ActivationFile::open(*std::move(file), stages_[stage].live);
    return Error{ErrorCode::kIo, "the partial results disappear while they are used", partial_->folder(),
                 "the same command begins anew"};
  }

  /// Stages whose inputs and all earlier weights are there, so that what follows can be computed from them. Weights of
  /// later ones are used too when it is their turn: the same inputs give the same weights.
  std::size_t begun_stages() {
    std::size_t begun = stages_.size();
    while (begun > 0 && !partial_->find(state_name(begun - 1))) --begun;
    for (std::size_t s = 0; s + 1 < begun; ++s)
      if (!std::ranges::all_of(stages_[s].weights, [&](WeightId id) { return taken(id); })) return 0;
    return begun;
  }

  Expected<void> calibrate(const std::vector<CalibrationCanvas>& canvases) {
    const auto chunks = canvas_groups(canvases);
    const std::size_t begun = begun_stages();
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (s >= begun) DLLM_CHECK_OK(compute_inputs(s, chunks));
      if (s + 1 >= begun) DLLM_CHECK_OK(quantize_stage(s));
      for (const WeightId id : stages_[s].weights) DLLM_CHECK_OK(take(id));
    }
    return {};
  }

  /// Runs the operators before a stage's products and stores what is read later, the products' input among it.
  Expected<void> compute_inputs(std::size_t s, const std::vector<std::span<const CalibrationCanvas>>& chunks) {
    const CalibrationStage& stage = stages_[s];
    const std::int32_t mask = model_->desc().causal_block;
    const CanvasRunner runner(graph_, views_, mask, pool_), original(graph_, model_->weights(), mask, pool_);
    std::optional<ActivationFile> before;
    if (s > 0) {
      DLLM_TRY(before, inputs_of(s - 1));
    }
    DLLM_TRY(SealedWriter written, partial_->create(state_name(s)));
    ActivationWriter after(std::move(written));
    const std::size_t step = method_.correct ? 2 : 1;
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      DLLM_CHECK_OK(tell(s, 0.5 * static_cast<double>(c) / static_cast<double>(chunks.size())));
      for (std::size_t i = 0; i < step; ++i) {
        CanvasChunk chunk(chunks[c]);
        if (before) before->copy(step * c + i, chunk);
        (i == 0 ? runner : original).run(chunk, stage.first, stage.end);
        DLLM_CHECK_OK(after.append(chunk, stage.live));
        if (before) before->drop(step * c + i);
      }
    }
    if (before) DLLM_CHECK_OK(before->check());
    DLLM_CHECK_OK(after.commit());
    if (s > 0) partial_->remove(state_name(s - 1));
    return {};
  }

  Expected<void> quantize_stage(std::size_t s) {
    const CalibrationStage& stage = stages_[s];
    // All or none of them: what is done for one matrix may depend on the others.
    if (std::ranges::all_of(stage.weights, [&](WeightId id) { return taken(id); })) return {};
    DLLM_CHECK_OK(tell(s, 0.5));
    DLLM_TRY(const ActivationFile file, inputs_of(s));
    const StageInputs inputs(file, stage, method_.correct, pool_);
    if (stage.experts) {
      DLLM_CHECK_OK(quantize_experts(s, inputs));
    } else {
      const ProductInputs all = inputs.all();
      DLLM_CHECK_OK(quantize(stage.weights, &all));
    }
    return file.check();
  }

  /// The matrices of one product's input, into their files.
  Expected<void> quantize(std::span<const WeightId> ids, const ProductInputs* inputs) {
    std::vector<SealedWriter> files;
    std::vector<MatrixJob> jobs;
    files.reserve(ids.size());
    for (const WeightId id : ids) {
      const auto tensor = wanted(id);
      if (!tensor) continue;
      DLLM_TRY(SealedWriter file, partial_->create(weight_name(id)));
      SealedWriter& out = files.emplace_back(std::move(file));
      jobs.push_back({name_of(id), views_[static_cast<std::size_t>(id)], choices_[*tensor].type,
                      [&out](std::span<const std::byte> rows) { return out.append(rows); }});
    }
    DLLM_CHECK_OK(products_.run(jobs, inputs));
    for (SealedWriter& file : files) DLLM_CHECK_OK(file.commit());
    return {};
  }

  using ExpertFiles = std::map<WeightId, SealedWriter>;

  /// Expert after expert: gate and up, and down with the inputs that these two give it.
  Expected<void> quantize_experts(std::size_t s, const StageInputs& inputs) {
    const op::Experts& o = *stages_[s].experts;
    const std::int64_t experts = views_[static_cast<std::size_t>(o.gate)].shape[2];
    ExpertFiles files;
    for (const WeightId id : {o.gate, o.up, o.down})
      if (wanted(id)) {
        DLLM_TRY(SealedWriter file, partial_->create(weight_name(id)));
        files.emplace(id, std::move(file));
      }
    const auto routed = inputs.routed(experts);
    for (std::int64_t e = 0; e < experts; ++e) {
      DLLM_CHECK_OK(tell(s, 0.5 + 0.5 * static_cast<double>(e) / static_cast<double>(experts)));
      DLLM_CHECK_OK(quantize_expert(o, e, inputs, routed[static_cast<std::size_t>(e)], files));
    }
    for (auto& [id, file] : files) DLLM_CHECK_OK(file.commit());
    return {};
  }

  Expected<void> quantize_expert(const op::Experts& o, std::int64_t expert, const StageInputs& inputs,
                                 const std::vector<StageInputs::RowId>& routed, ExpertFiles& files) {
    std::map<WeightId, std::vector<std::byte>> bytes;
    const auto original = [&](WeightId id) { return expert_matrix(views_[static_cast<std::size_t>(id)], expert); };
    const auto jobs_of = [&](std::initializer_list<WeightId> ids) {
      std::vector<MatrixJob> jobs;
      for (const WeightId id : ids)
        if (const auto tensor = wanted(id))
          jobs.push_back({fmt::format("{}, expert {}", name_of(id), expert), original(id), choices_[*tensor].type,
                          [&to = bytes[id]](std::span<const std::byte> rows) {
                            to.insert(to.end(), rows.begin(), rows.end());
                            return Expected<void>();
                          }});
      return jobs;
    };
    const auto quantized = [&](WeightId id) {
      WeightView view = original(id);
      if (!bytes.contains(id)) return view;
      view.type = choices_[*wanted(id)].type;
      view.data = bytes.at(id);
      return view;
    };
    const auto outer_rows = inputs.enough(routed, original(o.gate).shape[0]);
    const ProductInputs outer = inputs.expert(outer_rows);
    DLLM_CHECK_OK(products_.run(jobs_of({o.gate, o.up}), &outer));
    const auto inner_rows = inputs.enough(routed, original(o.down).shape[0]);
    const ProductInputs inner =
        inputs.expert_down(inner_rows, {quantized(o.gate), quantized(o.up)}, {original(o.gate), original(o.up)});
    DLLM_CHECK_OK(products_.run(jobs_of({o.down}), &inner));
    for (auto& [id, file] : files) DLLM_CHECK_OK(file.append(bytes.at(id)));
    return {};
  }

  static std::string weight_name(WeightId id) { return fmt::format("weight-{}", id); }

  /// Whether the weight is there, whole, as an earlier call or this one made it; or not to be made here.
  bool taken(WeightId id) {
    const auto tensor = wanted(id);
    if (!tensor || prepared_.contains(source_.tensors[*tensor].name)) return true;
    std::optional<SealedFile> file = partial_->find(weight_name(id));
    if (!file) return false;
    const std::int64_t bytes = codec(choices_[*tensor].type).row_bytes(element_count(source_.tensors[*tensor].shape));
    if (static_cast<std::int64_t>(file->payload().size()) != bytes) return false;
    prepared_.emplace(source_.tensors[*tensor].name, *std::move(file));
    return true;
  }

  /// What follows reads the quantized weight.
  Expected<void> take(WeightId id) {
    const auto tensor = wanted(id);
    if (!tensor) return {};
    if (!taken(id))
      return Error{ErrorCode::kIo, "the partial results disappear while they are used", partial_->folder(),
                   "the same command begins anew"};
    WeightView& view = views_[static_cast<std::size_t>(id)];
    view.type = choices_[*tensor].type;
    view.data = prepared_.at(source_.tensors[*tensor].name).payload();
    return {};
  }

  Expected<void> tell(std::size_t stage, double part) const {
    if (options_.cancelled && options_.cancelled())
      return Error{ErrorCode::kCancelled, "the quantization was cancelled", partial_->folder(),
                   "the same command continues with these partial results"};
    if (options_.progress)
      options_.progress(
          graph_.value(stages_[stage].input).name,
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
  ProductQuantizer products_;
  std::shared_ptr<const Model> model_;
  Graph graph_;
  Weights views_;
  std::vector<CalibrationStage> stages_;
  std::optional<PartialResults> partial_;
  std::map<std::string, SealedFile> prepared_;
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
  DLLM_TRY(const ModelSource rotated, rotated_source(source, rotation, fmt::format("{}.{}.rotated", path, ::getpid())));
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
