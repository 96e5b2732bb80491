// A small vector machine: programs of elementwise operations and reductions over rows, in one pass over memory.
//
// A program works on tensors of R rows and N columns, on one number per row, and on single numbers. It is a
// sequence of stages: instructions for one number per row, then instructions for all columns. A block of rows goes
// through all stages while it lies in the cache; within a stage, a tile of it goes through all instructions while
// it lies in the nearest one. schedule.py writes the programs.
//
// Blocks are joined to tasks, whose size follows from the program alone. Sums over rows are added up in each
// task, and then over the tasks in their order: results do not depend on the number of threads, nor on timing.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "vectors.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace stopgrad {
namespace {

// ------------------------------------------------------------------------------------ elementwise kernels

typedef void (*Kernel)(float* d, const float* a, const float* b, const float* c, long n);

// A bit of S says that an operand is one number for all elements.
template <typename G, int S>
void run(float* d, const float* a, const float* b, const float* c, long n) {
  const F x = all(*a), y = all(*b), z = all(*c);
  long i = 0;
  for (; i + W <= n; i += W)
    store(d + i, G::of((S & 1) ? x : load(a + i), (S & 2) ? y : load(b + i), (S & 4) ? z : load(c + i)));
  if (i < n)
    store(d + i,
          G::of((S & 1) ? x : load(a + i, n - i), (S & 2) ? y : load(b + i, n - i),
                (S & 4) ? z : load(c + i, n - i)),
          n - i);
}

struct Kernels {
  Kernel of[8];
};
template <typename G, int operands>
constexpr Kernels kernels() {
  // Operands that are not there count as numbers.
  if constexpr (operands == 1) {
    return {run<G, 6>, run<G, 7>, run<G, 6>, run<G, 7>, run<G, 6>, run<G, 7>, run<G, 6>, run<G, 7>};
  } else if constexpr (operands == 2) {
    return {run<G, 4>, run<G, 5>, run<G, 6>, run<G, 7>, run<G, 4>, run<G, 5>, run<G, 6>, run<G, 7>};
  } else {
    return {run<G, 0>, run<G, 1>, run<G, 2>, run<G, 3>, run<G, 4>, run<G, 5>, run<G, 6>, run<G, 7>};
  }
}

#define ELEMENTWISE(X)                                                  \
  X(Copy, 1, x)                                                         \
  X(Negative, 1, -x)                                                    \
  X(Abs, 1, magnitude(x))                                               \
  X(Sign, 1, choose(x > 0.0f, 1.0f, choose(x < 0.0f, -1.0f, x)))        \
  X(Square, 1, x* x)                                                    \
  X(Sqrt, 1, root(x))                                                   \
  X(Floor, 1, floor_of(x))                                              \
  X(Ceil, 1, ceil_of(x))                                                \
  X(Round, 1, nearest(x))                                               \
  X(Exp, 1, exponential(x))                                             \
  X(Expm1, 1, exponential_minus_one(x))                                 \
  X(Log, 1, logarithm(x))                                               \
  X(Log1p, 1, logarithm_of_one_more(x))                                 \
  X(Tanh, 1, hyperbolic_tangent(x))                                     \
  X(Sigmoid, 1, sigmoid(x))                                             \
  X(Erf, 1, error_function(x))                                          \
  X(Erfc, 1, complementary_error_function(x))                           \
  X(IsNan, 1, truth(x != x))                                            \
  X(IsInf, 1, truth(magnitude(x) == INF))                               \
  X(IsFinite, 1, truth(magnitude(x) < INF))                             \
  X(Not, 1, truth(x == 0.0f))                                           \
  X(ToFloat, 1, __builtin_convertvector(as_int(x), F))                  \
  X(Add, 2, x + y)                                                      \
  X(Subtract, 2, x - y)                                                 \
  X(Multiply, 2, x* y)                                                  \
  X(Divide, 2, x / y)                                                   \
  X(Maximum, 2, maximum(x, y))                                          \
  X(Minimum, 2, minimum(x, y))                                          \
  X(Equal, 2, truth(x == y))                                            \
  X(NotEqual, 2, truth(x != y))                                         \
  X(Less, 2, truth(x < y))                                              \
  X(LessEqual, 2, truth(x <= y))                                        \
  X(And, 2, truth((x != 0.0f) & (y != 0.0f)))                           \
  X(Or, 2, truth((x != 0.0f) | (y != 0.0f)))                            \
  X(EqualWhole, 2, truth(as_int(x) == as_int(y)))                       \
  X(LessWhole, 2, truth(as_int(x) < as_int(y)))                         \
  X(Where, 3, choose(x != 0.0f, y, z))

#define X(NAME, OPERANDS, VALUE) \
  struct NAME {                  \
    INLINE F of(F x, F y, F z) { \
      (void)y, (void)z;          \
      return VALUE;              \
    }                            \
  };
ELEMENTWISE(X)
#undef X

// A quotient by one number for all is a product and a correction, as exact as the quotient, where neither number
// is near the ends of the range; where the product is no number, it is what the quotient is.
template <>
void run<Divide, 6>(float* d, const float* a, const float* b, const float* c, long n) {
  const float size = std::fabs(*b);
  if (!(size > 1e-30f && size < 1e30f)) {
    for (long i = 0; i < n; ++i) d[i] = a[i] / *b;
    return;
  }
  const F y = all(*b), inverse = all(1.0f / *b);
  auto quotient = [y, inverse](F x) __attribute__((always_inline)) {
    F q = x * inverse;
    F better = multiply_add(multiply_add(-q, y, x), inverse, q);
    return choose(better == better, better, q);
  };
  long i = 0;
  for (; i + W <= n; i += W) store(d + i, quotient(load(a + i)));
  if (i < n) store(d + i, quotient(load(a + i, n - i)), n - i);
}

constexpr Kernels KERNELS[] = {
#define X(NAME, OPERANDS, VALUE) kernels<NAME, OPERANDS>(),
    ELEMENTWISE(X)
#undef X
};
constexpr int ELEMENTWISE_COUNT = sizeof(KERNELS) / sizeof(KERNELS[0]);

// What else there is. The order is that of schedule.py.
enum Special {
  LOAD = ELEMENTWISE_COUNT,  // Of other dtypes, or with rows that several rows share.
  POSITION,                  // The column, a whole number.
  ONE_HOT,                   // 1 in the column that a whole number of the row says.
  ROW_SUM,
  ROW_MAX,
  ROW_MIN,
  COLUMN_SUM,
  TOTAL,
  STORE_BOOL,
  PREFETCH,  // The same tile of the next block.
  LOAD_ROW,  // From here on, of one number per row.
  GATHER,
  INSIDE,
  STORE_ROW,
  STORE_ROW_BOOL,
  TOTAL_ROW,
};

// -------------------------------------------------------------------------------------------- reductions

template <typename G>
INLINE float fold(F x, G g) {
  float y = x[0];
  for (long i = 1; i < W; ++i) y = g(y, x[i]);
  return y;
}

float sum_of(const float* a, long n) {
  F s0{}, s1{}, s2{}, s3{};
  long i = 0;
  for (; i + 4 * W <= n; i += 4 * W) {
    s0 += load(a + i);
    s1 += load(a + i + W);
    s2 += load(a + i + 2 * W);
    s3 += load(a + i + 3 * W);
  }
  for (; i + W <= n; i += W) s0 += load(a + i);
  if (i < n) s1 += load(a + i, n - i);
  F s = (s0 + s1) + (s2 + s3);
  float parts[W];
  store(parts, s);
  for (long k = W / 2; k; k /= 2)
    for (long j = 0; j < k; ++j) parts[j] += parts[j + k];
  return parts[0];
}

// The largest, or with sign -1 minus the smallest; NaN where there is one.
template <int sign>
float extremum_of(const float* a, long n) {
  F m0 = all(-INF), m1 = m0, m2 = m0, m3 = m0;
  I bad{};
  auto take = [&bad](F m, F x) __attribute__((always_inline)) {
    x = x * float(sign);
    bad |= x != x;
    return x > m ? x : m;
  };
  long i = 0;
  for (; i + 4 * W <= n; i += 4 * W) {
    m0 = take(m0, load(a + i));
    m1 = take(m1, load(a + i + W));
    m2 = take(m2, load(a + i + 2 * W));
    m3 = take(m3, load(a + i + 3 * W));
  }
  for (; i + W <= n; i += W) m0 = take(m0, load(a + i));
  float rest = -INF;
  bool nan = false;
  for (; i < n; ++i) {
    float x = sign * a[i];
    nan |= x != x;
    rest = x > rest ? x : rest;
  }
  for (long k = 0; k < W; ++k) nan |= bad[k] != 0;
  if (nan) return NOT_A_NUMBER;
  m0 = m0 > m1 ? m0 : m1;
  m2 = m2 > m3 ? m2 : m3;
  m0 = m0 > m2 ? m0 : m2;
  float m = fold(m0, [](float x, float y) { return x > y ? x : y; });
  return m > rest ? m : rest;
}

float joined(int op, float old, float x) {
  if (op == ROW_SUM) return old + x;
  if (old != old) return old;
  if (op == ROW_MAX) return x > old || x != x ? x : old;
  return x < old || x != x ? x : old;
}

float reduced(int op, const float* a, long n) {
  if (op == ROW_MAX) return extremum_of<1>(a, n);
  if (op == ROW_MIN) return -extremum_of<-1>(a, n);
  return sum_of(a, n);
}

// ------------------------------------------------------------------------------------------- the program

enum Kind { NONE, TILE, KEPT, INPUT, OUTPUT, ROW_VECTOR, ROW, NUMBER, ROW_INPUT, LAST_OUTPUT };

struct Operand {
  uint8_t kind;
  int index;
};

struct Instruction {
  int32_t op, d, a, b, c;
};

struct Stage {
  const Instruction *rows, *tiles;
  int32_t rows_count, tiles_count;
};

// Where the rows of an input lie that has not R of them, or not of float32.
struct Source {
  int32_t input, dtype, terms, over[3], modulo[3], times[3];
};

enum Dtype { FLOAT32, BOOL, INT32, INT64, INT8, UINT8, INT16, UINT16 };

struct Header {
  int32_t rows, columns, block, tile, tiles, kept, row_registers, constants, numbers, scalars, sources, totals,
      sums, before, after, results, stages, task, weight;
};

struct Program {
  Header h;
  const float* constants;
  const int32_t *scalars, *totals, *sums, *results;
  const Source* sources;
  const Instruction *before, *after;
  std::vector<Stage> stages;
};

struct Job {
  Program program;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::vector<float> numbers;
  long tasks;
  std::unique_ptr<double[]> totals;  // [total, task]
  std::unique_ptr<float[]> sums;     // [sum, task, column]
};

Program parse(const int32_t* p) {
  Program program;
  std::memcpy(&program.h, p, sizeof(Header));
  const Header& h = program.h;
  p += sizeof(Header) / 4;
  auto take = [&p](long n) {
    const int32_t* q = p;
    p += n;
    return q;
  };
  constexpr long size = sizeof(Instruction) / 4;
  program.constants = reinterpret_cast<const float*>(take(h.constants));
  program.scalars = take(2 * h.scalars);
  program.sources = reinterpret_cast<const Source*>(take(h.sources * (sizeof(Source) / 4)));
  program.totals = take(h.totals);
  program.sums = take(h.sums);
  program.results = take(2 * h.results);
  program.before = reinterpret_cast<const Instruction*>(take(h.before * size));
  program.after = reinterpret_cast<const Instruction*>(take(h.after * size));
  for (int i = 0; i < h.stages; ++i) {
    Stage stage;
    stage.rows_count = *take(1);
    stage.tiles_count = *take(1);
    stage.rows = reinterpret_cast<const Instruction*>(take(stage.rows_count * size));
    stage.tiles = reinterpret_cast<const Instruction*>(take(stage.tiles_count * size));
    program.stages.push_back(stage);
  }
  return program;
}

// ---------------------------------------------------------------------------------------------- a thread

// Memory that a thread keeps from call to call.
struct Scratch {
  float* memory = nullptr;
  size_t size = 0;
  ~Scratch() { std::free(memory); }
  float* get(size_t wanted) {
    if (wanted > size) {
      std::free(memory);
      size = 0;
      wanted = (wanted + 1023) / 1024 * 1024;
      memory = static_cast<float*>(std::aligned_alloc(64, wanted * sizeof(float)));
      if (memory != nullptr) size = wanted;
    }
    return memory;
  }
};
thread_local Scratch scratch;

// Whether subnormal numbers count as 0 is a setting of each thread: XLA's own.
struct Flushing {
#if defined(__x86_64__)
  unsigned before = _mm_getcsr();
  Flushing() { _mm_setcsr(before | 0x8040); }
  ~Flushing() { _mm_setcsr(before); }
#endif
};

// From how many bytes on a result is written past the caches.
constexpr long STREAMED = 8 << 20;

void stream(float* d, const float* a, long n) {
#if defined(__AVX512F__)
  long i = 0;
  const long head = (64 - reinterpret_cast<uintptr_t>(d) % 64) % 64 / 4;
  if (head) {
    i = std::min(head, n);
    store(d, load(a, i), i);
  }
  for (; i + W <= n; i += W) _mm512_stream_ps(d + i, (__m512)load(a + i));
  if (i < n) store(d + i, load(a + i, n - i), n - i);
#else
  std::memcpy(d, a, n * sizeof(float));
#endif
}

struct Place {
  const float* at;
  long stride;
  bool number;
};

// Runs blocks of rows. Positions: r counts rows, i rows of the block, c columns.
struct Machine {
  const Job& job;
  const Header& h;
  long N, task = 0, first = 0, count = 0;  // The task, the block's first row, and its rows.
  float *tiles, *kept, *rows;
  long tile_size, kept_size, row_size;
  bool streams;

