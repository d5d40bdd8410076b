#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/try.h"
#include "cpu/linear.h"
#include "cpu/score_head.h"
#include "vulkan/pass.h"

namespace dllm::vulkan {

inline constexpr auto kChunkBytes = static_cast<std::int64_t>(sizeof(cpu::ReducedChunk));

/// Turns operators into dispatches, one after the other.
class Pass::Recorder {
 public:
  Recorder(const DeviceModel& model, Pass& pass, Commands& commands)
      : model_(model), pass_(pass), graph_(pass.plan_.graph), commands_(commands) {}

  /// Products of one input, and the two of a gate, do not wait for each other.
  Expected<void> record_all() {
    for (const OpRun& run : pass_.plan_.runs) {
      const bool beside = run.kind == OpRun::Kind::kProducts || run.kind == OpRun::Kind::kGated;
      for (std::size_t i = run.first; i < run.last; ++i) {
        if (std::exchange(done_, i + 1) > i) continue;
        waits_ = !beside || i == run.first || !std::holds_alternative<op::Linear>(graph_.ops[i]);
        DLLM_CHECK_OK(std::visit([this](const auto& o) { return record(o); }, graph_.ops[i]));
      }
    }
    return pass_.kept_.bytes() > 0 ? record_end() : Expected<void>();
  }

 private:
  using Address = VkDeviceAddress;

  /// What a pass that others may follow ends with.
  Expected<void> record_end() {
    const HeadParts& head = pass_.head_;
    Operators::CommitPlaces places{.at = arguments().unrolling(), .head = {}};
    places.head.chunks = pass_.reduced_.address();
    places.head.answers = places.head.chunks + static_cast<Address>(pass_.room_.scored * head.chunks * kChunkBytes);
    places.head.asked = arguments().asked();
    places.candidates = pass_.candidates_.address();
    places.kept = pass_.kept_.address();
    places.chunks = head.chunks;
    places.room = pass_.room_.scored;
    places.pass_bytes = pass_.kept_.bytes() / pass_.most_passes_;
    waits_ = true;
    DLLM_CHECK_OK(add(operators().merge_chunks(places), Over::kScored));
    DLLM_CHECK_OK(add(operators().commit_rows(places), Over::kRows));
    std::size_t table = 0;
    for (const Op& op : graph_.ops)
      if (const auto* embed = std::get_if<op::Embed>(&op); embed != nullptr && embed->part != EmbedPart::kMixture) {
        const Address rows = model_.unrolling->tables[table++].address();
        DLLM_CHECK_OK(add(operators().embed_tokens(places.at, rows, width(embed->out), arguments().given(embed->out)),
                          Over::kScored));
        waits_ = false;
      }
    return {};
  }

