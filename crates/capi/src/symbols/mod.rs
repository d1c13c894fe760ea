//! The one table of what the two libraries export.
//!
//! A row says how a symbol is there, which function of this crate is behind it (`itself` is the one
//! of the same name), and in which version node it is found. From the rows follow the `.symver`
//! lines that the linker obeys, and `MATRIX.md`.

mod inline;
mod rdmacm;
mod verbs;

pub use inline::{OPERATIONS, Operation};

/// How an upstream symbol is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It does what it does upstream.
    Real,
    /// It always fails, for this reason.
    Refused(&'static str),
    /// It is there for the loader only, for this reason.
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
    /// How it is there.
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

/// The private name of the function behind a symbol.
macro_rules! behind {
    (itself $name:ident) => {
        concat!("roci_", stringify!($name))
    };
    ($other:ident $name:ident) => {
        concat!("roci_", stringify!($other))
    };
}

/// What the assembler is told about one symbol.
///
/// `default` is what programs link against today, `hidden` only what old ones ask for. `private`
/// ones are found in all private nodes, because each release of rdma-core has the one of its time.
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
    (refused $why:literal) => {
        $crate::symbols::Status::Refused($why)
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
