// A small vector machine: programs of elementwise operations and reductions over rows, in one pass over memory.
//
// A program works on tensors of R rows and N columns, on one number per row, and on single numbers. It is a
// sequence of stages: instructions for one number per row, then instructions for all columns. A block of rows
// passes all stages while it is in the second-level cache; within a stage, a tile of it passes all instructions
// while it is in the first-level cache. schedule.py writes the programs.
//
// Blocks form tasks, whose size depends only on the program. Sums over rows are computed in each task, and then
// over the tasks in order: results depend neither on the number of threads nor on timing.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "instructions.h"
#include "threads.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace stopgrad {
namespace {

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

// Where the rows of an input are that does not have R rows, or is not float32.
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

// Whether subnormal numbers count as 0 is a setting of each thread, as XLA has set it.
struct Flushing {
#if defined(__x86_64__)
  unsigned before = _mm_getcsr();
  Flushing() { _mm_setcsr(before | 0x8040); }
  ~Flushing() { _mm_setcsr(before); }
#endif
};

// The bytes from which on a result is written past the caches.
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

  // A position among the numbers per row.
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
        // Not read again here, so it is written past the caches.
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
  const bool alone = double(h.rows) * h.columns * h.weight <= INLINE_WORK;
  return answer([&] {
    job.totals.reset(new double[h.totals * job.tasks]);
    job.sums.reset(new float[size_t(h.sums) * job.tasks * h.columns]);
    in_parallel(pool, job.tasks, alone ? 1 : pool.num_threads(), [&job](Tasks& tasks) {
      int64_t mine = tasks.next();
      if (mine < 0) return;
      Flushing flushing;
      Machine machine(job);
      if (machine.tiles == nullptr) throw std::bad_alloc();
      for (; mine >= 0; mine = tasks.next()) machine.run_task(mine);
#if defined(__x86_64__)
      _mm_sfence();
#endif
    });
    finish(job);
  });
}

}  // namespace
}  // namespace stopgrad

XLA_FFI_DEFINE_HANDLER_SYMBOL(stopgrad_rows, stopgrad::rows,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<ffi::Span<const int32_t>>("program"));