  Expected<void> record(const op::Embed& o) { return take_in(o.out); }
  Expected<void> record(const op::HiddenIn& o) { return take_in(o.out); }
  Expected<void> record(const op::HiddenOut& o) {
    const Address to = pass_.hidden_.address() + static_cast<Address>(o.first * 4);
    return add(operators().copy_rows(value(o.x), 0, to, width(o.x), hidden_width(graph_)), o.x);
  }
  Expected<void> record(const op::RmsNorm& o) {
    return add(operators().rms_norm(o, width(o.x), value(o.x), weights().vector(o.gain), value(o.out),
                                    with_codes(o.out, operators().fuses(width(o.x) / o.groups) && o.groups == 1)),
               o.out);
  }
  Expected<void> record(const op::Linear& o) {
    return product(o.x, weights().matrix(o.weight), weights().vector(o.bias), value(o.out));
  }
  Expected<void> record(const op::Rope& o) {
    // The one of K does not wait for that of Q. A third one would have to ask about both.
    const auto rope_before = [&](std::size_t count) {
      return done_ > count ? std::get_if<op::Rope>(&graph_.ops[done_ - 1 - count]) : nullptr;
    };
    if (const op::Rope* const q = rope_before(1); q != nullptr && rope_before(2) == nullptr)
      waits_ = !apart(o.out, q->out) || !apart(o.out, q->x) || !apart(o.x, q->out);
    return add(operators().rope(o, value(o.x), arguments().cos(o), arguments().sin(o), value(o.out)), o.out);
  }
  Expected<void> record(const op::StoreKv& o) {
    const op::Attention& reader = attention_of(o.layer);
    return add(operators().store_kv(model_.cache->format(), reader.kv_heads, reader.head_dim,
                                    model_.cache->layer(o.layer), value(o.k), value(o.v), arguments().stores()),
               Over::kStored);
  }
  Expected<void> record(const op::Attention& o) {
    return add(operators().attention(
                   o, model_.cache->format(), model_.cache->layer(o.layer),
                   {value(o.q), arguments().rows(), arguments().visible(), arguments().tiles(), value(o.out)},
                   with_codes(o.out, operators().fuses(o, model_.cache->format()) && o.head_dim % 32 == 0)),
               o.out);
  }
  Expected<void> record(const op::Glu& o) {
    return add(operators().glu(o, width(o.out), value(o.gate), o.up == kNoId ? 0 : value(o.up), value(o.out),
                               with_codes(o.out, operators().fuses(0))),
               o.out);
  }
  Expected<void> record(const op::Add& o) {
    // A norm of the sum that comes next runs with it.
    if (const auto* norm = done_ < graph_.ops.size() ? std::get_if<op::RmsNorm>(&graph_.ops[done_]) : nullptr;
        norm != nullptr && norm->x == o.out && norm->groups == 1 && operators().fuses(width(o.out)) &&
        scored(norm->out) == scored(o.out) && apart_or_same(norm->out, o.a) && apart_or_same(norm->out, o.b)) {
      ++done_;
      KernelPart part = with_codes(norm->out, true);
      part.other = value(o.b);
      part.sum = value(o.out);
      return add(
          operators().rms_norm(*norm, width(o.out), value(o.a), weights().vector(norm->gain), value(norm->out), part),
          o.out);
    }
    return add(operators().add(width(o.out), value(o.a), value(o.b), value(o.out)), o.out);
  }
  Expected<void> record(const op::Scale& o) {
    return add(operators().scale(width(o.out), {factor(o, o.context), factor(o, o.canvas)}, value(o.x),
                                 arguments().rows(), value(o.out)),
               o.out);
  }
  Expected<void> record(const op::Select& o) {
    return add(operators().select(width(o.out), value(o.canvas), value(o.context), arguments().rows(), value(o.out)),
               o.out);
  }
  Expected<void> record(const op::Hadamard& o) {
    return add(operators().hadamard(weights().hadamard(o.order), width(o.out), value(o.x), value(o.out)), o.out);
  }
  template <class NotRun>
    requires(std::is_same_v<NotRun, op::BlockConv> || std::is_same_v<NotRun, op::LayerNorm> ||
             std::is_same_v<NotRun, op::Gather>)
  Expected<void> record(const NotRun&) {
    return {};  // not_run() has refused it
  }
  Expected<void> record(const op::GatherScored& o) {
    return add(operators().copy_rows(value(o.x), arguments().gather(), value(o.out), width(o.out)), o.out);
  }
  /// A part's product, then its reduction beside the next part's product, which writes the other half of the memory.
  Expected<void> record(const op::ScoreHead& o) {
    const HeadParts& head = pass_.head_;
    const DeviceMatrix& matrix = weights().matrix(o.weight);
    const Address bias = weights().vector(o.bias);
    const std::int64_t last = (head.vocab - 1) / head.tokens;
    for (std::int64_t part = 0; part <= last; ++part) {
      const std::int64_t first = part * head.tokens;
      DeviceMatrix piece = matrix;
      piece.n = std::min(head.tokens, head.vocab - first);
      piece.panels += static_cast<Address>(first / cpu::kPanel * matrix.layout.bytes);
      DLLM_CHECK_OK(product(o.x, piece, bias == 0 ? 0 : bias + static_cast<Address>(first * 4), part_of_logits(part)));
      if (part > 0) DLLM_CHECK_OK(reduce(o, part - 1));
      waits_ = true;
      if (part == last) break;
      barrier();
      waits_ = false;
    }
    DLLM_CHECK_OK(reduce(o, last));
    waits_ = true;
    return {};
  }