  explicit Machine(const Job& job) : job(job), h(job.program.h), N(h.columns) {
    auto rounded = [](long n) { return (n + 15) / 16 * 16 + 16; };
    tile_size = rounded(h.tile);
    kept_size = rounded(h.block * N);
    row_size = rounded(h.block);
    streams = h.rows * N * 4 >= STREAMED;
    float* memory = scratch.get(size());
    tiles = memory;
    if (memory == nullptr) return;
    kept = tiles + (h.tiles + 1) * tile_size;
    rows = kept + h.kept * kept_size;
  }
  size_t size() const { return (h.tiles + 1) * tile_size + h.kept * kept_size + h.row_registers * row_size + 16; }

  Place place(int32_t code, long i, long c, long columns) const {
    const long index = code >> 4;
    switch (code & 15) {
      case TILE: return {tiles + index * tile_size, columns, false};
      case KEPT: return {kept + index * kept_size + i * N + c, N, false};
      case INPUT: return {static_cast<const float*>(job.inputs[index]) + (first + i) * N + c, N, false};
      case OUTPUT:
      case LAST_OUTPUT: return {static_cast<const float*>(job.outputs[index]) + (first + i) * N + c, N, false};
      case ROW_VECTOR: return {static_cast<const float*>(job.inputs[index]) + c, 0, false};
      case ROW: return {rows + index * row_size + i, 1, true};
      case ROW_INPUT: return {static_cast<const float*>(job.inputs[index]) + first + i, 1, true};
      default: return {job.numbers.data() + index, 0, true};
    }
  }

