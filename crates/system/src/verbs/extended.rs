//! The operations of a provider that are newer than `ibv_context`, and what a device says that it can do with them.

use std::mem::offset_of;
use std::ptr;

use abi::{ibv_context, ibv_device_attr_ex, verbs_context};

use super::context::Context;

/// What `abi_compat` is if a table of newer operations is in front of the context.
const IS_EXTENDED: usize = usize::MAX;

/// An operation in the table in front of a context, by its name; `None` if the library or the provider does not have it.
macro_rules! operation {
    ($context:expr, $name:ident) => {{
        let offset = std::mem::offset_of!(abi::verbs_context, $name);
        // SAFETY: the offset is that of a field of this type.
        unsafe { $context.extended(offset, |table: &abi::verbs_context| table.$name) }
    }};
}

pub(super) use operation;

impl Context {
    /// Reads an operation of the table in front of the context, as the inline functions of the header do.
    ///
    /// # Safety
    /// The offset must be that of a field with the type that the function returns.
    pub(super) unsafe fn extended<F: Copy>(
        &self,
        offset: usize,
        _field: fn(&verbs_context) -> Option<F>,
    ) -> Option<F> {
        let context: *mut ibv_context = self.raw.as_ptr();
        // SAFETY: the context is open, and the library does not change the field.
        let compatibility = unsafe { (*context).abi_compat };
        if compatibility.addr() != IS_EXTENDED {
            return None;
        }
        // A table of an older library begins later.
        let at = |offset| context.wrapping_byte_sub(offset_of!(verbs_context, context) - offset);
        // SAFETY: the context is the last field of a table, and the field before it is the size of the table.
        let size: usize = unsafe { at(offset_of!(verbs_context, sz)).cast::<usize>().read() };
        if size < size_of::<verbs_context>() - offset {
            return None;
        }
        // SAFETY: the table is large enough to have the field, whose type is that of the caller's promise.
        unsafe { at(offset).cast::<Option<F>>().read() }
    }

    /// The bits of `device_cap_flags_ex`; 0 if the device does not tell.
    pub(super) fn query_capabilities(&self) -> u64 {
        let Some(query) = operation!(self, query_device_ex) else {
            return 0;
        };
        let mut found = ibv_device_attr_ex::default();
        let size = size_of::<ibv_device_attr_ex>();
        // SAFETY: the context is open, the input may be null, and the structure has the size that is given.
        let result = unsafe { query(self.raw.as_ptr(), ptr::null(), &raw mut found, size) };
        match result {
            0 => found.device_cap_flags_ex,
            _ => 0,
        }
    }

    /// Whether peers can flush its memory.
    pub(super) fn has_flush(&self) -> bool {
        const FLUSH: u64 =
            abi::IB_UVERBS_DEVICE_FLUSH_GLOBAL | abi::IB_UVERBS_DEVICE_FLUSH_PERSISTENT;
        self.capabilities & FLUSH != 0
    }

    /// The operations beyond `ibv_post_send` that its reliable queue pairs can have.
    pub(super) fn send_operations(&self) -> u64 {
        let atomic_write = self.capabilities & abi::IB_UVERBS_DEVICE_ATOMIC_WRITE != 0;
        let offered = [
            (self.has_flush(), abi::IBV_QP_EX_WITH_FLUSH),
            (atomic_write, abi::IBV_QP_EX_WITH_ATOMIC_WRITE),
        ];
        let offered = offered.into_iter().filter(|(has, _)| *has);
        offered.fold(0, |all, (_, operation)| all | operation)
    }
}