  Address part_of_logits(std::int64_t part) const {
    return pass_.parts_.address() + static_cast<Address>(part % 2 * pass_.parts_.bytes() / 2);
  }

  Expected<void> reduce(const op::ScoreHead& o, std::int64_t part) {
    const HeadParts& head = pass_.head_;
    const std::int64_t first = part * head.tokens, tokens = std::min(head.tokens, head.vocab - first);
    const Address logits = part_of_logits(part), reduced = pass_.reduced_.address();
    if (operators().arithmetic().fused64 != Fused64::kNone) {
      const auto answers = reduced + static_cast<Address>(pass_.room_.scored * head.chunks * kChunkBytes);
      DLLM_CHECK_OK(
          add(operators().reduce_chunks(o, first, tokens, head.chunks,
                                        {logits, arguments().reduce_rows(), arguments().asked(), reduced, answers}),
              o.x));
      waits_ = false;
    }
    if (pass_.room_.kept == 0) return {};
    return add(operators().copy_rows(logits, arguments().kept(),
                                     pass_.logits_.address() + static_cast<Address>(first * 4), tokens, head.vocab),
               Over::kKept);
  }

  Expected<void> record(const op::Route& o) {
    const std::int64_t experts = width(o.logits);
    if (operators().fuses(o, experts))
      return add(operators().route(o, experts, value(o.logits), weights().vector(o.bias),
                                   weights().vector(o.expert_scale), arguments().count(false), value(o.out)),
                 o.out);
    const RouteScratch scratch = pass_.scratch_.route;
    // One invocation chooses for a row; the four are loops over experts that clear, copy, sum and write.
    DLLM_CHECK_OK(check_iterations(experts * (o.used + o.capacity + o.groups_used + 4)));
    DLLM_CHECK_OK(
        add(operators().route_scores(o, experts, value(o.logits), weights().vector(o.bias), scratch), o.logits));
    return add(operators().route_choice(o, experts, scratch, weights().vector(o.expert_scale), arguments().rows(),
                                        arguments().count(false), value(o.out)),
               o.out);
  }
  Expected<void> record(const op::Experts& o) {
    const ExpertScratch& scratch = pass_.scratch_;
    const DeviceMatrix &gate = weights().matrix(o.gate), &up = weights().matrix(o.up), &down = weights().matrix(o.down);
    const std::int64_t used = width(o.route) / 2, inner = gate.n;
    const Address route = value(o.route);
    const std::int64_t experts = graph_.weight(o.gate).shape[2];
    DLLM_CHECK_OK(product(o.x, gate, 0, scratch.gate, {route, used, true, experts}));
    DLLM_CHECK_OK(product(o.x, up, 0, scratch.up, {route, used, true, experts}));
    const op::Glu gating{0, 0, 0, o.activation};
    const bool halves = operators().takes_halves(down), packed = !halves && !cpu::packs_floats(*down.format),
               exact = packed && cpu::LinearRunner::exact_activations(*down.format, down.k);
    KernelPart part = counted(o.x, used);
    const bool fused = packed && o.hadamard == 0 && operators().fuses(0);
    if (fused) part.codes = scratch.codes, part.exact = exact;
    DLLM_CHECK_OK(add(operators().glu(gating, inner, scratch.gate, scratch.up, scratch.gate, part), o.x, used));
    if (o.hadamard != 0)
      DLLM_CHECK_OK(
          add(operators().hadamard(weights().hadamard(o.hadamard), inner, scratch.gate, scratch.gate), o.x, used));
    if (halves) {
      DLLM_CHECK_OK(add(operators().halves(inner, scratch.gate, scratch.halves), o.x, used));
    } else if (!packed) {
      DLLM_CHECK_OK(check_iterations(down.k));
    } else if (!fused) {
      DLLM_CHECK_OK(
          add(operators().quantize(inner, exact, scratch.gate, scratch.codes, counted(o.x, used)), o.x, used));
    }
    DLLM_CHECK_OK(add(operators().linear(down, scratch.gate, halves ? scratch.halves : scratch.codes, 0, rows_of(o.x),
                                         scratch.down, {route, used, false, experts}),
                      o.x, used));
    return add(operators().mix_experts(used, width(o.out), scratch.down, route, value(o.out)), o.out);
  }