  // A place among numbers per row.
  Place row_place(int32_t code) const {
    Place p = place(code, 0, 0, 0);
    p.number = (code & 15) == NUMBER || (code & 15) == NONE;
    return p;
  }

  long row_of(const Source& s, long r) const {
    if (s.terms == 0) return r;
    long found = 0;
    for (int k = 0; k < s.terms; ++k) found += r / s.over[k] % s.modulo[k] * s.times[k];
    return found;
  }

  template <typename T, typename G>
  static void convert(float* d, const void* from, long at, long n, G g) {
    const T* a = static_cast<const T*>(from) + at;
    for (long i = 0; i < n; ++i) d[i] = g(a[i]);
  }
  static float whole(int64_t x) {
    int32_t y = x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : int32_t(x);
    float z;
    std::memcpy(&z, &y, 4);
    return z;
  }
  void read(float* d, const Source& s, long at, long n) const {
    const void* from = job.inputs[s.input];
    switch (s.dtype) {
      case FLOAT32: std::memcpy(d, static_cast<const float*>(from) + at, n * sizeof(float)); break;
      case BOOL: convert<uint8_t>(d, from, at, n, [](uint8_t x) { return x ? 1.0f : 0.0f; }); break;
      case INT32: std::memcpy(d, static_cast<const int32_t*>(from) + at, n * sizeof(float)); break;
      case INT64: convert<int64_t>(d, from, at, n, whole); break;
      case INT8: convert<int8_t>(d, from, at, n, whole); break;
      case UINT8: convert<uint8_t>(d, from, at, n, whole); break;
      case INT16: convert<int16_t>(d, from, at, n, whole); break;
      case UINT16: convert<uint16_t>(d, from, at, n, whole); break;
    }
  }

