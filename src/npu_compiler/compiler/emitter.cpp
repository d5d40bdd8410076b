#include "npu_compiler/compiler/emitter.h"

#include <bit>
#include <cassert>

namespace dllm::npu {
namespace {

constexpr std::uint32_t kImmediate = (1u << 18) - 1;

}  // namespace

Gp& Gp::operator=(Gp&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(index_, other.index_);
  return *this;
}

Gp::~Gp() {
  if (owner_ != nullptr) owner_->release(index_);
}

Instruction& Emitter::append(Op op) {
  Instruction instruction;
  instruction.op = op;
  // Table entries that share an opcode differ in a function field, which encode() fills in.
  program_.code.push_back(instruction);
  return program_.code.back();
}

Gp Emitter::reg() {
  assert(free_ != 0 && "the compiler ran out of general registers");
  const auto index = static_cast<std::uint32_t>(std::countr_zero(free_));
  free_ &= free_ - 1;
  return Gp(this, index);
}

Gp Emitter::reg(std::uint32_t value) {
  Gp result = reg();
  load(result, value);
  return result;
}

void Emitter::reclaim(const Gp& gp) {
  assert((free_ & 1u << gp.index()) != 0 && "a lent register is still in use");
  free_ &= ~(1u << gp.index());
}

void Emitter::load(const Gp& target, std::uint32_t value) {
  if (value <= kImmediate) {
    Instruction& low = append(Op::S_ADDI_INT);
    low.set(Field::kRd, target.index());
    low.set(Field::kImm18, value);
    return;
  }
  Instruction& high = append(Op::S_LUI_INT);
  high.set(Field::kRd, target.index());
  high.set(Field::kImm22, value >> 12);
  if ((value & 0xfff) != 0) add(target, target, value & 0xfff);
}

void Emitter::copy(const Gp& target, const Gp& source) {
  if (target.index() != source.index()) add(target, source, Gp());
}

void Emitter::add(const Gp& target, const Gp& source, std::int64_t delta) {
  if (delta == 0) return copy(target, source);
  if (delta > 0 && delta <= kImmediate) {
    Instruction& i = append(Op::S_ADDI_INT);
    i.set(Field::kRd, target.index());
    i.set(Field::kRs1, source.index());
    i.set(Field::kImm18, static_cast<std::uint32_t>(delta));
    return;
  }
  const bool down = delta < 0 && -delta <= 0xffffffff;
  const Gp amount = reg(static_cast<std::uint32_t>(down ? -delta : delta));
  if (down)
    subtract(target, source, amount);
  else
    add(target, source, amount);
}

void Emitter::add(const Gp& target, const Gp& source, const Gp& other) {
  Instruction& i = append(Op::S_ADD_INT);
  i.set(Field::kRd, target.index());
  i.set(Field::kRs1, source.index());
  i.set(Field::kRs2, other.index());
}

void Emitter::subtract(const Gp& target, const Gp& source, const Gp& other) {
  Instruction& i = append(Op::S_SUB_INT);
  i.set(Field::kRd, target.index());
  i.set(Field::kRs1, source.index());
  i.set(Field::kRs2, other.index());
}

void Emitter::multiply(const Gp& target, const Gp& source, const Gp& other) {
  Instruction& i = append(Op::S_MUL_INT);
  i.set(Field::kRd, target.index());
  i.set(Field::kRs1, source.index());
  i.set(Field::kRs2, other.index());
}

AddressStride Emitter::step(std::int64_t value) {
  AddressStride result;
  result.value = static_cast<std::uint32_t>(value);
  if (result.value > kImmediate) result.reg = reg(result.value);
  return result;
}

void Emitter::advance(const Gp& target, const AddressStride& step) { advance_from(target, target, step); }

void Emitter::retreat(const Gp& target, const AddressStride& step) {
  if (step.reg.index() != 0)
    subtract(target, target, step.reg);
  else
    add(target, target, -std::int64_t{step.value});
}

void Emitter::advance_from(const Gp& target, const Gp& source, const AddressStride& step) {
  if (step.reg.index() != 0)
    add(target, source, step.reg);
  else
    add(target, source, std::int64_t{step.value});
}

void Emitter::loop(std::int64_t count, const std::function<void()>& body) {
  if (count <= 0) return;
  if (count == 1) return body();
  const Gp counter = reg();
  forget();
  Instruction& start = append(Op::C_LOOP_START);
  start.set(Field::kRd, counter.index());
  start.set(Field::kImm22, static_cast<std::uint32_t>(count));
  body();
  append(Op::C_LOOP_END).set(Field::kRd, counter.index());
  forget();
}

std::uint32_t Emitter::branch(const Gp& flag, std::uint32_t target) {
  constexpr std::uint32_t kOffsetBits = 18;
  const std::uint32_t here = position();
  Instruction& i = append(Op::C_BNZ);
  i.set(Field::kRd, flag.index());
  i.set(Field::kImm18, (target - here) & ((1u << kOffsetBits) - 1));
  return here;
}

void Emitter::land(std::uint32_t branch) { program_.code[branch].set(Field::kImm18, position() - branch); }

void Emitter::repeat(const Gp& flag, const std::function<void()>& body) {
  forget();
  const std::uint32_t top = position();
  body();
  branch(flag, top);
  forget();
}

void Emitter::repeat(const std::function<Gp()>& body) {
  forget();
  const std::uint32_t top = position();
  branch(body(), top);
  forget();
}

void Emitter::when(const Gp& flag, const std::function<void()>& body) {
  const std::uint32_t taken = branch(flag);
  std::uint32_t skipped = 0;
  {
    const Gp always = reg(1);
    skipped = branch(always);
  }
  land(taken);
  forget();
  body();
  land(skipped);
  forget();
}

void Emitter::when_else(const Gp& flag, const std::function<void()>& body, const std::function<void()>& other) {
  const std::uint32_t taken = branch(flag);
  forget();
  other();
  const Gp always = reg(1);
  const std::uint32_t skipped = branch(always);
  land(taken);
  forget();
  body();
  land(skipped);
  forget();
}

void Emitter::unless(const Gp& flag, const std::function<void()>& body) {
  const std::uint32_t skipped = branch(flag);
  forget();
  body();
  land(skipped);
  forget();
}

void Emitter::vector_vv(Op op, const Gp& rd, const Gp& rs1, const Gp& rs2, bool masked) {
  Instruction& i = append(op);
  i.set(Field::kRd, rd.index());
  i.set(Field::kRs1, rs1.index());
  i.set(Field::kRs2, rs2.index());
  i.set(Field::kRs3, masked ? 1 : 0);
}

void Emitter::vector_vf(Op op, const Gp& rd, const Gp& rs1, std::uint32_t f, std::uint32_t funct, bool masked) {
  Instruction& i = append(op);
  i.set(Field::kRd, rd.index());
  i.set(Field::kRs1, rs1.index());
  i.set(Field::kRs2, f);
  i.set(Field::kRs3, masked ? 1 : 0);
  i.set(Field::kFunct, funct);
}

void Emitter::vector_v(Op op, const Gp& rd, const Gp& rs1, bool masked) {
  Instruction& i = append(op);
  i.set(Field::kRd, rd.index());
  i.set(Field::kRs1, rs1.index());
  i.set(Field::kRs3, masked ? 1 : 0);
}

void Emitter::reduce(Op op, std::uint32_t f, const Gp& rs1, bool masked) {
  Instruction& i = append(op);
  i.set(Field::kRd, f);
  i.set(Field::kRs1, rs1.index());
  i.set(Field::kRs3, masked ? 1 : 0);
}

void Emitter::max_index(const Gp& index, const Gp& rs1, const Gp& first, std::uint32_t max) {
  Instruction& i = append(Op::V_RED_MAX_IDX);
  i.set(Field::kRd, index.index());
  i.set(Field::kRs1, rs1.index());
  i.set(Field::kRs2, first.index());
  i.set(Field::kRs3, max);
}

void Emitter::draw(const Gp& token, const Gp& rs1, const Gp& first, std::uint32_t key, std::uint32_t logit,
                   const Gp& position) {
  Instruction& i = append(Op::V_RED_DRAW);
  i.set(Field::kRd, token.index());
  i.set(Field::kRs1, rs1.index());
  i.set(Field::kRs2, first.index());
  i.set(Field::kRs3, key);
  i.set(Field::kFunct, logit);
  i.set(Field::kTag, position.index());
}

void Emitter::shift(const Gp& rd, const Gp& rs1, const Gp& amount, std::uint32_t mode) {
  Instruction& i = append(Op::V_SHFT_V);
  i.set(Field::kRd, rd.index());
  i.set(Field::kRs1, rs1.index());
  i.set(Field::kRs2, amount.index());
  i.set(Field::kFunct, mode);
}

void Emitter::scalar(Op op, std::uint32_t rd, std::uint32_t rs1, std::uint32_t rs2) {
  Instruction& i = append(op);
  i.set(Field::kRd, rd);
  i.set(Field::kRs1, rs1);
  i.set(Field::kRs2, rs2);
}

void Emitter::load_fp(std::uint32_t f, Bf16 value) {
  Instruction& i = append(Op::S_LI_FP);
  i.set(Field::kRd, f);
  i.set(Field::kImm16, value);
}

void Emitter::load_fp_word(std::uint32_t f, const Gp& address, std::uint32_t offset) {
  Instruction& i = append(Op::S_LD_FP);
  i.set(Field::kRd, f);
  i.set(Field::kRs1, address.index());
  i.set(Field::kImm18, offset);
}

void Emitter::store_fp_word(std::uint32_t f, const Gp& address, std::uint32_t offset) {
  Instruction& i = append(Op::S_ST_FP);
  i.set(Field::kRd, f);
  i.set(Field::kRs1, address.index());
  i.set(Field::kImm18, offset);
}

void Emitter::load_int(const Gp& target, const Gp& address, std::uint32_t offset) {
  Instruction& i = append(Op::S_LD_INT);
  i.set(Field::kRd, target.index());
  i.set(Field::kRs1, address.index());
  i.set(Field::kImm18, offset);
}

void Emitter::store_int(const Gp& source, const Gp& address, std::uint32_t offset) {
  Instruction& i = append(Op::S_ST_INT);
  i.set(Field::kRd, source.index());
  i.set(Field::kRs1, address.index());
  i.set(Field::kImm18, offset);
}

void Emitter::multiply_tile(Op op, const Gp& rs1, const Gp& rs2) {
  Instruction& i = append(op);
  i.set(Field::kRs1, rs1.index());
  i.set(Field::kRs2, rs2.index());
}

void Emitter::write_out(Op op, const Gp& rd, std::uint32_t offset) {
  Instruction& i = append(op);
  i.set(Field::kRd, rd.index());
  i.set(Field::kImm18, offset);
}

void Emitter::transfer(Op op, const Gp& rd, const Gp& offset, std::uint32_t address, bool strided,
                       std::uint32_t precision, std::uint32_t tag) {
  Instruction& i = append(op);
  i.set(Field::kRd, rd.index());
  i.set(Field::kRs1, offset.index());
  i.set(Field::kRs2, address);
  i.set(Field::kRs3, strided ? 1 : 0);
  i.set(Field::kFunct, precision);
  i.set(Field::kTag, tag);
}

void Emitter::fence(std::uint32_t tag) { append(Op::C_FENCE).set(Field::kTag, tag); }

void Emitter::set_csr(Csr csr, std::uint32_t value) {
  auto& known = csr_[static_cast<std::size_t>(csr)];
  if (known == value) return;
  known = value;
  const Gp source = value == 0 ? Gp() : reg(value);
  Instruction& i = append(Op::C_SET_CSR);
  i.set(Field::kRd, source.index());
  i.set(Field::kImm18, static_cast<std::uint32_t>(csr));
}

void Emitter::set_csr(Csr csr, const Gp& value) {
  csr_[static_cast<std::size_t>(csr)].reset();
  Instruction& i = append(Op::C_SET_CSR);
  i.set(Field::kRd, value.index());
  i.set(Field::kImm18, static_cast<std::uint32_t>(csr));
}

void Emitter::set_address(std::uint32_t a, std::uint64_t bytes) {
  if (address_[a] == bytes) return;
  address_[a] = bytes;
  const auto high_bits = static_cast<std::uint32_t>(bytes >> 32), low_bits = static_cast<std::uint32_t>(bytes);
  const Gp high = high_bits == 0 ? Gp() : reg(high_bits);
  const Gp low = low_bits == 0 ? Gp() : reg(low_bits);
  Instruction& i = append(Op::C_SET_ADDR_REG);
  i.set(Field::kRd, a);
  i.set(Field::kRs1, high.index());
  i.set(Field::kRs2, low.index());
}

void Emitter::set_scale(std::uint64_t bytes) {
  if (scale_ == bytes) return;
  scale_ = bytes;
  const Gp source = reg(static_cast<std::uint32_t>(bytes));
  append(Op::C_SET_SCALE_REG).set(Field::kRd, source.index());
}

void Emitter::set_stride(std::uint32_t elements) {
  if (stride_ == elements) return;
  stride_ = elements;
  const Gp source = reg(elements);
  append(Op::C_SET_STRIDE_REG).set(Field::kRd, source.index());
}

void Emitter::forget() {
  csr_.fill(std::nullopt);
  address_.fill(std::nullopt);
  scale_.reset();
  stride_.reset();
}

void Emitter::begin_region(std::string name) {
  open_regions_.push_back(program_.regions.size());
  program_.regions.push_back({std::move(name), position(), position()});
}

void Emitter::end_region() {
  const std::size_t region = open_regions_.back();
  open_regions_.pop_back();
  program_.regions[region].end = position();
  // Operators whose work was emitted elsewhere have no instructions of their own.
  if (region + 1 == program_.regions.size() && program_.regions[region].begin == position())
    program_.regions.pop_back();
}

}  // namespace dllm::npu
