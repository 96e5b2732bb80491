// Products of float32 matrices [batch, m, k] x [batch, k, n], either of them stored transposed.
//
// The result is computed in panels of a few vectors' columns. A panel of b is copied so that its rows follow one
// another, by the first tile that reads it where b is stored by rows; a is read where it stands, or copied if its
// rows' numbers stand apart. Long sums are sums of blocks' sums, by sizes alone: results do not depend on the
// number of threads.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "threads.h"
#include "vectors.h"
#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using namespace stopgrad;

// A tile has at most so many rows and vectors of columns: what registers hold.
#if defined(__AVX512F__)
constexpr int kTallest = 14, kVectors = 2;
#else
constexpr int kTallest = 6, kVectors = 2;
#endif
constexpr int64_t kWidest = kVectors * W;
// How many products are added up in one go.
constexpr int64_t kDepth = 320;
// How many numbers of a are passed over for each panel: half of a core's cache.
constexpr int64_t kMuch = 1 << 17;
// Where columns of a are copied, it is for so many panels.
constexpr int64_t kTogether = 8;
// Below so many products waking another thread takes as long.
constexpr int64_t kFew = 1 << 20;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

INLINE F first(const float* p, long n) { return n == W ? load(p) : load(p, n); }
INLINE void put(float* p, F x, long n) { n == W ? store(p, x) : store(p, x, n); }

// Where b's panel is: packed, or still among b's rows, `pitch` apart, with `last` columns in the last vector.
struct Panel {
  float* packed;
  const float* rows;
  int64_t pitch;
  long last;
};

// out[kHeight, kColumns vectors] (+)= a · panel; kDirect: from b's rows, which are packed in passing.
template <int kHeight, int kColumns, bool kDirect>
void tile(const float* a, int64_t down, int64_t along, int64_t depth, const Panel& panel, bool add, float* out,
          int64_t pitch) {
  constexpr int kGroups = (kHeight + 2) / 3;
  F sum[kHeight][kColumns];
#pragma GCC unroll 16
  for (int r = 0; r < kHeight; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) sum[r][c] = F{};
  // Three rows for each pointer: the others are where an index tells.
  const float* rows[kGroups];
#pragma GCC unroll 16
  for (int g = 0; g < kGroups; ++g) rows[g] = a + 3 * g * down;
  float* packed = panel.packed;
  const float* from = panel.rows;
  for (int64_t k = 0; k < depth; ++k, packed += kColumns * W) {
    F w[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      if (kDirect) {
        w[c] = first(from + c * W, c + 1 < kColumns ? W : panel.last);
        store(packed + c * W, w[c]);
        __builtin_prefetch(from + 16 * panel.pitch + c * W);
      } else {
        w[c] = load(packed + c * W);
      }
    }
    if (kDirect) from += panel.pitch;
#pragma GCC unroll 16
    for (int r = 0; r < kHeight; ++r) {
      const float x = rows[r / 3][r % 3 * down];
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) sum[r][c] += x * w[c];
    }
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g) rows[g] += along;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kHeight; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      const long lanes = c + 1 < kColumns ? W : panel.last;
      float* place = out + r * pitch + c * W;
      put(place, add ? first(place, lanes) + sum[r][c] : sum[r][c], lanes);
    }
}

using Tile = void (*)(const float*, int64_t, int64_t, int64_t, const Panel&, bool, float*, int64_t);

template <int kColumns, bool kDirect, int... kHeight>
constexpr std::array<Tile, sizeof...(kHeight)> tiles_of(std::integer_sequence<int, kHeight...>) {
  return {&tile<kHeight + 1, kColumns, kDirect>...};
}
template <bool kDirect, int... kColumns>
constexpr std::array<std::array<Tile, kTallest>, kVectors> all_tiles(std::integer_sequence<int, kColumns...>) {
  return {tiles_of<kColumns + 1, kDirect>(std::make_integer_sequence<int, kTallest>{})...};
}
constexpr auto kPacked = all_tiles<false>(std::make_integer_sequence<int, kVectors>{});
constexpr auto kDirect = all_tiles<true>(std::make_integer_sequence<int, kVectors>{});

// W rows of W numbers become columns.
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES
template <int kStep, bool kUpper, int... kLane>
INLINE F interleave(F a, F b, std::integer_sequence<int, kLane...>) {
  // Of pairs of groups of kStep lanes, the lower of both or the upper of both.
  return __builtin_shufflevector(
      a, b, ((kLane / kStep % 2 ? int(W) + kLane - kStep : kLane) + (kUpper ? kStep : 0))...);
}
template <int kStep>
INLINE void swap_blocks(F* x) {
  constexpr std::make_integer_sequence<int, int(W)> lanes{};
#pragma GCC unroll 16
  for (int i = 0; i < W; ++i)
    if (i / kStep % 2 == 0) {
      const F low = interleave<kStep, false>(x[i], x[i + kStep], lanes);
      x[i + kStep] = interleave<kStep, true>(x[i], x[i + kStep], lanes);
      x[i] = low;
    }
}
INLINE void transpose(F* x) {
#if defined(__AVX512F__)
  swap_blocks<8>(x);
#endif
#if defined(__AVX__)
  swap_blocks<4>(x);
#endif
  swap_blocks<2>(x);
  swap_blocks<1>(x);
}
#endif
#endif