  // ---- one number per row

  void row_instruction(const Instruction& in) {
    float* d = const_cast<float*>(row_place(in.d).at);
    if (in.op < ELEMENTWISE_COUNT) {
      const Place a = row_place(in.a), b = row_place(in.b), c = row_place(in.c);
      KERNELS[in.op].of[a.number + 2 * b.number + 4 * c.number](d, a.at, b.at, c.at, count);
      return;
    }
    switch (in.op) {
      case LOAD_ROW: {
        const Source& s = job.program.sources[in.a];
        if (s.terms == 0) return read(d, s, first, count);
        for (long i = 0; i < count; ++i) read(d + i, s, row_of(s, first + i), 1);
        return;
      }
      case GATHER: {
        const Source& s = job.program.sources[in.a];
        const int32_t* at = reinterpret_cast<const int32_t*>(row_place(in.b).at);
        for (long i = 0; i < count; ++i) {
          const bool inside = at[i] >= 0 && at[i] < N;
          read(d + i, s, row_of(s, first + i) * N + (inside ? at[i] : 0), 1);
          if (!inside) d[i] = 0.0f;
        }
        return;
      }
      case INSIDE: {
        const int32_t* at = reinterpret_cast<const int32_t*>(row_place(in.a).at);
        for (long i = 0; i < count; ++i) d[i] = at[i] >= 0 && at[i] < N ? 1.0f : 0.0f;
        return;
      }
      case STORE_ROW: {
        const Place a = row_place(in.a);
        float* out = static_cast<float*>(job.outputs[in.d]) + first;
        for (long i = 0; i < count; ++i) out[i] = a.at[a.number ? 0 : i];
        return;
      }
      case STORE_ROW_BOOL: {
        const Place a = row_place(in.a);
        uint8_t* out = static_cast<uint8_t*>(job.outputs[in.d]) + first;
        for (long i = 0; i < count; ++i) out[i] = a.at[a.number ? 0 : i] != 0.0f;
        return;
      }
      case TOTAL_ROW: {
        const Place a = row_place(in.a);
        double total = a.number ? double(*a.at) * count : sum_of(a.at, count);
        job.totals[in.d * job.tasks + task] += total;
        return;
      }
    }
  }

