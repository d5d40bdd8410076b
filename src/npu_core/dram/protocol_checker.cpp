#include "npu_core/dram/protocol_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

namespace dllm::npu::dram {
namespace {

enum class Scope { kPseudochannel, kOtherSid, kSameSid, kGroup, kBank };

/// `second` may come no earlier than `distance` after `first` within the scope. Precharges count from when the device
/// performs them (auto-precharge waits), so "PRE" in a rule means both kinds.
struct Rule {
  std::string_view name;
  Scope scope;
  std::string_view first, second;  ///< letters: A activate, P precharge, R read, W write, F refresh all, f refresh bank
  Tick distance;
};

/// A command, or an effect of one: an auto-precharging read is a read and a precharge.
struct Event {
  Tick at;
  char kind;
  int pc, sid, group, bank, row;
  Tick issued;
};

class Checker {
 public:
  Checker(const MemoryConfig& config, std::size_t limit) : config_(config), t_(config.standard.timing), limit_(limit) {
    const DramStandard& s = config.standard;
    rules_ = {
        {"tRCD", Scope::kBank, "A", "R", t_.rcd_rd},
        {"tRCDW", Scope::kBank, "A", "W", t_.rcd_wr},
        {"tRP", Scope::kBank, "P", "A", t_.rp},
        {"tRP", Scope::kBank, "P", "f", t_.rp},
        {"tRP", Scope::kPseudochannel, "P", "F", t_.rp},
        {"tRAS", Scope::kBank, "A", "P", t_.ras},
        {"tRC", Scope::kBank, "A", "A", t_.rc},
        {"tRC", Scope::kPseudochannel, "A", "F", t_.rc},
        {"tRC", Scope::kBank, "A", "f", t_.rc},
        {"tRTP", Scope::kBank, "R", "P", t_.rtp},
        {"tWR", Scope::kBank, "W", "P", t_.cwl + t_.bl + t_.wr},
        {"tCCD_S", Scope::kSameSid, "R", "R", t_.ccd_s},
        {"tCCD_R", Scope::kOtherSid, "R", "R", t_.ccd_r},
        {"tCCD_S", Scope::kPseudochannel, "W", "W", t_.ccd_s},
        {"tCCD_L", Scope::kGroup, "R", "R", t_.ccd_l},
        {"tCCD_L", Scope::kGroup, "W", "W", t_.ccd_l},
        {"tRTW", Scope::kPseudochannel, "R", "W", t_.rtw},
        {"tWTR_S", Scope::kPseudochannel, "W", "R", t_.cwl + t_.bl + t_.wtr_s},
        {"tWTR_L", Scope::kGroup, "W", "R", t_.cwl + t_.bl + t_.wtr_l},
        {"tRRD_S", Scope::kPseudochannel, "A", "A", t_.rrd_s},
        {"tRRD_L", Scope::kGroup, "A", "A", t_.rrd_l},
        {"tRRD_S", Scope::kPseudochannel, "A", "f", t_.rrd_s},
        {"tRFC", Scope::kPseudochannel, "F", "A", t_.rfc},
        {"tRFC", Scope::kPseudochannel, "F", "F", t_.rfc},
        {"tRREFD", Scope::kPseudochannel, "f", "A", t_.rref_d},
        {"tRREFD", Scope::kPseudochannel, "f", "f", t_.rref_d},
        {"tRFCpb", Scope::kBank, "f", "A", t_.rfc_pb},
    };
    for (const Rule& rule : rules_) longest_ = std::max(longest_, rule.distance);
    longest_ = std::max(longest_, t_.faw);
    clock_ = s.ticks_per_clock;
  }

  std::vector<std::string> run(std::vector<CommandRecord> trace) {
    std::stable_sort(trace.begin(), trace.end(), [](const CommandRecord& a, const CommandRecord& b) {
      return std::tie(a.channel, a.at) < std::tie(b.channel, b.at);
    });
    for (std::size_t i = 0; i < trace.size();) {
      std::size_t end = i;
      while (end < trace.size() && trace[end].channel == trace[i].channel) ++end;
      channel({trace.begin() + static_cast<std::ptrdiff_t>(i), trace.begin() + static_cast<std::ptrdiff_t>(end)});
      i = end;
    }
    return std::move(faults_);
  }

