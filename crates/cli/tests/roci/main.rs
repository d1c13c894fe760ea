//! The built command, run as people and scripts run it.

mod demo;
mod link;
mod look;
mod perf;
mod run;
mod words;
