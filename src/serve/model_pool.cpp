#include "serve/model_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/human_bytes.h"
#include "dllm/scheduler.h"

namespace dllm::serve {
namespace {

/// Between two looks at who has gone and whose time is over.
constexpr std::chrono::milliseconds kLook{100};

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

ModelPool::ModelPool(Limits limits, Work work)
    : limits_(limits), work_(std::move(work)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

ModelPool::~ModelPool() {
  stop();
  // Their last requests end with them, and release their leases, so the lock is not held meanwhile.
  std::vector<std::unique_ptr<PooledModel>> models;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [name, slot] : slots_) models.push_back(std::move(slot.model));
  }
  models.clear();
}

void ModelPool::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  std::vector<std::string> names;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (const auto& [name, slot] : slots_) names.push_back(name);
  }
  for (const std::string& name : names) fail(name, {ErrorCode::kCancelled, "the server is shutting down", "", ""});
}

ModelPool::Lease ModelPool::lease(Slot& slot, bool use) {
  ++(use ? slot.busy : slot.seen);
  if (use) slot.used = Clock::now();
  return {slot.model.get(),
          std::shared_ptr<void>(&slot, [this, use](void* of) { release(*static_cast<Slot*>(of), use); })};
}

void ModelPool::release(Slot& slot, bool use) {
  const std::lock_guard lock(mutex_);
  if (use) slot.used = Clock::now();
  if (--(use ? slot.busy : slot.seen) > 0) return;
  changed_ = true;
  wake_.notify_one();
}

void ModelPool::acquire(const ModelEntry& entry, std::optional<double> keep_seconds, Waiter waiter) {
  std::unique_lock lock(mutex_);
  if (stopped_) {
    lock.unlock();
    return waiter.then(Error{ErrorCode::kCancelled, "the server is shutting down", "", ""});
  }
  Slot& slot = slots_.try_emplace(entry.name, Slot{.entry = entry}).first->second;
  if (keep_seconds) slot.keep_seconds = keep_seconds;
  if (slot.state == State::kLoaded && !slot.leaving) {
    Lease taken = lease(slot, /*use=*/true);
    lock.unlock();
    return waiter.then(std::move(taken));
  }
  if (slot.waiting.size() >= limits_.waiting) {
    lock.unlock();
    return waiter.then(Error{ErrorCode::kResource,
                             fmt::format("{} requests wait for this model already", limits_.waiting),
                             std::string(kQueueFull), ""});
  }
  slot.waiting.push_back(std::make_shared<Waiting>(Waiting{std::move(waiter)}));
  changed_ = true;
  wake_.notify_one();
}

void ModelPool::add(const ModelEntry& entry, std::unique_ptr<PooledModel> model) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_.try_emplace(entry.name, Slot{.entry = entry}).first->second;
  slot.model = std::move(model);
  slot.state = State::kLoaded;
  slot.used = Clock::now();
}

bool ModelPool::unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = slots_.find(name);
  if (found == slots_.end() || found->second.state != State::kLoaded) return false;
  found->second.leaving = true;
  changed_ = true;
  wake_.notify_one();
  return true;
}

std::vector<ModelPool::Status> ModelPool::states() {
  std::vector<Status> all;
  const std::lock_guard lock(mutex_);
  for (auto& [name, slot] : slots_) {
    if (slot.state == State::kAbsent) continue;
    Status& one =
        all.emplace_back(Status{.entry = slot.entry, .state = slot.state, .seconds_left = seconds_left(slot)});
    if (slot.state == State::kLoaded) one.lease = lease(slot, /*use=*/false);
  }
  return all;
}

/// Until an unused model goes; of a used one, if it were free now.
std::optional<double> ModelPool::seconds_left(const Slot& slot) const {
  const std::optional<double> keep = slot.keep_seconds ? slot.keep_seconds : limits_.idle_seconds;
  if (!keep || *keep < 0) return std::nullopt;
  return *keep - (slot.busy > 0 ? 0 : seconds_between(slot.used, Clock::now()));
}

void ModelPool::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    sweep();
    if (unload_due() || load_next(stop)) continue;
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, stop, kLook, [this] { return changed_; });
    changed_ = false;
  }
}

/// Forgets those who do not wait any more.
void ModelPool::sweep() {
  std::vector<std::pair<std::string, std::shared_ptr<Waiting>>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, slot] : slots_)
      for (const auto& one : slot.waiting) all.emplace_back(name, one);
  }
  std::erase_if(all, [](const auto& one) { return !one.second->waiter.over(); });
  const std::lock_guard lock(mutex_);
  for (const auto& [name, gone] : all) {
    const auto found = slots_.find(name);
    std::erase(found->second.waiting, gone);
    if (found->second.state == State::kAbsent && found->second.waiting.empty()) slots_.erase(found);
  }
}

/// Unloads one model whose time is over. False: there is none.
bool ModelPool::unload_due() {
  std::string name;
  {
    const std::lock_guard lock(mutex_);
    const auto due = std::ranges::find_if(slots_, [this](const auto& one) {
      if (!is_idle(one.second)) return false;
      const auto left = seconds_left(one.second);
      return one.second.leaving || (left && *left <= 0);
    });
    if (due == slots_.end()) return false;
    due->second.state = State::kUnloading;
    name = due->first;
  }
  drop(name);
  return true;
}

