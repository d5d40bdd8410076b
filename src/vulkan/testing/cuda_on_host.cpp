#include "vulkan/testing/cuda_on_host.h"

#include <ucontext.h>

#include <cstdlib>
#include <memory>
#include <vector>

namespace dllm::vulkan::host_cuda {
namespace {

constexpr std::size_t kStack = std::size_t{64} << 10;

/// A meeting of some threads: the last one that comes lets all go on.
struct Meeting {
  std::uint32_t members = 0, present = 0, round = 0;
};

struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool ended = false;
};

struct Block {
  Place place;
  std::vector<Thread> threads;
  std::size_t current = 0;
  ucontext_t scheduler;
  Meeting all;
  std::vector<Meeting> warps;
  std::vector<std::vector<unsigned char>> exchanged;  ///< by warp
  void (*kernel)(const void*) = nullptr;
  const void* push = nullptr;
};
Block* running = nullptr;

void yield() { swapcontext(&running->threads[running->current].context, &running->scheduler); }

void meet(Meeting& meeting) {
  const std::uint32_t round = meeting.round;
  if (++meeting.present == meeting.members) {
    meeting.present = 0;
    ++meeting.round;
    return;
  }
  while (meeting.round == round) yield();
}

/// A thread that ends is no longer waited for.
void leave(Meeting& meeting) {
  --meeting.members;
  if (meeting.members > 0 && meeting.present == meeting.members) {
    meeting.present = 0;
    ++meeting.round;
  }
}

void body() {
  running->kernel(running->push);
  Thread& self = running->threads[running->current];
  self.ended = true;
  leave(running->all);
  leave(running->warps[running->current / 32]);
  yield();
  std::abort();
}

void run_block(Block& block) {
  const std::size_t count = block.place.block_size.x;
  block.threads.resize(count);
  block.all = {static_cast<std::uint32_t>(count)};
  block.warps.assign((count + 31) / 32, {});
  block.exchanged.resize(block.warps.size());
  for (std::size_t i = 0; i < count; ++i) {
    Thread& thread = block.threads[i];
    ++block.warps[i / 32].members;
    thread.ended = false;
    if (!thread.stack) thread.stack = std::make_unique<char[]>(kStack);
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = kStack;
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, body, 0);
  }
  for (std::size_t left = count; left > 0;) {
    left = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (block.threads[i].ended) continue;
      block.current = i;
      block.place.thread.x = static_cast<std::uint32_t>(i);
      swapcontext(&block.scheduler, &block.threads[i].context);
      left += block.threads[i].ended ? 0 : 1;
    }
  }
}

}  // namespace

const Place& place() { return running->place; }
void sync_block() { meet(running->all); }
void sync_warp() { meet(running->warps[running->current / 32]); }

void exchange(const void* mine, void* all, std::size_t bytes) {
  const std::size_t warp = running->current / 32, lane = running->current % 32;
  std::vector<unsigned char>& room = running->exchanged[warp];
  if (room.size() < 32 * bytes) room.resize(32 * bytes);
  std::memcpy(room.data() + lane * bytes, mine, bytes);
  sync_warp();
  std::memcpy(all, room.data(), 32 * bytes);
  sync_warp();
}

void run(void (*kernel)(const void*), const void* push, std::uint32_t threads, Index grid) {
  Block block;
  block.kernel = kernel;
  block.push = push;
  block.place.block_size = {threads, 1, 1};
  block.place.grid = grid;
  running = &block;
  for (std::uint32_t y = 0; y < grid.y; ++y)
    for (std::uint32_t x = 0; x < grid.x; ++x) {
      block.place.block = {x, y, 0};
      run_block(block);
    }
  running = nullptr;
}

}  // namespace dllm::vulkan::host_cuda
