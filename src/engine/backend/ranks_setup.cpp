// How ranks come to the same model, options and split.
#include "engine/backend/ranks_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/free_memory.h"
#include "base/hash.h"
#include "base/human_bytes.h"
#include "base/input_file.h"
#include "base/to_size.h"
#include "base/try.h"
#include "cpu/model_memory.h"
#include "ranks/agree.h"
#include "ranks/wire.h"

namespace dllm {

std::vector<std::byte> RankSetup::encoded() const {
  WireWriter to;
  for (const std::string* text :
       {&version, &model, &cache_type, &activations, &arithmetic, &attention_arithmetic, &beside})
    to.put(*text);
  return to.take();
}

Expected<RankSetup> RankSetup::decode(std::span<const std::byte> bytes) {
  RankSetup setup;
  WireReader from(bytes);
  for (std::string* text : {&setup.version, &setup.model, &setup.cache_type, &setup.activations, &setup.arithmetic,
                            &setup.attention_arithmetic, &setup.beside})
    *text = from.text();
  if (from.ended()) return setup;
  return Error{ErrorCode::kIo, "rank 0 offers something else than a model", "ranks", "another version of dllm?"};
}

namespace {

template <class T>
  requires std::is_arithmetic_v<T>
void add_value(Fnv1a& hash, const T& value) {
  hash.add(std::as_bytes(std::span(&value, 1)));
}
void add_value(Fnv1a& hash, const std::string& text) {
  add_value(hash, text.size());
  hash.add(text);
}
void add_value(Fnv1a& hash, const OpaqueValue& value) { add_value(hash, value.bytes); }
template <class T>
void add_value(Fnv1a& hash, const std::vector<T>& values) {
  add_value(hash, values.size());
  for (const T& value : values) add_value(hash, value);
}

/// Whether a key can change what a model computes.
bool decides(const std::string& key) {
  return key == "general.architecture" || (key.rfind("general.", 0) != 0 && key.rfind("tokenizer.", 0) != 0);
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Equal for processes of one machine since it was started; 0: not known.
std::uint64_t machine_number() {
  const auto text = read_input("/proc/sys/kernel/random/boot_id", 256);
  return text ? Fnv1a().add(*text).value() : 0;
}

}  // namespace

std::string model_fingerprint(const Model& model) {
  Fnv1a hash;
  std::map<std::string, const MetaValue*> keys;  // files may have them in any order
  for (const auto& [key, value] : model.metadata().entries())
    if (decides(key)) keys[key] = &value;
  for (const auto& [key, value] : keys) {
    add_value(hash, key);
    std::visit([&hash](const auto& payload) { add_value(hash, payload); }, value->payload);
  }
  for (const SourceTensor& tensor : model.tensors()) {
    hash.add(tensor.name).add(static_cast<std::uint8_t>(tensor.type)).add(to_string(tensor.shape));
    const auto sample = [&hash](std::span<const std::byte> data) {
      constexpr std::size_t kPiece = 256, kPieces = 16;
      const std::size_t step = std::max(kPiece, data.size() / kPieces);
      for (std::size_t at = 0; at < data.size(); at += step)
        hash.add(data.subspan(at, std::min(kPiece, data.size() - at)));
    };
    sample(tensor.data);
    for (const auto& part : tensor.parts) sample(part);
  }
  return fmt::format("{:016x}", hash.value());
}

Expected<RankFacts> measure_ranks(Communicator& ranks) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  RankFacts facts;
  const auto count = to_size(ranks.size());
  const std::int64_t own = free_memory().value_or(0);
  facts.memory.resize(count);
  const std::vector<std::size_t> eight(count, sizeof own);
  DLLM_CHECK_OK(
      ranks.all_gather(std::as_bytes(std::span(&own, 1)), eight, std::as_writable_bytes(std::span(facts.memory))));
  const std::uint64_t machine = machine_number();
  facts.machine.resize(count);
  DLLM_CHECK_OK(
      ranks.all_gather(std::as_bytes(std::span(&machine, 1)), eight, std::as_writable_bytes(std::span(facts.machine))));
  const std::vector<std::size_t> none(count, 0);
  constexpr int kRounds = 21;
  std::vector<double> rounds;
  for (int i = 0; i < kRounds; ++i) {
    const auto start = Clock::now();
    DLLM_CHECK_OK(ranks.all_gather({}, none, {}));
    rounds.push_back(seconds(start));
  }
  // The typical ones: other work on a machine can lengthen single rounds to many times their length.
  facts.latency_s = median_of(rounds);
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const std::vector<std::size_t> large(count, kBytes);
  constexpr int kLarge = 5;
  const std::vector<std::byte> sent(kBytes);
  std::vector<std::byte> all(kBytes * count);
  rounds.clear();
  for (int i = 0; i < kLarge; ++i) {
    const auto start = Clock::now();
    DLLM_CHECK_OK(ranks.all_gather(sent, large, all));
    DLLM_CHECK_OK(ranks.all_gather({}, none, {}));  // the others have got it
    rounds.push_back(seconds(start));
  }
  facts.seconds_per_byte = std::max(0.0, median_of(rounds) - 2 * facts.latency_s) /
                           static_cast<double>(kBytes * std::max<std::size_t>(1, count - 1));
  return facts;
}

std::string_view split_name(SplitKind kind) {
  switch (kind) {
    case SplitKind::kOutputs:
      return "outputs";
    case SplitKind::kRows:
      return "rows";
    case SplitKind::kLayers:
      break;
  }
  return "layers";
}

namespace {

/// Bytes of a rank's part of the matrices.
double bytes_of_part(const RankGraph& part, const Weights& weights) {
  double bytes = 0;
  for (std::size_t i = 0; i < part.parts.size(); ++i) {
    const WeightView& view = weights[to_size(part.parts[i].source)];
    if (!view.present() || view.shape.size() < 2) continue;
    bytes += static_cast<double>(view.data.size()) * static_cast<double>(part.parts[i].count) /
             static_cast<double>(view.shape[1]);
  }
  return bytes;
}

/// The same of what drafts, if there is such a model. A drafter is split by rows.
double bytes_of_drafts(const Model* drafts, const RankSplit& split) {
  if (drafts == nullptr) return 0;
  const SplitKind kind = drafts->is_drafter() ? SplitKind::kRows : split.kind;
  return bytes_of_part(split_graph(drafts->build({1, 1}), {kind, split.rank, split.ranks}), drafts->weights());
}

/// By how many bytes the parts of ranks exceed the memory of a machine, at most: ranks of one share it.
double lacking(const std::vector<double>& parts, const RankFacts& facts) {
  double most = 0;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    double there = 0;
    for (std::size_t other = 0; other < parts.size(); ++other)
      if (other == r || (facts.machine[r] != 0 && facts.machine[other] == facts.machine[r])) there += parts[other];
    if (facts.memory[r] > 0) most = std::max(most, there - static_cast<double>(facts.memory[r]));
  }
  return most;
}

/// A rank's work in a step.
struct Work {
  double multiplications = 0;
  double bytes = 0;  ///< of weights that it reads
};

/// `rows`: of the step, those whose products this rank computes; all rows are scored.
Work work_of(const RankGraph& part, const Weights& weights, double rows) {
  Work work;
  const auto add = [&](WeightId id, double used_rows, double read) {
    if (id == kNoId) return;
    const auto elements = static_cast<double>(element_count(part.graph.weight(id).shape));
    const auto source = to_size(part.parts[to_size(id)].source);
    const Codec& stored = codec(weights[source].type);
    work.multiplications += used_rows * elements;
    work.bytes += read * elements * static_cast<double>(stored.block_bytes) / static_cast<double>(stored.block_elems);
  };
  for (const Op& op : part.graph.ops) {
    if (const auto* o = std::get_if<op::Linear>(&op)) add(o->weight, rows, 1);
    if (const auto* o = std::get_if<op::ScoreHead>(&op)) add(o->weight, static_cast<double>(part.graph.shape.rows), 1);
    if (const auto* o = std::get_if<op::Experts>(&op)) {
      const Shape& gate = part.graph.weight(o->gate).shape;
      const double used = static_cast<double>(part.graph.value(o->route).width) / 2 / static_cast<double>(gate[2]);
      for (const WeightId id : {o->gate, o->up, o->down}) add(id, used * rows, std::min(1.0, used * rows));
    }
  }
  return work;
}

/// Of a machine's memory: a guess, as the rate of multiplications. By `rows` each rank reads all weights, however few
/// rows it has, so for few rows this rate decides.
constexpr double kReadBytesPerSecond = 2.5e10;

/// Seconds of a step by the work of its ranks. Those of one machine share its memory. `rate`: multiplications of a rank
/// in a second.
double seconds_of(SplitKind kind, const std::vector<Work>& work, const RankFacts& facts, double rate) {
  double all = 0, longest = 0;
  for (std::size_t r = 0; r < work.size(); ++r) {
    double read = work[r].bytes;
    for (std::size_t other = 0; other < work.size() && kind != SplitKind::kLayers; ++other)
      if (other != r && facts.machine[r] != 0 && facts.machine[other] == facts.machine[r]) read += work[other].bytes;
    const double own = work[r].multiplications / rate + read / kReadBytesPerSecond;
    all += own;
    longest = std::max(longest, own);
  }
  return kind == SplitKind::kLayers ? all : longest;
}

}  // namespace

