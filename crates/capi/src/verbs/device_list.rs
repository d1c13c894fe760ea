//! The list of devices.
//!
//! Hardware devices are not listed: this library can't drive them.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::{Mutex, Once, PoisonError};

use net::socket::interface;

use crate::abi;
use crate::entry::{Pointer, entry};
use crate::errno::Errno;
use crate::object::{Object, from_pointer};

/// A device of the list. It is never freed, because programs keep pointers to it.
pub(crate) type Device = Object<abi::verbs_device, Listed>;

from_pointer!(abi::ibv_device => Device);

/// The state of a device when it was listed.
pub(crate) struct Listed {
    pub(crate) index: usize,
    pub(crate) description: interface::Device,
}

/// Every device that was ever listed.
static KNOWN: Mutex<Vec<&'static Device>> = Mutex::new(Vec::new());

// SAFETY: we never change its C part after creation; the rest can be shared.
unsafe impl Sync for Device {}

static DRIVER: abi::verbs_device_ops = abi::verbs_device_ops {
    name: c"rocinante".as_ptr(),
    abi_versions: [0; 2],
    callbacks: [ptr::null(); 6],
};

entry! {
    export fn ibv_get_device_list(count: Pointer<c_int>) -> *mut *mut abi::ibv_device {
        let devices = list()?;
        if !count.0.is_null() {
            // SAFETY: not null, so by the header's promise a variable for the count.
            unsafe { count.0.write(devices.len() as c_int) };
        }
        let mut pointers: Vec<*mut abi::ibv_device> =
            devices.iter().map(|device| device.c().cast()).collect();
        pointers.push(ptr::null_mut());
        Ok(Box::into_raw(pointers.into_boxed_slice()).cast())
    }

    export fn ibv_free_device_list(list: Pointer<*mut abi::ibv_device>) {
        if list.0.is_null() {
            return Ok(());
        }
        let mut length = 0;
        // SAFETY: it ends with a null pointer, which is read last.
        while !unsafe { *list.0.wrapping_add(length) }.is_null() {
            length += 1;
        }
        let whole = ptr::slice_from_raw_parts_mut(list.0, length + 1);
        // SAFETY: `ibv_get_device_list` created it as a boxed slice of this length.
        drop(unsafe { Box::from_raw(whole) });
        Ok(())
    }

    export fn ibv_get_device_name(device: &Device) -> *const c_char {
        Ok(device.c_device().name.as_ptr())
    }

    export fn ibv_get_device_guid(device: &Device) -> u64 {
        Ok(device.description.guid.to_be())
    }

    // The kernel's number of a device. The kernel does not know ours.
    export fn ibv_get_device_index(_device: &Device) -> c_int {
        Ok(-1)
    }
}

impl Device {
    /// The structure that C sees, which does not change.
    fn c_device(&self) -> &abi::ibv_device {
        // SAFETY: devices are never freed and not changed after creation.
        unsafe { &(*self.c()).device }
    }
}

/// The current devices.
fn list() -> Result<Vec<&'static Device>, Errno> {
    let found = match interface::from_env() {
        Ok(found) => found,
        // A device that `ROCI_DEVICES` names may have lost its address. rdma-core has an empty list then, and many
        // programs do not expect a null pointer.
        Err(error) => match Errno::from_system(&error) {
            Some(errno) => return Err(errno),
            None => {
                warn_once(&error.to_string());
                Vec::new()
            }
        },
    };
    if found.is_empty() {
        warn_once(
            "there is no device, because no interface is up and has an address; bring loopback up with `ip link set \
             lo up`",
        );
    }
    let listed = found.into_iter().enumerate();
    Ok(listed.map(|(index, it)| known(index, it)).collect())
}

/// Prints why there is no device, because programs only report that they found none.
fn warn_once(why: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| net::stderr::print(why));
}

/// The device with this description and index, the same one every time.
fn known(index: usize, description: interface::Device) -> &'static Device {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |device: &&&Device| device.index == index && device.description == description;
    if let Some(device) = known.iter().find(same) {
        return device;
    }
    let device = Device::make(c_part(index, &description), Listed { index, description });
    known.push(device);
    device
}

/// The device with this description. One that is not listed, such as loopback or a single address, gets an
/// index after the listed ones.
pub(crate) fn described(description: &interface::Device) -> Result<&'static Device, Errno> {
    let listed = list()?;
    if let Some(device) = listed
        .iter()
        .find(|it| it.description.name == description.name)
    {
        return Ok(*device);
    }
    Ok(known(listed.len(), description.clone()))
}

fn c_part(index: usize, description: &interface::Device) -> abi::verbs_device {
    let character_device = format!("uverbs{index}");
    abi::verbs_device {
        device: abi::ibv_device {
            node_type: abi::IBV_NODE_CA,
            transport_type: abi::IBV_TRANSPORT_IB,
            name: text(&description.name),
            dev_path: text(&format!("/sys/class/infiniband_verbs/{character_device}")),
            dev_name: text(&character_device),
            ibdev_path: text(&format!("/sys/class/infiniband/{}", description.name)),
            ..Default::default()
        },
        ops: &raw const DRIVER,
        refcount: 1,
        entry: [ptr::null_mut(); 2],
        sysfs: ptr::null_mut(),
        core_support: 0,
    }
}

/// A string in a field of fixed size, truncated if it is too long, with a zero at its end.
pub(crate) fn text<const N: usize>(value: &str) -> [c_char; N] {
    let mut field: [c_char; N] = [0; N];
    for (character, byte) in field[..N - 1].iter_mut().zip(value.bytes()) {
        *character = byte as c_char;
    }
    field
}

/// A string that C passes.
pub(crate) fn text_of<'a>(pointer: *const c_char) -> Option<&'a str> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null, so by the header's promise a string that ends with a zero.
    unsafe { CStr::from_ptr(pointer) }.to_str().ok()
}
