// Convolution of float32 arrays [batch, 3 spatial axes, channels], and its two gradients, as products of tiles.
//
// A block of windows is copied into rows of consecutive numbers, with zeros for padding; the filters are copied
// into panels of a few vectors. A tile of the product stays in registers during the pass over the rows. The
// order of additions depends on sizes only, so results do not depend on the number of threads.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "threads.h"
#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using stopgrad::in_parallel;
using stopgrad::Tasks;

#if defined(__AVX512F__)
constexpr int kLanes = 16, kVectors = 4;
constexpr int kHeights[] = {0, 14, 14, 9, 6};
#elif defined(__AVX__)
constexpr int kLanes = 8, kVectors = 2;
constexpr int kHeights[] = {0, 12, 6};
#else
constexpr int kLanes = 4, kVectors = 4;
constexpr int kHeights[] = {0, 14, 14, 9, 6};
#endif
// The rows of a tile of a filter's gradient. Tiles of a convolution's results have kHeights rows, by the number
// of vectors.
constexpr int kRows = 6;
constexpr int kTallest = 14;
// The products that are added up at once, unless lines are longer: sums of such sums are more exact.
constexpr int64_t kDepth = 320;
constexpr int64_t kWidest = int64_t{kVectors} * kLanes;

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
typedef float Loose __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

struct Free {
  void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
using Numbers = std::unique_ptr<float[], Free>;

Numbers numbers(int64_t count) {
  return Numbers(new (std::align_val_t{64}) float[static_cast<size_t>(std::max<int64_t>(count, 1))]);
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

using Three = std::array<int64_t, 3>;

int64_t product(const Three& a) { return a[0] * a[1] * a[2]; }

// A tap of a window along one axis: its number in the filter, and its offset from the window's position.
struct Tap {
  int64_t index, offset;
};

// Windows on a grid in a source, and for each its position in the target.
struct Grid {
  Three counts;               // windows along each axis
  Three step;                 // from window to window in the source
  Three start, stride;        // the first window's position in the target, and the distance between positions
  std::vector<Tap> taps[3];   // by ascending offsets

  int64_t windows() const { return product(counts); }
};

// The sizes of a convolution: the spatial sizes of the input x, the result y, and the filters.
struct Geometry {
  int64_t batch, channels, features;
  Three x, y, window, strides, dilations, low;
};

Grid forward_grid(const Geometry& g) {
  Grid grid{g.y, g.strides, {0, 0, 0}, {1, 1, 1}, {}};
  for (int d = 0; d < 3; ++d)
    for (int64_t t = 0; t < g.window[d]; ++t) grid.taps[d].push_back({t, t * g.dilations[d] - g.low[d]});
  return grid;
}

// Elements of the gradient with equal offsets from the strides see the same taps: one grid for each offset.
std::vector<Grid> backward_grids(const Geometry& g) {
  std::vector<Grid> grids;
  Three r;
  for (r[0] = 0; r[0] < std::min(g.strides[0], g.x[0]); ++r[0])
    for (r[1] = 0; r[1] < std::min(g.strides[1], g.x[1]); ++r[1])
      for (r[2] = 0; r[2] < std::min(g.strides[2], g.x[2]); ++r[2]) {
        Grid grid{{}, {1, 1, 1}, r, g.strides, {}};
        for (int d = 0; d < 3; ++d) {
          grid.counts[d] = ceil_div(g.x[d] - r[d], g.strides[d]);
          for (int64_t t = g.window[d] - 1; t >= 0; --t) {
            int64_t place = r[d] + g.low[d] - t * g.dilations[d];
            if (place % g.strides[d] == 0) grid.taps[d].push_back({t, place / g.strides[d]});
          }
        }
        grids.push_back(std::move(grid));
      }
  return grids;
}

inline void copy(float* to, const float* from, int64_t count) {
  if (count >= kLanes) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) *(Loose*)(to + i) = *(const Loose*)(from + i);
    // The rest by one vector that overlaps the last one.
    if (i < count) *(Loose*)(to + count - kLanes) = *(const Loose*)(from + count - kLanes);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  }
}

inline void clear(float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = 0;
}

