#include "npu_compiler/sweep/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/hash.h"
#include "base/nearest.h"
#include "base/parse_text.h"
#include "base/try.h"
#include "npu_core/device/checks.h"
#include "npu_core/device/energy.h"
#include "npu_core/device/keys.h"
#include "npu_core/device/power.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

/// Part of every hash: another version of the models gives other results. Increment it when figures change.
constexpr std::uint64_t kModelVersion = 7;

std::uint64_t mix(std::uint64_t x) { return splitmix64(x); }
std::uint64_t text_hash(std::string_view text) { return Fnv1a().add(text).value(); }

/// A key with its value. A point's hash is the sum over keys, so that an axis only replaces its own term.
std::uint64_t term(std::string_view section, std::string_view key, std::uint64_t value) {
  return mix(mix(text_hash(section) + kGolden64 * text_hash(key)) ^ mix(value + 0x632be59bd9b4e019u));
}

std::uint64_t value_hash(const DeviceKey& field, Device& device) {
  switch (field.kind) {
    case DeviceKey::kInteger:
      return static_cast<std::uint64_t>(field.integer(device));
    case DeviceKey::kNumber:
      return std::bit_cast<std::uint64_t>(field.number(device) + 0.0);
    case DeviceKey::kText:
      return text_hash(field.text(device));
  }
  return 0;
}

struct WorkloadMember {
  std::string_view name;
  std::int64_t Workload::* member;
};
constexpr WorkloadMember kWorkloadMembers[] = {{"batch", &Workload::batch},
                                               {"block", &Workload::block},
                                               {"context", &Workload::context},
                                               {"steps", &Workload::steps}};

constexpr std::string_view kWorkloadSection = "workload.";

/// By "workload.batch"; nullptr for other keys.
const WorkloadMember* workload_member(std::string_view dotted) {
  for (const WorkloadMember& one : kWorkloadMembers)
    if (dotted.starts_with(kWorkloadSection) && dotted.substr(kWorkloadSection.size()) == one.name) return &one;
  return nullptr;
}

/// By "array.blen". Errors: unknown and derived keys, and those that the models do not read.
Expected<const DeviceKey*> device_key(const std::string& dotted) {
  if (const DeviceKey* const found = find_device_key(dotted)) {
    DLLM_CHECK_OK(check_verb_reads(*found, {"npu sweep"}));
    return found;
  }
  if (const std::string_view hint = derived_key_hint(dotted); !hint.empty())
    return Error{ErrorCode::kUsage, "this key is derived from others", dotted, std::string(hint)};
  std::vector<std::string> known = device_key_names();
  for (const WorkloadMember& one : kWorkloadMembers) known.push_back(fmt::format("{}{}", kWorkloadSection, one.name));
  const std::string near = nearest(dotted, known);
  return Error{ErrorCode::kUsage, "there is no such key", dotted,
               near.empty() ? "dllm npu devices --keys lists them" : "did you mean '" + near + "'?"};
}

/// An axis of a key that nothing reads while another is off, as in the base profile and without an axis of that other.
Expected<void> check_swept(const DeviceKey& key, const SweepSpec& spec, const Device& base) {
  for (const std::string_view needed : key.needed_keys())
    if (std::ranges::find(spec.axes, needed, &SweepSpec::Axis::key) != spec.axes.end()) return {};
  return check_needs(key, base);
}

std::uint64_t shape_hash(const ModelDesc& d) {
  std::uint64_t hash = term("model", "architecture", text_hash(d.architecture));
  const auto add = [&hash](std::string_view key, std::int64_t value) {
    hash += term("model", key, static_cast<std::uint64_t>(value));
  };
  add("vocab", d.vocab), add("width", d.width), add("layers", d.layers), add("heads", d.heads);
  add("kv_heads", d.kv_heads), add("head_dim", d.head_dim), add("ffn_width", d.ffn_width);
  add("tied", d.tied_embeddings ? 1 : 0), add("rope_dims", d.rope_dims), add("qkv_bias", d.qkv_bias ? 1 : 0);
  const ExpertsDesc& e = d.experts;
  add("experts", e.count), add("used", e.used), add("expert_width", e.width), add("shared_width", e.shared_width);
  add("leading_dense", e.leading_dense), add("groups", e.groups), add("groups_used", e.groups_used);
  add("capacity", e.capacity);
  return hash;
}