Expected<void> check_fits(const Model& model, const RankFacts& facts, SplitKind kind, const Model* drafts) {
  const int ranks = static_cast<int>(facts.memory.size());
  const Graph graph = model.build({1, 1});
  std::vector<double> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    const RankSplit split{kind, rank, ranks};
    parts.push_back(bytes_of_part(split_graph(graph, split), model.weights()) + bytes_of_drafts(drafts, split));
  }
  const double short_of = lacking(parts, facts);
  if (short_of <= 0) return {};
  return Error{ErrorCode::kResource,
               fmt::format("{} ranks are left, and a machine lacks {} for split {}", ranks, human_bytes(short_of),
                           split_name(kind)),
               "", "start the other workers again"};
}

namespace {

/// Whether products read what is gathered for them as int8 codes.
bool gathers_codes(const RankGraph& part, const Weights& weights) {
  for (const Op& op : part.graph.ops) {
    const auto* gather = std::get_if<op::Gather>(&op);
    if (gather == nullptr || !gather->codes) continue;
    for (const Op& reader : part.graph.ops) {
      const auto* const linear = std::get_if<op::Linear>(&reader);
      const auto* const head = std::get_if<op::ScoreHead>(&reader);
      const ValueId read = linear != nullptr ? linear->x : head != nullptr ? head->x : kNoId;
      if (read != gather->out) continue;
      const WeightId weight = linear != nullptr ? linear->weight : head->weight;
      return codec(weights[to_size(part.parts[to_size(weight)].source)].type).is_block();
    }
  }
  return false;
}

}  // namespace

