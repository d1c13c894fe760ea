//! Queries of a device and its port. They also work in the child of a fork.

use std::ffi::c_int;

use engine::{MAX_COMPLETIONS, MAX_MESSAGE, MAX_REQUESTS, MAX_RESPONDER_RESOURCES, MAX_SEGMENTS};
use net::socket::interface;
use wire::PathMtu;

use super::context::{Context, OpenDevice};
use super::device_list::text;
use crate::abi;
use crate::clock;
use crate::entry::{CountOrErrno, MinusOne, Output, entry};
use crate::errno::Errno;

/// The only port.
pub(crate) const PORT: u8 = 1;

/// The only partition.
const DEFAULT_PARTITION: u16 = 0xffff;

/// An unassigned number, the same as that of the kernel's software device.
const VENDOR: u32 = 0x00ff_ffff;

/// The limit of device memory. It is ordinary memory, so the number is arbitrary.
pub(crate) const MAX_DEVICE_MEMORY: u64 = 1 << 26;

const CAPABILITIES: u32 = abi::IBV_DEVICE_BAD_PKEY_CNTR
    | abi::IBV_DEVICE_BAD_QKEY_CNTR
    | abi::IBV_DEVICE_CURR_QP_STATE_MOD
    | abi::IBV_DEVICE_PORT_ACTIVE_EVENT
    | abi::IBV_DEVICE_SYS_IMAGE_GUID
    | abi::IBV_DEVICE_RC_RNR_NAK_GEN
    | abi::IBV_DEVICE_SRQ_RESIZE
    | abi::IBV_DEVICE_MEM_WINDOW
    | abi::IBV_DEVICE_XRC
    | abi::IBV_DEVICE_MEM_MGT_EXTENSIONS
    | abi::IBV_DEVICE_MEM_WINDOW_TYPE_2B;

/// Those that only extended queries report.
const FURTHER_CAPABILITIES: u64 = abi::IB_UVERBS_DEVICE_FLUSH_GLOBAL
    | abi::IB_UVERBS_DEVICE_FLUSH_PERSISTENT
    | abi::IB_UVERBS_DEVICE_ATOMIC_WRITE;

entry! {
    export fn ibv_query_device(
        context: &Context,
        attributes: Output<abi::ibv_device_attr>,
    ) -> c_int {
        let mut attributes = attributes;
        attributes.put(device_attributes(context));
        Ok(0)
    }

    op fn query_device_ex(
        context: &Context,
        input: *const abi::ibv_query_device_ex_input,
        attributes: Output<abi::ibv_device_attr_ex>,
        size: usize,
    ) -> c_int {
        // SAFETY: null, or by the header's promise a live structure.
        if unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0) {
            return Err(Errno::INVALID);
        }
        if size < size_of::<abi::ibv_device_attr>() {
            return Err(Errno::INVALID);
        }
        fill(&attributes, &extended_attributes(context), size);
        Ok(0)
    }

    op fn query_port(
        context: &Context,
        port: u8,
        attributes: Output<abi::ibv_port_attr>,
        size: usize,
    ) -> c_int {
        check_port(port)?;
        fill(&attributes, &port_attributes(context), size);
        Ok(0)
    }

    /// For programs that were compiled when the structure was shorter: it ends before
    /// `port_cap_flags2`.
    export fn ibv_query_port(
        context: &Context,
        port: u8,
        attributes: Output<abi::ibv_port_attr>,
    ) -> c_int {
        check_port(port)?;
        let known_then = std::mem::offset_of!(abi::ibv_port_attr, link_layer);
        fill(&attributes, &port_attributes(context), known_then + 2);
        Ok(0)
    }

    export fn ibv_query_gid(
        context: &Context,
        port: u8,
        index: c_int,
        gid: Output<abi::ibv_gid>,
    ) -> MinusOne {
        let mut gid = gid;
        check_port(port)?;
        let index = usize::try_from(index).map_err(|_| Errno::INVALID)?;
        if index >= interface::Device::GID_TABLE_LENGTH {
            return Err(Errno::INVALID);
        }
        let entry = context.device.description.gid(index);
        gid.put(abi::ibv_gid {
            raw: entry.map_or([0; 16], |entry| entry.gid.bytes()),
        });
        Ok(MinusOne::DONE)
    }

    export fn _ibv_query_gid_ex(
        context: &Context,
        port: u32,
        index: u32,
        entry: Output<abi::ibv_gid_entry>,
        flags: u32,
        size: usize,
    ) -> c_int {
        if flags != 0 || port != u32::from(PORT) {
            return Err(Errno::INVALID);
        }
        if index as usize >= interface::Device::GID_TABLE_LENGTH {
            return Err(Errno::INVALID);
        }
        let found = context.device.description.gid(index as usize);
        fill(&entry, &gid_entry(found.ok_or(Errno::NO_DATA)?), size);
        Ok(0)
    }

    export fn _ibv_query_gid_table(
        context: &Context,
        entries: Output<abi::ibv_gid_entry>,
        capacity: usize,
        flags: u32,
        size: usize,
    ) -> CountOrErrno {
        if flags != 0
            || size < size_of::<abi::ibv_gid_entry>()
            || capacity.checked_mul(size).is_none()
        {
            return Err(Errno::INVALID);
        }
        let found = &context.device.description.gids;
        if capacity < found.len() {
            return Err(Errno::INVALID);
        }
        for (index, entry) in found.iter().enumerate() {
            let into = entries.pointer().wrapping_byte_add(index * size);
            // SAFETY: the program says that it has `capacity` entries of `size` bytes, and `index` is below.
            unsafe { into.write(gid_entry(entry)) };
        }
        Ok(CountOrErrno(found.len() as isize))
    }

    export fn ibv_query_gid_type(
        _context: &Context,
        port: u8,
        index: u32,
        kind: Output<u32>,
    ) -> MinusOne {
        let mut kind = kind;
        check_port(port)?;
        if index as usize >= interface::Device::GID_TABLE_LENGTH {
            return Err(Errno::INVALID);
        }
        kind.put(abi::IBV_GID_TYPE_SYSFS_ROCE_V2);
        Ok(MinusOne::DONE)
    }

    export fn ibv_query_pkey(
        _context: &Context,
        port: u8,
        index: c_int,
        partition: Output<u16>,
    ) -> MinusOne {
        let mut partition = partition;
        check_port(port)?;
        if index != 0 {
            return Err(Errno::INVALID);
        }
        partition.put(DEFAULT_PARTITION.to_be());
        Ok(MinusOne::DONE)
    }

    export fn ibv_get_pkey_index(_context: &Context, port: u8, partition: u16) -> MinusOne {
        check_port(port)?;
        match u16::from_be(partition) {
            DEFAULT_PARTITION => Ok(MinusOne::DONE),
            _ => Err(Errno::INVALID),
        }
    }

    op fn query_rt_values(_context: &Context, values: Output<abi::ibv_values_ex>) -> c_int {
        let mut values = values;
        if values.get().comp_mask & !abi::IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(Errno::INVALID);
        }
        values.change(|values| {
            if values.comp_mask != 0 {
                // Ticks of the clock of completion timestamps, in the field for nanoseconds.
                values.raw_clock.tv_sec = 0;
                values.raw_clock.tv_nsec = clock::device().cast_signed();
            }
        });
        Ok(0)
    }

    /// In units of 100 Mbit/s.
    export fn ibv_query_port_speed(_context: &Context, port: u32, speed: Output<u64>) -> c_int {
        let mut speed = speed;
        if port != u32::from(PORT) {
            return Err(Errno::INVALID);
        }
        speed.put(SPEED_IN_100_MBPS);
        Ok(0)
    }
}