/// What the achieved bandwidth depends on.
std::uint64_t memory_hash(const Device& device) {
  const MemoryKeys& m = device.memory;
  return term("memory", m.standard, static_cast<std::uint64_t>(m.stacks)) + term("mapping", m.mapping, 0) +
         term("policy", m.row_policy, 0) + term("refresh", m.refresh, 0) +
         term("frontend", "", std::bit_cast<std::uint64_t>(m.frontend_ns));
}

/// What a model's layout and steps depend on, except the size of the memory.
std::uint64_t layout_hash(const Device& device, std::int64_t context) {
  const ArrayKeys& a = device.array;
  const SramKeys& s = device.sram;
  const NumericsKeys& n = device.numerics;
  std::uint64_t hash = text_hash(n.weight);
  for (const std::string* format : {&n.kv, &n.activation, &n.logits, &n.smooth_keys, &n.smooth_values})
    hash = mix(hash ^ text_hash(*format));
  for (const std::int64_t value :
       {a.blen, a.mlen, a.vlen, a.hlen, s.matrix_tiles, s.vector_rows, s.fp_words, s.int_words, context})
    hash = mix(hash ^ static_cast<std::uint64_t>(value));
  return hash;
}

}  // namespace

SweepSpace::SweepSpace(SweepSpec spec, ModelShape shape, Device base)
    : spec_(std::move(spec)), shape_(std::move(shape)), base_(std::move(base)) {}

SweepSpace::Value SweepSpace::parse(const DeviceKey& field, const std::string& text) {
  Value value;
  const std::string name = fmt::format("{}.{}", field.section, field.key);
  const char *begin = text.data(), *end = begin + text.size();
  const auto no = [&value, &name](std::string_view kind) {
    value.error = fmt::format("'{}' must be {}", name, kind);
    return value;
  };
  double found = 0;
  if (field.kind == DeviceKey::kText) {
    value.text = text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front()
                     ? text.substr(1, text.size() - 2)
                     : text;
    value.hash = term(field.section, field.key, text_hash(value.text));
    if (!field.accepts(value.text)) {
      value.error = fmt::format("'{}' is '{}'", name, value.text);
      value.hint = fmt::format("it must be one of {}", field.choices);
    }
    return value;
  }
  if (field.kind == DeviceKey::kInteger) {
    const auto [last, error] = std::from_chars(begin, end, value.integer);
    if (error != std::errc() || last != end) return no("an integer");
    found = static_cast<double>(value.integer);
    value.hash = term(field.section, field.key, static_cast<std::uint64_t>(value.integer));
  } else {
    const auto number = parse_double({begin, end});
    if (!number) return no("a number");
    found = value.number = *number;
    value.hash = term(field.section, field.key, std::bit_cast<std::uint64_t>(value.number + 0.0));
  }
  if (!(found >= field.minimum && found <= field.maximum)) {
    value.error = fmt::format("'{}' is {}", name, found);
    value.hint = field.range_hint();
  }
  return value;
}

SweepSpace::Value SweepSpace::parse_workload(const std::string& key, const std::string& text) {
  Value value;
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), value.integer);
  if (error != std::errc() || last != text.data() + text.size())
    value.error = fmt::format("'{}' is not a whole number", text);
  value.hash = term("workload", key, static_cast<std::uint64_t>(value.integer));
  return value;
}

