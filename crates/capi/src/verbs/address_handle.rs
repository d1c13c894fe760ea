//! Address handles.

use std::ffi::c_int;
use std::sync::Arc;

use driver::Misuse;
use engine::{Address, Attribute};
use wire::grh;

use super::context::{Context, OpenDevice};
use super::protection_domain::Pd;
use super::query::PORT;
use crate::abi;
use crate::entry::{Input, MinusOne, Output, Pointer, entry};
use crate::errno::Errno;
use crate::object::{Object, from_pointer, gid_of, object_at};

/// An address handle.
pub(crate) type Ah = Object<abi::ibv_ah, Handle>;

from_pointer!(abi::ibv_ah => Ah);

pub(crate) struct Handle {
    pub(crate) address: Address,
}

entry! {
    export fn ibv_create_ah(domain: &Pd, attributes: Input<abi::ibv_ah_attr>) -> *mut abi::ibv_ah {
        create(domain, &attributes.0)
    }

    export fn ibv_destroy_ah(handle: &Ah) -> c_int {
        handle.check_handle()?;
        let domain = object_at::<&Pd, _>(handle.read().pd)?;
        domain.open.driver.call_without_transmit(engine::Device::destroy_address_handle);
        domain.release();
        handle.destroy();
        Ok(0)
    }

    export fn ibv_init_ah_from_wc(
        context: &Context,
        port: u8,
        completion: Input<abi::ibv_wc>,
        header: Pointer<abi::ibv_grh>,
        attributes: Output<abi::ibv_ah_attr>,
    ) -> MinusOne {
        let mut attributes = attributes;
        attributes.put(reply_attributes(context, port, &completion.0, header.0)?);
        Ok(MinusOne::DONE)
    }

    export fn ibv_create_ah_from_wc(
        domain: &Pd,
        completion: Input<abi::ibv_wc>,
        header: Pointer<abi::ibv_grh>,
        port: u8,
    ) -> *mut abi::ibv_ah {
        let attributes = reply_attributes(&domain.open, port, &completion.0, header.0)?;
        create(domain, &attributes)
    }
}

fn create(domain: &Pd, attributes: &abi::ibv_ah_attr) -> Result<*mut abi::ibv_ah, Errno> {
    domain.check_handle()?;
    let explain = |misuse| domain.open.driver.report_misuse(None, misuse);
    let address = address_of(attributes).map_err(|misuse| {
        explain(misuse);
        Errno::INVALID
    })?;
    domain.open.check_not_inherited()?;
    domain
        .open
        .driver
        .call_without_transmit(|device| device.create_address_handle(&address))
        .map_err(|error| {
            explain(Misuse::Address(address, error));
            Errno::from(error)
        })?;
    let c_part = abi::ibv_ah {
        context: domain.read().context,
        pd: domain.c(),
        handle: domain.open.handle(),
    };
    domain.hold();
    Ok(Ah::new_pointer(c_part, Handle { address }))
}

/// Converts address attributes from C.
pub(super) fn address_of(attributes: &abi::ibv_ah_attr) -> Result<Address, Misuse> {
    // RoCE has only global addresses.
    if attributes.is_global == 0 {
        return Err(Misuse::NoGlobalRoute);
    }
    if attributes.port_num != PORT {
        return Err(Misuse::BadValue {
            attribute: Attribute::PORT,
            value: attributes.port_num.into(),
        });
    }
    let route = &attributes.grh;
    Ok(Address {
        destination: gid_of(&route.dgid),
        source_index: route.sgid_index,
        flow_label: route.flow_label,
        hop_limit: route.hop_limit,
        traffic_class: route.traffic_class,
        service_level: attributes.sl,
    })
}

/// Converts an address to the structure of C.
pub(crate) fn attributes_of(address: &Address) -> abi::ibv_ah_attr {
    abi::ibv_ah_attr {
        grh: abi::ibv_global_route {
            dgid: abi::ibv_gid {
                raw: address.destination.bytes(),
            },
            flow_label: address.flow_label,
            sgid_index: address.source_index,
            hop_limit: address.hop_limit,
            traffic_class: address.traffic_class,
        },
        sl: address.service_level,
        is_global: 1,
        port_num: PORT,
        ..Default::default()
    }
}

/// The attributes for a reply to a datagram, from its completion and network header.
fn reply_attributes(
    open: &Arc<OpenDevice>,
    port: u8,
    completion: &abi::ibv_wc,
    header: *mut abi::ibv_grh,
) -> Result<abi::ibv_ah_attr, Errno> {
    if port != PORT {
        return Err(Errno::INVALID);
    }
    let without_route = abi::ibv_ah_attr {
        dlid: completion.slid,
        sl: completion.sl,
        src_path_bits: completion.dlid_path_bits,
        port_num: port,
        ..Default::default()
    };
    // No address handle of RoCE can be made of them, but rdma-core returns them.
    if completion.wc_flags & abi::IBV_WC_GRH == 0 {
        return Ok(without_route);
    }
    if header.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: not null, so by the header's promise the 40 bytes at the front of a received
    // datagram.
    let bytes = unsafe { header.cast::<[u8; grh::LENGTH]>().read() };
    let route = grh::parse(&bytes).ok_or(Errno::NO_PROTOCOL)?;
    let own_address = route.destination.ip();
    let entry = own_address.and_then(|address| open.device.description.gid_of(address));
    Ok(abi::ibv_ah_attr {
        grh: abi::ibv_global_route {
            dgid: abi::ibv_gid {
                raw: route.source.bytes(),
            },
            flow_label: route.flow_label,
            sgid_index: entry.ok_or(Errno::INVALID)?.index as u8,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
        },
        is_global: 1,
        ..without_route
    })
}
