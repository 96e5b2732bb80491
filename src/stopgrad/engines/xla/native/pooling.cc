// Gradients of maxima and means over windows of float32 arrays [batch, 3 spatial axes, channels].
//
// A task fills some rows of one image, from all windows that reach into them, in order: so sums do not depend
// on how the rows are divided.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "threads.h"
#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using stopgrad::in_parallel;
using stopgrad::Tasks;

using Three = std::array<int64_t, 3>;

struct Geometry {
  int64_t batch, channels;
  Three x, y, window, strides, dilations, low;

  // The first tap, and one past the last, of a window along an axis that are on elements from `begin` to `end`.
  std::pair<int64_t, int64_t> taps(int d, int64_t place, int64_t begin, int64_t end) const {
    const int64_t start = place * strides[d] - low[d], step = dilations[d];
    const int64_t first = start >= begin ? 0 : (begin - start + step - 1) / step;
    const int64_t last = start >= end ? 0 : std::min(window[d], (end - start + step - 1) / step);
    return {first, std::max(first, last)};
  }
};

constexpr int64_t kChannels = 64;       // that are treated at a time
constexpr int64_t kNumbers = 1 << 14;  // of a task, about

// The positions of the maxima of one window, for some channels.
struct Choice {
  float largest[kChannels];
  int32_t tap[kChannels];

  void begin(int32_t first, int64_t count) {
    for (int64_t c = 0; c < count; ++c) {
      largest[c] = -std::numeric_limits<float>::infinity();
      tap[c] = first;
    }
  }
  void see(int32_t number, const float* x, int64_t count) {
    for (int64_t c = 0; c < count; ++c) {
      // A NaN is taken, and stays the largest.
      const bool taken = x[c] > largest[c] || x[c] != x[c];
      largest[c] = taken ? x[c] : largest[c];
      tap[c] = taken ? number : tap[c];
    }
  }
  void end(int64_t count) {
    for (int64_t c = 0; c < count; ++c) tap[c] = largest[c] == largest[c] ? tap[c] : -1;
  }
  void give(int32_t number, const float* g, float* dx, int64_t count) const {
    for (int64_t c = 0; c < count; ++c) dx[c] += tap[c] == number ? g[c] : 0;
  }
};

// Adds a window's cotangent to the first of its largest elements.
struct Largest {
  const float* x;

  template <typename Visit>
  void operator()(const Visit& all, const Visit& own, const float* g, int64_t channel, int64_t count, float* dx) const {
    Choice choice;
    bool first = true;
    all([&](int32_t number, int64_t place) {
      if (first) choice.begin(number, count);
      first = false;
      choice.see(number, x + place + channel, count);
    });
    if (first) return;
    choice.end(count);
    own([&](int32_t number, int64_t place) { choice.give(number, g, dx + place + channel, count); });
  }
};

// Adds a window's cotangent to its elements, in equal parts.
struct Mean {
  template <typename Visit>
  void operator()(const Visit& all, const Visit& own, const float* g, int64_t channel, int64_t count, float* dx) const {
    float share[kChannels], number = float(all.size());
    for (int64_t c = 0; c < count; ++c) share[c] = g[c] / number;
    own([&](int32_t, int64_t place) {
      float* to = dx + place + channel;
      for (int64_t c = 0; c < count; ++c) to[c] += share[c];
    });
  }
};

// Some taps of a window.
struct Visit {
  const Geometry& g;
  int64_t image;
  Three place;
  std::array<std::pair<int64_t, int64_t>, 3> taps;

  int64_t size() const {
    int64_t n = 1;
    for (auto [first, last] : taps) n *= last - first;
    return n;
  }

  template <typename Function>
  void operator()(const Function& function) const {
    for (int64_t t0 = taps[0].first; t0 < taps[0].second; ++t0) {
      const int64_t i0 = image * g.x[0] + place[0] * g.strides[0] - g.low[0] + t0 * g.dilations[0];
      for (int64_t t1 = taps[1].first; t1 < taps[1].second; ++t1) {
        const int64_t i1 = i0 * g.x[1] + place[1] * g.strides[1] - g.low[1] + t1 * g.dilations[1];
        for (int64_t t2 = taps[2].first; t2 < taps[2].second; ++t2) {
          const int64_t i2 = i1 * g.x[2] + place[2] * g.strides[2] - g.low[2] + t2 * g.dilations[2];
          function(int32_t((t0 * g.window[1] + t1) * g.window[2] + t2), i2 * g.channels);
        }
      }
    }
  }
};

