#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "npu_core/assembler/program.h"
#include "npu_core/isa/csr.h"
#include "npu_core/machine/arithmetic.h"

namespace dllm::npu {

class Emitter;

/// A general register in use; released when the handle goes out of scope. Default-constructed: gp0.
class Gp {
 public:
  Gp() = default;
  Gp(Gp&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)), index_(std::exchange(other.index_, 0)) {}
  Gp& operator=(Gp&& other) noexcept;
  ~Gp();
  std::uint32_t index() const { return index_; }

 private:
  friend class Emitter;
  Gp(Emitter* owner, std::uint32_t index) : owner_(owner), index_(index) {}
  Emitter* owner_ = nullptr;
  std::uint32_t index_ = 0;
};

/// A constant that is added to an address repeatedly: an immediate, or a register if 18 bits are too few.
struct AddressStride {
  std::uint32_t value = 0;
  Gp reg;
};

/// Writes instructions: constants, loops, regions, registers. Every function appends; nothing is reordered.
class Emitter {
 public:
  /// A program too complex for the register file is a bug of the compiler, and is asserted.
  Gp reg();
  Gp reg(std::uint32_t value);  ///< loaded with a constant
  /// Frees a register whose value is saved elsewhere for a while; reclaim() must find it free again.
  void lend(const Gp& gp) { free_ |= 1u << gp.index(); }
  void reclaim(const Gp& gp);
  void load(const Gp& target, std::uint32_t value);
  void copy(const Gp& target, const Gp& source);
  /// target <- source + delta (modulo 2^32, so negative numbers work); target may be source.
  void add(const Gp& target, const Gp& source, std::int64_t delta);
  void add(const Gp& target, const Gp& source, const Gp& other);
  void subtract(const Gp& target, const Gp& source, const Gp& other);
  void multiply(const Gp& target, const Gp& source, const Gp& other);
  AddressStride step(std::int64_t value);
  void advance(const Gp& target, const AddressStride& step);
  void retreat(const Gp& target, const AddressStride& step);
  void advance_from(const Gp& target, const Gp& source, const AddressStride& step);

  /// Runs the body `count` times; emits no loop for 0 and 1.
  void loop(std::int64_t count, const std::function<void()>& body);

  // Data-dependent loops and conditions (C_BNZ). Remembered control state is forgotten at their boundaries.
  /// Runs the body once, and again as long as `flag`, which the body sets, is not 0.
  void repeat(const Gp& flag, const std::function<void()>& body);
  /// The same with a register that holds the flag only at the end of the body.
  void repeat(const std::function<Gp()>& body);
  void when(const Gp& flag, const std::function<void()>& body);    ///< runs the body if `flag` is not 0
  void unless(const Gp& flag, const std::function<void()>& body);  ///< runs the body if `flag` is 0
  void when_else(const Gp& flag, const std::function<void()>& body, const std::function<void()>& other);

  // Instructions by operand form.
  void vector_vv(Op op, const Gp& rd, const Gp& rs1, const Gp& rs2, bool masked = false);
  void vector_vf(Op op, const Gp& rd, const Gp& rs1, std::uint32_t f, std::uint32_t funct = 0, bool masked = false);
  void vector_v(Op op, const Gp& rd, const Gp& rs1, bool masked = false);
  void reduce(Op op, std::uint32_t f, const Gp& rs1, bool masked = false);
  /// f[max] and `index` follow the largest lane of rs1, `first` being lane 0's index.
  void max_index(const Gp& index, const Gp& rs1, const Gp& first, std::uint32_t max);
  /// f[key], f[logit] and `token` follow the draw from rs1, `first` being lane 0's token.
  void draw(const Gp& token, const Gp& rs1, const Gp& first, std::uint32_t key, std::uint32_t logit,
            const Gp& position);
  void shift(const Gp& rd, const Gp& rs1, const Gp& amount, std::uint32_t mode);
  void scalar(Op op, std::uint32_t rd, std::uint32_t rs1, std::uint32_t rs2 = 0);
  void load_fp(std::uint32_t f, Bf16 value);
  void load_fp_word(std::uint32_t f, const Gp& address, std::uint32_t offset);
  void store_fp_word(std::uint32_t f, const Gp& address, std::uint32_t offset);
  void load_int(const Gp& target, const Gp& address, std::uint32_t offset);
  void store_int(const Gp& source, const Gp& address, std::uint32_t offset);
  void multiply_tile(Op op, const Gp& rs1, const Gp& rs2);
  void write_out(Op op, const Gp& rd, std::uint32_t offset = 0);
  /// H_*: `strided` uses STRIDE_REG.
  void transfer(Op op, const Gp& rd, const Gp& offset, std::uint32_t address, bool strided, std::uint32_t precision,
                std::uint32_t tag = 0);
  void fence(std::uint32_t tag);
  void raw(const Instruction& instruction) { program_.code.push_back(instruction); }

  // Control state. The last value is remembered, and forgotten at the boundaries of loops.
  void set_csr(Csr csr, std::uint32_t value);
  void set_csr(Csr csr, const Gp& value);
  void set_address(std::uint32_t a, std::uint64_t bytes);
  void set_scale(std::uint64_t bytes);
  void set_stride(std::uint32_t elements);

  std::uint32_t position() const { return static_cast<std::uint32_t>(program_.code.size()); }
  /// Names the instructions from here to the matching end_region().
  void begin_region(std::string name);
  void end_region();

  /// The program so far; the emitter is empty afterwards.
  Program take() { return std::move(program_); }

 private:
  friend class Gp;
  void release(std::uint32_t index) { free_ |= 1u << index; }
  void forget();
  Instruction& append(Op op);
  /// C_BNZ to `target`, or to a place that land() names later.
  std::uint32_t branch(const Gp& flag, std::uint32_t target = 0);
  void land(std::uint32_t branch);

  Program program_;
  std::vector<std::size_t> open_regions_;
  std::uint32_t free_ = 0xfffe;
  std::array<std::optional<std::uint32_t>, kCsrCount> csr_ = {};
  std::array<std::optional<std::uint64_t>, kAddressRegisters> address_ = {};
  std::optional<std::uint64_t> scale_, stride_;
};

}  // namespace dllm::npu