  // ---- all columns

  void tile_instruction(const Instruction& in, long i, long m, long c, long n) {
    if (in.op < ELEMENTWISE_COUNT) {
      const Place d = place(in.d, i, c, n), x = place(in.a, i, c, n), y = place(in.b, i, c, n),
                  z = place(in.c, i, c, n);
      const Kernel kernel = KERNELS[in.op].of[x.number + 2 * y.number + 4 * z.number];
      auto level = [n](const Place& p) { return p.stride == (p.number ? 0 : n); };
      float* at = const_cast<float*>(d.at);
      if (streams && (in.d & 15) == LAST_OUTPUT) {
        // Not read again here: it goes past the caches.
        float* beside = tiles + h.tiles * tile_size;
        if (m == 1 || (level(x) && level(y) && level(z))) {
          kernel(beside, x.at, y.at, z.at, m * n);
        } else {
          for (long k = 0; k < m; ++k)
            kernel(beside + k * n, x.at + k * x.stride, y.at + k * y.stride, z.at + k * z.stride, n);
        }
        return stream(at, beside, m * n);
      }
      if (m == 1 || (level(d) && level(x) && level(y) && level(z))) return kernel(at, x.at, y.at, z.at, m * n);
      for (long k = 0; k < m; ++k)
        kernel(at + k * d.stride, x.at + k * x.stride, y.at + k * y.stride, z.at + k * z.stride, n);
      return;
    }
    switch (in.op) {
      case LOAD: {
        const Place d = place(in.d, i, c, n);
        const Source& s = job.program.sources[in.a];
        for (long k = 0; k < m; ++k)
          read(const_cast<float*>(d.at) + k * d.stride, s, row_of(s, first + i + k) * N + c, n);
        return;
      }
      case POSITION: {
        const Place d = place(in.d, i, c, n);
        for (long k = 0; k < m; ++k) {
          int32_t* at = reinterpret_cast<int32_t*>(const_cast<float*>(d.at) + k * d.stride);
          for (long j = 0; j < n; ++j) at[j] = int32_t(c + j);
        }
        return;
      }
      case ONE_HOT: {
        const Place d = place(in.d, i, c, n), a = place(in.a, i, c, n);
        for (long k = 0; k < m; ++k) {
          float* at = const_cast<float*>(d.at) + k * d.stride;
          std::memset(at, 0, n * sizeof(float));
          int32_t label;
          std::memcpy(&label, a.at + k * a.stride, 4);
          if (label >= c && label < c + n) at[label - c] = 1.0f;
        }
        return;
      }
      case ROW_SUM:
      case ROW_MAX:
      case ROW_MIN: {
        const Place a = place(in.a, i, c, n);
        float* d = const_cast<float*>(place(in.d, i, c, n).at);
        for (long k = 0; k < m; ++k) {
          const float x = reduced(in.op, a.at + k * a.stride, n);
          d[k] = c == 0 ? x : joined(in.op, d[k], x);
        }
        return;
      }
      case COLUMN_SUM: {
        const Place a = place(in.a, i, c, n);
        float* d = job.sums.get() + (in.d * job.tasks + task) * N + c;
        long j = 0;
        for (; j + W <= n; j += W) {
          F s = load(d + j);
          for (long k = 0; k < m; ++k) s += load(a.at + k * a.stride + j);
          store(d + j, s);
        }
        for (; j < n; ++j)
          for (long k = 0; k < m; ++k) d[j] += a.at[k * a.stride + j];
        return;
      }
      case TOTAL: {
        const Place a = place(in.a, i, c, n);
        double total = 0;
        for (long k = 0; k < m; ++k) total += sum_of(a.at + k * a.stride, n);
        job.totals[in.d * job.tasks + task] += total;
        return;
      }
      case PREFETCH: {
        const long at = (first + h.block + i) * N + c, end = std::min(at + m * n, h.rows * N);
        if ((in.a & 15) == INPUT) {
          const float* a = static_cast<const float*>(job.inputs[in.a >> 4]);
          for (long j = at; j < end; j += 16) __builtin_prefetch(a + j, 0, 2);
        }
        return;
      }
      case STORE_BOOL: {
        const Place a = place(in.a, i, c, n);
        for (long k = 0; k < m; ++k) {
          uint8_t* out = static_cast<uint8_t*>(job.outputs[in.d]) + (first + i + k) * N + c;
          const float* at = a.at + k * a.stride;
          for (long j = 0; j < n; ++j) out[j] = at[j] != 0.0f;
        }
        return;
      }
    }
  }

