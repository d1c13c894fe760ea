//! Memory of a device.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;

use abi::{ibv_alloc_dm_attr, ibv_dm, ibv_mr};
use engine::{Access, Registration, SystemRefusal};
use wire::Key;

use super::error::{last_error, last_error_or_lack};
use super::extended::operation;
use super::protection_domain::Domain;

/// Some devices copy whole words only.
const WORD: usize = 4;

const LACKS: &str = "device memory";

/// Allocated and registered device memory. Its addresses start at 0.
#[derive(Debug)]
pub struct DeviceMemory {
    raw: NonNull<ibv_dm>,
    region: NonNull<ibv_mr>,
    length: usize,
    domain: Arc<Domain>,
}

// SAFETY: the functions of libibverbs may be called from any thread, also at the same time.
unsafe impl Send for DeviceMemory {}

// SAFETY: as for `Send`.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Allocates memory of the device and registers it.
    pub fn allocate(
        domain: &Arc<Domain>,
        length: usize,
        access: Access,
    ) -> Result<Self, SystemRefusal> {
        let context = &domain.context;
        let operations = (
            operation!(context, alloc_dm),
            operation!(context, reg_dm_mr),
        );
        let (Some(allocate), Some(register)) = operations else {
            return Err(SystemRefusal::Lacks(LACKS));
        };
        let mut wanted = ibv_alloc_dm_attr {
            length: length.next_multiple_of(WORD),
            ..ibv_alloc_dm_attr::default()
        };
        // SAFETY: the context is open.
        let raw = unsafe { allocate(context.raw.as_ptr(), &raw mut wanted) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error_or_lack("ibv_alloc_dm", LACKS))?;
        let access = access.union(Access::ZERO_BASED).bits();
        // SAFETY: domain and memory exist, and the new region keeps both alive.
        let region = unsafe { register(domain.raw.as_ptr(), raw.as_ptr(), 0, length, access) };
        let Some(region) = NonNull::new(region) else {
            let error = last_error("ibv_reg_dm_mr");
            free(domain, raw);
            return Err(error);
        };
        let memory = Self {
            raw,
            region,
            length,
            domain: Arc::clone(domain),
        };
        domain.buffers.add_device_memory(memory.keys().0, region);
        Ok(memory)
    }

    /// Its keys and its length.
    pub fn registration(&self) -> Registration {
        let (local_key, remote_key) = self.keys();
        Registration {
            address: 0,
            length: self.length as u64,
            local_key,
            remote_key,
        }
    }

    fn keys(&self) -> (Key, Key) {
        // SAFETY: the region is registered, and libibverbs does not change the structure.
        let found = unsafe { self.region.as_ptr().read() };
        (Key::new(found.lkey), Key::new(found.rkey))
    }

    /// Copies bytes from it.
    ///
    /// # Panics
    /// If they exceed it.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let (start, mut words) = self.words_around(offset, into.len());
        self.copy_out(start, &mut words);
        into.copy_from_slice(&words[offset - start..][..into.len()]);
    }

    /// Copies bytes into it. If they do not begin and end at multiples of four, the bytes around them are read and written again.
    ///
    /// # Panics
    /// If they exceed it.
    pub fn write(&self, offset: usize, from: &[u8]) {
        let (start, mut words) = self.words_around(offset, from.len());
        if words.len() != from.len() {
            self.copy_out(start, &mut words);
        }
        words[offset - start..][..from.len()].copy_from_slice(from);
        // SAFETY: the memory exists, and the library does not change the field.
        let copy = unsafe { (*self.raw.as_ptr()).memcpy_to_dm };
        let copy = copy.expect("device memory can be written");
        let (source, length) = (words.as_ptr().cast(), words.len());
        // SAFETY: the memory has these bytes, because it is allocated in whole words, and so has the vector.
        let result = unsafe { copy(self.raw.as_ptr(), start as u64, source, length) };
        assert_copied(result);
    }

    /// The first of the words that have these bytes, and room for all of them.
    fn words_around(&self, offset: usize, length: usize) -> (usize, Vec<u8>) {
        let end = offset.checked_add(length).filter(|end| *end <= self.length);
        let end = end.expect("the bytes are in the device memory");
        let start = offset - offset % WORD;
        (start, vec![0; end.next_multiple_of(WORD) - start])
    }

    fn copy_out(&self, start: usize, words: &mut [u8]) {
        // SAFETY: the memory exists, and the library does not change the field.
        let copy = unsafe { (*self.raw.as_ptr()).memcpy_from_dm };
        let copy = copy.expect("device memory can be read");
        let (target, length) = (words.as_mut_ptr().cast(), words.len());
        // SAFETY: the memory has these bytes, because it is allocated in whole words, and so has the slice.
        let result = unsafe { copy(target, self.raw.as_ptr(), start as u64, length) };
        assert_copied(result);
    }
}

fn assert_copied(result: c_int) {
    assert_eq!(result, 0, "a device copies whole words of its own memory");
}

fn free(domain: &Domain, memory: NonNull<ibv_dm>) {
    if let Some(free) = operation!(domain.context, free_dm) {
        // SAFETY: it exists, and is freed once. It is not registered any more.
        unsafe { free(memory.as_ptr()) };
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.domain.buffers.remove(self.keys().0);
        // SAFETY: it is registered, and deregistered once.
        let result = unsafe { (self.domain.context.functions.ibv_dereg_mr)(self.region.as_ptr()) };
        // Otherwise peers may still use it.
        if result == 0 {
            free(&self.domain, self.raw);
        }
    }
}