// Rows of b, `used` of them, each `depth` numbers long, become the columns of a panel of `vectors` vectors.
void pack_transposed(const float* b, int64_t pitch, int64_t used, int64_t depth, int64_t vectors, float* to) {
  for (int64_t c = 0; c < vectors; ++c) {
    const int64_t lanes = std::min<int64_t>(W, used - c * W);
    const float* from = b + c * W * pitch;
    int64_t k = 0;
#if defined(SHUFFLES)
    for (; lanes == W && k + W <= depth; k += W) {
      F x[W];
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) x[i] = load(from + i * pitch + k);
      transpose(x);
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) store(to + ((k + i) * vectors + c) * W, x[i]);
    }
#endif
    for (; k < depth; ++k)
      for (int64_t i = 0; i < W; ++i) to[(k * vectors + c) * W + i] = i < lanes ? from[i * pitch + k] : 0;
  }
}

// What becomes of a product before it is written for good; what is null does not happen.
struct Finish {
  const float* bias;   // added to each row
  bool relu;           // the larger of it and 0
  const float* other;  // of the product's shape: without a scale, it is 0 where that is not above 0;
  const float* scale;  // with a scale, the product is scaled and taken from that

  bool any() const { return bias || relu || other; }

  // Of rows of the product that begin at `place`.
  void operator()(float* out, int64_t place, int64_t column, int64_t height, int64_t columns, int64_t pitch) const {
    for (int64_t r = 0; r < height; ++r)
      for (int64_t c = 0; c < columns; c += W) {
        const long lanes = std::min<int64_t>(W, columns - c);
        float* at = out + place + r * pitch + c;
        F x = first(at, lanes);
        if (bias) x += first(bias + column + c, lanes);
        if (relu) x = x <= 0 ? F{} : x;  // NaN stays
        if (other) {
          const F y = first(other + place + r * pitch + c, lanes);
          x = scale ? y - *scale * x : y > 0 ? x : F{};
        }
        put(at, x, lanes);
      }
  }

};

// Rows that a tile is going to read, or to write, are asked for before: they come while it adds up.
template <int kWrite>
void ask_for(const float* at, int64_t height, int64_t columns, int64_t pitch) {
  for (int64_t r = 0; r < height; ++r)
    for (int64_t c = 0; c < columns; c += 16) __builtin_prefetch(at + r * pitch + c, kWrite);
}

struct Matrices {
  int64_t batch, m, k, n;
  const float *a, *b;
  int64_t next_a, next_b;  // to the batch's next
  bool transposed_a, transposed_b;
};

// A part of the result: of one matrix, rows and columns from .. to.
struct Part {
  int64_t matrix, low, high, left, right;

  int64_t tiles() const { return ceil_div(high - low, kTallest); }
  int64_t row(int64_t tile) const { return low + (high - low) * tile / tiles(); }
};

// Columns of a, which stand apart where it is stored transposed, become columns of tiles, one after the other.
void pack_columns(const float* a, int64_t pitch, int64_t depth, const Part& part, float* to) {
  constexpr int64_t kFew = 16;  // Rows of a at a time: pages that the processor remembers.
  for (int64_t begin = 0; begin < depth; begin += kFew)
    for (int64_t t = 0; t < part.tiles(); ++t) {
      const int64_t row = part.row(t), height = part.row(t + 1) - row;
      for (int64_t k = begin; k < std::min(begin + kFew, depth); ++k) {
        float* place = to + (row - part.low) * depth + k * height;
        const float* from = a + k * pitch + row;
#if defined(__AVX512F__)
        store(place, load(from, height), height);
#else
        for (int64_t r = 0; r < height; ++r) place[r] = from[r];
#endif
      }
    }
}