StepExchange step_exchange(const Model& model, const RankGraph& part, int rank, int ranks, const CpuOptions& cpu) {
  const Codec& stored = codec(cpu::storage_type(cpu.kv, model.build({1, 1}), model.weights()));
  const double stored_bytes = static_cast<double>(stored.block_bytes) / static_cast<double>(stored.block_elems);
  // An int8 code of each, and a float32 scale of every 32, where products with quantized weights read nothing else.
  const bool coded = cpu.activations != CpuActivations::kF32 && gathers_codes(part, model.weights());
  constexpr double kCodeBytes = 1 + 4.0 / 32, kFloatBytes = 4;
  constexpr double kHeadGathers = 2;  // the LM head's reduction: lengths and what little it has
  const auto gathers =
      std::ranges::count_if(part.graph.ops, [](const Op& op) { return std::holds_alternative<op::Gather>(op); });
  return {static_cast<double>(gathers) + kHeadGathers,
          static_cast<double>(gathered_bytes(part, rank, ranks, stored_bytes, coded ? kCodeBytes : kFloatBytes))};
}

std::int64_t usual_rows(const ModelDesc& model, const Model* drafts) {
  if (drafts != nullptr && drafts->is_drafter()) return drafts->desc().drafter.block;
  if (model.canvas.length > 0) return model.canvas.length;
  return std::max(1, model.block_length);  // 1 where a token follows the other
}