  void tile(const Stage& stage, long i, long m, long c, long n) {
    for (int k = 0; k < stage.tiles_count; ++k) tile_instruction(stage.tiles[k], i, m, c, n);
  }

  void block() {
    for (const Stage& stage : job.program.stages) {
      for (int k = 0; k < stage.rows_count; ++k) row_instruction(stage.rows[k]);
      if (stage.tiles_count == 0) continue;
      const long at_once = h.tile / N;
      if (at_once > 0) {
        for (long i = 0; i < count; i += at_once) tile(stage, i, std::min(at_once, count - i), 0, N);
      } else {
        for (long i = 0; i < count; ++i)
          for (long c = 0; c < N; c += h.tile) tile(stage, i, 1, c, std::min<long>(h.tile, N - c));
      }
    }
  }

  void run_task(long number) {
    task = number;
    for (long k = 0; k < h.totals; ++k) job.totals[k * job.tasks + task] = 0;
    for (long k = 0; k < h.sums; ++k)
      std::memset(job.sums.get() + (k * job.tasks + task) * N, 0, N * sizeof(float));
    const long end = std::min<long>(h.rows, (task + 1) * h.task);
    for (first = task * h.task; first < end; first += h.block) {
      count = std::min<long>(h.block, end - first);
      block();
    }
  }
};

// --------------------------------------------------------------------------------------------- all threads

struct Shared {
  const Job* job;
  std::atomic<long> next{0}, done{0};
  std::atomic<bool> failed{false};
};

// Takes tasks until there are none left. Touches the job only while it holds a task.
void work(Shared& shared, long tasks) {
  long mine = shared.next.fetch_add(1);
  if (mine >= tasks) return;
  Flushing flushing;
  Machine machine(*shared.job);
  if (machine.tiles == nullptr) shared.failed = true;
  for (; mine < tasks; mine = shared.next.fetch_add(1)) {
    if (machine.tiles != nullptr) machine.run_task(mine);
#if defined(__x86_64__)
    _mm_sfence();
#endif
    shared.done.fetch_add(1, std::memory_order_release);
  }
}

void wait_for(const Shared& shared, long tasks) {
  // Only tasks that run are waited for, and these end by themselves.
  for (int spins = 0; shared.done.load(std::memory_order_acquire) < tasks; ++spins) {
    if (spins > 4096) std::this_thread::yield();
#if defined(__x86_64__)
    else _mm_pause();
#endif
  }
}

void compute_numbers(Job& job, const Instruction* code, int count) {
  float* numbers = job.numbers.data();
  for (; count > 0; --count, ++code) {
    auto at = [numbers](int32_t operand) { return numbers + (operand >> 4); };
    KERNELS[code->op].of[7](at(code->d), at(code->a), at(code->b), at(code->c), 1);
  }
}

void finish(Job& job) {
  const Header& h = job.program.h;
  for (long k = 0; k < h.totals; ++k) {
    double total = 0;
    for (long t = 0; t < job.tasks; ++t) total += job.totals[k * job.tasks + t];
    job.numbers[job.program.totals[k]] = float(total);
  }
  compute_numbers(job, job.program.after, h.after);
  for (long k = 0; k < h.results; ++k)
    *static_cast<float*>(job.outputs[job.program.results[2 * k]]) = job.numbers[job.program.results[2 * k + 1]];
  for (long k = 0; k < h.sums; ++k) {
    float* out = static_cast<float*>(job.outputs[job.program.sums[k]]);
    const float* parts = job.sums.get() + k * job.tasks * h.columns;
    for (long j = 0; j < h.columns; ++j) {
      double total = 0;
      for (long t = 0; t < job.tasks; ++t) total += parts[t * h.columns + j];
      out[j] = float(total);
    }
  }
}

constexpr double INLINE_WORK = 400e3;

ffi::Error rows(ffi::ThreadPool pool, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                ffi::Span<const int32_t> code) {
  Job job;
  job.program = parse(code.begin());
  const Header& h = job.program.h;
  for (size_t i = 0; i < arguments.size(); ++i) job.inputs.push_back(arguments.get<ffi::AnyBuffer>(i)->untyped_data());
  for (size_t i = 0; i < results.size(); ++i) job.outputs.push_back((*results.get<ffi::AnyBuffer>(i))->untyped_data());
  job.numbers.resize(h.numbers);
  std::memcpy(job.numbers.data(), job.program.constants, h.constants * sizeof(float));
  for (int k = 0; k < h.scalars; ++k) {
    const int32_t* pair = job.program.scalars + 2 * k;
    job.numbers[pair[0]] = *static_cast<const float*>(job.inputs[pair[1]]);
  }
  compute_numbers(job, job.program.before, h.before);
  job.tasks = (h.rows + h.task - 1) / h.task;
  job.totals.reset(new (std::nothrow) double[h.totals * job.tasks]);
  job.sums.reset(new (std::nothrow) float[size_t(h.sums) * job.tasks * h.columns]);
  if (job.totals == nullptr || job.sums == nullptr)
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory for sums over rows");

  auto shared = std::make_shared<Shared>();
  shared->job = &job;
  const long tasks = job.tasks;
  if (double(h.rows) * h.columns * h.weight > INLINE_WORK) {
    const long helpers = std::min<long>(pool.num_threads(), tasks) - 1;
    for (long i = 0; i < helpers; ++i) pool.Schedule([shared, tasks] { work(*shared, tasks); });
  }
  work(*shared, tasks);
  wait_for(*shared, tasks);
  if (shared->failed) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory for the tiles of rows");
  finish(job);
  return ffi::Error::Success();
}

}  // namespace
}  // namespace stopgrad

XLA_FFI_DEFINE_HANDLER_SYMBOL(stopgrad_rows, stopgrad::rows,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<ffi::Span<const int32_t>>("program"));