// A slab: the part of the source that some windows see, copied with its padding.
//
// A window then is lines of consecutive numbers, which windows beside it share. Slabs hold some rows of windows of
// one plane (the last two axes), or the whole planes of several; all but the last are alike.
class Slabs {
 public:
  Slabs(const Grid& grid, int64_t batch, const float* source, const Three& sizes, int64_t channels)
      : grid_(grid), source_(source), sizes_(sizes), channels_(channels), all_(batch * grid.counts[0]) {
    const int64_t taps0 = int64_t(grid.taps[0].size()), taps2 = int64_t(grid.taps[2].size());
    // Taps that are neighbours make one line.
    const bool together = taps2 > 0 && span(2) == taps2 - 1 && taps2 * channels <= kDepth;
    line_ = (together ? taps2 : 1) * channels;
    // Neighbours are an odd number of cache lines apart, so that they do not contend for the same sets of a cache.
    pitch_ = together || channels < 64 ? channels : (ceil_div(channels, 16) | 1) * 16;
    width_ = (grid.counts[2] - 1) * grid.step[2] + span(2) + 1;
    rows_ = std::min<int64_t>(grid.counts[1], 1);
    while (rows_ < grid.counts[1] && (rows_ * grid.counts[2] < kFew || slab(rows_ + 1) <= kMuch)) ++rows_;
    rows_ = ceil_div(grid.counts[1], ceil_div(grid.counts[1], rows_));
    planes_ = 1;
    if (rows_ == grid.counts[1])
      while (planes_ < all_ && (planes_ * windows_of_plane() < kFew ||
                               (slab(rows_) * (planes_ + 1) <= kMuch && all_ / (planes_ + 1) >= kTasks)))
        ++planes_;
    for (int64_t plane = 0; plane < planes_; ++plane)
      for (int64_t j1 = 0; j1 < rows_; ++j1)
        for (int64_t j2 = 0; j2 < grid.counts[2]; ++j2)
          places_.push_back(((plane * taps0 * height(rows_) + j1 * grid.step[1]) * width_ + j2 * grid.step[2]) * pitch_);
    for (int64_t t0 = 0; t0 < taps0; ++t0)
      for (const Tap& t1 : grid.taps[1])
        for (const Tap& t2 : grid.taps[2]) {
          if (together && &t2 != &grid.taps[2].front()) continue;
          lines_.push_back(((t0 * height(rows_) + t1.offset - grid.taps[1].front().offset) * width_ + t2.offset -
                            grid.taps[2].front().offset) *
                           pitch_);
        }
  }

  int64_t size() const { return planes_ * slab(rows_) + kTallest; }  // Reads beyond a line stay inside.
  int64_t count() const { return ceil_div(all_, planes_) * ceil_div(grid_.counts[1], rows_); }
  int64_t windows() const { return int64_t(places_.size()); }
  const int64_t* places() const { return places_.data(); }
  // The offsets of a window's lines from its position, and the length of each.
  const std::vector<int64_t>& lines() const { return lines_; }
  int64_t line() const { return line_; }

  // Fills a slab; returns its first window and the number of its windows.
  std::pair<int64_t, int64_t> fill(int64_t number, float* to) const {
    const int64_t pieces = ceil_div(grid_.counts[1], rows_);
    const int64_t plane = number / pieces * planes_, row = number % pieces * rows_;
    const int64_t planes = std::min(planes_, all_ - plane), rows = std::min(rows_, grid_.counts[1] - row);
    for (int64_t i = plane; i < plane + planes && !lines_.empty(); ++i)
      for (const Tap& tap : grid_.taps[0]) {
        const int64_t depth = i % grid_.counts[0] * grid_.step[0] + tap.offset;
        const int64_t first = row * grid_.step[1] + grid_.taps[1].front().offset;
        for (int64_t j = 0; j < height(rows); ++j)
          fill_row(i / grid_.counts[0], depth, first + j, to + j * width_ * pitch_);
        to += height(rows_) * width_ * pitch_;
      }
    return {(plane * grid_.counts[1] + row) * grid_.counts[2], planes * rows * grid_.counts[2]};
  }

 private:
  static constexpr int64_t kFew = 56, kMuch = 1 << 14, kTasks = 16;