/// Destroys a model that is kUnloading.
void ModelPool::drop(const std::string& name) {
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  std::unique_ptr<PooledModel> model = std::move(slots_.at(name).model);
  lock.unlock();
  model.reset();
  if (work_.log) work_.log("unloaded", name, seconds_between(start, Clock::now()));
  lock.lock();
  Slot& slot = slots_.at(name);
  slot.state = State::kAbsent;
  slot.leaving = false;
  slot.keep_seconds.reset();
  if (slot.waiting.empty()) slots_.erase(name);
}

/// The model for which someone has waited longest, and since when.
std::optional<ModelEntry> ModelPool::next_entry(Clock::time_point& since) {
  const std::lock_guard lock(mutex_);
  const Slot* next = nullptr;
  for (const auto& [name, slot] : slots_) {
    if (slot.state != State::kAbsent || slot.waiting.empty()) continue;
    if (next == nullptr || slot.waiting.front()->since < next->waiting.front()->since) next = &slot;
  }
  if (next == nullptr) return std::nullopt;
  since = next->waiting.front()->since;
  return next->entry;
}

/// False: nothing is to be loaded, or there is no room yet.
bool ModelPool::load_next(const std::stop_token& stop) {
  Clock::time_point since;
  const auto entry = next_entry(since);
  if (!entry) return false;
  const Room room = make_room(*entry, seconds_between(since, Clock::now()) < limits_.patience_seconds);
  if (room == Room::kWait) return false;
  if (room == Room::kNever) {
    const auto needed = static_cast<double>(work_.memory_needed(*entry));
    const auto free = static_cast<double>(work_.free_memory().value_or(0));
    fail(
        entry->name,
        {ErrorCode::kResource,
         fmt::format("the model needs {} of memory, and {} are free", human_bytes(needed), human_bytes(free)), "", ""});
    return true;
  }
  {
    const std::lock_guard lock(mutex_);
    slots_.at(entry->name).state = State::kLoading;
  }
  const Clock::time_point start = Clock::now();
  Clock::time_point next_look = start + kLook;
  const auto go_on = [&] {
    if (stop.stop_requested()) return false;
    if (Clock::now() < next_look) return true;
    next_look = Clock::now() + kLook;
    sweep();
    const std::lock_guard lock(mutex_);
    return !slots_.at(entry->name).waiting.empty();
  };
  auto model = work_.load(*entry, go_on);
  finish_load(*entry, std::move(model), seconds_between(start, Clock::now()));
  return true;
}

void ModelPool::finish_load(const ModelEntry& entry, Expected<std::unique_ptr<PooledModel>> model, double seconds) {
  if (work_.log) work_.log(model ? "loaded" : "failed", entry.name, seconds);
  if (!model) return fail(entry.name, model.error());
  std::vector<std::pair<std::shared_ptr<Waiting>, Lease>> served;
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_.at(entry.name);
    slot.model = *std::move(model);
    slot.state = State::kLoaded;
    slot.used = Clock::now();
    for (auto& one : std::exchange(slot.waiting, {})) served.emplace_back(std::move(one), lease(slot, /*use=*/true));
  }
  for (auto& [one, taken] : served) one->waiter.then(std::move(taken));
}

/// Answers all who wait for a model that is not loaded.
void ModelPool::fail(const std::string& name, const Error& error) {
  std::deque<std::shared_ptr<Waiting>> waiting;
  {
    const std::lock_guard lock(mutex_);
    const auto found = slots_.find(name);
    if (found == slots_.end()) return;
    waiting = std::exchange(found->second.waiting, {});
    if (found->second.state == State::kLoading) found->second.state = State::kAbsent;
    if (found->second.state == State::kAbsent) slots_.erase(found);
  }
  for (const auto& one : waiting)
    if (!one->waiter.over()) one->waiter.then(error);
}

ModelPool::Slot* ModelPool::least_recent(bool idle) {
  Slot* oldest = nullptr;
  for (auto& [name, slot] : slots_) {
    if (slot.state != State::kLoaded || (idle && !is_idle(slot))) continue;
    if (oldest == nullptr || slot.used < oldest->used) oldest = &slot;
  }
  return oldest;
}

/// Unloads idle models until there is room for this one. If it could not fit even without all others, none is.
ModelPool::Room ModelPool::make_room(const ModelEntry& entry, bool patient) {
  for (;;) {
    const std::int64_t needed = work_.memory_needed(entry);
    const std::optional<std::int64_t> free = work_.free_memory();
    std::string name;
    {
      const std::lock_guard lock(mutex_);
      std::int32_t loaded = 0;
      std::int64_t held = 0;
      for (const auto& [other, slot] : slots_) {
        if (slot.state != State::kLoaded) continue;
        ++loaded;
        held += work_.memory_needed(slot.entry);
      }
      if (free && needed > *free + held) return Room::kNever;
      const bool full = limits_.models > 0 && loaded >= limits_.models;
      if (!full && (!free || needed <= *free)) return Room::kReady;
      Slot* victim = least_recent(/*idle=*/true);
      if (victim == nullptr) {
        // Whoever uses it ends first, and those who come now wait behind the one that waits for room.
        if (Slot* busy = least_recent(/*idle=*/false); busy != nullptr && !patient) busy->leaving = true;
        return Room::kWait;
      }
      victim->state = State::kUnloading;
      name = victim->entry.name;
    }
    drop(name);
  }
}

}  // namespace dllm::serve