// Fills rows begin to end of an image.
template <typename Give>
void fill(const Geometry& g, int64_t image, int64_t begin, int64_t end, const float* dy, const Give& give,
          const float* gate, float* dx) {
  const int64_t row = g.x[2] * g.channels;
  for (int64_t i0 = 0; i0 < g.x[0]; ++i0) {
    float* to = dx + ((image * g.x[0] + i0) * g.x[1] + begin) * row;
    std::fill(to, to + (end - begin) * row, 0.0f);
  }
  const int64_t span = (g.window[1] - 1) * g.dilations[1];
  const int64_t first = std::max<int64_t>(0, (begin + g.low[1] - span + g.strides[1] - 1) / g.strides[1]);
  const int64_t last = std::min(g.y[1], (end + g.low[1] + g.strides[1] - 1) / g.strides[1]);
  Three j;
  for (j[0] = 0; j[0] < g.y[0]; ++j[0])
    for (j[1] = first; j[1] < last; ++j[1])
      for (j[2] = 0; j[2] < g.y[2]; ++j[2]) {
        const auto depth = g.taps(0, j[0], 0, g.x[0]), column = g.taps(2, j[2], 0, g.x[2]);
        const Visit all{g, image, j, {depth, g.taps(1, j[1], 0, g.x[1]), column}};
        const Visit own{g, image, j, {depth, g.taps(1, j[1], begin, end), column}};
        const float* from = dy + (((image * g.y[0] + j[0]) * g.y[1] + j[1]) * g.y[2] + j[2]) * g.channels;
        for (int64_t c = 0; c < g.channels; c += kChannels)
          give(all, own, from + c, c, std::min(kChannels, g.channels - c), dx);
      }
  for (int64_t i0 = 0; gate && i0 < g.x[0]; ++i0) {
    const int64_t at = ((image * g.x[0] + i0) * g.x[1] + begin) * row;
    for (int64_t i = at; i < at + (end - begin) * row; ++i) dx[i] = gate[i] > 0 ? dx[i] : 0;
  }
}

template <typename Give>
void pool_gradient(ffi::ThreadPool& pool, const Geometry& g, const float* dy, const Give& give, const float* gate,
                   float* dx) {
  const int64_t row = g.x[0] * g.x[2] * g.channels, span = (g.window[1] - 1) * g.dilations[1] + 1;
  // If windows overlap, those at the edge of a task's rows are visited twice, so edges should be few.
  int64_t rows = std::max<int64_t>(kNumbers / row, span > g.strides[1] ? 4 * span : 1);
  rows = std::min((rows + g.strides[1] - 1) / g.strides[1] * g.strides[1], g.x[1]);
  const int64_t pieces = (g.x[1] + rows - 1) / rows;
  const int64_t threads = g.batch * g.x[1] * row < (1 << 14) ? 1 : pool.num_threads();
  in_parallel(pool, g.batch * pieces, threads, [&](Tasks& tasks) {
    for (int64_t n; (n = tasks.next()) >= 0;) {
      const int64_t begin = n % pieces * rows;
      fill(g, n / pieces, begin, std::min(begin + rows, g.x[1]), dy, give, gate, dx);
    }
  });
}

// ------------------------------------------------------------------------------------------------- handlers

using F32 = ffi::Buffer<ffi::F32, 5>;
using Sizes = ffi::Span<const int64_t>;

Three three(Sizes sizes, size_t first) { return {sizes[first], sizes[first + 1], sizes[first + 2]}; }

Geometry geometry(Sizes x, Sizes y, Sizes window, Sizes strides, Sizes dilations, Sizes low) {
  return {x[0],           x[4],          three(x, 1), three(y, 1), three(window, 0), three(strides, 0),
          three(dilations, 0), three(low, 0)};
}

// The gate is of x's shape, or has no elements: where it is not above 0, the gradient is 0.
ffi::Error MaxPoolGradient(ffi::ThreadPool pool, F32 x, F32 dy, ffi::Buffer<ffi::F32> gate, ffi::Result<F32> dx,
                           Sizes window, Sizes strides, Sizes dilations, Sizes low) {
  pool_gradient(pool, geometry(x.dimensions(), dy.dimensions(), window, strides, dilations, low), dy.typed_data(),
                Largest{x.typed_data()}, gate.element_count() ? gate.typed_data() : nullptr, dx->typed_data());
  return ffi::Error::Success();
}

ffi::Error AvgPoolGradient(ffi::ThreadPool pool, F32 dy, ffi::Buffer<ffi::F32> gate, ffi::Result<F32> dx, Sizes window,
                           Sizes strides, Sizes dilations, Sizes low) {
  pool_gradient(pool, geometry(dx->dimensions(), dy.dimensions(), window, strides, dilations, low), dy.typed_data(),
                Mean{}, gate.element_count() ? gate.typed_data() : nullptr, dx->typed_data());
  return ffi::Error::Success();
}

#define REST                                                                                              \
  Arg<ffi::Buffer<ffi::F32>>().Ret<F32>().Attr<Sizes>("window").Attr<Sizes>("strides").Attr<Sizes>("dilations") \
      .Attr<Sizes>("low")

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(stopgrad_max_pool_gradient, MaxPoolGradient,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<F32>().Arg<F32>().REST);
XLA_FFI_DEFINE_HANDLER_SYMBOL(stopgrad_avg_pool_gradient, AvgPoolGradient,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<F32>().REST);