  int64_t span(int d) const {
    const std::vector<Tap>& taps = grid_.taps[d];
    return taps.empty() ? 0 : taps.back().offset - taps.front().offset;
  }
  int64_t height(int64_t rows) const { return (rows - 1) * grid_.step[1] + span(1) + 1; }
  int64_t slab(int64_t rows) const { return int64_t(grid_.taps[0].size()) * height(rows) * width_ * pitch_; }
  int64_t windows_of_plane() const { return grid_.counts[1] * grid_.counts[2]; }

  void fill_row(int64_t image, int64_t i0, int64_t i1, float* to) const {
    if (i0 < 0 || i0 >= sizes_[0] || i1 < 0 || i1 >= sizes_[1]) {
      clear(to, width_ * pitch_);
      return;
    }
    const float* from = source_ + ((image * sizes_[0] + i0) * sizes_[1] + i1) * sizes_[2] * channels_;
    const int64_t begin = grid_.taps[2].front().offset, end = begin + width_;
    const int64_t low = std::min(std::max<int64_t>(begin, 0), end), high = std::max(std::min(end, sizes_[2]), low);
    clear(to, (low - begin) * pitch_);
    if (pitch_ == channels_) {
      copy(to + (low - begin) * pitch_, from + low * channels_, (high - low) * channels_);
    } else {
      for (int64_t i = low; i < high; ++i) copy(to + (i - begin) * pitch_, from + i * channels_, channels_);
    }
    clear(to + (high - begin) * pitch_, (end - high) * pitch_);
  }

  const Grid& grid_;
  const float* source_;
  const Three sizes_;
  const int64_t channels_, all_;
  int64_t line_, pitch_, width_, rows_, planes_;
  std::vector<int64_t> places_, lines_;
};

// Columns are processed in panels of kVectors vectors; the last panel has the rest.
struct Panels {
  int64_t columns;
  int64_t count() const { return ceil_div(columns, kWidest); }
  int64_t width() const { return round_up(columns, kLanes); }  // all columns, with the padding of the last vector
  int vectors(int64_t p) const { return int(std::min<int64_t>(kVectors, ceil_div(columns - p * kWidest, kLanes))); }
  int64_t used(int64_t p) const { return std::min(kWidest, columns - p * kWidest); }
};

// ------------------------------------------------------------------------------------------------- products

