// Work shared with XLA's threads.

#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>

#include "xla/ffi/api/ffi.h"

namespace stopgrad {

// Hands out the numbers 0, 1, ... below a count, each once.
class Tasks {
 public:
  explicit Tasks(int64_t count) : count_(count) {}

  // The next number, or a negative one when there are no more.
  int64_t next() {
    int64_t mine = next_.fetch_add(1, std::memory_order_relaxed);
    return mine < count_ ? mine : -1;
  }

 private:
  const int64_t count_;
  std::atomic<int64_t> next_{0};
};

template <typename Work>
bool done(const Work& work, Tasks& tasks) {
  try {
    work(tasks);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

constexpr int SPINS = 4096;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Calls work(tasks) here and in the pool's other threads; returns when all tasks are done. Throws std::bad_alloc
// if one of them did; nothing else may be thrown.
//
// The caller takes part, and waits only for threads that have begun: a handler may itself run in a thread of
// this pool, and others may be waiting as well. A thread that comes too late does nothing.
template <typename Work>
void in_parallel(xla::ffi::ThreadPool& pool, int64_t count, int64_t threads, const Work& work) {
  Tasks tasks(count);
  threads = std::min(std::min(threads, count), std::max<int64_t>(pool.num_threads(), 1));
  if (threads <= 1) {
    work(tasks);
    return;
  }
  struct Door {
    std::mutex lock;
    std::condition_variable left;
    std::atomic<int64_t> inside{0};
    bool closed = false;
    std::atomic<bool> failed{false};
  };
  auto door = std::make_shared<Door>();
  for (int64_t i = 1; i < threads; ++i) {
    pool.Schedule([door, &tasks, &work] {
      {
        std::lock_guard<std::mutex> held(door->lock);
        if (door->closed) return;
        ++door->inside;
      }
      bool failed = !done(work, tasks);
      std::lock_guard<std::mutex> held(door->lock);
      if (failed) door->failed = true;
      if (--door->inside == 0) door->left.notify_all();
    });
  }
  bool failed = !done(work, tasks);
  {
    std::lock_guard<std::mutex> held(door->lock);
    door->closed = true;
  }
  // The last tasks end soon: sleeping and waking takes longer than most of them.
  for (int turns = 0; door->inside != 0 && turns < SPINS; ++turns) pause();
  if (door->inside != 0) {
    std::unique_lock<std::mutex> held(door->lock);
    door->left.wait(held, [&] { return door->inside == 0; });
  }
  if (failed || door->failed) throw std::bad_alloc();
}

// The result of a handler: an error if memory ran out.
template <typename Work>
xla::ffi::Error answer(const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    return xla::ffi::Error(xla::ffi::ErrorCode::kResourceExhausted, "no memory for a kernel");
  }
  return xla::ffi::Error::Success();
}

}  // namespace stopgrad