 private:
  void fault(const CommandRecord& c, std::string text) {
    if (faults_.size() < limit_)
      faults_.push_back(fmt::format("ch {} pc {} t={} {} bank {}: {}", c.channel, c.pseudochannel, c.at,
                                    command_name(c.command), c.bank, text));
  }

  Event event(const CommandRecord& c, char kind, int bank, Tick at) const {
    const DramStandard& s = config_.standard;
    return {at,    kind, c.pseudochannel, bank / (s.bank_groups * s.banks_per_group), bank / s.banks_per_group, bank,
            c.row, c.at};
  }

  static bool related(Scope scope, const Event& a, const Event& b) {
    if (a.pc != b.pc) return false;
    switch (scope) {
      case Scope::kPseudochannel:
        return true;
      case Scope::kSameSid:
        return a.sid == b.sid;
      case Scope::kOtherSid:
        return a.sid != b.sid;
      case Scope::kGroup:
        return a.group == b.group;
      case Scope::kBank:
        return a.bank == b.bank;
    }
    return false;
  }

  void channel(const std::vector<CommandRecord>& commands) {
    history_.clear();
    open_.clear();
    last_data_.clear();
    refreshes_.clear();
    precharged_.clear();
    row_bus_ = column_bus_ = 0;
    for (const CommandRecord& c : commands) {
      buses(c);
      for (const Event& e : effects(c)) {
        for (auto h = history_.rbegin(); h != history_.rend(); ++h) {
          if (h->issued + longest_ + t_.ras + t_.write_to_precharge() < e.at) break;
          if (h->kind == 'f' && e.kind == 'f' && h->issued == e.issued) continue;  // the two banks of one command
          for (const Rule& rule : rules_)
            if (rule.first[0] == h->kind && rule.second[0] == e.kind && related(rule.scope, *h, e) &&
                e.at < h->at + rule.distance)
              fault(c, fmt::format("{} {} after {} at {}", rule.name, rule.distance, h->kind, h->at));
        }
        if (e.kind == 'A') four_activations(c, e);
        history_.push_back(e);
      }
      if (is_column(c.command)) data_bus(c);
    }
    if (!commands.empty()) refresh_rate(commands);
  }

  static bool is_column(Command command) {
    return command == Command::kRead || command == Command::kWrite || command == Command::kReadAuto ||
           command == Command::kWriteAuto;
  }

  void buses(const CommandRecord& c) {
    const DramStandard& s = config_.standard;
    const bool column = is_column(c.command);
    const bool precharge = c.command == Command::kPrecharge || c.command == Command::kPrechargeAll;
    if (!precharge && c.at % clock_ != 0) fault(c, "not on a clock edge");
    Tick& bus = column ? column_bus_ : row_bus_;
    const Tick busy_until = s.shared_bus ? std::max(column_bus_, row_bus_) : bus;
    if (c.at < busy_until) fault(c, fmt::format("the command bus is busy until {}", busy_until));
    if (precharge) {
      const auto last = precharged_.find(c.pseudochannel);
      if (last != precharged_.end() && c.at < last->second + t_.ppd)
        fault(c, fmt::format("tPPD {} after P at {}", t_.ppd, last->second));
      precharged_[c.pseudochannel] = c.at;
    }
    bus = c.at + (column                            ? s.column_ticks
                  : precharge                       ? s.precharge_ticks
                  : c.command == Command::kActivate ? s.activate_ticks
                                                    : s.refresh_ticks);
  }

  /// The command's effects on banks, with checks of their state.
  std::vector<Event> effects(const CommandRecord& c) {
    auto& open = open_[c.pseudochannel];
    switch (c.command) {
      case Command::kActivate:
        if (open.contains(c.bank)) fault(c, "the bank is open");
        open[c.bank] = {c.row, c.at, 0};
        return {event(c, 'A', c.bank, c.at)};
      case Command::kPrecharge:
        if (!open.contains(c.bank)) fault(c, "the bank is closed");
        open.erase(c.bank);
        return {event(c, 'P', c.bank, c.at)};
      case Command::kPrechargeAll: {
        std::vector<Event> events;
        for (const auto& [bank, state] : open) events.push_back(event(c, 'P', bank, c.at));
        if (events.empty()) fault(c, "no bank is open");
        open.clear();
        return events;
      }
      case Command::kRefreshAll:
        if (!open.empty()) fault(c, "a bank is open");
        refreshes_[c.pseudochannel].push_back(c.at);
        return {event(c, 'F', 0, c.at)};
      case Command::kRefreshBank: {
        refreshes_[c.pseudochannel].push_back(c.at);
        std::vector<Event> events{event(c, 'f', c.bank, c.at)};
        if (config_.standard.refresh_bank_pairs)
          events.push_back(event(c, 'f', c.bank + config_.standard.banks() / 2, c.at));
        for (const Event& e : events)
          if (open.contains(e.bank)) fault(c, "the bank is open");
        return events;
      }
      default:
        return column(c);
    }
  }

