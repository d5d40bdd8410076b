#include "app/bench/output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/report.h"
#include "app/cli/terminal.h"
#include "base/human_bytes.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

struct Column {
  std::string title;
  std::function<std::string(const Json&)> cell;
  bool right = true;
};

Column text(std::string title, std::string key) {
  return {std::move(title), [key](const Json& r) { return r.value(key, std::string()); }, false};
}

Column integer(std::string title, std::string key) {
  return {std::move(title), [key](const Json& r) { return fmt::format("{}", r.value(key, std::int64_t{0})); }};
}

/// Empty if the record has no such value, as for percentages without peaks.
Column number(std::string title, const std::string& pointer, int digits) {
  return {std::move(title), [at = Json::json_pointer(pointer), digits](const Json& r) {
            return r.contains(at) && r[at].is_number() ? fmt::format("{:.{}f}", r[at].get<double>(), digits)
                                                       : std::string();
          }};
}

Column bytes(std::string title, std::string key) {
  return {std::move(title), [key](const Json& r) { return human_bytes(r.value(key, 0.0)); }};
}

/// "linear 91.2, attention 3.4, …": shares in per cent, largest first, without those that round to zero.
std::string operator_shares(const Json& record) {
  std::vector<std::pair<double, std::string>> shares;
  for (const auto& [name, entry] : record.at("operators").items()) shares.emplace_back(entry.at("percent"), name);
  std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> words;
  for (const auto& [percent, name] : shares)
    if (percent >= 0.05) words.push_back(fmt::format("{} {:.1f}", name, percent));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string spread(const Json& record) {
  const Json& ms = record.at("ms");
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", ms.at("mad").get<double>(), ms.at("min").get<double>(),
                     ms.at("max").get<double>());
}

std::string method(const Json& record) {
  const Json& o = record.at("options");
  const std::string mode = o.value("mode", "");
  if (o.contains("draft_min"))
    return fmt::format("{}, {} to {} rows", mode, o.at("draft_min").get<int>(), o.at("draft_max").get<int>());
  if (!o.contains("algorithm")) return mode;  // in order, without blocks
  return fmt::format("{}, {}, block {}", o.at("algorithm").get<std::string>(), o.at("cache").get<std::string>(),
                     o.at("block_length").get<int>());
}

std::vector<Column> answer_columns() {
  return {text("model", "name"),
          text("device", "device"),
          text("runs on", "processor"),
          integer("requests", "requests"),
          integer("prompt", "prompt_tokens"),
          number("length", "/options/length", 0),
          {"method", method, false},
          integer("NFE", "nfe"),
          integer("rows", "rows_forwarded"),
          number("prompt ms", "/virtual_prompt_ms", 1),
          number("first block ms", "/virtual_first_block_ms", 1),
          number("answer ms", "/virtual_ms_per_answer", 1),
          number("tok/s", "/tokens_per_second", 2),
          number("J", "/joules_per_answer", 2),
          number("host s", "/host_seconds", 2)};
}

std::vector<Column> rank_columns(bool predicted) {
  if (predicted)
    return {text("model", "name"),
            integer("rows", "rows"),
            integer("context", "context"),
            integer("ranks", "ranks"),
            text("split", "split"),
            number("work ms", "/work_ms", 2),
            number("exchange ms", "/exchange_ms", 2),
            number("step ms", "/step_ms", 2),
            number("x one rank", "/times_alone", 2),
            text("faster than fewer", "pays"),
            number("measured ms", "/measured_ms", 2),
            number("% off", "/deviation_percent", 1)};
  return {text("model", "name"),
          integer("batch", "batch"),
          integer("rows", "rows"),
          integer("context", "context"),
          text("split", "split"),
          integer("rank", "rank"),
          integer("of", "ranks"),
          number("step ms", "/step_ms", 2),
          number("compute ms/layer", "/compute_ms", 3),
          number("gather ms/layer", "/gather_ms", 3),
          number("wait ms/layer", "/wait_ms", 3),
          number("bound ms/layer", "/bound_ms", 3),
          number("gathers", "/gathers", 1),
          number("MB received", "/received_mb", 3)};
}

std::vector<Column> peak_columns(bool of_device) {
  const Column int8 = number("int8 GOP/s", "/int8/gops", 0);
  const Column instruction = {
      "", [](const Json& r) { return r["int8"].is_null() ? "" : r["int8"].value("instruction", ""); }, false};
  if (of_device)
    return {int8, instruction, number("f16 GFLOP/s", "/f16/gops", 0), number("f32 GFLOP/s", "/f32/gops", 0),
            number("read GB/s", "/read_gbps", 1)};
  return {integer("threads", "threads"),
          int8,
          instruction,
          number("bf16 GFLOP/s", "/bf16/gops", 0),
          number("f32 GFLOP/s", "/f32/gops", 0),
          number("int8 tiles GOP/s", "/int8_tiles/gops", 0),
          number("bf16 tiles GFLOP/s", "/bf16_tiles/gops", 0),
          number("read GB/s", "/read_gbps", 1)};
}