  RowCount rows_of(ValueId x) const {
    return {arguments().count(scored(x)), scored(x) ? pass_.room_.scored : pass_.room_.rows};
  }

  KernelPart counted(ValueId x, std::int64_t pairs = 1) const {
    KernelPart part;
    part.count = arguments().count(scored(x)), part.pairs = pairs;
    return part;
  }
  /// With codes of x, if a product reads them and `fuses`: the kernel that writes x writes them too.
  KernelPart with_codes(ValueId x, bool fuses) {
    KernelPart part = counted(x);
    const std::optional<bool> exact = fuses && width(x) % 32 == 0 ? codes_wanted(x) : std::nullopt;
    if (!exact) return part;
    held_[*exact ? 0 : 1] = x;
    part.codes = place_of_codes(width(x), *exact), part.exact = *exact;
    return part;
  }
  /// Which codes of x the first product with packed codes reads; nothing: there is none.
  std::optional<bool> codes_wanted(ValueId x) const {
    for (std::size_t i = done_; i < graph_.ops.size(); ++i) {
      WeightId weight = kNoId;
      if (const auto* linear = std::get_if<op::Linear>(&graph_.ops[i]); linear != nullptr && linear->x == x)
        weight = linear->weight;
      if (const auto* head = std::get_if<op::ScoreHead>(&graph_.ops[i]); head != nullptr && head->x == x)
        weight = head->weight;
      if (const auto* experts = std::get_if<op::Experts>(&graph_.ops[i]); experts != nullptr && experts->x == x)
        weight = experts->gate;
      if (weight == kNoId || cpu::packs_floats(*weights().matrix(weight).format)) continue;
      const DeviceMatrix& matrix = weights().matrix(weight);
      return cpu::LinearRunner::exact_activations(*matrix.format, matrix.k);
    }
    return std::nullopt;
  }
  /// Whether every row of one value is where the same row of the other is, or nowhere in the other.
  bool apart_or_same(ValueId one, ValueId other) const {
    return apart(one, other) || (value(one) == value(other) && width(one) == width(other));
  }
  bool apart(ValueId one, ValueId other) const {
    const auto end = [&](ValueId id) { return value(id) + static_cast<Address>(pass_.room_.rows * width(id) * 4); };
    return end(one) <= value(other) || end(other) <= value(one);
  }

  DeviceCodes place_of_codes(std::int64_t k, bool exact) const {
    const std::int64_t rows = pass_.room_.rows;
    const Address base = pass_.codes_.address() + static_cast<Address>(exact ? 0 : pass_.codes_.bytes() / 2);
    return {base, base + static_cast<Address>(rows * k), base + static_cast<Address>(rows * k + rows * k / 32 * 4)};
  }

  /// The factor of rows of a region.
  float factor(const op::Scale& o, WeightId weight) const {
    if (weight == kNoId || !(*model_.tables)[static_cast<std::size_t>(weight)].present()) return o.factor;
    return o.factor * decoded((*model_.tables)[static_cast<std::size_t>(weight)]).front();
  }

  /// Errors: the device ends an invocation's loops before so many iterations in all.
  Expected<void> check_iterations(std::int64_t iterations) {
    if (iterations <= operators().arithmetic().most_rounds) return {};
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{} ends loops before {} iterations", operators().device()->facts().name, iterations),
                 "--backend vulkan", "use another device"};
  }

  Expected<void> product(ValueId x, const DeviceMatrix& matrix, Address bias, Address out,
                         const ExpertPairs& pairs = {}) {
    DeviceCodes codes;
    if (operators().takes_halves(matrix)) {
      DLLM_TRY(codes, halved(x));
    } else if (!cpu::packs_floats(*matrix.format)) {
      const bool exact = cpu::LinearRunner::exact_activations(*matrix.format, matrix.k);
      DLLM_TRY(codes, quantized(x, exact));
    } else {
      DLLM_CHECK_OK(check_iterations(matrix.k));
    }
    return add(operators().linear(matrix, value(x), codes, bias, rows_of(x), out, pairs), x,
               pairs.route == 0 ? 1 : pairs.used);
  }

