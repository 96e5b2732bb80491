// Vectors of floats as wide as the processor's, and functions of them.
//
// Written with the vector extensions of GCC and Clang. NaN, infinities and large arguments give what they should;
// subnormal results of exp are flushed to zero, as XLA flushes them.

#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stopgrad {

#if defined(__AVX512F__)
constexpr long W = 16;
#elif defined(__AVX__)
constexpr long W = 8;
#else
constexpr long W = 4;
#endif

typedef float F __attribute__((vector_size(W * 4)));
typedef int32_t I __attribute__((vector_size(W * 4)));

constexpr float INF = std::numeric_limits<float>::infinity();
constexpr float NOT_A_NUMBER = std::numeric_limits<float>::quiet_NaN();

#define INLINE static inline __attribute__((always_inline))

INLINE F all(float x) { return F{} + x; }
INLINE F load(const float* p) {
  F x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
INLINE void store(float* p, F x) { std::memcpy(p, &x, sizeof x); }

// The first n < W elements; the others are 0 and not written.
INLINE F load(const float* p, long n) {
#if defined(__AVX512F__)
  return (F)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#else
  F x{};
  for (long i = 0; i < n; ++i) x[i] = p[i];
  return x;
#endif
}
INLINE void store(float* p, F x, long n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x);
#else
  for (long i = 0; i < n; ++i) p[i] = x[i];
#endif
}

INLINE F as_float(I x) { return (F)x; }
INLINE I as_int(F x) { return (I)x; }
INLINE F choose(I mask, F x, F y) { return mask ? x : y; }
INLINE F choose(I mask, F x, float y) { return mask ? x : all(y); }
INLINE F choose(I mask, float x, F y) { return mask ? all(x) : y; }
INLINE F truth(I mask) { return as_float(mask & as_int(all(1.0f))); }
INLINE F magnitude(F x) { return as_float(as_int(x) & 0x7fffffff); }
INLINE F with_sign_of(F x, F y) { return as_float(as_int(x) | (as_int(y) & int32_t(0x80000000))); }

// x * y + z, rounded once if the processor can.
INLINE F multiply_add(F x, F y, F z) {
#if defined(__AVX512F__)
  return (F)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif defined(__FMA__)
  return (F)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#else
  return x * y + z;
#endif
}

// Like NumPy's: NaN if either operand is.
INLINE F maximum(F x, F y) { return choose(x != x, x, x > y ? x : y); }
INLINE F minimum(F x, F y) { return choose(x != x, x, x < y ? x : y); }

template <typename G>
INLINE F each(F x, G g) {
  for (long i = 0; i < W; ++i) x[i] = g(x[i]);
  return x;
}
INLINE F root(F x) {
#if defined(__AVX512F__)
  return (F)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX__)
  return (F)_mm256_sqrt_ps((__m256)x);
#else
  return each(x, [](float v) { return __builtin_sqrtf(v); });
#endif
}
INLINE F nearest(F x) {
#if defined(__AVX512F__)
  return (F)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX__)
  return (F)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  return each(x, [](float v) { return __builtin_rintf(v); });
#endif
}
INLINE F floor_of(F x) {
#if defined(__AVX512F__)
  return (F)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#elif defined(__AVX__)
  return (F)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
  return each(x, [](float v) { return __builtin_floorf(v); });
#endif
}
INLINE F ceil_of(F x) { return -floor_of(-x); }

// ------------------------------------------------------------------------------------------ exponentials

constexpr float LOG2E = 1.44269504088896341f;
constexpr float LN2_HIGH = 0.693359375f, LN2_LOW = -2.12194440e-4f;  // The first has few digits.

// x = n ln 2 + r, |r| <= ln 2 / 2.
INLINE F reduce(F x, F* n) {
  *n = nearest(x * LOG2E);
  F r = x - *n * LN2_HIGH;
  return r - *n * LN2_LOW;
}

// (e^r - 1 - r) / r^2 for small r.
INLINE F tail_of_exp(F r) {
  F p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  return p * r + 5.0000001201e-1f;
}

// 2^n for whole n in [-126, 127].
INLINE F power_of_two(F n) { return as_float((__builtin_convertvector(n, I) + 127) << 23); }

INLINE F exponential(F x) {
#if defined(__AVX512F__)
  F inside = choose(x > 104.0f, 104.0f, choose(x < -104.0f, -104.0f, x));
  F n, r = reduce(inside, &n);
  F p = tail_of_exp(r) * (r * r) + r + 1.0f;
  return (F)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  F inside = choose(x > 88.73f, 88.73f, choose(x < -87.33654f, -87.33654f, x));
  F n, r = reduce(inside, &n);
  F p = tail_of_exp(r) * (r * r) + r + 1.0f;
  // For a NaN, n is any number, and p is NaN.
  I exponent = __builtin_convertvector(choose(x != x, 0.0f, n), I) << 23;
  F y = as_float(as_int(p) + exponent);
  return choose(x < -87.33654f, 0.0f, choose(x > 88.7228394f, INF, y));
#endif
}