Expected<std::unique_ptr<SweepSpace>> SweepSpace::create(const SweepSpec& spec) {
  DLLM_TRY(ModelShape shape, load_model_shape(spec.model));
  DLLM_TRY(Device base, load_device(spec.base));
  DLLM_CHECK_OK(check_modelled(base));
  std::unique_ptr<SweepSpace> space(new SweepSpace(spec, std::move(shape), std::move(base)));
  space->base_hash_ = term("version", "", kModelVersion) + shape_hash(space->shape_.desc);
  for (const DeviceKey& field : device_keys())
    space->base_hash_ += term(field.section, field.key, value_hash(field, space->base_));
  const Workload usual;
  for (const WorkloadMember& key : kWorkloadMembers)
    space->base_hash_ += term("workload", key.name, static_cast<std::uint64_t>(usual.*key.member));
  for (const SweepSpec::Axis& from : spec.axes) {
    Axis axis;
    if (const WorkloadMember* const known = workload_member(from.key)) {
      const std::string key(known->name);
      axis.member = known->member;
      axis.base_hash = term("workload", key, static_cast<std::uint64_t>(usual.*axis.member));
      for (const std::string& text : from.values) axis.values.push_back(parse_workload(key, text));
    } else {
      DLLM_TRY(axis.field, device_key(from.key));
      DLLM_CHECK_OK(check_swept(*axis.field, spec, space->base_));
      axis.base_hash = term(axis.field->section, axis.field->key, value_hash(*axis.field, space->base_));
      for (const std::string& text : from.values) axis.values.push_back(parse(*axis.field, text));
      space->memory_varies_ = space->memory_varies_ || axis.field->section == "memory";
      space->formats_vary_ = space->formats_vary_ || axis.field->section == "numerics";
    }
    space->axes_.push_back(std::move(axis));
  }
  return space;
}

std::uint64_t SweepSpace::hash(const std::vector<std::uint32_t>& indices) const {
  std::uint64_t hash = base_hash_;
  for (std::size_t i = 0; i < axes_.size(); ++i) hash += axes_[i].values[indices[i]].hash - axes_[i].base_hash;
  return mix(hash);
}

std::uint64_t SweepSpace::points_hash() const {
  std::uint64_t hash = base_hash_;
  for (const Axis& axis : axes_)
    for (const Value& value : axis.values) hash = mix(hash ^ (value.hash - axis.base_hash));
  return mix(hash ^ static_cast<std::uint64_t>(spec_.points()));
}

Expected<void> SweepSpace::set_memory(Device& device) {
  const std::uint64_t key = memory_hash(device);
  std::shared_ptr<const Memory> memory;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = memories_.find(key); found != memories_.end()) memory = found->second;
  }
  if (!memory) {
    auto made = std::make_shared<Memory>();
    if (auto fault = resolve_memory(device)) {
      made->error = fault->what;
      made->hint = fault->hint;
      made->where = fmt::format("device {}, {}.{}", device.name, fault->section, fault->key);
    }
    made->config = device.memory_config;
    memory = made;
    const std::lock_guard lock(mutex_);
    memories_.emplace(key, memory);
  }
  if (!memory->error.empty()) return Error{ErrorCode::kInvalidFile, memory->error, memory->where, memory->hint};
  device.memory_config = memory->config;
  return {};
}

Expected<void> SweepSpace::resolve(const std::vector<std::uint32_t>& indices, Device& device, Workload& workload) {
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const Axis& axis = axes_[i];
    const Value& value = axis.values[indices[i]];
    if (!value.error.empty()) return Error{ErrorCode::kUsage, value.error, spec_.axes[i].key, value.hint};
    if (axis.field == nullptr) {
      workload.*axis.member = value.integer;
      continue;
    }
    store(*axis.field, value, device);
  }
  return settle(device, workload, formats_vary_, memory_varies_);
}

void SweepSpace::store(const DeviceKey& field, const Value& value, Device& device) {
  switch (field.kind) {
    case DeviceKey::kInteger:
      field.integer(device) = value.integer;
      break;
    case DeviceKey::kNumber:
      field.number(device) = value.number;
      break;
    case DeviceKey::kText:
      field.text(device) = value.text;
      break;
  }
}

/// What follows from the keys, once they are set.
Expected<void> SweepSpace::settle(Device& device, const Workload& workload, bool formats, bool memory) {
  DLLM_CHECK_OK(check(workload));
  device.derive_array_and_clock();
  if (formats) device.derive_bytes();
  if (memory) DLLM_CHECK_OK(set_memory(device));
  return validate(device);
}