std::vector<Column> columns(const Json& record) {
  const std::string test = record.at("test");
  if (test == "answers") return answer_columns();
  if (test == "ranks" || test == "simulate") return rank_columns(test == "simulate");
  if (test == "peak") return peak_columns(!record.contains("threads"));
  std::vector<Column> shared = {text("model", "name"), text("type", "type"), integer("threads", "threads")};
  std::vector<Column> own;
  if (test == "load")
    own = {bytes("file", "file_bytes"),
           number("open ms", "/open_ms/median", 1),
           number("first step done ms", "/ms/median", 1),
           {"± MAD [min, max]", spread},
           bytes("peak RSS", "peak_rss_bytes")};
  if (test == "generate")
    own = {integer("requests", "requests"),
           integer("batch", "batch"),
           integer("prompt", "prompt_tokens"),
           number("length", "/options/length", 0),
           {"method", method, false},
           number("ms", "/ms/median", 1),
           {"± MAD [min, max]", spread},
           integer("NFE", "nfe"),
           integer("rows", "rows_forwarded"),
           number("tok/s", "/tokens_per_second", 2),
           number("ms/NFE", "/ms_per_forward", 2),
           number("tok/step", "/tokens_per_step", 2)};
  if (test == "against-autoregression")
    own = {integer("prompt", "prompt_tokens"),
           number("length", "/options/length", 0),
           text("method", "method"),
           text("tokens", "pattern"),
           number("tok/pass", "/tokens_per_forward", 2),
           integer("passes", "nfe"),
           integer("rows", "rows_forwarded"),
           number("first token ms", "/first_token_ms/median", 1),
           number("answer ms", "/ms/median", 1),
           number("tok/s", "/tokens_per_second", 2),
           number("x autoregressive", "/times_autoregression", 2)};
  if (test == "latency")
    own = {integer("rows", "rows"), number("ms", "/ms/median", 2), number("ms at context 512", "/ms_context_512", 2)};
  if (test == "step")
    own = {integer("batch", "batch"),
           integer("rows", "rows"),
           integer("context", "context"),
           integer("scored", "scored"),
           text("arithmetic", "arithmetic"),
           number("ms", "/ms/median", 2),
           {"± MAD [min, max]", spread},
           number("GOP/s", "/gops", 1),
           number("% peak", "/peak_percent", 1),
           number("GB/s", "/weight_gbps", 1),
           number("% read", "/read_percent", 1),
           {"% of time by operator", operator_shares, false}};
  shared.insert(shared.end(), own.begin(), own.end());
  return shared;
}

/// One schema for every kind of test, so that files of several can be read as one table.
struct CsvColumn {
  const char *name, *pointer;  ///< JSON pointer into the record
};
constexpr CsvColumn kCsvColumns[] = {
    {"time", "/time"},
    {"cpu", "/host/cpu"},
    {"cpu_family", "/host/cpu_family"},
    {"cpus", "/host/cpus"},
    {"memory_bytes", "/host/memory_bytes"},
    {"governor", "/host/governor"},
    {"system", "/host/system"},
    {"load_average", "/host/load_average"},
    {"version", "/build/version"},
    {"compiler", "/build/compiler"},
    {"flags", "/build/flags"},
    {"command", "/command"},
    {"test", "/test"},
    {"device", "/device"},
    {"processor", "/processor"},
    {"virtual_prompt_ms", "/virtual_prompt_ms"},
    {"virtual_first_block_ms", "/virtual_first_block_ms"},
    {"virtual_ms_per_answer", "/virtual_ms_per_answer"},
    {"joules_per_answer", "/joules_per_answer"},
    {"path", "/path"},
    {"model", "/name"},
    {"architecture", "/architecture"},
    {"parameters", "/parameters"},
    {"bytes", "/bytes"},
    {"type", "/type"},
    {"threads", "/threads"},
    {"isa", "/isa"},
    {"cache_type", "/cache_type"},
    {"activations", "/activations"},
    {"arithmetic", "/arithmetic"},
    {"seed", "/seed"},
    {"batch", "/batch"},
    {"rows", "/rows"},
    {"context", "/context"},
    {"scored", "/scored"},
    {"prompt_tokens", "/prompt_tokens"},
    {"requests", "/requests"},
    {"options", "/options"},
    {"repetitions", "/repetitions"},
    {"ms_median", "/ms/median"},
    {"ms_min", "/ms/min"},
    {"ms_max", "/ms/max"},
    {"ms_mad", "/ms/mad"},
    {"open_ms_median", "/open_ms/median"},
    {"gop", "/gop"},
    {"gops", "/gops"},
    {"peak_gops", "/peak_gops"},
    {"peak_percent", "/peak_percent"},
    {"weight_gbps", "/weight_gbps"},
    {"read_gbps", "/read_gbps"},
    {"read_percent", "/read_percent"},
    {"operators", "/operators"},
    {"nfe", "/nfe"},
    {"rows_forwarded", "/rows_forwarded"},
    {"steps", "/steps"},
    {"answer_tokens", "/answer_tokens"},
    {"tokens_per_second", "/tokens_per_second"},
    {"ms_per_forward", "/ms_per_forward"},
    {"tokens_per_step", "/tokens_per_step"},
    {"tokens_per_round", "/tokens_per_round"},
    {"hash", "/hash"},
    {"method", "/method"},
    {"pattern", "/pattern"},
    {"replay", "/replay"},
    {"first_token_ms", "/first_token_ms/median"},
    {"tokens_per_forward", "/tokens_per_forward"},
    {"times_autoregression", "/times_autoregression"},
    {"ms_context_512", "/ms_context_512"},
    {"ms_per_pair", "/ms_per_pair"},
    {"split", "/split"},
    {"rank", "/rank"},
    {"ranks", "/ranks"},
    {"step_ms", "/step_ms"},
    {"compute_ms_per_layer", "/compute_ms"},
    {"gather_ms_per_layer", "/gather_ms"},
    {"wait_ms_per_layer", "/wait_ms"},
    {"bound_ms_per_layer", "/bound_ms"},
    {"gathers", "/gathers"},
    {"received_mb", "/received_mb"},
    {"latency_us", "/latency_us"},
    {"exchange_mbps", "/exchange_mbps"},
    {"alone_ms", "/alone_ms"},
    {"work_ms", "/work_ms"},
    {"exchange_ms", "/exchange_ms"},
    {"times_alone", "/times_alone"},
    {"pays", "/pays"},
    {"measured_ms", "/measured_ms"},
    {"deviation_percent", "/deviation_percent"},
    {"file_bytes", "/file_bytes"},
    {"peak_rss_bytes", "/peak_rss_bytes"},
    {"int8_gops", "/int8/gops"},
    {"bf16_gops", "/bf16/gops"},
    {"f16_gops", "/f16/gops"},
    {"f32_gops", "/f32/gops"},
    {"int8_tiles_gops", "/int8_tiles/gops"},
    {"bf16_tiles_gops", "/bf16_tiles/gops"},
};