// out[kHeight, kColumns vectors] (+)= windows · panel; a window is `count` lines.
template <int kHeight, int kColumns>
void tile(const float* const* windows, const int64_t* lines, int64_t count, int64_t line, const float* panel, bool add,
          float* out, int64_t pitch) {
  Vector sum[kHeight][kColumns];
#pragma GCC unroll 16
  for (int r = 0; r < kHeight; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) sum[r][c] = Vector{};
  for (int64_t l = 0; l < count; ++l) {
    const float* row[kHeight];
#pragma GCC unroll 16
    for (int r = 0; r < kHeight; ++r) row[r] = windows[r] + lines[l];
    for (int64_t k = 0; k < line; ++k, panel += kColumns * kLanes) {
      Vector w[kColumns];
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) w[c] = *(const Vector*)(panel + c * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kHeight; ++r) {
        const float x = row[r][k];
#pragma GCC unroll 4
        for (int c = 0; c < kColumns; ++c) sum[r][c] += x * w[c];
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kHeight; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      Loose* place = (Loose*)(out + r * pitch + c * kLanes);
      *place = add ? *place + sum[r][c] : sum[r][c];
    }
}

using Tile = void (*)(const float* const*, const int64_t*, int64_t, int64_t, const float*, bool, float*, int64_t);

template <int... kColumns>
constexpr std::array<Tile, sizeof...(kColumns)> tiles_of(std::integer_sequence<int, kColumns...>) {
  return {&tile<kHeights[kColumns + 1], kColumns + 1>...};
}
constexpr auto kTiles = tiles_of(std::make_integer_sequence<int, kVectors>{});

// Where a window's result is written.
class Places {
 public:
  Places(const Grid& grid, const Three& sizes) : grid_(grid), sizes_(sizes) {
    together_ = true;
    for (int d = 0; d < 3; ++d) together_ &= grid.stride[d] == 1 && grid.counts[d] == sizes[d];
  }
  bool together() const { return together_; }

  int64_t operator()(int64_t window) const {
    if (together_) return window;
    const Grid& g = grid_;
    int64_t i2 = window % g.counts[2] * g.stride[2] + g.start[2];
    window /= g.counts[2];
    int64_t i1 = window % g.counts[1] * g.stride[1] + g.start[1];
    window /= g.counts[1];
    int64_t i0 = window % g.counts[0] * g.stride[0] + g.start[0];
    return ((window / g.counts[0] * sizes_[0] + i0) * sizes_[1] + i1) * sizes_[2] + i2;
  }

 private:
  const Grid& grid_;
  const Three sizes_;
  bool together_;
};

// What is done to a result before it is finally written.
struct Finish {
  const float* bias = nullptr;  // added to each column
  bool relu = false;            // replaced by 0 if it is less
  const float* gate = nullptr;  // of the target's shape: 0 where that is not above 0

  bool any() const { return bias || relu || gate; }

  void operator()(float* row, int64_t place, int64_t columns) const {
    if (bias)
      for (int64_t c = 0; c < columns; ++c) row[c] += bias[c];
    if (relu)
      for (int64_t c = 0; c < columns; ++c) row[c] = row[c] <= 0 ? 0 : row[c];  // NaN stays
    if (gate) {
      const float* own = gate + place * columns;
      for (int64_t c = 0; c < columns; ++c) row[c] = own[c] > 0 ? row[c] : 0;
    }
  }
};

// Windows of a source times filters, which `at` finds by tap, channel of the source, and column.
template <typename Filter>
void convolve(ffi::ThreadPool& pool, const Grid& grid, int64_t batch, const float* source, const Three& sizes,
              int64_t channels, const Filter& filter, float* target, const Three& target_sizes, int64_t columns,
              const Finish& finish) {
  const Panels panels{columns};
  const Slabs slabs(grid, batch, source, sizes, channels);
  const int64_t windows = batch * grid.windows(), line = slabs.line(), lines = int64_t(slabs.lines().size());
  const int64_t depth = lines * line, chunk = std::max<int64_t>(1, kDepth / std::max<int64_t>(line, 1));
  // Small ones stay in this thread, because waking another takes as long.
  const int64_t threads = windows * depth * panels.width() < (1 << 18) ? 1 : pool.num_threads();

  Numbers packed = numbers(depth * panels.width());
  in_parallel(pool, panels.count(), threads, [&](Tasks& tasks) {
    for (int64_t p; (p = tasks.next()) >= 0;) {
      float* to = packed.get() + p * kWidest * depth;
      const int64_t used = panels.used(p), width = int64_t{panels.vectors(p)} * kLanes;
      for (const Tap& t0 : grid.taps[0])
        for (const Tap& t1 : grid.taps[1])
          for (const Tap& t2 : grid.taps[2])
            for (int64_t c = 0; c < channels; ++c, to += width) {
              filter(t0.index, t1.index, t2.index, c, p * kWidest, used, to);
              clear(to + used, width - used);
            }
    }
  });

  const Places places(grid, target_sizes);
  // Results are written to the target directly if windows are adjacent there, else through a separate block.
  const bool straight = places.together() && columns % kLanes == 0;
  const int64_t pitch = straight ? columns : panels.width();
  in_parallel(pool, slabs.count(), threads, [&](Tasks& tasks) {
    Numbers slab = numbers(slabs.size()), aside = numbers((straight ? 0 : slabs.windows() * pitch) + kTallest * kWidest);
    float* last = aside.get() + (straight ? 0 : slabs.windows() * pitch);
    for (int64_t n; (n = tasks.next()) >= 0;) {
      const auto [first, count] = slabs.fill(n, slab.get());
      float* out = straight ? target + first * columns : aside.get();
      for (int64_t l = 0; l == 0 || l < lines; l += chunk)
        for (int64_t p = 0; p < panels.count(); ++p) {
          const int vectors = panels.vectors(p), height = kHeights[vectors];
          const float* panel = packed.get() + p * kWidest * depth + l * line * vectors * kLanes;
          for (int64_t r = 0; r < count; r += height) {
            const int64_t rest = std::min<int64_t>(count - r, height), size = int64_t{vectors} * kLanes;
            const float* seen[kTallest];
            for (int64_t i = 0; i < height; ++i) seen[i] = slab.get() + slabs.places()[r + std::min(i, rest - 1)];
            float* place = out + r * pitch + p * kWidest;
            // The last tile must not write past the end.
            const bool whole = rest == height;
            if (!whole && l > 0)
              for (int64_t i = 0; i < rest; ++i) copy(last + i * size, place + i * pitch, size);
            kTiles[vectors - 1](seen, slabs.lines().data() + l, std::min(chunk, lines - l), line, panel, l > 0,
                                whole ? place : last, whole ? pitch : size);
            if (!whole)
              for (int64_t i = 0; i < rest; ++i) copy(place + i * pitch, last + i * size, size);
          }
        }
      for (int64_t i = 0; i < count && (finish.any() || !straight); ++i) {
        const int64_t place = places(first + i);
        finish(out + i * pitch, place, columns);
        if (!straight) copy(target + place * columns, out + i * pitch, columns);
      }
    }
  });
}

// ------------------------------------------------------------------------------------ gradient of the filters

// out[kRows, kColumns vectors] += for each window, its numbers from `rows` on times its row of `panel`.
template <int kColumns>
void outer(const float* rows, const int64_t* places, const float* panel, int64_t count, float* out, int64_t pitch) {
  Vector sum[kRows][kColumns] = {};
  for (int64_t n = 0; n < count; ++n, panel += kColumns * kLanes) {
    const float* row = rows + places[n];
    Vector w[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) w[c] = *(const Vector*)(panel + c * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const float x = row[r];
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) sum[r][c] += x * w[c];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) *(Vector*)(out + r * pitch + c * kLanes) += sum[r][c];
}

using Outer = void (*)(const float*, const int64_t*, const float*, int64_t, float*, int64_t);

template <int... kColumns>
constexpr std::array<Outer, sizeof...(kColumns)> outers_of(std::integer_sequence<int, kColumns...>) {
  return {&outer<kColumns + 1>...};
}
constexpr auto kOuters = outers_of(std::make_integer_sequence<int, kVectors>{});

void filter_gradient(ffi::ThreadPool& pool, const Geometry& g, const float* x, const float* dy, float* target) {
  const Grid grid = forward_grid(g);
  const Panels panels{g.features};
  const Slabs slabs(grid, g.batch, x, g.x, g.channels);
  const int64_t width = panels.width(), line = slabs.line(), lines = int64_t(slabs.lines().size());
  const int64_t height = round_up(line, kRows), size = lines * height * width;
  const int64_t threads = g.batch * grid.windows() * lines * line * width < (1 << 18) ? 1 : pool.num_threads();
  // Each part of the slabs is added up separately.
  const int64_t parts = std::min<int64_t>(slabs.count(), 16);
  Numbers sums = numbers(parts * size);

  in_parallel(pool, parts, threads, [&](Tasks& tasks) {
    Numbers slab = numbers(slabs.size()), packed = numbers(slabs.windows() * kWidest);
    for (int64_t part; (part = tasks.next()) >= 0;) {
      float* sum = sums.get() + part * size;
      clear(sum, size);
      for (int64_t n = slabs.count() * part / parts; n < slabs.count() * (part + 1) / parts; ++n) {
        const auto [first, count] = slabs.fill(n, slab.get());
        for (int64_t p = 0; p < panels.count(); ++p) {
          const int vectors = panels.vectors(p);
          const int64_t used = panels.used(p), wide = int64_t{vectors} * kLanes;
          for (int64_t i = 0; i < count; ++i) {
            copy(packed.get() + i * wide, dy + (first + i) * g.features + p * kWidest, used);
            clear(packed.get() + i * wide + used, wide - used);
          }
          for (int64_t l = 0; l < lines; ++l)
            for (int64_t r = 0; r < line; r += kRows)
              kOuters[vectors - 1](slab.get() + slabs.lines()[size_t(l)] + r, slabs.places(), packed.get(), count,
                                   sum + (l * height + r) * width + p * kWidest, width);
        }
      }
    }
  });

  in_parallel(pool, lines, size < (1 << 16) ? 1 : threads, [&](Tasks& tasks) {
    for (int64_t l; (l = tasks.next()) >= 0;)
      for (int64_t i = 0; i < line; ++i) {
        const float* sum = sums.get() + (l * height + i) * width;
        float* to = target + (l * line + i) * g.features;
        copy(to, sum, g.features);
        for (int64_t part = 1; part < parts; ++part)
          for (int64_t f = 0; f < g.features; ++f) to[f] += sum[part * size + f];
      }
  });
}

// ------------------------------------------------------------------------------------------------- handlers

using F32 = ffi::Buffer<ffi::F32, 5>;
using Sizes = ffi::Span<const int64_t>;

Three spatial(ffi::Span<const int64_t> shape, size_t first) { return {shape[first], shape[first + 1], shape[first + 2]}; }

ffi::ErrorOr<Geometry> geometry(Sizes x, Sizes filters, Sizes y, Sizes strides, Sizes dilations, Sizes low) {
  Geometry g{x[0],           x[4],          filters[4],        spatial(x, 1),        spatial(y, 1),
             spatial(filters, 0), spatial(strides, 0), spatial(dilations, 0), spatial(low, 0)};
  if (filters[3] != g.channels || y[4] != g.features || y[0] != g.batch)
    return ffi::Unexpected(ffi::Error::InvalidArgument("sizes of a convolution do not fit together"));
  return g;
}

// An operand that may be missing; then it has no elements.
const float* if_there(const ffi::Buffer<ffi::F32>& x) { return x.element_count() ? x.typed_data() : nullptr; }

ffi::Error Conv(ffi::ThreadPool pool, F32 x, F32 filters, ffi::Buffer<ffi::F32> bias, ffi::Result<F32> y, Sizes strides,
                Sizes dilations, Sizes low, int64_t relu) {
  auto read = geometry(x.dimensions(), filters.dimensions(), y->dimensions(), strides, dilations, low);
  if (!read.has_value()) return read.error();
  const Geometry& g = read.value();
  const float* from = filters.typed_data();
  auto filter = [&](int64_t t0, int64_t t1, int64_t t2, int64_t c, int64_t first, int64_t count, float* to) {
    copy(to, from + (((t0 * g.window[1] + t1) * g.window[2] + t2) * g.channels + c) * g.features + first, count);
  };
  return stopgrad::answer([&] {
    convolve(pool, forward_grid(g), g.batch, x.typed_data(), g.x, g.channels, filter, y->typed_data(), g.y, g.features,
             Finish{if_there(bias), relu != 0, nullptr});
  });
}

ffi::Error InputGradient(ffi::ThreadPool pool, F32 filters, F32 dy, ffi::Buffer<ffi::F32> gate, ffi::Result<F32> dx,
                         Sizes strides, Sizes dilations, Sizes low) {
  auto read = geometry(dx->dimensions(), filters.dimensions(), dy.dimensions(), strides, dilations, low);
  if (!read.has_value()) return read.error();
  const Geometry& g = read.value();
  const float* from = filters.typed_data();
  auto filter = [&](int64_t t0, int64_t t1, int64_t t2, int64_t f, int64_t first, int64_t count, float* to) {
    const float* at = from + (((t0 * g.window[1] + t1) * g.window[2] + t2) * g.channels + first) * g.features + f;
    for (int64_t c = 0; c < count; ++c) to[c] = at[c * g.features];
  };
  return stopgrad::answer([&] {
    for (const Grid& grid : backward_grids(g))
      convolve(pool, grid, g.batch, dy.typed_data(), g.y, g.features, filter, dx->typed_data(), g.x, g.channels,
               Finish{nullptr, false, if_there(gate)});
  });
}

ffi::Error FilterGradient(ffi::ThreadPool pool, F32 x, F32 dy, ffi::Result<F32> dw, Sizes strides, Sizes dilations,
                          Sizes low) {
  auto read = geometry(x.dimensions(), dw->dimensions(), dy.dimensions(), strides, dilations, low);
  if (!read.has_value()) return read.error();
  return stopgrad::answer(
      [&] { filter_gradient(pool, read.value(), x.typed_data(), dy.typed_data(), dw->typed_data()); });
}

// The arguments of all handlers.
auto binding() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<F32>().Arg<F32>(); }

#define GEOMETRY Ret<F32>().Attr<Sizes>("strides").Attr<Sizes>("dilations").Attr<Sizes>("low")

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(stopgrad_conv, Conv,
                              binding().Arg<ffi::Buffer<ffi::F32>>().GEOMETRY.Attr<int64_t>("relu"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(stopgrad_conv_input, InputGradient, binding().Arg<ffi::Buffer<ffi::F32>>().GEOMETRY);
XLA_FFI_DEFINE_HANDLER_SYMBOL(stopgrad_conv_filter, FilterGradient, binding().GEOMETRY);