/// A port of width 1X at 10 Gbit/s; a software device has no speed of its own.
const WIDTH_ONE_LANE: u8 = 1;
const SPEED_TEN_GIGABITS: u8 = 4;
const SPEED_IN_100_MBPS: u64 = 100;

/// The violation counters of a port have 16 bits, as in the attribute PortInfo, and stay at the largest number.
const MAX_VIOLATIONS: u64 = u16::MAX as u64;

const LINK_UP: u8 = 5;
const LINK_DISABLED: u8 = 3;

impl crate::entry::FromC for *const abi::ibv_query_device_ex_input {
    type Raw = Self;

    unsafe fn from_c(raw: Self) -> Result<Self, Errno> {
        Ok(raw)
    }
}

fn check_port(port: u8) -> Result<(), Errno> {
    match port {
        PORT => Ok(()),
        _ => Err(Errno::INVALID),
    }
}

/// Writes as much of a structure as the program knows of.
fn fill<T>(output: &Output<T>, value: &T, known: usize) {
    let length = known.min(size_of::<T>());
    let source = std::ptr::from_ref(value).cast::<u8>();
    let destination = output.pointer().cast::<u8>();
    // SAFETY: `value` has `length` bytes, and the program says that it has that many.
    unsafe { std::ptr::copy_nonoverlapping(source, destination, length) };
    if known > length {
        // SAFETY: the program has a longer structure, of that many bytes.
        let rest = unsafe { destination.add(length) };
        // SAFETY: as above.
        unsafe { rest.write_bytes(0, known - length) };
    }
}

fn gid_entry(entry: &interface::GidEntry) -> abi::ibv_gid_entry {
    abi::ibv_gid_entry {
        gid: abi::ibv_gid {
            raw: entry.gid.bytes(),
        },
        gid_index: entry.index as u32,
        port_num: u32::from(PORT),
        gid_type: abi::IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: entry.interface.index,
    }
}