INLINE F exponential_minus_one(F x) {
  F inside = choose(x > 89.0f, 89.0f, choose(x < -80.0f, -80.0f, x));
  F n;
  F r = reduce(inside, &n);
  F p = tail_of_exp(r) * (r * r) + r;
  F half = power_of_two(choose(x != x, 0.0f, n) - 1.0f);
  return choose(n == 0.0f, p, 2.0f * (half * p + (half - 0.5f)));
}

INLINE F sigmoid(F x) { return 1.0f / (1.0f + exponential(-x)); }

INLINE F hyperbolic_tangent(F x) {
  F m = magnitude(x);
  F t = exponential_minus_one(2.0f * choose(m > 10.0f, 10.0f, m));
  return with_sign_of(t / (t + 2.0f), x);
}

// -------------------------------------------------------------------------------------------- logarithms

INLINE F logarithm(F x) {
  // Subnormal numbers are brought into range first.
  I small = x < 1.17549435e-38f;
  F y = choose(small, x * 8388608.0f, x);
  I bits = as_int(y);
  I exponent = ((bits >> 23) & 0xff) - 126;
  F m = as_float((bits & 0x007fffff) | 0x3f000000);  // In [1/2, 1).
  I low = m < 0.707106781186547524f;
  exponent = exponent + low;  // A mask is -1 where it holds.
  F e = __builtin_convertvector(exponent, F) - choose(small, 23.0f, F{});
  m = choose(low, m + m, m) - 1.0f;
  F s = m * m;
  F p = 7.0376836292e-2f * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  F v = p * m * s + e * LN2_LOW - 0.5f * s;
  v = m + v + e * LN2_HIGH;
  v = choose(x == INF, INF, v);
  v = choose(x == 0.0f, -INF, v);
  return choose((x < 0.0f) | (x != x), NOT_A_NUMBER, v);
}

INLINE F logarithm_of_one_more(F x) {
  F u = 1.0f + x;
  // The rounding error of 1 + x cancels in the quotient.
  F v = logarithm(u) * (x / (u - 1.0f));
  return choose((u == 1.0f) | (x == INF), x, v);
}

// ---------------------------------------------------------------------------------------- error functions

// For |x| <= 1.
INLINE F error_near_zero(F x) {
  F s = x * x;
  F p = 7.853861353153693E-5f * s - 8.010193625184903E-4f;
  p = p * s + 5.188327685732524E-3f;
  p = p * s - 2.685381193529856E-2f;
  p = p * s + 1.128358514861418E-1f;
  p = p * s - 3.761262582423300E-1f;
  return x * (p * s + 1.128379165726710E+0f);
}

// erfc(x) for x >= 1.
INLINE F complement_far(F x) {
  F square = x * x;
  F lost = multiply_add(x, x, -square);
  F q = 1.0f / x, y = q * q;
  F p = 2.326819970068386E-2f * y - 1.387039388740657E-1f;
  p = p * y + 3.687424674597105E-1f;
  p = p * y - 5.824733027278666E-1f;
  p = p * y + 6.210004621745983E-1f;
  p = p * y - 4.944515323274145E-1f;
  p = p * y + 3.404879937665872E-1f;
  p = p * y - 2.741127028184656E-1f;
  p = p * y + 5.638259427386472E-1f;
  F r = -1.047766399936249E+1f * y + 1.297719955372516E+1f;
  r = r * y - 7.495518717768503E+0f;
  r = r * y + 2.921019019210786E+0f;
  r = r * y - 1.015265279202700E+0f;
  r = r * y + 4.218463358204948E-1f;
  r = r * y - 2.820767439740514E-1f;
  r = r * y + 5.641895067754075E-1f;
  F z = exponential(-square);
  F value = (z - z * lost) * q * choose(x < 2.0f, p, r);
  return choose(x > 10.5f, 0.0f, value);
}

INLINE F error_function(F x) {
  F m = magnitude(x);
  F far = with_sign_of(1.0f - complement_far(choose(m < 1.0f, 1.0f, m)), x);
  return choose(m < 1.0f, error_near_zero(x), far);
}

INLINE F complementary_error_function(F x) {
  F m = magnitude(x);
  F far = complement_far(choose(m < 1.0f, 1.0f, m));
  return choose(m < 1.0f, 1.0f - error_near_zero(x), choose(x < 0.0f, 2.0f - far, far));
}

}  // namespace stopgrad
