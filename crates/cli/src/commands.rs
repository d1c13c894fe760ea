//! One module for each command.

pub(crate) mod demo;
pub(crate) mod devices;
pub(crate) mod devinfo;
pub(crate) mod doctor;
pub(crate) mod env;
pub(crate) mod gids;
pub(crate) mod link;
#[cfg(feature = "manual")]
pub(crate) mod manual;
mod open_devices;
pub(crate) mod ping;
pub(crate) mod run;
pub(crate) mod stat;
pub(crate) mod top;