Expected<void> SweepSpace::resolve(std::span<const Override> changes, Device& device, Workload& workload) {
  device = base_;
  workload = Workload();
  bool formats = false, memory = false;
  for (const Override& change : changes) {
    const auto fault = [&change](const Value& value) {
      return Error{ErrorCode::kUsage, value.error, change.key, value.hint};
    };
    if (const auto* member = workload_member(change.key)) {
      const Value value = parse_workload(change.key, change.value);
      if (!value.error.empty()) return fault(value);
      workload.*member->member = value.integer;
      continue;
    }
    DLLM_TRY(const DeviceKey* field, device_key(change.key));
    const Value value = parse(*field, change.value);
    if (!value.error.empty()) return fault(value);
    store(*field, value, device);
    formats = formats || field->section == "numerics";
    memory = memory || field->section == "memory";
  }
  return settle(device, workload, formats, memory);
}

/// The value of a key, computed once. Two threads may compute the same; the first one's is kept.
template <class T, class Make>
Expected<const T*> SweepSpace::kept(std::unordered_map<std::uint64_t, Expected<T>>& map, std::uint64_t key,
                                    const Make& make) {
  const auto answer = [](const Expected<T>& value) -> Expected<const T*> {
    if (!value) return value.error();
    return &*value;
  };
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = map.find(key); found != map.end()) return answer(found->second);
  }
  Expected<T> made = make();
  const std::lock_guard lock(mutex_);
  return answer(map.emplace(key, std::move(made)).first->second);
}

Expected<double> SweepSpace::bandwidth(const Device& device) {
  DLLM_TRY(const double* stream,
           kept(bandwidths_, memory_hash(device), [&] { return stream_bandwidth(device.memory_config); }));
  return std::min(*stream, device.memory_gbps());
}

Expected<const BlockParts*> SweepSpace::feasible(const Device& device, const Workload& workload, Feasibility& by) {
  const std::uint64_t arrays = layout_hash(device, workload.context);
  DLLM_TRY(const MemoryNeed* need, kept(needs_, mix(arrays ^ device.memory_config.bytes()),
                                        [&] { return by.memory_need(device, workload.context); }));
  DLLM_CHECK_OK(check_caches(*need, workload.batch));
  std::uint64_t step = arrays;
  for (const std::int64_t value : {workload.batch, workload.block, refine_rows(workload)})
    step = mix(step ^ static_cast<std::uint64_t>(value));
  return kept(parts_, step, [&] { return by.block_parts(device, workload); });
}

PointEvaluator::PointEvaluator(SweepSpace& space)
    : space_(space),
      device_(space.base()),
      warm_(space.shape()),
      refine_(space.shape()),
      times_(space.shape(), false),
      feasibility_(space.shape()) {}

Expected<SweepMetrics> PointEvaluator::evaluate(const std::vector<std::uint32_t>& indices) {
  DLLM_CHECK_OK(space_.resolve(indices, device_, workload_));
  return evaluate_resolved();
}

Expected<SweepMetrics> PointEvaluator::evaluate(std::span<const Override> changes) {
  DLLM_CHECK_OK(space_.resolve(changes, device_, workload_));
  return evaluate_resolved();
}

Expected<SweepMetrics> PointEvaluator::evaluate_resolved() {
  DLLM_TRY(const BlockParts* const parts, space_.feasible(device_, workload_, feasibility_));
  DLLM_TRY(const double gbps, space_.bandwidth(device_));
  DLLM_TRY(const CostModel model, CostModel::create(device_, gbps));
  DLLM_TRY(const BlockCost block,
           evaluate_block(times_, model, warm_.with(warm_shape(workload_)), refine_.with(refine_shape(workload_)),
                          workload_, *parts, warm_.alike()));
  constexpr double kMs = 1e3;
  return SweepMetrics{block.tokens_per_second,
                      block.tokens_per_joule,
                      block.seconds,
                      block.joules,
                      block.joules / block.seconds,
                      area(device_).total(),
                      block.serial_seconds,
                      block.warm.seconds * kMs,
                      block.refine.seconds * kMs,
                      gbps,
                      device_.peak_tops(),
                      device_.clock.voltage};
}

}  // namespace dllm::npu
