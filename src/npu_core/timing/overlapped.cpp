// Overlapped issue: what an instruction waits for before dispatch, and what it does in its unit.

#include <algorithm>

#include "npu_core/timing/simulator.h"

namespace dllm::npu {
namespace {

/// Reductions add their running register in their last stage, so a second reduction into the same register can follow
/// in the next cycle.
bool accumulates(Op op) {
  return op == Op::V_RED_SUM || op == Op::V_RED_MAX || op == Op::V_RED_MAX_IDX || op == Op::V_RED_DRAW;
}

/// Their running index stays in the unit.
bool keeps_index(Op op) { return op == Op::V_RED_MAX_IDX || op == Op::V_RED_DRAW; }

std::size_t accumulator_of(Space space) {
  return static_cast<std::size_t>(space) - static_cast<std::size_t>(Space::kAccMm);
}

}  // namespace

Earliest TimingSimulator::head() const { return {slots_ < options_.width ? head_ : head_ + 1, head_cause_}; }

/// Integer registers are read when an instruction is dispatched.
void TimingSimulator::await_operands(const IssueEvent& event, Earliest& earliest) {
  for (const Operand& operand : event.info->operand_list()) {
    if (operand.kind != OperandKind::kGp) continue;
    const std::uint32_t r = event.instruction->get(operand.field);
    if (r == 0) continue;
    const RegisterTime& reg = gp_[r];
    if (keeps_index(event.instruction->op) && operand.access == Access::kReadWrite && reg.writer == Engine::kVector)
      continue;
    earliest.need(reg.ready, cause_of(reg.writer));
  }
}

/// Data from DRAM; the instruction waits before dispatch.
void TimingSimulator::await_data(const IssueEvent& event, Earliest& earliest) {
  const bool load = event.info->unit == Unit::kLoad;
  for (int i = 0; i < event.accesses->count; ++i) {
    const MemoryRange& range = (*event.accesses)[i];
    // A load may follow another one into the same cell, because transfers of a cell complete together.
    if (load && range.access == Access::kWrite) continue;
    board_.for_cells(range, [&](Cell& cell) {
      if (cell.transfer != 0) earliest.need(transfers_.arrive(cell), Cause::kMemory);
    });
  }
}

Cycle TimingSimulator::dispatch(const Earliest& earliest) {
  const Cycle at = earliest.at;
  slots_ = at == head_ ? slots_ + 1 : 1;
  head_ = at;
  head_cause_ = Cause::kIssue;
  RegionTiming& here = region();
  const Cycle before = accounts_[Engine::kFrontEnd].settled;
  here.cycles += accounts_.dispatch(at, earliest.cause);
  if (at > before) here.stall[index_of(earliest.cause)] += at - before;
  if (here.first < 0) here.first = at;
  return at;
}

void TimingSimulator::await_registers(const IssueEvent& event, const Cost& cost, Earliest& earliest) {
  for (const Operand& operand : event.info->operand_list()) {
    if (operand.kind != OperandKind::kFp) continue;
    const std::uint32_t r = event.instruction->get(operand.field);
    if (r == 0) continue;
    const RegisterTime& reg = fp_[r];
    Cycle ready = reg.ready;
    if (operand.access == Access::kReadWrite && accumulates(event.instruction->op)) {
      if (reg.pipe == static_cast<std::int8_t>(cost.pipe)) continue;  // forwarded within the pipe's last stage
      ready -= cost.latency - 1;
    }
    if (operand.access != Access::kWrite) earliest.need(ready, cause_of(reg.writer));
    if (operand.access != Access::kRead) {
      earliest.need(reg.read_until, Cause::kBuffer);
      earliest.need(reg.ready - cost.latency, Cause::kBuffer);
    }
  }
}

void TimingSimulator::book_registers(const IssueEvent& event, const Cost& cost, Cycle start, Cycle done,
                                     Engine engine) {
  for (const Operand& operand : event.info->operand_list()) {
    const std::uint32_t r = event.instruction->get(operand.field);
    if (operand.kind == OperandKind::kFp) {
      if (operand.access != Access::kWrite) fp_[r].read_until = std::max(fp_[r].read_until, start);
      if (operand.access != Access::kRead) {
        fp_[r].ready = done;
        fp_[r].writer = engine;
        fp_[r].pipe = engine == Engine::kVector ? static_cast<std::int8_t>(cost.pipe) : std::int8_t{-1};
      }
    } else if (operand.kind == OperandKind::kGp &&
               (operand.access == Access::kWrite || operand.access == Access::kReadWrite)) {
      gp_[r].ready = done;
      gp_[r].writer = engine;
    }
  }
}

void TimingSimulator::await_cells(const IssueEvent& event, Earliest& earliest, Cycle latency) {
  for (int i = 0; i < event.accesses->count; ++i) {
    const MemoryRange& range = (*event.accesses)[i];
    board_.for_cells(range, [&](Cell& cell) {
      if (range.access != Access::kWrite) earliest.need(cell.ready, cause_of(cell.writer));
      if (range.access == Access::kRead) return;
      earliest.need(cell.read_until, Cause::kBuffer);
      earliest.need(cell.ready - latency, Cause::kBuffer);
    });
  }
}

void TimingSimulator::book_cells(const IssueEvent& event, Cycle read_until, Cycle ready, Engine engine) {
  for (int i = 0; i < event.accesses->count; ++i) {
    const MemoryRange& range = (*event.accesses)[i];
    board_.for_cells(range, [&](Cell& cell) {
      if (range.access == Access::kRead) {
        cell.read_until = std::max(cell.read_until, read_until);
      } else {
        cell.ready = ready;
        cell.writer = engine;
      }
    });
  }
}

void TimingSimulator::overlapped(const IssueEvent& event) {
  Earliest earliest = head();
  await_operands(event, earliest);
  switch (event.info->unit) {
    case Unit::kScalarInt:
    case Unit::kControl:
      front_end(event, earliest);
      break;
    case Unit::kVector:
      await_data(event, earliest);
      vector(event, earliest);
      break;
    case Unit::kScalarFp:
      await_data(event, earliest);
      scalar(event, earliest);
      break;
    case Unit::kMatrix:
      await_data(event, earliest);
      event.info->latency == Latency::kWriteOut ? write_out(event, earliest) : matrix(event, earliest);
      break;
    case Unit::kLoad:
    case Unit::kStore:
      transfer(event, earliest);
      break;
  }
  if (accounts_.long_list()) {
    for (const Engine engine : {Engine::kMatrix, Engine::kDrain, Engine::kVector, Engine::kScalar})
      accounts_.settle(engine);
    transfers_.settle();
    collect_transfers();
    accounts_.shorten();
  }
}

void TimingSimulator::front_end(const IssueEvent& event, Earliest earliest) {
  const Cost cost = latencies_.cost(event);
  const Op op = event.instruction->op;
  if (event.info->unit == Unit::kScalarInt) {
    earliest.need(int_free_, Cause::kIssue);  // one integer unit
    await_cells(event, earliest, 1);
  }
  if (op == Op::C_FENCE) {
    earliest.need(transfers_.fence(event.instruction->get(Field::kTag)), Cause::kFence);
    collect_transfers();
  }
  const Cycle at = dispatch(earliest);
  if (event.info->unit == Unit::kScalarInt) int_free_ = at + 1;
  book_registers(event, cost, at, at + cost.latency, Engine::kFrontEnd);
  book_cells(event, at, at + cost.latency, Engine::kFrontEnd);
  report_.ops[static_cast<std::size_t>(op)].cycles += 1;
  executed({&event, Engine::kFrontEnd, region_, at, at, at + 1, at + 1}, 0);
  // A taken branch ends the group of instructions dispatched together; C_BNZ is resolved late.
  if (op == Op::C_LOOP_END && event.state->gp[event.instruction->get(Field::kRd)] > 1) slots_ = options_.width;
  if (op == Op::C_BNZ && event.state->gp[event.instruction->get(Field::kRd)] != 0) {
    slots_ = 0;
    head_ = at + 1 + options_.branch_bubble;
  }
}

void TimingSimulator::vector(const IssueEvent& event, Earliest earliest) {
  const Cost cost = latencies_.cost(event);
  earliest.need(vector_queue_.admit(), Cause::kQueue);
  const Cycle at = dispatch(earliest);
  Earliest start{at, Cause::kVector};
  await_registers(event, cost, start);
  const VectorUnit::Timing timing = vector_unit_.place(*event.accesses, cost, start);
  vector_queue_.push(timing.start);
  const Cycle busy = accounts_.run(Engine::kVector, at, timing.start, timing.start + cost.occupies, timing.cause);
  book_registers(event, cost, timing.start, timing.done, Engine::kVector);
  RegionTiming& here = region();
  here.lane_ops += static_cast<double>(cost.lane_ops);
  report_.ops[static_cast<std::size_t>(event.instruction->op)].cycles += cost.occupies;
  executed({&event, Engine::kVector, region_, at, timing.start, timing.ready, timing.start + cost.occupies, cost.pipe},
           busy);
}

void TimingSimulator::scalar(const IssueEvent& event, Earliest earliest) {
  const Cost cost = latencies_.cost(event);
  earliest.need(scalar_queue_.admit(), Cause::kQueue);
  const Cycle at = dispatch(earliest);
  Earliest start{at, Cause::kScalar};
  start.need(scalar_free_, Cause::kScalar);
  await_registers(event, cost, start);
  await_cells(event, start, cost.latency);
  scalar_free_ = start.at + cost.occupies;
  Cycle done = start.at + cost.latency;
  if (event.info->latency == Latency::kMapFp) done = ports_.take(done) + 1;
  scalar_queue_.push(start.at);
  const Cycle busy = accounts_.run(Engine::kScalar, at, start.at, start.at + cost.occupies, start.cause);
  book_registers(event, cost, start.at, done, Engine::kScalar);
  book_cells(event, start.at + cost.occupies - 1, done, Engine::kScalar);
  report_.ops[static_cast<std::size_t>(event.instruction->op)].cycles += cost.occupies;
  executed({&event, Engine::kScalar, region_, at, start.at, done, start.at + cost.occupies}, busy);
}

void TimingSimulator::matrix(const IssueEvent& event, Earliest earliest) {
  const Cost cost = latencies_.cost(event);
  earliest.need(matrix_queue_.admit(), Cause::kQueue);
  const Cycle at = dispatch(earliest);
  Earliest start{at, Cause::kMatrix};
  start.need(matrix_free_, Cause::kMatrix);
  std::int64_t rows = 0;
  for (int i = 0; i < event.accesses->count; ++i) {
    const MemoryRange& range = (*event.accesses)[i];
    if (range.space == Space::kVram) rows += std::int64_t{range.rows} * range.groups;
    if (range.space < Space::kAccMm || event.info->latency == Latency::kMatrixFlush) continue;
    AccumulatorTime& acc = accumulators_[accumulator_of(range.space)];
    // A new sum needs a buffer whose last result has been written out, at each PE when the skewed wave arrives.
    if (!acc.open) start.need(acc.drained[acc.next] - latencies_.fill(), Cause::kBuffer);
    acc.open = true;
  }
  await_cells(event, start, cost.latency);
  // The rows of the vector operand enter one per cycle, in parallel with the vector unit's accesses.
  Cycle end = start.at + cost.occupies;
  if (rows > 0) end = std::max(end, ports_.take_run(start.at, std::min<std::int64_t>(rows, cost.occupies)) + 1);
  if (matrix_port_) end = std::max(end, matrix_port_->take_run(start.at, cost.occupies) + 1);
  matrix_free_ = end;
  matrix_queue_.push(start.at);
  for (int i = 0; i < event.accesses->count; ++i)
    if (const MemoryRange& range = (*event.accesses)[i]; range.space >= Space::kAccMm)
      accumulators_[accumulator_of(range.space)].done = end + latencies_.fill();
  book_cells(event, end - 1, end, Engine::kMatrix);
  const Cycle busy = accounts_.run(Engine::kMatrix, at, start.at, end, start.cause);
  region().macs += cost.macs;
  report_.ops[static_cast<std::size_t>(event.instruction->op)].cycles += end - start.at;
  executed({&event, Engine::kMatrix, region_, at, start.at, end, end}, busy);
}

void TimingSimulator::write_out(const IssueEvent& event, Earliest earliest) {
  earliest.need(matrix_queue_.admit(), Cause::kQueue);
  const Cycle at = dispatch(earliest);
  const Cycle rows = latencies_.drain(event);
  Earliest start{at, Cause::kMatrix};
  start.need(drain_free_, Cause::kMatrix);
  AccumulatorTime* acc = nullptr;
  for (int i = 0; i < event.accesses->count; ++i)
    if (const MemoryRange& range = (*event.accesses)[i]; range.space >= Space::kAccMm)
      acc = &accumulators_[accumulator_of(range.space)];
  start.need(acc->done, Cause::kMatrix);
  await_cells(event, start, 1);
  const Cycle end = ports_.take_run(start.at, rows) + 1;
  drain_free_ = end;
  acc->drained[acc->next] = end;
  acc->next = (acc->next + 1) % acc->drained.size();
  acc->open = false;
  matrix_queue_.push(start.at);
  book_cells(event, start.at, end, Engine::kDrain);
  const Cycle busy = accounts_.run(Engine::kDrain, at, start.at, end, start.cause);
  report_.ops[static_cast<std::size_t>(event.instruction->op)].cycles += end - start.at;
  executed({&event, Engine::kDrain, region_, at, start.at, end, end}, busy);
}

void TimingSimulator::transfer(const IssueEvent& event, Earliest earliest) {
  const Op op = event.instruction->op;
  const bool store = op == Op::H_STORE_V;
  const std::size_t side = op == Op::H_PREFETCH_V ? 1 : 0;
  const Engine engine = store ? Engine::kStore : side == 1 ? Engine::kLoadVector : Engine::kLoadMatrix;
  UnitQueue& queue = store ? store_queue_ : load_queues_[side];
  Cycle& previous = store ? store_start_ : load_start_[side];
  await_data(event, earliest);
  earliest.need(transfers_.slot_free(engine), Cause::kTransfers);
  earliest.need(queue.admit(), Cause::kQueue);
  if (!store) earliest.need(transfers_.after_stores(*event.accesses), Cause::kMemory);
  const Cycle at = dispatch(earliest);
  Earliest start{at, Cause::kIssue};
  start.need(previous + 1, Cause::kIssue);
  const MemoryRange* target = nullptr;
  for (int i = 0; i < event.accesses->count; ++i)
    if ((*event.accesses)[i].space != Space::kHbm) target = &(*event.accesses)[i];
  await_cells(event, start, 0);
  start.need(transfers_.paced(start.at), Cause::kMemory);
  Cycle send = start.at;
  if (store) {
    send = ports_.take_run(start.at, target->rows) + 1;
    board_.for_cells(*target, [&](Cell& cell) { cell.read_until = std::max(cell.read_until, send - 1); });
  }
  previous = start.at;
  queue.push(start.at);
  const bool packed = loads_packed(event);
  transfers_.submit({engine, event.instruction->get(Field::kTag), region_, at, send, start.cause, packed},
                    *event.accesses, *target, board_);
  // A look-up and a multiplication by the scale per weight, for the energy.
  if (packed) region().lane_ops += 2.0 * static_cast<double>(target->total());
  report_.ops[static_cast<std::size_t>(op)].cycles += 1;
  if (!options_.asynchronous) {
    const Cycle done = transfers_.fence(0);
    if (done > head_) head_ = done, head_cause_ = Cause::kMemory, slots_ = 0;
  }
  collect_transfers();
  executed({&event, Engine::kFrontEnd, region_, at, at, at + 1, at + 1}, 0);
}

}  // namespace dllm::npu
