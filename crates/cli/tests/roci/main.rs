//! The built command, run as people and scripts run it.

mod demo;
mod explain;
mod link;
mod look;
mod others;
mod perf;
mod ping;
mod run;
mod words;
