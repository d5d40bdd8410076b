#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu_core/dram/standard.h"

namespace dllm {
class TomlTable;
}

namespace dllm::npu::dram {

/// Location of a burst. `bank` counts over stack id, bank group and bank of the pseudo-channel, most significant first.
struct Location {
  int channel = 0;
  int pseudochannel = 0;
  int bank = 0;
  int row = 0;
  int column = 0;
};

/// A declarative address mapping: fields from the lowest address bit above a burst to the highest, and XORs that spread
/// strides over banks. Named mappings come from profiles/dram/mappings.toml.
class AddressMap {
 public:
  /// Errors: an unknown name; a mapping that does not cover every field of the standard exactly.
  static Expected<AddressMap> named(std::string_view name, const DramStandard& standard, int channels);
  /// The same from the text of a TOML table that contains one mapping "NAME".
  static Expected<AddressMap> parse(std::string_view text, const std::string& file, std::string_view name,
                                    const DramStandard& standard, int channels);

  /// `burst`: byte address / burst bytes, below bursts().
  Location locate(std::uint64_t burst) const {
    std::uint64_t packed = 0;
    for (std::size_t i = 0; i < tables_.size(); ++i) packed ^= tables_[i][(burst >> (8 * i)) & 0xff];
    return {static_cast<int>(packed & 0xff), static_cast<int>((packed >> 8) & 0xff),
            static_cast<int>((packed >> 16) & 0xff), static_cast<int>(packed >> 40),
            static_cast<int>((packed >> 24) & 0xffff)};
  }
  /// Consecutive bursts from a multiple of this are consecutive columns of one row.
  int run() const { return run_; }
  std::uint64_t bursts() const { return bursts_; }
  const std::string& name() const { return name_; }

 private:
  enum Field { kChannel, kPseudochannel, kSid, kBankGroup, kBank, kColumn, kRow, kFields };
  struct Slice {
    Field field;
    int from, to;        ///< bit of the burst number, bit of the field
    std::uint64_t mask;  ///< of the slice, at bit 0
  };
  struct Fold {
    Field field, source;
    int shift;
    std::uint32_t mask;
  };
  using Bits = std::array<int, kFields>;  ///< of each field
  static Expected<Field> field_of(std::string_view word);
  /// `order`: "FIELD" or "FIELD:BITS" from the lowest bit. Errors: a field that is unknown or not wholly mapped.
  Expected<void> add_slices(const TomlTable& table, const std::vector<std::string>& order, const Bits& bits);
  /// Errors: what cannot be inverted. `chained`: where a chained fold begins, which this one then moves on.
  Expected<void> add_fold(TomlTable& fold, const Bits& bits, int& chained);
  void fill_tables(const Bits& bits);
  std::uint64_t pack(std::uint64_t burst) const;  ///< channel, pseudo-channel, bank, column, row from the lowest byte

  std::string name_;
  std::vector<Slice> slices_;
  std::vector<Fold> folds_;
  int bank_group_bits_ = 0, bank_bits_ = 0;
  int run_ = 1;
  std::uint64_t bursts_ = 0;
  /// Shifts and XORs are linear over bits, so the location is the XOR of one table entry per byte of the burst number.
  std::vector<std::array<std::uint64_t, 256>> tables_;
};

std::vector<std::string> mapping_names();

}  // namespace dllm::npu::dram
