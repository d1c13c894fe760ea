//! The built command, run as people and scripts run it.

mod copies;
mod demo;
mod end;
mod explain;
mod files;
mod link;
mod look;
mod others;
mod outside;
mod perf;
mod ping;
mod run;
mod sandbox;
mod stand_in;
mod stat;
mod torture;
mod words;
