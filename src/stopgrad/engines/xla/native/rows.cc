#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
static ffi::Error Rows(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets) { return ffi::Error::Success(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(stopgrad_rows, Rows, ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().RemainingArgs().RemainingRets());