  std::vector<Event> column(const CommandRecord& c) {
    auto& open = open_[c.pseudochannel];
    const bool read = c.command == Command::kRead || c.command == Command::kReadAuto;
    const auto found = open.find(c.bank);
    if (found == open.end()) {
      fault(c, "the bank is closed");
    } else if (found->second.row != c.row) {
      fault(c, fmt::format("row {} is open, not {}", found->second.row, c.row));
    }
    if (c.column < 0 || c.column >= config_.standard.columns) fault(c, fmt::format("column {}", c.column));
    std::vector<Event> events{event(c, read ? 'R' : 'W', c.bank, c.at)};
    if (found != open.end()) {
      Tick& ready = found->second.precharge_ready;
      ready = std::max({ready, found->second.activated + t_.ras, c.at + (read ? t_.rtp : t_.cwl + t_.bl + t_.wr)});
      if (c.command == Command::kReadAuto || c.command == Command::kWriteAuto) {
        events.push_back(event(c, 'P', c.bank, ready));
        open.erase(found);
      }
    }
    return events;
  }

  void four_activations(const CommandRecord& c, const Event& e) {
    int seen = 0;
    for (auto h = history_.rbegin(); h != history_.rend(); ++h) {
      if (h->kind != 'A' || h->pc != e.pc) continue;
      if (++seen < 4) continue;
      if (e.at < h->at + t_.faw) fault(c, fmt::format("fifth activation within tFAW of {}", h->at));
      return;
    }
  }

  void data_bus(const CommandRecord& c) {
    const bool read = c.command == Command::kRead || c.command == Command::kReadAuto;
    const Tick begin = c.at + (read ? t_.cl : t_.cwl);
    Tick& end = last_data_[c.pseudochannel];
    if (begin < end) fault(c, fmt::format("the data bus is busy until {}", end));
    end = begin + t_.bl;
  }

  /// By time x a pseudo-channel must have had floor(x / interval) refreshes, one of which may still be pending.
  void refresh_rate(const std::vector<CommandRecord>& commands) {
    if (config_.refresh == RefreshMode::kNone || t_.refi == 0) return;
    const int sets = config_.standard.banks() / (config_.standard.refresh_bank_pairs ? 2 : 1);
    const Tick interval = config_.refresh == RefreshMode::kPerBank ? t_.refi / sets : t_.refi;
    for (int p = 0; p < config_.standard.pseudochannels; ++p) {
      const auto due = (commands.back().at - interval) / (interval + clock_);
      const auto had = static_cast<Tick>(refreshes_[p].size());
      if (had < due - 1) {
        CommandRecord at = commands.back();
        at.pseudochannel = static_cast<std::int16_t>(p);
        fault(at, fmt::format("{} refreshes until here, {} were due", had, due));
      }
    }
  }

  struct Open {
    int row;
    Tick activated, precharge_ready;
  };
  const MemoryConfig& config_;
  const Timing& t_;
  std::size_t limit_;
  Tick clock_ = 1, longest_ = 0;
  std::vector<Rule> rules_;
  std::vector<std::string> faults_;
  std::vector<Event> history_;
  std::map<int, std::map<int, Open>> open_;
  std::map<int, Tick> last_data_, precharged_;
  std::map<int, std::vector<Tick>> refreshes_;
  Tick row_bus_ = 0, column_bus_ = 0;
};

}  // namespace

std::vector<std::string> check_protocol(const std::vector<CommandRecord>& trace, const MemoryConfig& config,
                                        std::size_t limit) {
  return Checker(config, limit).run(trace);
}

}  // namespace dllm::npu::dram
