//! The transport headers as text.

use wire::{Extension, Operation, Packet, Syndrome};

use super::{Field, Layer, cm_messages};

/// All headers of a packet.
pub(super) fn layers(packet: &Packet<'_>) -> Vec<Layer> {
    let mut layers = vec![base(packet)];
    let extensions = packet.opcode.extensions().iter();
    layers.extend(extensions.filter_map(|&extension| layer_of(packet, extension)));
    layers.extend(held(packet));
    layers.extend(packet.message().map(|message| cm_messages::layer(&message)));
    layers
}

fn base(packet: &Packet<'_>) -> Layer {
    let yes_or_no = |yes: bool| if yes { "yes" } else { "no" };
    let code = format!("{:#04x} {}", packet.opcode.byte(), packet.opcode);
    Layer {
        name: "BTH",
        fields: vec![
            Field::new("Opcode", code),
            Field::new("Solicited event", yes_or_no(packet.solicited)),
            Field::new("MigReq", yes_or_no(packet.migrated)),
            Field::new("Pad", packet.pad),
            Field::new("P_Key", packet.partition),
            Field::new("FECN", yes_or_no(packet.forward_congestion)),
            Field::new("BECN", yes_or_no(packet.backward_congestion)),
            Field::new("Destination QP", packet.destination),
            Field::new("AckReq", yes_or_no(packet.acknowledge)),
            Field::new("PSN", packet.psn),
        ],
    }
}

/// The list behind the headers of an acknowledgement.
fn held(packet: &Packet<'_>) -> Option<Layer> {
    let held = packet.held_packets().ok()?;
    let behind = Field::new("Behind the missing packet", &held);
    (!held.is_empty()).then(|| Layer {
        name: "Held packets",
        fields: vec![behind],
    })
}

fn layer_of(packet: &Packet<'_>, extension: Extension) -> Option<Layer> {
    let (name, fields) = match extension {
        Extension::Xrceth => ("XRCETH", vec![Field::new("SRQ", packet.xrc_srq()?)]),
        Extension::Deth => ("DETH", deth(packet)?),
        Extension::Reth => ("RETH", reth(packet)?),
        Extension::AtomicEth => ("AtomicETH", operands(packet)?),
        Extension::Aeth => ("AETH", aeth(packet)?),
        Extension::AtomicAckEth => ("AtomicAckETH", original(packet)?),
        Extension::Immediate => ("ImmDt", vec![Field::new("Data", packet.immediate()?)]),
        Extension::Ieth => ("IETH", vec![Field::new("R_Key", packet.invalidate()?)]),
        Extension::Feth => ("FETH", vec![Field::new("Flush", packet.flush()?)]),
    };
    Some(Layer { name, fields })
}

fn deth(packet: &Packet<'_>) -> Option<Vec<Field>> {
    let deth = packet.deth()?;
    Some(vec![
        Field::new("Q_Key", deth.queue_key()),
        Field::new("Source QP", deth.source()),
    ])
}

fn reth(packet: &Packet<'_>) -> Option<Vec<Field>> {
    let reth = packet.reth()?;
    Some(vec![
        Field::new("Virtual address", format!("{:#x}", reth.virtual_address())),
        Field::new("R_Key", reth.remote_key()),
        Field::new("DMA length", reth.dma_length()),
    ])
}

fn operands(packet: &Packet<'_>) -> Option<Vec<Field>> {
    let atomic = packet.atomic()?;
    let mut fields = vec![
        Field::new(
            "Virtual address",
            format!("{:#x}", atomic.virtual_address()),
        ),
        Field::new("R_Key", atomic.remote_key()),
    ];
    if packet.opcode.operation() == Operation::FetchAdd {
        fields.push(Field::new("Add", atomic.swap_or_add()));
    } else {
        fields.push(Field::new("Compare", format!("{:#x}", atomic.compare())));
        fields.push(Field::new("Swap", format!("{:#x}", atomic.swap_or_add())));
    }
    Some(fields)
}

fn aeth(packet: &Packet<'_>) -> Option<Vec<Field>> {
    let aeth = packet.aeth()?;
    let syndrome: Syndrome = aeth.syndrome();
    Some(vec![
        Field::new("Syndrome", format!("{:#04x} {syndrome}", syndrome.byte())),
        Field::new("MSN", aeth.message_sequence()),
    ])
}

fn original(packet: &Packet<'_>) -> Option<Vec<Field>> {
    let original = packet.atomic_acknowledge()?.original();
    Some(vec![Field::new("Original value", format!("{original:#x}"))])
}
