//! Registration of memory that only a GPU can access.

use driver::{Driver, Misuse};
use engine::{Access, Extent};

use super::mapped_pages;
use crate::errno::Errno;

/// The memory at an address, if it is a GPU's; `None` if the processor can access it, or nobody.
///
/// It is asked for after the check that the processor can access the memory (`checked`): so it costs nothing for other memory, and
/// managed memory is like any other.
pub(super) fn extent_at(
    driver: &Driver,
    (address, length): (u64, u64),
    access: Access,
    checked: Result<(), Errno>,
) -> Result<Option<Extent>, Errno> {
    if checked == Err(Errno::INVALID) {
        return Ok(None);
    }
    // Kernels that can't fault pages in take reserved addresses for memory.
    let is_certain = checked.is_ok() && mapped_pages::can_populate();
    if is_certain && !access.contains(Access::ON_DEMAND) {
        return Ok(None);
    }
    match cuda::memory_at(address, length) {
        // A GPU's pages do not come on demand.
        Ok(Some(_)) if access.contains(Access::ON_DEMAND) => Err(Errno::UNSUPPORTED),
        Ok(memory) => Ok(memory.map(|memory| Extent::accelerator_memory(memory, length))),
        Err(error) => {
            let misuse = Misuse::GpuMemory {
                address: address as usize,
                reason: error.to_string(),
            };
            driver.report_misuse(None, misuse);
            Err(Errno::FAULT)
        }
    }
}
