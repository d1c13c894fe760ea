//! The table of the symbols that the two libraries export.
//!
//! A row has the status of a symbol, the function of this crate that implements it (`itself` is the one of
//! the same name), and its version node. The `.symver` lines for the linker and `MATRIX.md` are made from the
//! rows.

mod inline;
mod rdmacm;
mod verbs;

pub use inline::{OPERATIONS, Operation};

/// How a symbol of rdma-core is implemented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It works as in rdma-core.
    Real,
    /// It always fails, for this reason.
    Unsupported(&'static str),
    /// It only exists for the loader, for this reason.
    Stub(&'static str),
}

/// A symbol in one version.
#[derive(Debug, Clone, Copy)]
pub struct Symbol {
    /// Its name.
    pub name: &'static str,
    /// Its version nodes: several for private ones, because rdma-core renames their node whenever
    /// one of them changes. The last one is the default, if there is one.
    pub nodes: &'static [&'static str],
    /// Whether programs that are linked today get this version.
    pub is_default: bool,
    /// How it is implemented.
    pub status: Status,
}

/// What libibverbs exports.
#[must_use]
pub fn libibverbs() -> &'static [Symbol] {
    verbs::TABLE
}

/// What librdmacm exports.
#[must_use]
pub fn librdmacm() -> &'static [Symbol] {
    rdmacm::TABLE
}

/// The private name of the function that implements a symbol.
macro_rules! behind {
    (itself $name:ident) => {
        concat!("roci_", stringify!($name))
    };
    ($other:ident $name:ident) => {
        concat!("roci_", stringify!($other))
    };
}

/// The assembler directives for one symbol.
///
/// `default` is the version that programs link against today; `hidden` versions are for older programs.
/// `private` symbols are in all private nodes, because each release of rdma-core has another one.
macro_rules! symver {
    (default $node:literal $impl:ident $name:ident) => {
        $crate::symbols::symver!("@@" $node $impl $name)
    };
    (hidden $node:literal $impl:ident $name:ident) => {
        $crate::symbols::symver!("@" $node $impl $name)
    };
    ($at:literal $node:literal $impl:ident $name:ident) => {
        concat!(
            ".symver ",
            $crate::symbols::behind!($impl $name),
            ", ",
            stringify!($name),
            $at,
            $node,
        )
    };
    (private $node:literal $impl:ident $name:ident) => {
        concat!(
            $crate::symbols::symver!(hidden "IBVERBS_PRIVATE_25" $impl $name), "\n",
            $crate::symbols::symver!(hidden "IBVERBS_PRIVATE_33" $impl $name), "\n",
            $crate::symbols::symver!(hidden "IBVERBS_PRIVATE_34" $impl $name), "\n",
            $crate::symbols::symver!(hidden "IBVERBS_PRIVATE_57" $impl $name), "\n",
            $crate::symbols::symver!(hidden "IBVERBS_PRIVATE_59" $impl $name), "\n",
            $crate::symbols::symver!(hidden "IBVERBS_PRIVATE_64" $impl $name), "\n",
            $crate::symbols::symver!(default $node $impl $name),
        )
    };
}

/// The nodes that [`symver`] puts a symbol into.
macro_rules! nodes {
    (private $node:literal) => {
        &[
            "IBVERBS_PRIVATE_25",
            "IBVERBS_PRIVATE_33",
            "IBVERBS_PRIVATE_34",
            "IBVERBS_PRIVATE_57",
            "IBVERBS_PRIVATE_59",
            "IBVERBS_PRIVATE_64",
            $node,
        ]
    };
    ($kind:ident $node:literal) => {
        &[$node]
    };
}

macro_rules! is_default {
    (hidden) => {
        false
    };
    ($other:ident) => {
        true
    };
}

macro_rules! status {
    (real $why:literal) => {
        $crate::symbols::Status::Real
    };
    (unsupported $why:literal) => {
        $crate::symbols::Status::Unsupported($why)
    };
    (stub $why:literal) => {
        $crate::symbols::Status::Stub($why)
    };
}

/// Defines a table of symbols.
macro_rules! symbols {
    ($($status:ident $why:literal by $impl:ident in $kind:ident $node:literal {
        $($name:ident)*
    })*) => {
        $($(
            core::arch::global_asm!($crate::symbols::symver!($kind $node $impl $name));
        )*)*

        pub(super) const TABLE: &[$crate::symbols::Symbol] = &[$($(
            $crate::symbols::Symbol {
                name: stringify!($name),
                nodes: $crate::symbols::nodes!($kind $node),
                is_default: $crate::symbols::is_default!($kind),
                status: $crate::symbols::status!($status $why),
            },
        )*)*];
    };
}

use {behind, is_default, nodes, status, symbols, symver};