void compute(const Matrices& g, const Part& part, const Finish& finish, float* out, float* packed_a, float* packed_b) {
  const int64_t blocks = ceil_div(g.k, kDepth);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t k = g.k * block / blocks, depth = g.k * (block + 1) / blocks - k;
    const float *a = g.a + part.matrix * g.next_a, *b = g.b + part.matrix * g.next_b;
    if (g.transposed_a) pack_columns(a + k * g.m, g.m, depth, part, packed_a);
    for (int64_t column = part.left; column < part.right; column += kWidest) {
      const int64_t used = std::min(kWidest, g.n - column), vectors = ceil_div(used, W);
      const Panel panel{packed_b, b + k * g.n + column, g.n, long(used - (vectors - 1) * W)};
      if (g.transposed_b) pack_transposed(b + column * g.k + k, g.k, used, depth, vectors, packed_b);
      for (int64_t t = 0; t < part.tiles(); ++t) {
        const int64_t row = part.row(t), height = part.row(t + 1) - row;
        const int64_t place = (part.matrix * g.m + row) * g.n + column;
        const bool last = block + 1 == blocks && finish.any();
        ask_for<1>(out + place, height, used, g.n);
        if (last && finish.other) ask_for<0>(finish.other + place, height, used, g.n);
        const float* from = g.transposed_a ? packed_a + (row - part.low) * depth : a + row * g.k + k;
        const auto& kinds = t == 0 && !g.transposed_b ? kDirect : kPacked;
        kinds[size_t(vectors - 1)][size_t(height - 1)](from, g.transposed_a ? 1 : g.k, g.transposed_a ? height : 1,
                                                       depth, panel, block > 0, out + place, g.n);
        if (last) finish(out, place, column, height, used, g.n);
      }
    }
  }
}

void multiply(ffi::ThreadPool& pool, const Matrices& g, const Finish& finish, float* out) {
  const int64_t panels = ceil_div(g.n, kWidest), depth = std::min(g.k, kDepth);
  const int64_t threads = g.batch * g.m * g.k * g.n < kFew ? 1 : std::max<int64_t>(pool.num_threads(), 1);
  // Parts are some rows of one panel; of some panels where rows of a have to be copied.
  const int64_t groups = g.transposed_a ? ceil_div(panels, kTogether) : panels;
  int64_t pieces = ceil_div(g.m * depth, kMuch);
  while (threads > 1 && g.batch * groups * pieces < 4 * threads && g.m / pieces > 2 * kTallest) ++pieces;
  const int64_t rows = g.transposed_a ? ceil_div(g.m, pieces) : 0;
  in_parallel(pool, g.batch * pieces * groups, threads, [&](Tasks& tasks) {
    alignas(64) float packed[kDepth * kWidest];
    const std::unique_ptr<float[]> columns(new float[size_t(rows * depth + 1)]);
    for (int64_t t; (t = tasks.next()) >= 0;) {
      const int64_t group = t % groups, piece = t / groups % pieces;
      const Part part{t / groups / pieces, g.m * piece / pieces, g.m * (piece + 1) / pieces,
                      panels * group / groups * kWidest, std::min(g.n, panels * (group + 1) / groups * kWidest)};
      compute(g, part, finish, out, columns.get(), packed);
    }
  });
}

using F32 = ffi::Buffer<ffi::F32>;
using F32Three = ffi::Buffer<ffi::F32, 3>;

const float* if_there(const F32& x) { return x.element_count() ? x.typed_data() : nullptr; }

ffi::Error Product(ffi::ThreadPool pool, F32Three a, F32Three b, F32 bias, F32 other, F32 scale,
                   ffi::Result<F32Three> out, int64_t transpose_a, int64_t transpose_b, int64_t relu) {
  const auto p = a.dimensions(), q = b.dimensions(), y = out->dimensions();
  const int64_t k = p[transpose_a ? 1 : 2];
  const bool agree = p[transpose_a ? 2 : 1] == y[1] && q[transpose_b ? 2 : 1] == k && q[transpose_b ? 1 : 2] == y[2] &&
                     (p[0] == y[0] || p[0] == 1) && (q[0] == y[0] || q[0] == 1) && k > 0 &&
                     (!bias.element_count() || int64_t(bias.element_count()) == y[2]) &&
                     (!other.element_count() || other.element_count() == out->element_count());
  if (!agree) return ffi::Error::InvalidArgument("sizes of matrices that do not go together");
  const Matrices g{y[0], y[1], k, y[2], a.typed_data(), b.typed_data(), p[0] == 1 ? 0 : y[1] * k,
                   q[0] == 1 ? 0 : k * y[2], transpose_a != 0, transpose_b != 0};
  const Finish finish{if_there(bias), relu != 0, if_there(other), if_there(scale)};
  return stopgrad::answer([&] { multiply(pool, g, finish, out->typed_data()); });
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(stopgrad_product, Product,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<F32Three>()
                                  .Arg<F32Three>()
                                  .Arg<F32>()
                                  .Arg<F32>()
                                  .Arg<F32>()
                                  .Ret<F32Three>()
                                  .Attr<int64_t>("transpose_a")
                                  .Attr<int64_t>("transpose_b")
                                  .Attr<int64_t>("relu"));
