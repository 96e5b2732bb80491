// Many arrays to one and one to many: stacks of layers' parameters, and the parts of a stacked gradient.

#include <algorithm>
#include <cstring>
#include <vector>

#include "threads.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace stopgrad {
namespace {

struct Piece {
  char* to;
  const char* from;
  size_t bytes;
};

// Less is copied by one thread.
constexpr size_t TASK_BYTES = size_t(1) << 18;

// The bytes of all arguments, one after the other, become those of all results.
ffi::Error regroup(ffi::ThreadPool pool, ffi::RemainingArgs arguments, ffi::RemainingRets results) {
  size_t taken = 0, given = 0;
  for (size_t i = 0; i < arguments.size(); ++i) taken += arguments.get<ffi::AnyBuffer>(i)->size_bytes();
  for (size_t k = 0; k < results.size(); ++k) given += (*results.get<ffi::AnyBuffer>(k))->size_bytes();
  if (taken != given) return ffi::Error(ffi::ErrorCode::kInvalidArgument, "regroup: other sizes");
  return answer([&] {
    std::vector<Piece> pieces;
    pieces.reserve(arguments.size() + results.size());
    const char* from = nullptr;
    size_t left = 0, next = 0;
    for (size_t k = 0; k < results.size(); ++k) {
      auto result = *results.get<ffi::AnyBuffer>(k);
      char* to = static_cast<char*>(result->untyped_data());
      for (size_t open = result->size_bytes(); open > 0;) {
        while (left == 0) {
          auto argument = *arguments.get<ffi::AnyBuffer>(next++);
          from = static_cast<const char*>(argument.untyped_data());
          left = argument.size_bytes();
        }
        const size_t bytes = std::min(open, left);
        pieces.push_back({to, from, bytes});
        to += bytes, from += bytes, left -= bytes, open -= bytes;
      }
    }
    const int64_t count = int64_t(pieces.size());
    const int64_t tasks = std::min(count, int64_t(given / TASK_BYTES) + 1);
    in_parallel(pool, tasks, pool.num_threads(), [&](Tasks& open) {
      for (int64_t mine = open.next(); mine >= 0; mine = open.next())
        for (int64_t p = mine * count / tasks; p < (mine + 1) * count / tasks; ++p)
          std::memcpy(pieces[p].to, pieces[p].from, pieces[p].bytes);
    });
  });
}

}  // namespace
}  // namespace stopgrad

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    stopgrad_regroup, stopgrad::regroup,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().RemainingArgs().RemainingRets());
