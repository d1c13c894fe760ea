//! The calls of libcuda, each with its checks.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use crate::Error;
use crate::loader::{Library, functions};

functions! {
    pointer_attribute = c"cuPointerGetAttribute" (*mut c_void, c_int, u64);
    push_context = c"cuCtxPushCurrent_v2" (*mut c_void);
    pop_context = c"cuCtxPopCurrent_v2" (*mut *mut c_void);
    exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode" (*mut c_int);
    device = c"cuDeviceGet" (*mut c_int, c_int);
    create_context = c"cuCtxCreate_v2" (*mut *mut c_void, c_uint, c_int);
    create_stream = c"cuStreamCreate" (*mut *mut c_void, c_uint);
    synchronize = c"cuStreamSynchronize" (*mut c_void);
    pin = c"cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    copy_to_device = c"cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, *mut c_void);
    copy_to_host = c"cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, *mut c_void);
    error_name = c"cuGetErrorName" (c_int, *mut *const c_char);
}

/// `CU_STREAM_NON_BLOCKING`: the stream does not wait for the program's default stream, in which a kernel may wait for our copy.
const NON_BLOCKING: c_uint = 1;

/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned memory for all contexts.
const PORTABLE: c_uint = 1;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: calls are allowed although another thread captures a graph.
const RELAXED: c_int = 2;

/// libcuda in a program that uses it.
pub(crate) struct Driver {
    functions: Functions,
}

/// A context of our own (`CUcontext`). It is never destroyed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context(NonNull<c_void>);

// SAFETY: it is a name for libcuda, whose functions accept it in every thread.
unsafe impl Send for Context {}

// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

/// A stream of ours (`CUstream`).
pub(crate) struct Stream(*mut c_void);

// SAFETY: it is a name for libcuda, whose functions accept it in every thread.
unsafe impl Send for Stream {}

// SAFETY: as for `Send`.
unsafe impl Sync for Stream {}

impl Driver {
    /// libcuda, if the program has loaded it.
    pub(crate) fn of_the_program() -> Option<&'static Self> {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        if let Some(driver) = DRIVER.get() {
            return Some(driver);
        }
        let functions = Functions::find(&Library::of_the_program()?)?;
        Some(DRIVER.get_or_init(|| Self { functions }))
    }

    /// An attribute of an address that is a number or a pointer; `None` if libcuda does not know the address.
    pub(crate) fn attribute(&self, attribute: c_int, address: u64) -> Option<u64> {
        let mut value = 0_u64;
        // SAFETY: libcuda writes at most 8 bytes for the attributes that `pointer` asks for.
        let error = unsafe {
            (self.functions.pointer_attribute)((&raw mut value).cast(), attribute, address)
        };
        (error == 0).then_some(value)
    }

    /// Creates a context on a GPU. In one of the program's, calls may wait for a kernel that waits for the data: as long as another thread
    /// is in a call that waits for all kernels, for example to allocate memory.
    pub(crate) fn create_context(&self, ordinal: u64) -> Result<Context, Error> {
        let mut device = 0;
        // SAFETY: libcuda writes the device.
        let error = unsafe { (self.functions.device)(&raw mut device, ordinal as c_int) };
        self.check("cuDeviceGet", error)?;
        let mut context = ptr::null_mut();
        // SAFETY: libcuda writes the context, and makes it current.
        let error = unsafe { (self.functions.create_context)(&raw mut context, 0, device) };
        self.check("cuCtxCreate", error)?;
        let mut current = ptr::null_mut();
        // SAFETY: libcuda writes the context that was made current.
        unsafe { (self.functions.pop_context)(&raw mut current) };
        Ok(Context(
            NonNull::new(context).expect("libcuda has returned one"),
        ))
    }

    /// Makes a context that of this thread for a while.
    pub(crate) fn enter(&self, context: Context) -> Result<Entered<'_>, Error> {
        // SAFETY: the context is one that `create_context` returned.
        let error = unsafe { (self.functions.push_context)(context.0.as_ptr()) };
        self.check("cuCtxPushCurrent", error)?;
        let mut mode = RELAXED;
        self.exchange_capture_mode(&mut mode);
        Ok(Entered { driver: self, mode })
    }

    fn exchange_capture_mode(&self, mode: &mut c_int) {
        // SAFETY: libcuda exchanges the number with the mode of this thread.
        let error = unsafe { (self.functions.exchange_capture_mode)(mode) };
        debug_assert_eq!(error, 0, "the mode is a valid one");
    }

    fn check(&self, function: &'static str, error: c_int) -> Result<(), Error> {
        if error == 0 {
            return Ok(());
        }
        let error = self.name_of(error);
        Err(Error::Failed { function, error })
    }

    #[cold]
    fn name_of(&self, error: c_int) -> String {
        let mut name = ptr::null();
        // SAFETY: libcuda writes the address of a text that is never freed, or null.
        unsafe { (self.functions.error_name)(error, &raw mut name) };
        if name.is_null() {
            return format!("error {error}");
        }
        // SAFETY: not null, so a text that ends with a zero byte.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_string_lossy().into_owned()
    }
}