Expected<SplitChoice> choose_split(const Model& model, const RankFacts& facts, std::int64_t rows,
                                   double multiplications_per_second, const CpuOptions& cpu, const Model* drafts) {
  const int ranks = static_cast<int>(facts.memory.size());
  const auto shared_rows = static_cast<double>((rows + ranks - 1) / ranks);
  const Graph graph = model.build({rows, rows});
  SplitChoice best;
  double least = 0;
  std::string all;
  for (const SplitKind kind : {SplitKind::kRows, SplitKind::kOutputs, SplitKind::kLayers}) {
    double exchange = 0;
    std::vector<double> parts;
    std::vector<Work> work;
    for (int rank = 0; rank < ranks; ++rank) {
      const RankSplit split{kind, rank, ranks};
      const RankGraph part = split_graph(graph, split);
      const StepExchange moved = step_exchange(model, part, rank, ranks, cpu);
      exchange = std::max(exchange, moved.gathers * facts.latency_s + moved.bytes * facts.seconds_per_byte);
      const double own_rows = kind == SplitKind::kRows ? shared_rows : static_cast<double>(rows);
      work.push_back(work_of(part, model.weights(), own_rows));
      parts.push_back(bytes_of_part(part, model.weights()) + bytes_of_drafts(drafts, split));
    }
    const double short_of = lacking(parts, facts), compute = seconds_of(kind, work, facts, multiplications_per_second);
    all += fmt::format("{}{} {:.1f} ms of work and {:.1f} ms of exchange{}", all.empty() ? "" : ", ", split_name(kind),
                       1e3 * compute, 1e3 * exchange,
                       short_of > 0 ? fmt::format(" (a machine lacks {})", human_bytes(short_of)) : "");
    if (short_of > 0 || (least > 0 && compute + exchange >= least)) continue;
    least = compute + exchange;
    best.kind = kind;
  }
  if (least == 0)
    return Error{ErrorCode::kResource, fmt::format("no split fits into the memory of {} ranks: {}", ranks, all),
                 "--split", "start more workers, or give the split"};
  best.reason = fmt::format("{}, for a step of {} row{}: {}; {:.0f} us and {:.0f} MB/s between ranks",
                            split_name(best.kind), rows, rows == 1 ? "" : "s", all, 1e6 * facts.latency_s,
                            facts.seconds_per_byte > 0 ? 1e-6 / facts.seconds_per_byte : 0.0);
  return best;
}

Expected<std::unique_ptr<CpuBackend>> make_part(const Model& model, CpuOptions& options, Communicator& ranks,
                                                const Expected<SplitKind>& split,
                                                const std::vector<std::int32_t>& hidden_layers) {
  DLLM_CHECK_OK(agree(ranks, split ? Expected<void>() : Expected<void>(split.error())));
  DLLM_TRY(const std::vector<std::byte> told, ranks.broadcast({static_cast<std::byte>(*split)}));
  if (told.size() != 1 || static_cast<std::uint8_t>(told[0]) > static_cast<std::uint8_t>(SplitKind::kLayers))
    return Error{ErrorCode::kIo, "rank 0 named no split", "ranks", "start all ranks with the same version"};
  options.ranks = &ranks;
  options.split = static_cast<SplitKind>(told[0]);
  auto backend = CpuBackend::create(
      model.desc(), [&model, hidden_layers](StepShape shape) { return model.build(shape, hidden_layers); },
      model.weights(), options);
  DLLM_CHECK_OK(agree(ranks, backend ? Expected<void>() : Expected<void>(backend.error())));
  DLLM_CHECK_OK(
      check_same_arithmetic(fmt::format("{}, K and V {}", (*backend)->arithmetic(), (*backend)->kv_type()), ranks));
  return backend;
}

Expected<void> check_same_arithmetic(const std::string& own, Communicator& ranks) {
  const auto* const at = reinterpret_cast<const std::byte*>(own.data());
  DLLM_TRY(const std::vector<std::byte> first, ranks.broadcast({at, at + own.size()}));
  const std::string theirs(reinterpret_cast<const char*>(first.data()), first.size());
  Expected<void> same;
  if (own != theirs)
    same = Error{ErrorCode::kMismatch, fmt::format("computes in '{}', rank 0 in '{}'", own, theirs), "--arithmetic",
                 "name the arithmetic instead of auto"};
  return agree(ranks, same);
}

}  // namespace dllm
