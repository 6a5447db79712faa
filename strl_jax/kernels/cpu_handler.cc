// The XLA FFI handler of all CPU kernels: selects a kernel by its id, and divides the environments among the threads.
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

using Kernel = void (*)(const void* const* in, void* const* out, int first, int last, int n);

struct Entry {
  Kernel kernel;
  int lanes;
};

static std::mutex lock;
static std::unordered_map<int64_t, Entry> kernels;

extern "C" void add_kernel(int64_t id, void* kernel, int lanes) {
  std::lock_guard<std::mutex> guard(lock);
  kernels[id] = {reinterpret_cast<Kernel>(kernel), lanes};
}

// One call's work. Threads take parts until none is left; a thread that starts late finds none and leaves.
struct Work {
  Entry entry;
  std::vector<const void*> in;
  std::vector<void*> out;
  int n, parts;
  std::atomic<int> next{0};
  std::mutex lock;
  std::condition_variable changed;
  int done = 0;

  void run() {
    int count = 0;
    for (int part; (part = next.fetch_add(1)) < parts; ++count) {
      int blocks = (n + entry.lanes - 1) / entry.lanes;
      int first = static_cast<int64_t>(blocks) * part / parts * entry.lanes;
      int last = static_cast<int64_t>(blocks) * (part + 1) / parts * entry.lanes;
      entry.kernel(in.data(), out.data(), first, last, n);
    }
    if (count == 0) return;
    std::lock_guard<std::mutex> guard(lock);
    done += count;
    if (done == parts) changed.notify_all();
  }
};

static ffi::Error run(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t id) {
  auto work = std::make_shared<Work>();
  {
    std::lock_guard<std::mutex> guard(lock);
    auto entry = kernels.find(id);
    if (entry == kernels.end()) return ffi::Error(ffi::ErrorCode::kNotFound, "strl_jax: this process has not built the kernel");
    work->entry = entry->second;
  }
  for (size_t i = 0; i < args.size(); ++i) work->in.push_back(args.get<ffi::AnyBuffer>(i)->untyped_data());
  for (size_t i = 0; i < rets.size(); ++i) work->out.push_back((*rets.get<ffi::AnyBuffer>(i))->untyped_data());
  work->n = args.get<ffi::AnyBuffer>(0)->dimensions()[0];
  int blocks = (work->n + work->entry.lanes - 1) / work->entry.lanes;
  int threads = std::max<int64_t>(1, std::min<int64_t>(pool.num_threads(), blocks));
  work->parts = std::min(blocks, 4 * threads);
  for (int i = 1; i < threads; ++i) pool.Schedule([work] { work->run(); });
  work->run();
  std::unique_lock<std::mutex> guard(work->lock);
  work->changed.wait(guard, [&] { return work->done == work->parts; });
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(handler, run,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().RemainingArgs().RemainingRets().Attr<int64_t>("id"));
