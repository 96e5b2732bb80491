// The instructions of the vector machine of rows.cc: one function for each.

#pragma once

#include <cmath>

#include "vectors.h"

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
  // Missing operands count as numbers.
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

// A quotient by one number for all is a product with a correction, as exact as the quotient if neither number is
// near the ends of the range; if the correction is NaN, the product stays as it is.
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

// All other instructions. The order is that of schedule.py.
enum Special {
  LOAD = ELEMENTWISE_COUNT,  // Of other dtypes, or with rows that several rows share.
  POSITION,                  // The column, as an integer.
  ONE_HOT,                   // 1 in the column that an integer of the row names.
  ROW_SUM,
  ROW_MAX,
  ROW_MIN,
  COLUMN_SUM,
  TOTAL,
  STORE_BOOL,
  PREFETCH,  // The same tile of the next block.
  LOAD_ROW,  // From here on, instructions on one number per row.
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

INLINE F four(const float* a) { return (load(a) + load(a + W)) + (load(a + 2 * W) + load(a + 3 * W)); }

// In pairs, so that the error does not grow with the length of a row.
float sum_of(const float* a, long n) {
  F s0{}, s1{}, s2{}, s3{};
  long i = 0;
  for (; i + 16 * W <= n; i += 16 * W)
    s0 += (four(a + i) + four(a + i + 4 * W)) + (four(a + i + 8 * W) + four(a + i + 12 * W));
  for (; i + 4 * W <= n; i += 4 * W) s1 += four(a + i);
  for (; i + W <= n; i += W) s2 += load(a + i);
  if (i < n) s3 = load(a + i, n - i);
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

}  // namespace
}  // namespace stopgrad
