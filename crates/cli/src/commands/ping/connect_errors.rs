//! Error messages for a connection that can't be established.

use std::net::{IpAddr, SocketAddr};

use anyhow::anyhow;
use net::sharing::ServiceError;
use net::socket::interface::source_towards;
use rocinante::rdma_cm::{CmError, RejectReason};
use rocinante::{ConnectError, Context};

use crate::find_device;

/// The message for an error.
pub(super) fn explain(error: ConnectError) -> anyhow::Error {
    match error {
        ConnectError::Cm(CmError::Service(ServiceError::InUse { service, pid })) => {
            // The port is the low half of the service id's last word.
            let port = service as u16;
            anyhow!("port {port} is taken by process {pid}: choose another with -p, or end it")
        }
        ConnectError::Rejected {
            peer,
            reason: RejectReason::Consumer,
            ..
        } => anyhow!(
            "{peer} rejected the connection: it may be busy with another client, or about to end; \
             a server with -P takes several"
        ),
        other => other.into(),
    }
}

/// The message when the address can't be resolved: repeats the steps to find the one that fails.
pub(super) fn no_way(
    source: Option<SocketAddr>,
    server: SocketAddr,
    error: ConnectError,
) -> anyhow::Error {
    let server = server.ip();
    let source = match source {
        Some(source) => Ok(source.ip()),
        None => source_towards((server, 0).into()),
    };
    let Ok(source) = source else {
        return anyhow!(
            "there is no route to {server}: check the address; `ip route` lists the routes"
        );
    };
    if source.is_ipv4() != server.is_ipv4() {
        return anyhow!("{source} can't talk to {server}: one is IPv4, the other IPv6");
    }
    match open(source) {
        Ok(()) => explain(error),
        Err(reason) => reason,
    }
}

/// Whether the device with this address of ours can be opened.
fn open(source: IpAddr) -> anyhow::Result<()> {
    find_device::all()?;
    let found = find_device::having(source).map_err(|_| CmError::NoDevice(source));
    let (name, _) = found?;
    Context::open(&name)?;
    Ok(())
}
