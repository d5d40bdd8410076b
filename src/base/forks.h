#pragma once

#include <cstdint>
#include <memory>
#include <thread>

namespace dllm {

/// How many forks lie between the process that loaded this code and this one: a changed count means that this is a
/// child process. Of the parent's threads it has one, so its locks may be held and its pools awaited for ever. Cheap.
std::uint32_t fork_count();

/// The thread of the parent that made this process, and lives on in it under the same id; meaningless before a fork.
std::thread::id fork_survivor();

/// While one lives, forks of other threads wait: a child process finds no lock held, and no static variable half made,
/// by a thread that it does not have. For sections of some milliseconds that wait for no other thread and call no
/// callback: the thread that forks may hold what such a call needs, as Python's lock.
class Unforked {
 public:
  Unforked();
  ~Unforked();
  Unforked(const Unforked&) = delete;
  Unforked& operator=(const Unforked&) = delete;
};

/// Deletes in the process that made the object only. Threads, and condition variables on which threads wait, cannot be
/// destroyed after a fork: they are left, as memory that the child does not use.
template <class T>
struct DeleteUnlessForked {
  std::uint32_t forks = fork_count();
  void operator()(T* object) const {
    if (forks == fork_count()) delete object;
  }
};

/// An object with threads or locks, which is made anew in a child process: see is_stale().
template <class T>
using OfThisProcess = std::unique_ptr<T, DeleteUnlessForked<T>>;

template <class T>
bool is_stale(const OfThisProcess<T>& object) {
  return object.get_deleter().forks != fork_count();
}

}  // namespace dllm