fn device_attributes(context: &OpenDevice) -> abi::ibv_device_attr {
    let device = &context.device.description;
    let (max_queue_pairs, limits) = context
        .driver
        .call_without_transmit(|device| (device.max_queue_pairs() as c_int, *device.limits()));
    abi::ibv_device_attr {
        fw_ver: text(env!("CARGO_PKG_VERSION")),
        node_guid: device.guid.to_be(),
        sys_image_guid: device.guid.to_be(),
        max_mr_size: u64::MAX,
        page_size_cap: 0xffff_f000,
        vendor_id: VENDOR,
        vendor_part_id: 1,
        hw_ver: 1,
        max_qp: max_queue_pairs,
        max_qp_wr: MAX_REQUESTS as c_int,
        device_cap_flags: CAPABILITIES,
        max_sge: MAX_SEGMENTS as c_int,
        max_sge_rd: MAX_SEGMENTS as c_int,
        max_cq: limits.completion_queues as c_int,
        max_cqe: MAX_COMPLETIONS as c_int,
        max_mr: limits.memory_regions as c_int,
        max_pd: limits.domains as c_int,
        max_qp_rd_atom: MAX_RESPONDER_RESOURCES.into(),
        max_res_rd_atom: c_int::from(MAX_RESPONDER_RESOURCES).saturating_mul(max_queue_pairs),
        max_qp_init_rd_atom: MAX_RESPONDER_RESOURCES.into(),
        atomic_cap: abi::IBV_ATOMIC_HCA,
        max_mw: limits.memory_windows as c_int,
        max_mcast_grp: limits.multicast_groups as c_int,
        max_mcast_qp_attach: limits.group_members as c_int,
        max_total_mcast_qp_attach: limits.group_memberships as c_int,
        max_ah: limits.address_handles as c_int,
        max_srq: limits.shared_receive_queues as c_int,
        max_srq_wr: MAX_REQUESTS as c_int,
        max_srq_sge: MAX_SEGMENTS as c_int,
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: PORT,
        ..Default::default()
    }
}

/// On-demand paging for the operations of UD: send and receive.
const PAGEABLE_DATAGRAM: u32 =
    abi::IBV_ODP_SUPPORT_SEND | abi::IBV_ODP_SUPPORT_RECV | abi::IBV_ODP_SUPPORT_SRQ_RECV;
/// For the operations of UC: also RDMA write.
const PAGEABLE_UNRELIABLE: u32 = PAGEABLE_DATAGRAM | abi::IBV_ODP_SUPPORT_WRITE;
/// For the operations of RC: also those with a response.
const PAGEABLE_RELIABLE: u32 = PAGEABLE_UNRELIABLE
    | abi::IBV_ODP_SUPPORT_READ
    | abi::IBV_ODP_SUPPORT_ATOMIC
    | abi::IBV_ODP_SUPPORT_FLUSH
    | abi::IBV_ODP_SUPPORT_ATOMIC_WRITE;

fn extended_attributes(context: &OpenDevice) -> abi::ibv_device_attr_ex {
    abi::ibv_device_attr_ex {
        orig_attr: device_attributes(context),
        // In user space, all memory is pageable.
        odp_caps: abi::ibv_odp_caps {
            general_caps: abi::IBV_ODP_SUPPORT_AND_IMPLICIT,
            per_transport_caps: [PAGEABLE_RELIABLE, PAGEABLE_UNRELIABLE, PAGEABLE_DATAGRAM],
        },
        completion_timestamp_mask: u64::MAX,
        // In kHz: the clock counts nanoseconds.
        hca_core_clock: 1_000_000,
        device_cap_flags_ex: u64::from(CAPABILITIES) | FURTHER_CAPABILITIES,
        max_dm_size: MAX_DEVICE_MEMORY,
        xrc_odp_caps: PAGEABLE_RELIABLE,
        phys_port_cnt_ex: u32::from(PORT),
        ..Default::default()
    }
}

fn port_attributes(open: &OpenDevice) -> abi::ibv_port_attr {
    let device = &open.device.description;
    let active = open.driver.is_port_active();
    let counters = open.driver.counters();
    abi::ibv_port_attr {
        state: if active {
            abi::IBV_PORT_ACTIVE
        } else {
            abi::IBV_PORT_DOWN
        },
        max_mtu: u32::from(PathMtu::Mtu4096.code()),
        active_mtu: u32::from(device.active_mtu.code()),
        gid_tbl_len: interface::Device::GID_TABLE_LENGTH as c_int,
        port_cap_flags: abi::IBV_PORT_CM_SUP | abi::IBV_PORT_IP_BASED_GIDS,
        max_msg_sz: MAX_MESSAGE as u32,
        bad_pkey_cntr: counters.bad_partition_key.min(MAX_VIOLATIONS) as u32,
        qkey_viol_cntr: counters.bad_queue_key.min(MAX_VIOLATIONS) as u32,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        active_width: WIDTH_ONE_LANE,
        active_speed: SPEED_TEN_GIGABITS,
        phys_state: if active { LINK_UP } else { LINK_DISABLED },
        link_layer: abi::IBV_LINK_LAYER_ETHERNET,
        flags: abi::IBV_QPF_GRH_REQUIRED,
        ..Default::default()
    }
}