std::string csv_cell(const Json& value) {
  std::string text = value.is_string() ? value.get<std::string>() : dump(value, -1);
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  for (std::size_t at = text.find('"'); at != std::string::npos; at = text.find('"', at + 2)) text.insert(at, 1, '"');
  return '"' + text + '"';
}

}  // namespace

BenchOutput::BenchOutput(std::ostream& out, std::string format, const Json& shared)
    : out_(out),
      format_(std::move(format)),
      shared_(std::make_unique<const Json>(shared)),
      all_(std::make_unique<Json>(Json::array())) {}

BenchOutput::~BenchOutput() = default;

void BenchOutput::add_markdown(const Json& record) {
  if (first_) {
    const Json &host = shared_->at("host"), &build = shared_->at("build");
    out_ << fmt::format("{} x {} ({}), {}, governor {}, {}; load {:.2f}\n", host["cpus"].get<int>(),
                        host["cpu"].get<std::string>(), host["cpu_family"].get<std::string>(),
                        human_bytes(host["memory_bytes"].get<double>()), host["governor"].get<std::string>(),
                        host["system"].get<std::string>(), host["load_average"].get<double>())
         << fmt::format("dllm {}, {}, {}; {}\n`{}`\n", build["version"].get<std::string>(),
                        build["compiler"].get<std::string>(), build["flags"].get<std::string>(),
                        shared_->at("time").get<std::string>(), shared_->at("command").get<std::string>());
  }
  const std::string test = record.at("test");
  const std::vector<Column> table = columns(record);
  if (test != table_) {
    table_ = test;
    std::string titles = "\n|", rule = "|";
    for (const Column& column : table) {
      titles += " " + column.title + " |";
      rule += column.right ? "--:|" : "---|";
    }
    out_ << titles << "\n" << rule << "\n";
  }
  out_ << "|";
  for (const Column& column : table) out_ << " " << column.cell(record) << " |";
  out_ << "\n";
}

void BenchOutput::add_csv(const Json& record) {
  std::vector<std::string> cells;
  if (first_) {
    for (const auto& [name, pointer] : kCsvColumns) cells.push_back(name);
    out_ << fmt::format("{}\n", fmt::join(cells, ","));
    cells.clear();
  }
  for (const auto& [name, pointer] : kCsvColumns) {
    const Json::json_pointer at(pointer);
    cells.push_back(record.contains(at) ? csv_cell(record[at]) : std::string());
  }
  out_ << fmt::format("{}\n", fmt::join(cells, ","));
}

void BenchOutput::add(const Json& record) {
  Json full = record;
  full.update(*shared_);
  if (format_ == "md") add_markdown(record);
  if (format_ == "csv") add_csv(full);
  if (format_ == "jsonl") out_ << dump(full, -1) << "\n";
  if (format_ == "json") all_->push_back(std::move(full));
  out_.flush();
  first_ = false;
}

void BenchOutput::finish() {
  if (format_ == "json") out_ << dump(*all_) << "\n";
}

}  // namespace dllm::app