/// A thread in a context. It returns to its own when this is dropped.
pub(crate) struct Entered<'d> {
    driver: &'d Driver,
    /// What graph captures forbid to the thread otherwise.
    mode: c_int,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.driver.exchange_capture_mode(&mut self.mode);
        let mut context = ptr::null_mut();
        // SAFETY: libcuda writes the context that `enter` pushed.
        unsafe { (self.driver.functions.pop_context)(&raw mut context) };
    }
}

impl Entered<'_> {
    pub(crate) fn create_stream(&self) -> Result<Stream, Error> {
        let mut stream = ptr::null_mut();
        // SAFETY: libcuda writes the stream.
        let error = unsafe { (self.driver.functions.create_stream)(&raw mut stream, NON_BLOCKING) };
        self.driver.check("cuStreamCreate", error)?;
        Ok(Stream(stream))
    }

    /// Allocates pinned memory. It is never freed, and does not end with the context, in contrast to memory that libcuda allocates.
    pub(crate) fn allocate_pinned(&self, length: usize) -> Result<NonNull<u8>, Error> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new pages, which nobody else knows.
        let pages = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        let start = NonNull::new(pages).filter(|_| pages != libc::MAP_FAILED);
        let start = start.ok_or_else(|| Error::Failed {
            function: "mmap",
            error: std::io::Error::last_os_error().to_string(),
        })?;
        // SAFETY: the pages are mapped, and stay so if libcuda accepts them.
        let error = unsafe { (self.driver.functions.pin)(start.as_ptr(), length, PORTABLE) };
        let pinned = self.driver.check("cuMemHostRegister", error);
        if pinned.is_err() {
            // SAFETY: nobody uses the pages.
            unsafe { libc::munmap(start.as_ptr(), length) };
        }
        pinned.map(|()| start.cast())
    }

    /// Waits until everything in the stream is done.
    pub(crate) fn synchronize(&self, stream: &Stream) -> Result<(), Error> {
        // SAFETY: the stream is one that `create_stream` returned.
        let error = unsafe { (self.driver.functions.synchronize)(stream.0) };
        self.driver.check("cuStreamSynchronize", error)
    }

    /// Begins to copy pinned memory to a GPU.
    ///
    /// # Safety
    /// `length` bytes at `from` must be pinned memory that nobody writes before the stream is synchronised.
    pub(crate) unsafe fn copy_to_device(
        &self,
        to: u64,
        from: *const u8,
        length: usize,
        stream: &Stream,
    ) -> Result<(), Error> {
        let function = self.driver.functions.copy_to_device;
        // SAFETY: the caller's promise. libcuda checks the address of the GPU.
        let error = unsafe { function(to, from.cast(), length, stream.0) };
        self.driver.check("cuMemcpyHtoDAsync", error)
    }

    /// Begins to copy memory of a GPU to pinned memory.
    ///
    /// # Safety
    /// `length` bytes at `to` must be pinned memory that nobody accesses before the stream is synchronised.
    pub(crate) unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: u64,
        length: usize,
        stream: &Stream,
    ) -> Result<(), Error> {
        let function = self.driver.functions.copy_to_host;
        // SAFETY: the caller's promise. libcuda checks the address of the GPU.
        let error = unsafe { function(to.cast(), from, length, stream.0) };
        self.driver.check("cuMemcpyDtoHAsync", error)
    }
}