  /// Rows of x as codes. A value keeps its codes until another one takes their place, which waits for its readers.
  Expected<DeviceCodes> quantized(ValueId x, bool exact) {
    const std::int64_t k = width(x);
    const DeviceCodes codes = place_of_codes(k, exact);
    ValueId& held = held_[exact ? 0 : 1];
    if (held == x) return codes;
    held = x;
    // It waits for the readers of the codes before it, and the product waits for it.
    waits_ = true;
    DLLM_CHECK_OK(add(operators().quantize(k, exact, value(x), codes, counted(x)), x));
    return codes;
  }

  /// Rows of x in F16, likewise.
  Expected<DeviceCodes> halved(ValueId x) {
    const std::int64_t k = width(x), bytes = pass_.room_.rows * half_words(k) * 4;
    const Address base = pass_.halves_.address();
    const DeviceCodes rows{base, base + static_cast<Address>(bytes), 0};
    if (std::exchange(halved_, x) == x) return rows;
    waits_ = true;
    DLLM_CHECK_OK(add(operators().halves(k, value(x), rows), x));
    return rows;
  }

  /// The rows that this processor gives for a value.
  Expected<void> take_in(ValueId out) {
    return add(operators().copy_rows(arguments().given(out), 0, value(out), width(out)), out);
  }
  /// A dispatch over the rows that `sized` has, or over so many pairs of each.
  Expected<void> add(Expected<Launch> launch, ValueId sized, std::int64_t pairs = 1) {
    return add(std::move(launch), scored(sized) ? Over::kScored : Over::kRows, pairs);
  }
  Expected<void> add(Expected<Launch> launch, Over over, std::int64_t pairs = 1) {
    if (!launch) return launch.error();
    if (waits_ && !pass_.launches_.empty()) barrier();
    if (std::exchange(begins_, false) && pass_.times_) {
      commands_.stamp(*pass_.times_, static_cast<std::uint32_t>(pass_.stamped_.size()));
      pass_.stamped_.push_back(launch->shader);
    }
    const std::int64_t offset = PassArguments::groups_offset(pass_.launches());
    const std::int64_t most = over == Over::kRows     ? pass_.room_.rows
                              : over == Over::kScored ? pass_.room_.scored
                              : over == Over::kKept   ? pass_.room_.kept
                                                      : pass_.room_.stored;
    commands_.dispatch(*launch->pipeline, launch->push, arguments().memory(), offset, launch->groups(most * pairs));
    pass_.launches_.push_back({*launch, over, pairs});
    return {};
  }

  void barrier() {
    commands_.barrier();
    begins_ = true;
  }

  const op::Attention& attention_of(std::int32_t layer) const {
    for (const Op& op : graph_.ops)
      if (const auto* attention = std::get_if<op::Attention>(&op); attention != nullptr && attention->layer == layer)
        return *attention;
    std::abort();
  }

  Operators& operators() { return *model_.operators; }
  const DeviceWeights& weights() const { return *model_.weights; }
  const PassArguments& arguments() const { return pass_.arguments_; }
  std::int64_t width(ValueId id) const { return graph_.value(id).width; }
  bool scored(ValueId id) const { return pass_.plan_.scored[static_cast<std::size_t>(id)]; }
  Address value(ValueId id) const {
    return pass_.arena_.address() + static_cast<Address>(pass_.plan_.offset[static_cast<std::size_t>(id)] * 4);
  }

  const DeviceModel& model_;
  Pass& pass_;
  const Graph& graph_;
  Commands& commands_;
  bool waits_ = true;
  std::size_t done_ = 0;  ///< operators that are recorded, with the one that is being recorded
  bool begins_ = true;    ///< what comes next runs after all before it
  /// The values whose codes are in memory: with exact scales, and with rounded ones.
  ValueId held_[2] = {kNoId, kNoId};
  ValueId halved_ = kNoId;  ///< the value whose rows in F16 are in memory
};

}  // namespace dllm::vulkan
