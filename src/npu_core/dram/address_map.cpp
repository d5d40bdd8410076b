#include "npu_core/dram/address_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/integers.h"
#include "base/to_size.h"
#include "base/try.h"
#include "format/toml_table.h"
#include "npu_core/config/embedded_files.h"

namespace dllm::npu::dram {
namespace {

constexpr std::array<std::string_view, 7> kFieldNames = {"channel", "pseudochannel", "sid", "bankgroup",
                                                         "bank",    "column",        "row"};

}  // namespace

Expected<AddressMap::Field> AddressMap::field_of(std::string_view word) {
  for (std::size_t i = 0; i < kFieldNames.size(); ++i)
    if (kFieldNames[i] == word) return static_cast<Field>(i);
  return Error{ErrorCode::kInvalidFile, fmt::format("'{}' is not a valid address field", word), "",
               fmt::format("fields: {}", fmt::join(kFieldNames, ", "))};
}

Expected<void> AddressMap::add_slices(const TomlTable& table, const std::vector<std::string>& order, const Bits& bits) {
  Bits taken{};
  int at = 0;
  bool run_open = true;  // columns at the bottom, before any other field that has bits
  for (const std::string& word : order) {
    const auto colon = word.find(':');
    auto field = field_of(std::string_view(word).substr(0, colon));
    if (!field) return table.error("order", field.error().what, field.error().hint);
    const auto index = static_cast<std::size_t>(*field);
    int count = bits[index] - taken[index];
    if (colon != std::string::npos) {
      int wanted = 0;
      const char* end = word.data() + word.size();
      if (std::from_chars(word.data() + colon + 1, end, wanted).ptr != end || wanted < 0)
        return table.error("order", fmt::format("'{}' has no number of bits", word));
      count = std::min(count, wanted);  // a short field has fewer bits than the mapping would use first
    }
    if (count == 0) continue;
    if (*field == kColumn && run_open) run_ <<= count;
    if (*field != kColumn) run_open = false;
    slices_.push_back({*field, at, taken[index], (std::uint64_t{1} << count) - 1});
    taken[index] += count;
    at += count;
  }
  for (std::size_t i = 0; i < bits.size(); ++i)
    if (taken[i] != bits[i])
      return table.error("order", fmt::format("'{}' is not fully mapped", kFieldNames[i]),
                         "end with the bare name of the field");
  bursts_ = std::uint64_t{1} << at;
  return {};
}

Expected<void> AddressMap::add_fold(TomlTable& fold, const Bits& bits, int& chained) {
  DLLM_TRY(const std::string target_name, fold.text("field"));
  DLLM_TRY(const std::string source_name, fold.text("source"));
  DLLM_TRY(const std::optional<std::int64_t> shift, fold.optional_integer("shift"));
  DLLM_TRY(const std::optional<bool> chain, fold.optional_boolean("chained"));
  DLLM_CHECK_OK(fold.finish());
  DLLM_TRY(const Field target, field_of(target_name));
  DLLM_TRY(const Field source, field_of(source_name));
  if (target == kRow || target == kColumn)
    return fold.error("field", "rows and columns cannot be folded: two addresses would meet");
  if (source != kRow && source != kColumn)
    return fold.error("source", "only rows and columns can be folded in: the mapping must stay invertible");
  const int width = bits[static_cast<std::size_t>(target)];
  const int by = chain.value_or(false) ? chained : static_cast<int>(shift.value_or(0));
  if (by < 0 || by > 30) return fold.error("shift", "the shift is outside 0 .. 30");
  chained += chain.value_or(false) ? width : 0;
  // A folded column bit moves neighbouring columns into different banks, so a run ends below it.
  if (width > 0 && source == kColumn) run_ = std::min(run_, 1 << by);
  folds_.push_back({target, source, by, (std::uint32_t{1} << width) - 1});
  return {};
}

void AddressMap::fill_tables(const Bits& bits) {
  bank_bits_ = bits[kBank];
  bank_group_bits_ = bits[kBankGroup];
  tables_.resize(to_size(std::bit_width(bursts_ - 1) + 7) / 8);
  for (std::size_t i = 0; i < tables_.size(); ++i)
    for (std::uint64_t byte = 0; byte < 256; ++byte) tables_[i][byte] = pack(byte << (8 * i));
}

Expected<AddressMap> AddressMap::parse(std::string_view text, const std::string& file, std::string_view name,
                                       const DramStandard& standard, int channels) {
  if (channels < 1 || !std::has_single_bit(static_cast<unsigned>(channels)))
    return Error{ErrorCode::kUsage, fmt::format("{} channels", channels), "", "the number must be a power of two"};
  const Bits bits = {log2_exact(channels),
                     log2_exact(standard.pseudochannels),
                     log2_exact(standard.sids),
                     log2_exact(standard.bank_groups),
                     log2_exact(standard.banks_per_group),
                     log2_exact(standard.columns),
                     log2_exact(standard.rows)};
  DLLM_TRY(TomlTable root, TomlTable::parse(text, file));
  DLLM_TRY(TomlTable table, root.table(name));
  DLLM_TRY(const std::vector<std::string> order, table.texts("order"));
  DLLM_CHECK_OK(table.text("summary"));  // for readers of the file
  AddressMap map;
  map.name_ = name;
  DLLM_CHECK_OK(map.add_slices(table, order, bits));
  if (table.contains("xor")) {
    DLLM_TRY(std::vector<TomlTable> folds, table.tables("xor"));
    int chained = 0;
    for (TomlTable& fold : folds) DLLM_CHECK_OK(map.add_fold(fold, bits, chained));
  }
  DLLM_CHECK_OK(table.finish());
  map.fill_tables(bits);
  return map;
}

Expected<AddressMap> AddressMap::named(std::string_view name, const DramStandard& standard, int channels) {
  const std::vector<std::string> names = mapping_names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    return Error{ErrorCode::kUsage, fmt::format("unknown address mapping '{}'", name), "",
                 fmt::format("known: {}", fmt::join(names, ", "))};
  return parse(find_embedded_file(core_profiles(), "dram/mappings")->text, "mappings.toml", name, standard, channels);
}

std::uint64_t AddressMap::pack(std::uint64_t burst) const {
  std::array<std::uint64_t, kFields> value{};
  for (const Slice& slice : slices_) value[slice.field] |= ((burst >> slice.from) & slice.mask) << slice.to;
  std::array<std::uint64_t, kFields> folded = value;
  for (const Fold& fold : folds_) folded[fold.field] ^= (value[fold.source] >> fold.shift) & fold.mask;
  const std::uint64_t bank = (((folded[kSid] << bank_group_bits_) | folded[kBankGroup]) << bank_bits_) | folded[kBank];
  return folded[kChannel] | folded[kPseudochannel] << 8 | bank << 16 | folded[kColumn] << 24 | folded[kRow] << 40;
}

std::vector<std::string> mapping_names() {
  auto root = TomlTable::parse(find_embedded_file(core_profiles(), "dram/mappings")->text, "mappings.toml");
  return root ? root->keys() : std::vector<std::string>();
}

}  // namespace dllm::npu::dram
