//! Captures, and what is told of them.

mod damage;
mod device;
mod files;
mod formats;
mod golden;
mod limits;
