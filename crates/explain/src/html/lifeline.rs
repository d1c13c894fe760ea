//! The vertical lines of the diagram.

use std::collections::HashMap;

use serde::Serialize;

use crate::analysis::Analysis;
use crate::connection::Connection;
use crate::connection_end::Side;
use crate::typed_index::EndpointId;

/// One vertical line.
#[derive(Serialize)]
pub(super) struct Lifeline {
    name: String,
    note: String,
}

/// One line for each address, and a second one for an address that sends to itself, because an arrow
/// needs two lines.
pub(super) struct Lifelines {
    pub(super) list: Vec<Lifeline>,
    /// The second lines of such addresses.
    second: HashMap<EndpointId, usize>,
}

impl Lifelines {
    pub(super) fn of_analysis(analysis: &Analysis) -> Self {
        let mut lifelines = Lifelines {
            list: first_lines(analysis),
            second: HashMap::new(),
        };
        for connection in &analysis.connections {
            let [left, right] = connection.ends.each_ref().map(|end| end.endpoint);
            if left == right {
                lifelines.add_second(left);
            }
        }
        lifelines
    }

    fn add_second(&mut self, endpoint: EndpointId) {
        let next = self.list.len();
        if *self.second.entry(endpoint).or_insert(next) == next {
            let name = self.list[endpoint.index()].name.clone();
            let note = "the other end".to_owned();
            self.list.push(Lifeline { name, note });
        }
    }

    /// The line of one end of a connection.
    pub(super) fn of(&self, connection: &Connection, side: Side) -> usize {
        let [left, right] = connection.ends.each_ref().map(|end| end.endpoint);
        match side {
            Side::Left => left.index(),
            Side::Right if left == right => self.second[&right],
            Side::Right => right.index(),
        }
    }
}

fn first_lines(analysis: &Analysis) -> Vec<Lifeline> {
    let mut queue_pairs = vec![0_u32; analysis.endpoints.len()];
    for queue_pair in &analysis.queue_pairs {
        queue_pairs[queue_pair.endpoint.index()] += 1;
    }
    let endpoints = analysis.endpoints.iter().zip(queue_pairs);
    endpoints
        .map(|(endpoint, count)| Lifeline {
            name: endpoint.address.to_string(),
            note: format!("{count} queue pair{}", if count == 1 { "" } else { "s" }),
        })
        .collect()
}
